"""The direct transport over streams in memory, in virtual time: connections, their reuse, their ends."""

from __future__ import annotations

import contextlib
import gc
import gzip
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from micdrop_agent.errors import ProviderError
from micdrop_agent.testing import (
    BACKENDS,
    MemoryByteStream,
    ScriptedProvider,
    fault,
    memory_connection,
    run_virtual,
    say,
)
from micdrop_agent.transport.direct import DirectTransport
from micdrop_agent.transport.parser import ResponseParser

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from micdrop_agent.testing import Backend, Exchange
    from micdrop_agent.transport.base import Response

PATH = "/chat/completions"
each_backend = pytest.mark.parametrize("backend", BACKENDS)


def transport_to(provider: ScriptedProvider, **options: Any) -> DirectTransport:
    return DirectTransport(provider.base_url, connect=provider.connect, **options)


def has_spare(transport: DirectTransport) -> bool:
    return not transport.needs_spare


async def body_of(response: Response) -> bytes:
    data = b""
    try:
        while True:
            data += await response.receive()
    except anyio.EndOfStream:
        return data


async def ask(transport: DirectTransport, body: bytes = b'{"model": "m"}') -> bytes:
    async with await transport.post(PATH, {"authorization": "Bearer k"}, body) as response:
        return await body_of(response)


async def failure_of(call: Callable[[], Awaitable[object]]) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await call()
    return caught.value


@each_backend
def test_turn_after_turn_goes_over_one_connection(backend: Backend) -> None:
    async def scenario() -> None:
        async with ScriptedProvider([say("Hello ", "you.")]) as provider:
            transport = transport_to(provider)
            for _ in range(3):
                assert (await ask(transport)).endswith(b"data: [DONE]\n\n")
                await anyio.sleep(20)
            assert [request.connection for request in provider.requests] == [1, 1, 1]
            request = provider.requests[0]
            assert request.path == "/v1/chat/completions"
            assert request.body == {"model": "m"}
            assert request.headers["authorization"] == "Bearer k"
            assert request.headers["accept-encoding"] == "identity"
            await transport.aclose()
            await provider.until(lambda: provider.open_connections == 0)

    run_virtual(backend, scenario)


@each_backend
def test_there_is_time_for_other_work_once_the_request_is_on_its_way(backend: Backend) -> None:
    async def scenario() -> None:
        async with ScriptedProvider([say("Hello.")]) as provider:
            transport = transport_to(provider)
            for number in range(2):
                asked_for: list[int] = []
                response = await transport.post(PATH, {}, b"{}", lambda: asked_for.append(len(transport._live)))  # noqa: B023 - it is called before the loop goes on
                assert asked_for == [1], "not once for each request, or not while it is under way"
                async with response:
                    assert (await body_of(response)).endswith(b"data: [DONE]\n\n")
                assert len(provider.requests) == number + 1
            await transport.aclose()

    run_virtual(backend, scenario)


@each_backend
def test_the_bytes_of_each_read_are_given_out_when_they_come(backend: Backend) -> None:
    async def scenario() -> None:
        async with ScriptedProvider([say("one", "two", gap=1.0)]) as provider:
            transport = transport_to(provider)
            async with await transport.post(PATH, {}, b"{}") as response:
                seen: dict[bytes, float] = {}
                with contextlib.suppress(anyio.EndOfStream):
                    while True:
                        seen[await response.receive()] = anyio.current_time()
                one, two = (when for event, when in seen.items() if b"one" in event or b"two" in event)
                assert two - one == pytest.approx(1)
            await transport.aclose()

    run_virtual(backend, scenario)


@each_backend
def test_a_kept_connection_that_turns_out_dead_costs_one_free_retry_at_once(backend: Backend) -> None:
    async def scenario() -> None:
        script = [say("Hello."), fault("close_before_status"), say("Okay.")]
        async with ScriptedProvider(script) as provider:
            transport = transport_to(provider)
            await ask(transport)
            before = anyio.current_time()
            assert b"Okay." in await ask(transport)
            assert anyio.current_time() == pytest.approx(before)
            assert [request.connection for request in provider.requests] == [1, 1, 2]
            await transport.aclose()

    run_virtual(backend, scenario)


