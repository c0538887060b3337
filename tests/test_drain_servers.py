"""A drain under the real servers: SIGTERM to the process, clients over sockets, close codes as they read them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

client = pytest.importorskip("websockets.sync.client", reason="no WebSockets: pip install websockets")
exceptions = pytest.importorskip("websockets.exceptions")

HERE = Path(__file__).parent
UVICORN = ["uvicorn", "drain_app:app", "--log-level", "warning", "--ws", "websockets-sansio", "--port"]
HYPERCORN = ["hypercorn", "drain_app:app", "--workers", "0", "-b"]
ON_TRIO = [HYPERCORN[0], "-k", "trio", *HYPERCORN[1:]]
COMMANDS = {
    "uvicorn": UVICORN,
    "hypercorn on trio": ON_TRIO,
    "hypercorn on asyncio": HYPERCORN,
    "a program with hypercorn": ["drain_app"],
}
ALWAYS = ("uvicorn", "hypercorn on trio")
ALL = "MICDROP_DRAINS" in os.environ
more = pytest.mark.skipif(not ALL, reason="with nox -s drains")


class Server:
    """One server in a process of its own."""

    def __init__(self, command: list[str], log: Path, **environment: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.host = f"127.0.0.1:{port}"
        self.log = log
        bind = str(port) if "uvicorn" in command else self.host
        with log.open("w") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *command, bind],
                cwd=HERE,
                env={**os.environ, **environment},
                stdout=output,
                stderr=output,
                start_new_session=True,  # so that a test that fails leaves no worker of the server behind
            )

    def get(self, path: str, token: str | None = None) -> tuple[int, Any]:
        """Status and JSON of a path of the endpoint."""
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        request = urllib.request.Request(f"http://{self.host}/fleet/{path}", headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=15) as response:
                body = response.read()
                return response.status, json.loads(body) if body.startswith(b"{") else body.decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())

    def until_ready(self) -> None:
        for _ in range(200):
            try:
                if self.get("ready")[0] == 200:
                    return
            except (urllib.error.URLError, ConnectionError):
                assert self.process.poll() is None, self.log.read_text()
            time.sleep(0.1)
        raise AssertionError("the server does not answer")

    def connect(self, path: str) -> Any:
        return client.connect(f"ws://{self.host}{path}", proxy=None, max_size=None)


@contextmanager
def served(command: list[str], log: Path, **environment: str) -> Generator[Server]:
    server = Server(command, log, **environment)
    try:
        server.until_ready()
        yield server
    finally:
        with suppress(ProcessLookupError):
            os.killpg(server.process.pid, signal.SIGKILL)
        server.process.wait(10)


def rest_of(connection: Any) -> tuple[list[str | bytes], int, float]:
    """What is received until the server closes, the code, and when that was."""
    frames: list[str | bytes] = []
    while True:
        try:
            frames.append(connection.recv(timeout=10))
        except exceptions.ConnectionClosed as closed:
            return frames, closed.rcvd.code if closed.rcvd is not None else 1006, time.monotonic()


def until_audio(connection: Any) -> None:
    while not isinstance(connection.recv(timeout=10), bytes):
        pass


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in ALWAYS else more) for name in COMMANDS])
def test_sigterm_lets_turns_end_refuses_and_closes_with_1001(name: str, tmp_path: Path) -> None:
    with served(COMMANDS[name], tmp_path / "log") as server, ExitStack() as stack:
        idle, busy, plain = (stack.enter_context(server.connect(path)) for path in ("/call", "/call", "/plain"))
        for connection in (idle, busy):
            until_audio(connection)
        plain.send("hello")
        assert plain.recv(timeout=10) == "hello"
        assert server.get("load")[1]["calls"] == 3
        assert server.get("live") == (200, {"live": True})
        assert "micdrop_load 0.75" in server.get("metrics")[1]
        time.sleep(0.5)
        for command in ("StartSpeaking", bytes(3200), "StopSpeaking"):
            busy.send(command)
        until_audio(busy)

        began = time.monotonic()
        server.process.terminate()
        _, idle_code, idle_at = rest_of(idle)
        with pytest.raises(exceptions.InvalidStatus) as refused, server.connect("/call"):
            pass
        assert refused.value.response.status_code == 503
        assert server.get("ready") == (503, {"ready": False, "reason": "draining"})
        plain.send("still here")
        assert plain.recv(timeout=10) == "still here"
        frames, busy_code, busy_at = rest_of(busy)
        _, plain_code, plain_at = rest_of(plain)

        assert (idle_code, busy_code, plain_code) == (1001, 1001, 1001)
        (answer,) = (frame for frame in frames if isinstance(frame, str) and '"assistant"' in frame)
        assert "And 14." in answer
        assert "interrupted" not in answer
        assert idle_at - began < busy_at - began < plain_at - began  # at once, with the turn, at the deadline
        server.process.wait(10)
    assert "Traceback" not in server.log.read_text(), server.log.read_text()


def moved(connection: Any) -> bool:
    """Whether the server closes it with the code after which the client comes back."""
    return rest_of(connection)[1] == 1001


@more
def test_every_worker_of_uvicorn_drains(tmp_path: Path) -> None:
    command = [*UVICORN[:-1], "--workers", "2", "--port"]
    with served(command, tmp_path / "log") as server, ExitStack() as stack:
        connections = [stack.enter_context(server.connect("/call")) for _ in range(4)]
        for connection in connections:
            until_audio(connection)
        server.process.terminate()
        assert all(map(moved, connections))
        server.process.wait(15)
    assert "Traceback" not in server.log.read_text(), server.log.read_text()


@more
@pytest.mark.parametrize("worker", ["asyncio", "trio"])
def test_a_worker_process_of_hypercorn_is_drained_by_request(worker: str, tmp_path: Path) -> None:
    """Its parent gets the signal, and tells it of that only when nothing is to be done any more."""
    command = ["hypercorn", "drain_app:app", "-k", worker, "-b"]
    with served(command, tmp_path / "log") as server, ExitStack() as stack:
        idle, plain = (stack.enter_context(server.connect(path)) for path in ("/call", "/plain"))
        until_audio(idle)
        environment = {**os.environ, "MICDROP_DRAIN_TOKEN": "secret"}
        drain = [sys.executable, "-m", "micdrop_agent.call.drain", f"http://{server.host}/fleet/drain"]
        began = time.monotonic()
        assert subprocess.run(drain, env={**environment, "MICDROP_DRAIN_TOKEN": "no"}, check=False).returncode == 1
        assert subprocess.run(drain, env=environment, check=False).returncode == 0
        assert 2 < time.monotonic() - began < 8  # it waits for the end of the drain
        assert moved(idle)
        assert moved(plain)
        server.process.terminate()
        server.process.wait(10)
    assert "Traceback" not in server.log.read_text(), server.log.read_text()


@more
def test_a_second_signal_ends_the_grace(tmp_path: Path) -> None:
    with served(UVICORN, tmp_path / "log", GRACE="60") as server, server.connect("/plain") as plain:
        server.process.terminate()
        time.sleep(0.5)
        server.process.terminate()
        assert moved(plain)
        server.process.wait(5)
