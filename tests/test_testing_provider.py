"""The scripted model server, driven by clients that we did not write and by raw bytes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import anyio
import pytest

from micdrop_agent.testing import (
    BACKENDS,
    DeadlockError,
    Exchange,
    ReceivedRequest,
    ScriptedProvider,
    call_tool,
    fault,
    run_virtual,
    say,
)

if TYPE_CHECKING:
    from micdrop_agent.testing import Backend


async def _post(stream: anyio.abc.ByteStream, path: str = "/v1/chat/completions") -> None:
    body = json.dumps({"model": "m", "messages": []}).encode()
    await stream.send(b"POST %s HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % (path.encode(), len(body)) + body)


async def _read_all(stream: anyio.abc.ByteStream, until: bytes = b"0\r\n\r\n") -> bytes:
    data = b""
    while not data.endswith(until):
        data += await stream.receive()
    return data


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_scripted_answer_comes_over_a_connection_in_memory_and_keeps_it(backend: Backend) -> None:
    async def scenario() -> None:
        async with ScriptedProvider([say("Hello ", "you.", gap=2.0), call_tool("look", {"a": 1})]) as provider:
            stream = await provider.connect()
            await _post(stream)
            first = await _read_all(stream)
            assert first.startswith(b"HTTP/1.1 200 OK\r\n")
            assert b'"content": "Hello "' in first
            assert first.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
            assert anyio.current_time() >= 4.0
            await _post(stream)
            assert b'"name": "look"' in await _read_all(stream)
            assert [request.connection for request in provider.requests] == [1, 1]
            assert not any(request.closed_by_client for request in provider.requests)
            await stream.aclose()

    run_virtual(backend, scenario)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_client_that_leaves_in_the_middle_is_noticed_at_once(backend: Backend) -> None:
    async def scenario() -> None:
        async with ScriptedProvider([fault("stall_after_headers")]) as provider:
            stream = await provider.connect()
            await _post(stream)
            await stream.receive()
            await stream.aclose()
            await provider.until(lambda: provider.open_connections == 0)
            assert [request.closed_by_client for request in provider.requests] == [True]

    run_virtual(backend, scenario)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["reset_after_text", "cut_after_text", "close_before_status"])
def test_a_cut_connection_ends_the_clients_reading(backend: Backend, name: str) -> None:
    async def scenario() -> None:
        async with ScriptedProvider([fault(name)]) as provider:  # type: ignore[arg-type]
            stream = await provider.connect()
            await _post(stream)
            with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
                await _read_all(stream)
            await stream.aclose()

    run_virtual(backend, scenario)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_refused_connection_is_refused_as_often_as_asked(backend: Backend) -> None:
    async def scenario() -> None:
        async with ScriptedProvider([say("x")]) as provider:
            provider.refuse = 1
            with pytest.raises(ConnectionRefusedError):
                await provider.connect()
            await (await provider.connect()).aclose()

    run_virtual(backend, scenario)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_real_client_is_served_over_loopback(backend: Backend) -> None:
    import httpx2

    async def scenario() -> str:
        async with (
            ScriptedProvider([say("Hello ", "you.")]) as provider,
            provider.listening() as base_url,
            httpx2.AsyncClient() as client,
        ):
            answer = await client.post(base_url + "/responses", json={"input": []})
            assert answer.status_code == 200
            return answer.text

    text = run_virtual(backend, scenario, io_grace=0.02)
    assert 'event: response.output_text.delta\ndata: {"type": "response.output_text.delta"' in text
    assert text.count("response.completed") == 2


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_run_in_which_nothing_can_happen_any_more_raises(backend: Backend) -> None:
    async def scenario() -> None:
        await anyio.Event().wait()

    with pytest.raises(DeadlockError, match="deadlock"):
        run_virtual(backend, scenario)


@pytest.mark.parametrize("backend", BACKENDS)
def test_time_is_exact_and_costs_nothing(backend: Backend) -> None:
    async def scenario() -> float:
        begin = anyio.current_time()
        await anyio.sleep(3600)
        return anyio.current_time() - begin

    assert run_virtual(backend, scenario) == pytest.approx(3600)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_late_timer_and_data_fall_into_one_batch_when_the_loop_lags(backend: Backend) -> None:
    async def scenario() -> float:
        with anyio.move_on_after(1.0):
            await anyio.sleep(2.0)
        return anyio.current_time()

    assert run_virtual(backend, scenario, lag=0.5) == pytest.approx(1.5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_observer_is_called_after_every_step_and_its_error_comes_out(backend: Backend) -> None:
    seen: list[int] = []

    async def scenario() -> None:
        for _ in range(5):
            await anyio.sleep(1)

    run_virtual(backend, scenario, on_step=seen.append)
    assert seen == list(range(1, len(seen) + 1))
    assert len(seen) > 5

    def fail(step: int) -> None:
        if step == 3:
            raise LookupError("observer")

    with pytest.raises(LookupError, match="observer"):
        run_virtual(backend, scenario, on_step=fail)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_connection_that_is_gone_already_can_be_reset(backend: Backend) -> None:
    """The client may close in the same tick: the server must not die of it."""

    async def scenario() -> None:
        async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
            port = listener.extra(anyio.abc.SocketAttribute.local_port)
            stream = await anyio.connect_tcp("127.0.0.1", port)
            await stream.aclose()
            await anyio.sleep(0.01)  # asyncio closes the socket itself a tick later
            request = ReceivedRequest(0, "127.0.0.1", "/v1/chat/completions", {}, None, 1)
            await Exchange(request, stream).reset()

    anyio.run(scenario, backend=backend)
