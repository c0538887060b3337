"""Cancelling the direct transport anywhere: nothing stays open, and the next request works."""

from __future__ import annotations

import random
import socket
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import anyio.abc
import pytest

from micdrop_agent.errors import ProviderError
from micdrop_agent.testing import BACKENDS, ScriptedProvider, count_steps, fault, run_virtual, say
from micdrop_agent.transport.connection import Connection, hang_up
from micdrop_agent.transport.direct import DirectTransport

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from micdrop_agent.testing import Backend

PATH = "/chat/completions"
SOCKET_BACKENDS = ["asyncio", "asyncio+uvloop", "trio"]


async def ask(transport: DirectTransport) -> bytes:
    async with await transport.post(PATH, {}, b"{}") as response:
        data = b""
        try:
            while True:
                data += await response.receive()
        except anyio.EndOfStream:
            return data


def run(backend: str, scenario: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        with anyio.fail_after(60):
            await scenario()

    name, _, uvloop = backend.partition("+")
    anyio.run(bounded, backend=name, backend_options={"use_uvloop": True} if uvloop else {})


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_cancel_at_any_step_closes_what_was_in_use_and_the_next_request_works(backend: Backend) -> None:
    scope: anyio.CancelScope

    async def scenario() -> None:
        nonlocal scope
        script = [say("one", "two", gap=0.5), fault("close_before_status"), say("Okay.")]
        async with ScriptedProvider(script, connect_delay=0.1) as provider:
            transport = DirectTransport(provider.base_url, connect=provider.connect)
            with anyio.CancelScope() as scope:
                await transport.prewarm()
                for _ in range(3):
                    await ask(transport)
            provider._script = [say("Okay.")]
            assert b"Okay." in await ask(transport)
            assert not transport._live
            assert provider.open_connections <= 2
            await transport.aclose()
            await provider.until(lambda: provider.open_connections == 0)

    def cancel(target: int, step: int) -> None:
        if step == target:
            scope.cancel()

    steps = count_steps(backend, scenario)
    assert steps > 30
    # Before the fourth step the scope is not there yet.
    for target in range(4, steps + 1):
        run_virtual(backend, scenario, on_step=partial(cancel, target))


@pytest.mark.parametrize("backend", SOCKET_BACKENDS)
def test_after_a_thousand_cancels_on_real_sockets_nothing_is_open_and_the_next_answer_works(backend: str) -> None:
    dice = random.Random(7)

    async def scenario() -> None:
        replies = [
            say("one ", "two ", gap=0.0005),
            say("Okay."),
            fault("stall_before_headers"),
            fault("stall_after_headers"),
        ]
        script = [dice.choice(replies) for _ in range(5000)]
        script.append(say("Okay."))
        async with ScriptedProvider(script) as provider, provider.listening() as url:
            transport = DirectTransport(url)
            for _ in range(1000):
                with anyio.move_on_after(dice.choice([0, 0.0002, 0.0005, 0.001, 0.002])):
                    if dice.random() < 0.3:
                        await transport.prewarm()
                    await ask(transport)
                assert not transport._live
                assert len(transport._idle) <= 2
            provider._script = [say("Okay.")]
            assert b"Okay." in await ask(transport)
            await transport.aclose()
            await provider.until(lambda: provider.open_connections == 0)

    run(backend, scenario)


@pytest.mark.parametrize("backend", SOCKET_BACKENDS)
def test_an_abort_in_one_task_reaches_the_server_while_another_task_is_reading(backend: str) -> None:
    async def scenario() -> None:
        async with ScriptedProvider([fault("stall_after_headers")]) as provider, provider.listening() as url:
            transport = DirectTransport(url)
            response = await transport.post(PATH, {}, b"{}")
            ended: list[str] = []

            async def read() -> None:
                try:
                    await response.receive()
                except ProviderError as error:
                    ended.append(error.kind)

            async with anyio.create_task_group() as group:
                group.start_soon(read)
                await anyio.wait_all_tasks_blocked()
                response.abort()
            assert ended in (["truncated"], ["connection"])
            await response.aclose()
            await provider.until(lambda: provider.open_connections == 0)
            await transport.aclose()

    run(backend, scenario)


class NoShutdown:
    """As uvloop's sockets."""


class Refuses:
    """Has the method, and no more."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def shutdown(self, _how: int) -> None:
        raise self._error


@pytest.mark.parametrize(
    ("raw", "done"),
    [
        pytest.param(NoShutdown(), False, id="a socket without shutdown"),
        pytest.param(Refuses(TypeError("not supported")), False, id="one that cannot"),
        pytest.param(Refuses(NotImplementedError()), False, id="one that does not"),
        pytest.param(Refuses(OSError("not connected")), True, id="one that is over"),
    ],
)
def test_hanging_up_tells_whether_the_server_knows_of_it(raw: Any, done: bool) -> None:
    assert hang_up(raw) is done


@pytest.mark.parametrize("backend", SOCKET_BACKENDS)
def test_an_abort_says_farewell_to_the_server_and_closes_nothing(backend: str) -> None:
    ours, theirs = socket.socketpair()

    async def scenario() -> None:
        async with await anyio.abc.SocketStream.from_socket(ours) as stream:
            connection = Connection(stream, tls=False)
            theirs.settimeout(10)
            connection.abort()
            assert theirs.recv(1) == b""
            assert not connection.closed

    with theirs:
        run(backend, scenario)