@each_backend
def test_a_response_that_had_begun_on_a_kept_connection_is_never_asked_for_again(backend: Backend) -> None:
    async def scenario() -> None:
        asked = 0

        async def connect(host: str, port: int, tls: bool) -> anyio.abc.ByteStream:
            client, server = memory_connection()
            group.start_soon(serve, server)
            return client

        async def serve(server: MemoryByteStream) -> None:
            nonlocal asked
            for reply in (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", b"HTTP/1.1 200"):
                await server.receive()
                asked += 1
                await server.send(reply)
            await server.aclose()

        async with anyio.create_task_group() as group:
            transport = DirectTransport("http://x.test", connect=connect)
            assert await ask(transport) == b"ok"
            assert (await failure_of(lambda: ask(transport))).kind == "connection"
            assert asked == 2

    run_virtual(backend, scenario)


@each_backend
def test_closing_while_a_request_is_connecting_or_waiting_leaves_no_connection(backend: Backend) -> None:
    async def scenario() -> None:
        async with ScriptedProvider([say("Okay."), fault("stall_before_headers")], connect_delay=1) as provider:
            connecting = transport_to(provider)
            waiting = transport_to(provider)
            await ask(waiting)
            async with anyio.create_task_group() as group:
                group.start_soon(failure_of, lambda: ask(connecting))
                group.start_soon(failure_of, lambda: ask(waiting))
                await anyio.sleep(0.5)
                await connecting.aclose()
                await waiting.aclose()
            await provider.until(lambda: provider.open_connections == 0)
            assert len(provider.requests) == 2
            assert provider.connections == 2

    run_virtual(backend, scenario)


@each_backend
def test_no_response_is_left_to_the_garbage_collector(backend: Backend) -> None:
    async def scenario() -> None:
        script = [say("Okay."), fault("close_before_status"), fault("cut_after_text"), fault("stall_after_headers")]
        async with ScriptedProvider(script) as provider:
            transport = transport_to(provider)
            await ask(transport)
            with contextlib.suppress(ProviderError):
                await ask(transport)
            with anyio.move_on_after(1):
                await ask(transport)
            await transport.aclose()

    gc.collect()
    gc.disable()
    try:
        # In a run of the whole suite another test's parser may be alive.
        before = {id(each) for each in gc.get_objects() if type(each) is ResponseParser}
        run_virtual(backend, scenario)
        assert not [each for each in gc.get_objects() if type(each) is ResponseParser and id(each) not in before]
    finally:
        gc.enable()


@each_backend
def test_a_warmed_connection_that_turns_out_dead_costs_one_free_retry_too(backend: Backend) -> None:
    async def scenario() -> None:
        async with ScriptedProvider([fault("close_before_status"), say("Okay.")]) as provider:
            transport = transport_to(provider)
            await transport.prewarm()
            assert b"Okay." in await ask(transport)
            assert provider.connections == 2
            await transport.aclose()

    run_virtual(backend, scenario)


@each_backend
def test_a_new_connection_that_is_closed_before_the_status_is_a_failure_and_not_retried(backend: Backend) -> None:
    async def scenario() -> None:
        async with ScriptedProvider([fault("close_before_status")]) as provider:
            transport = transport_to(provider)
            error = await failure_of(lambda: ask(transport))
            assert (error.kind, error.retryable) == ("connection", True)
            assert len(provider.requests) == 1
            # The stale one was retried once: its second failure is one.
            await transport.prewarm()
            assert (await failure_of(lambda: ask(transport))).kind == "connection"
            assert len(provider.requests) == 3
            await transport.aclose()

    run_virtual(backend, scenario)


@each_backend
@pytest.mark.parametrize(("name", "kind"), [("cut_after_text", "truncated"), ("reset_after_text", "connection")])
def test_a_body_that_is_cut_says_so_after_what_came_and_its_connection_is_gone(
    backend: Backend, name: Any, kind: str
) -> None:
    async def scenario() -> None:
        async with ScriptedProvider([fault(name, text=["Hello "]), say("Okay.")]) as provider:
            transport = transport_to(provider)
            async with await transport.post(PATH, {}, b"{}") as response:
                assert b"Hello " in await response.receive()
                for _ in range(2):
                    assert (await failure_of(response.receive)).kind == kind
                assert await response.read() == b""
                assert not await response.drain()
            assert b"Okay." in await ask(transport)
            assert provider.connections == 2
            await transport.aclose()

    run_virtual(backend, scenario)


@each_backend
def test_a_refused_connection_and_a_name_that_does_not_resolve_are_named(backend: Backend) -> None:
    async def scenario() -> None:
        async with ScriptedProvider([say("Okay.")]) as provider:
            provider.refuse = 1
            transport = transport_to(provider)
            error = await failure_of(lambda: ask(transport))
            assert error.kind == "connection"
            assert "provider.test:80" in str(error)
            assert b"Okay." in await ask(transport)
            await transport.aclose()

    run_virtual(backend, scenario)


@each_backend
def test_connecting_has_its_own_clock(backend: Backend) -> None:
    async def scenario() -> None:
        async with ScriptedProvider([say("Okay.")], connect_delay=10) as provider:
            transport = transport_to(provider, connect_timeout=2)
            before = anyio.current_time()
            error = await failure_of(lambda: ask(transport))
            assert (error.kind, error.retryable) == ("timeout", False)
            assert anyio.current_time() - before == pytest.approx(2)
            await failure_of(transport.prewarm)
            assert not has_spare(transport)
            patient = transport_to(provider, connect_timeout=None)
            assert b"Okay." in await ask(patient)
            await patient.aclose()

    run_virtual(backend, scenario)


@each_backend
def test_a_spare_is_opened_once_and_the_next_request_takes_it(backend: Backend) -> None:
    async def scenario() -> None:
        async with ScriptedProvider([say("Okay.")], connect_delay=1) as provider:
            transport = transport_to(provider)
            assert not has_spare(transport)
            async with anyio.create_task_group() as group:
                for _ in range(3):
                    group.start_soon(transport.prewarm)
            assert has_spare(transport)
            before = anyio.current_time()
            await ask(transport)
            assert anyio.current_time() == pytest.approx(before)
            assert provider.connections == 1
            await transport.aclose()

    run_virtual(backend, scenario)


@each_backend
def test_a_request_joins_the_warm_up_that_is_on_its_way_and_survives_its_failure(backend: Backend) -> None:
    async def scenario() -> None:
        async with ScriptedProvider([say("Okay.")], connect_delay=1) as provider:
            transport = transport_to(provider)
            for refused in (0, 1):
                provider.refuse = refused
                before = anyio.current_time()
                async with anyio.create_task_group() as group:
                    group.start_soon(warm, transport)
                    await anyio.sleep(0.8)
                    await ask(transport)
                assert anyio.current_time() - before == pytest.approx(1 + refused)
                assert provider.connections == 1 + refused
                await transport.aclose()
                transport = transport_to(provider)

    async def warm(transport: DirectTransport) -> None:
        with contextlib.suppress(ProviderError):
            await transport.prewarm()

    run_virtual(backend, scenario)


@each_backend
def test_a_warm_up_makes_room_when_what_is_idle_is_too_old(backend: Backend) -> None:
    async def scenario() -> None:
        async with ScriptedProvider([say("Okay.", gap=0.1)]) as provider:
            transport = transport_to(provider)
            async with anyio.create_task_group() as group:
                group.start_soon(ask, transport)
                group.start_soon(ask, transport)
            await anyio.sleep(100)
            await transport.prewarm()
            assert has_spare(transport)
            await ask(transport)
            assert provider.connections == 3
            await transport.aclose()

    run_virtual(backend, scenario)


@each_backend
@pytest.mark.parametrize(
    ("header", "pause", "connections"), [("timeout=5, max=100", 3.5, 1), ("timeout=5", 4.5, 2), ("x", 50, 1)]
)
def test_an_idle_time_that_the_server_announced_is_kept(
    backend: Backend, header: str, pause: float, connections: int
) -> None:
    async def short(exchange: Exchange) -> None:
        await exchange.head(200, {"keep-alive": header})
        await exchange.end()

    async def scenario() -> None:
        async with ScriptedProvider([short]) as provider:
            transport = transport_to(provider)
            await ask(transport)
            await anyio.sleep(pause)
            await ask(transport)
            assert provider.connections == connections
            await transport.aclose()

    run_virtual(backend, scenario)


@each_backend
def test_after_a_barge_in_the_spare_is_there_for_the_next_turn(backend: Backend) -> None:
    async def scenario() -> None:
        async with ScriptedProvider([fault("stall_after_headers"), say("Okay.")]) as provider:
            transport = transport_to(provider)
            with anyio.move_on_after(1):
                async with await transport.post(PATH, {}, b"{}") as response:
                    await transport.prewarm()
                    await response.receive()
            await provider.until(lambda: provider.open_connections == 1)
            assert provider.requests[0].closed_by_client
            assert has_spare(transport)
            assert b"Okay." in await ask(transport)
            assert [request.connection for request in provider.requests] == [1, 2]
            await transport.aclose()

    run_virtual(backend, scenario)


@each_backend
def test_an_idle_connection_is_not_used_after_its_time_and_both_are_kept_alive_by_turns(backend: Backend) -> None:
    async def scenario() -> None:
        async with ScriptedProvider([say("Okay.")]) as provider:
            transport = transport_to(provider, keepalive=60)
            await ask(transport)
            await anyio.sleep(61)
            assert not has_spare(transport)
            await ask(transport)
            await transport.prewarm()
            assert [request.connection for request in provider.requests] == [1, 2]
            async with await transport.post(PATH, {}, b"{}") as response:
                await transport.prewarm()
                await body_of(response)
            for _ in range(6):
                await ask(transport)
                await anyio.sleep(25)
            assert {request.connection for request in provider.requests[-2:]} == {2, 3}
            assert provider.connections == 3
            assert provider.open_connections == 2
            await transport.aclose()

    run_virtual(backend, scenario)


@each_backend
def test_answers_that_overlap_open_more_connections_and_two_are_kept(backend: Backend) -> None:
    async def scenario() -> None:
        async with ScriptedProvider([say("Okay.", gap=1.0)]) as provider:
            transport = transport_to(provider)
            async with anyio.create_task_group() as group:
                for _ in range(4):
                    group.start_soon(ask, transport)
            assert provider.connections == 4
            await provider.until(lambda: provider.open_connections == 2)
            await transport.aclose()
            await provider.until(lambda: provider.open_connections == 0)

    run_virtual(backend, scenario)


@each_backend
def test_a_response_that_is_left_in_the_middle_closes_its_connection(backend: Backend) -> None:
    async def scenario() -> None:
        async with ScriptedProvider([say("one", "two", gap=1.0), say("Okay.")]) as provider:
            transport = transport_to(provider)
            response = await transport.post(PATH, {}, b"{}")
            await response.receive()
            response.abort()
            await response.aclose()
            await response.aclose()
            assert (await failure_of(response.receive)).kind == "connection"
            await provider.until(lambda: provider.open_connections == 0)
            assert provider.requests[0].closed_by_client
            await ask(transport)
            await transport.aclose()

    run_virtual(backend, scenario)


@each_backend
def test_draining_after_the_end_mark_saves_the_connection_and_does_not_wait_long(backend: Backend) -> None:
    async def late(exchange: Exchange) -> None:
        await exchange.send(b"data: [DONE]\n\n")
        await anyio.sleep([0.1, 10.0][exchange.request.number])
        await exchange.end()

    async def scenario() -> None:
        async with ScriptedProvider([late, late, say("Okay.")]) as provider:
            transport = transport_to(provider)
            before = anyio.current_time()
            for saved in (True, False):
                async with await transport.post(PATH, {}, b"{}") as response:
                    assert await response.receive() == b"data: [DONE]\n\n"
                    assert await response.drain() is saved
            assert anyio.current_time() - before < 1
            await ask(transport)
            assert [request.connection for request in provider.requests] == [1, 1, 2]
            await transport.aclose()

    run_virtual(backend, scenario)


@each_backend
def test_the_body_of_an_error_is_read_up_to_a_limit(backend: Backend) -> None:
    async def page(exchange: Exchange) -> None:
        await exchange.head(503, {"retry-after": "2", "content-type": "text/html"})
        for _ in range(100):
            await exchange.send(b"x" * 1000)
        await exchange.end()

    async def scenario() -> None:
        async with ScriptedProvider([page]) as provider:
            transport = transport_to(provider)
            async with await transport.post(PATH, {}, b"{}") as response:
                assert response.status == 503
                assert response.headers["retry-after"] == "2"
                assert await response.read(2500) == b"x" * 2500
            await transport.aclose()

    run_virtual(backend, scenario)


@each_backend
def test_the_body_of_an_error_that_does_not_end_is_what_came_of_it(backend: Backend) -> None:
    async def page(exchange: Exchange) -> None:
        await exchange.head(500)
        await exchange.send(b"oops")
        await exchange.until_closed()

    async def scenario() -> None:
        async with ScriptedProvider([page]) as provider:
            transport = transport_to(provider)
            async with await transport.post(PATH, {}, b"{}") as response:
                assert await response.read(within=1.0) == b"oops"
            await transport.aclose()

    run_virtual(backend, scenario)


@each_backend
def test_a_server_that_refuses_a_body_before_it_has_read_it_is_still_heard(backend: Backend) -> None:
    async def scenario() -> None:
        client, server = memory_connection()

        async def connect(host: str, port: int, tls: bool) -> anyio.abc.ByteStream:
            await server.send(b"HTTP/1.1 413 Too Large\r\ncontent-length: 3\r\n\r\nbig")
            await server.aclose()
            return client

        transport = DirectTransport("http://x.test", connect=connect)
        async with await transport.post(PATH, {}, b"{}") as response:
            assert response.status == 413
            assert await response.read() == b"big"
        assert client.closed

    run_virtual(backend, scenario)


@each_backend
def test_what_is_no_http_and_a_head_without_end_are_failures(backend: Backend) -> None:
    async def scenario(data: bytes, kind: str) -> None:
        client, server = memory_connection()

        async def connect(host: str, port: int, tls: bool) -> anyio.abc.ByteStream:
            for _ in range(20):
                await server.send(data)
            return client

        transport = DirectTransport("http://x.test", connect=connect, max_head_bytes=1000)
        assert (await failure_of(lambda: transport.post(PATH, {}, b"{}"))).kind == kind
        assert client.closed

    run_virtual(backend, scenario, b"SSH-2.0\r\n", "connection")
    run_virtual(backend, scenario, b"HTTP/1.1 100 Continue\r\nx: " + b"y" * 200 + b"\r\n\r\n", "protocol")


@each_backend
def test_a_closed_transport_and_one_of_another_loop_say_what_is_wrong(backend: Backend) -> None:
    transport = DirectTransport("http://x.test", connect=ScriptedProvider([]).connect)

    async def closed() -> None:
        async with ScriptedProvider([fault("stall_after_headers")]) as provider:
            mine = transport_to(provider)
            await mine.prewarm()
            response = await mine.post(PATH, {}, b"{}")
            await mine.aclose()
            await provider.until(lambda: provider.open_connections == 0)
            assert (await failure_of(response.receive)).kind == "connection"
            await response.aclose()
            assert not mine.needs_spare
            with pytest.raises(RuntimeError, match="closed"):
                await mine.post(PATH, {}, b"{}")

    async def use() -> None:
        with pytest.raises(RuntimeError, match="async with"):
            await transport.prewarm()

    async def use_again() -> None:
        with pytest.raises(RuntimeError, match="another event loop"):
            await transport.post(PATH, {}, b"{}")

    run_virtual(backend, closed)
    run_virtual(backend, use)
    run_virtual(backend, use_again)


async def answering(*replies: bytes) -> tuple[list[MemoryByteStream], DirectTransport, anyio.abc.TaskGroup]:
    """A transport whose every connection gives these replies, whatever it is asked."""
    clients: list[MemoryByteStream] = []
    group = anyio.create_task_group()

    async def serve(server: MemoryByteStream) -> None:
        with contextlib.suppress(anyio.EndOfStream):
            for reply in replies:
                await server.receive()
                await server.send(reply)
            await server.receive()

    async def connect(host: str, port: int, tls: bool) -> anyio.abc.ByteStream:
        client, server = memory_connection()
        clients.append(client)
        group.start_soon(serve, server)
        return client

    return clients, DirectTransport("http://x.test", connect=connect), group


@each_backend
@pytest.mark.parametrize(
    ("reply", "connections"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", 1),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok", 2),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nokHTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nbad", 2),
    ],
)
def test_a_connection_that_the_server_will_close_or_wrote_too_much_on_is_not_used_again(
    backend: Backend, reply: bytes, connections: int
) -> None:
    async def scenario() -> None:
        clients, transport, group = await answering(reply, reply)
        async with group:
            for _ in range(2):
                assert await ask(transport) == b"ok"
            assert len(clients) == connections
            await transport.aclose()
            assert all(client.closed for client in clients)

    run_virtual(backend, scenario)


