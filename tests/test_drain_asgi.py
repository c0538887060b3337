"""``Drain`` around an ASGI application, without a server: lifespans, refusals, connections that are closed from outside."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from micdrop_agent.call import Drain
from micdrop_agent.call import _drain as module
from micdrop_agent.call.drain import main as drain_command
from micdrop_agent.testing import BACKENDS, run_virtual

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from micdrop_agent.testing import Backend

    App = Callable[[Any, Any, Any], Awaitable[None]]

KUBERNETES = Path(__file__).parent.parent / "examples" / "fleet" / "kubernetes.yaml"


class Connection:
    """The server's side of one connection, or of the lifespan."""

    def __init__(self, kind: str, **scope: Any) -> None:
        self.scope = {"type": kind, **scope}
        self.sent: list[dict[str, Any]] = []
        self.to_app, self._received = anyio.create_memory_object_stream[dict[str, Any]](9)
        self.to_app.send_nowait({"type": {"websocket": "websocket.connect", "lifespan": "lifespan.startup"}[kind]})

    async def receive(self) -> dict[str, Any]:
        return await self._received.receive()

    async def send(self, message: dict[str, Any]) -> None:
        self.sent.append(message)

    async def run(self, app: App) -> None:
        with self.to_app, self._received:
            await app(self.scope, self.receive, self.send)

    @property
    def told(self) -> list[str]:
        return [message["type"] for message in self.sent]


async def served(app: App, scenario: Callable[[], Awaitable[None]], *, starts: bool = True) -> Connection:
    """Run the lifespan around ``scenario``."""
    life = Connection("lifespan")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(life.run, app)
        await anyio.sleep(0.1)
        assert (life.told == ["lifespan.startup.complete"]) is starts
        if starts:
            await scenario()
            life.to_app.send_nowait({"type": "lifespan.shutdown"})
    return life


async def answers(scope: Any, receive: Any, send: Any) -> None:
    """An application that accepts, and stays until it is told or cannot send."""
    if scope["type"] == "lifespan":
        raise ValueError("no lifespan here")
    await receive()
    await send({"type": "websocket.accept"})
    try:
        while True:
            await anyio.sleep(0.4)
            await send({"type": "websocket.send", "text": "tick"})
    except OSError:
        pass
    await send({"type": "websocket.close", "code": 1000})  # is too late, and no error


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_application_that_knows_nothing_of_it_is_closed_at_the_deadline(backend: Backend) -> None:
    drain = Drain(grace=2)
    app = drain.wrap(answers, signals=False)

    async def scenario() -> None:
        old, new, plain = (Connection("websocket", extensions=None) for _ in range(3))
        new.scope["extensions"] = {"websocket.http.response": {}}
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(old.run, app)
            await anyio.sleep(0.1)
            drain.start()
            await new.run(app)
            await plain.run(app)
            assert new.told == ["websocket.http.response.start", "websocket.http.response.body"]
            assert new.sent[0]["status"] == 503
            assert plain.told == ["websocket.accept", "websocket.close"]
            assert plain.sent[1]["code"] == 1001
            await drain.wait()
        assert anyio.current_time() == pytest.approx(0.2 + 2, abs=0.5)
        assert old.told[-1] == "websocket.close"
        assert old.sent[-1]["code"] == 1001
        assert drain.refused == 2

    async def main() -> None:
        life = await served(app, scenario)
        assert life.told == ["lifespan.startup.complete", "lifespan.shutdown.complete"]

    run_virtual(backend, main)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_client_that_is_not_accepted_yet_is_refused_at_the_deadline(backend: Backend) -> None:
    async def slow(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "websocket":
            await anyio.sleep(60)
            await send({"type": "websocket.accept"})

    drain = Drain(grace=1)
    app = drain.wrap(slow, signals=False)

    async def main() -> None:
        life = Connection("lifespan")
        waiting = Connection("websocket", extensions={"websocket.http.response": {}})
        async with anyio.create_task_group() as tasks, drain:
            tasks.start_soon(waiting.run, app)
            await anyio.sleep(0.1)
            drain.start()
            await drain.wait()
            assert waiting.sent[0]["status"] == 503
            assert anyio.current_time() < 5
            tasks.cancel_scope.cancel()
        life.to_app.close()
        life._received.close()

    run_virtual(backend, main)


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_application_that_cannot_start_says_so_itself(backend: Backend) -> None:
    async def failing(_scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "no database"})
        raise RuntimeError("no database")

    async def main() -> None:
        with pytest.raises(ExceptionGroup) as raised:
            await served(Drain().wrap(failing, signals=False), anyio.lowlevel.checkpoint, starts=False)
        assert raised.group_contains(RuntimeError, match="no database")

    run_virtual(backend, main)


async def asked(drain: Drain, path: str, token: str | None = None) -> tuple[int, bytes]:
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    headers = [] if token is None else [(b"authorization", f"Bearer {token}".encode())]
    await drain.endpoint({"type": "http", "method": "GET", "path": path, "headers": headers}, None, send)
    return sent[0]["status"], sent[1]["body"]


async def test_only_who_has_the_token_starts_a_drain() -> None:
    async with Drain(token="right") as drain, Drain() as without:
        assert (await asked(drain, "/fleet/drain"))[0] == 404
        assert (await asked(drain, "/fleet/drain", "wrong"))[0] == 404
        assert (await asked(without, "/fleet/drain", ""))[0] == 404
        assert (await asked(without, "/fleet/drain", "None"))[0] == 404
        assert not drain.draining
        assert (await asked(drain, "/fleet/drain", "right"))[0] == 200
        assert drain.drained
        assert (await asked(drain, "/fleet/ready"))[0] == 503
        assert (await asked(drain, "/live/"))[0] == 200


def test_the_command_says_what_is_wrong(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["drain"])
    assert drain_command() == 2
    assert drain_command(["ftp://x/"]) == 2
    assert drain_command(["http://127.0.0.1:9/fleet/drain"]) == 1
    assert "cannot be reached" in capsys.readouterr().err


async def test_what_kubernetes_is_told_is_there() -> None:
    """The paths of the probes, the metric of the autoscaler, and time enough to drain and to stop."""
    told = KUBERNETES.read_text(encoding="utf-8")

    def number(pattern: str) -> float:
        (found,) = re.findall(pattern, told)
        return float(found)

    async with Drain(capacity=9) as drain:
        for path in re.findall(r"path: (/fleet/\S+)", told):
            assert (await asked(drain, path))[0] == 200
        (metric,) = re.findall(r"metric:\n\s+name: (\w+)", told)
        assert f"\n{metric} ".encode() in (await asked(drain, "/fleet/metrics"))[1]
    grace = number(r'FLEET_GRACE\n\s+value: "(\d+)"')
    server = number(r"--timeout-graceful-shutdown=(\d+)")
    assert number(r"terminationGracePeriodSeconds: (\d+)") >= grace + module.CLEAN_UP + server + 5
    assert "micdrop_agent.call.drain" in told