@each_backend
def test_a_compressed_body_that_is_cut_inside_is_truncated_though_http_says_it_is_whole(backend: Backend) -> None:
    body = gzip.compress(b"hello")[:-9]
    reply = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)

    async def scenario() -> None:
        _, transport, group = await answering(reply)
        async with group:
            assert (await failure_of(lambda: ask(transport))).kind == "truncated"
            await transport.aclose()

    run_virtual(backend, scenario)


@each_backend
@pytest.mark.parametrize(("seconds", "closed"), [(0.2, True), (1000, False)])
def test_closing_a_slow_stream_is_shielded_from_the_cancel_and_bounded(
    backend: Backend, seconds: float, closed: bool
) -> None:
    class Slow(MemoryByteStream):
        async def aclose(self) -> None:
            await anyio.sleep(seconds)
            self.close()

    async def scenario() -> None:
        far, _ = memory_connection()
        slow = Slow(far._incoming, far._outgoing)

        async def connect(host: str, port: int, tls: bool) -> anyio.abc.ByteStream:
            return slow

        transport = DirectTransport("http://x.test", connect=connect)
        before = anyio.current_time()
        with anyio.move_on_after(1):
            await transport.post(PATH, {}, b"{}")
        assert slow.closed is closed
        assert anyio.current_time() - before == pytest.approx(1.2 if closed else 1.5)

    run_virtual(backend, scenario)
