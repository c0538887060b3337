"""The direct transport on real loopback sockets, with and without TLS, on every event loop."""

from __future__ import annotations

import socket
import ssl
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import anyio.abc
import anyio.lowlevel
import pytest
import trustme
from anyio.streams.tls import TLSListener

from micdrop_agent.errors import ProviderError
from micdrop_agent.testing import ScriptedProvider, fault, say
from micdrop_agent.transport import tls
from micdrop_agent.transport.direct import DirectTransport

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

BACKENDS = ["asyncio", "asyncio+uvloop", "trio"]
each_backend = pytest.mark.parametrize("backend", BACKENDS)
PATH = "/chat/completions"


def run(backend: str, scenario: Callable[[], Awaitable[None]]) -> None:
    name, _, uvloop = backend.partition("+")
    anyio.run(scenario, backend=name, backend_options={"use_uvloop": True} if uvloop else {})


async def ask(transport: DirectTransport) -> bytes:
    async with await transport.post(PATH, {}, b"{}") as response:
        data = b""
        try:
            while True:
                data += await response.receive()
        except anyio.EndOfStream:
            return data


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def trusting(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    untyped: Any = authority
    untyped.configure_trust(context)
    return context


@asynccontextmanager
async def tls_server(provider: ScriptedProvider, authority: trustme.CA, name: str = "localhost") -> AsyncGenerator[int]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    certificate: Any = authority.issue_cert(name)
    certificate.configure_cert(context)
    tcp = await anyio.create_tcp_listener(local_host="127.0.0.1")
    listener = TLSListener(tcp, context, standard_compatible=False)

    async def serve(stream: anyio.abc.ByteStream) -> None:
        await provider._serve(stream, "127.0.0.1")

    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, serve)
        yield tcp.extra(anyio.abc.SocketAttribute.local_port)
        group.cancel_scope.cancel()


@each_backend
def test_turns_over_tls_share_one_connection_and_a_spare_is_ready_with_its_handshake(
    backend: str, authority: trustme.CA, trusting: ssl.SSLContext
) -> None:
    async def scenario() -> None:
        async with (
            ScriptedProvider([say("Hello ", "you.")]) as provider,
            tls_server(provider, authority) as port,
        ):
            transport = DirectTransport(f"https://localhost:{port}/v1", tls_context=trusting)
            await transport.prewarm()
            assert not transport.needs_spare
            for _ in range(3):
                assert b"you." in await ask(transport)
                await anyio.wait_all_tasks_blocked()
            assert [request.connection for request in provider.requests] == [1, 1, 1]
            assert provider.requests[0].headers["host"] == f"localhost:{port}"
            await transport.aclose()
            await provider.until(lambda: provider.open_connections == 0)

    run(backend, scenario)


@each_backend
def test_a_certificate_that_nobody_trusts_and_one_of_another_name_are_refused(
    backend: str, authority: trustme.CA, trusting: ssl.SSLContext
) -> None:
    async def scenario() -> None:
        async with (
            ScriptedProvider([say("Okay.")]) as provider,
            tls_server(provider, authority, "other.test") as port,
        ):
            for context in (None, trusting):
                transport = DirectTransport(f"https://localhost:{port}/v1", tls_context=context, connect_timeout=20)
                with pytest.raises(ProviderError, match="certificate") as caught:
                    await ask(transport)
                assert caught.value.kind == "connection"
                await transport.aclose()
            assert provider.requests == []

    run(backend, scenario)


@each_backend
def test_tls_cut_without_farewell_and_cancelled_in_the_middle_leaves_nothing_open(
    backend: str, authority: trustme.CA, trusting: ssl.SSLContext
) -> None:
    async def scenario() -> None:
        script = [fault("reset_after_text"), fault("stall_after_headers"), say("Okay.")]
        async with ScriptedProvider(script) as provider, tls_server(provider, authority) as port:
            transport = DirectTransport(f"https://localhost:{port}/v1", tls_context=trusting)
            with pytest.raises(ProviderError) as caught:
                await ask(transport)
            assert caught.value.kind in {"connection", "truncated"}
            async with anyio.create_task_group() as group:
                group.start_soon(ask, transport)
                await provider.until(lambda: len(provider.requests) == 2)
                group.cancel_scope.cancel()
            await provider.until(lambda: provider.requests[1].closed_by_client)
            assert b"Okay." in await ask(transport)
            await transport.aclose()
            await provider.until(lambda: provider.open_connections == 0)

    run(backend, scenario)


@each_backend
def test_a_connection_that_the_server_closed_while_idle_is_noticed_before_the_request(backend: str) -> None:
    async def scenario() -> None:
        streams: list[anyio.abc.SocketStream] = []
        served = 0

        async def serve(stream: anyio.abc.SocketStream) -> None:
            nonlocal served
            streams.append(stream)
            async with stream:
                await stream.receive()
                served += 1
                await stream.send(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")

        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        async with listener, anyio.create_task_group() as group:
            group.start_soon(listener.serve, serve)
            transport = DirectTransport(f"http://127.0.0.1:{port}")
            for turn in range(5):
                assert await ask(transport) == b"ok"
                with anyio.fail_after(10):
                    while not transport.needs_spare:
                        await anyio.lowlevel.checkpoint()
                assert len(transport._idle) == 1
                assert served == turn + 1
            await transport.aclose()
            group.cancel_scope.cancel()

    run(backend, scenario)


@each_backend
def test_localhost_an_address_of_ip_6_and_a_refused_port(backend: str) -> None:
    async def scenario() -> None:
        async with ScriptedProvider([say("Okay.")]) as provider, provider.listening() as url:
            transport = DirectTransport(url.replace("127.0.0.1", "localhost"))
            assert b"Okay." in await ask(transport)
            await transport.aclose()
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            refused = DirectTransport(f"http://127.0.0.1:{unused.getsockname()[1]}")
            with pytest.raises(ProviderError, match="cannot connect") as caught:
                await ask(refused)
            assert caught.value.kind == "connection"
        nowhere = DirectTransport("http://[::1]:9")
        with pytest.raises(ProviderError, match=r"\[::1\]:9"):
            await ask(nowhere)
        unresolved = DirectTransport("http://no-such-host.invalid", connect_timeout=30)
        with pytest.raises(ProviderError) as caught:
            await ask(unresolved)
        assert caught.value.kind in {"connection", "timeout"}

    run(backend, scenario)


@each_backend
def test_a_body_that_comes_in_one_write_of_many_chunks_is_read_whole(backend: str) -> None:
    async def scenario() -> None:
        texts = [f"word{number} " for number in range(3000)]
        async with ScriptedProvider([say(*texts)]) as provider, provider.listening() as url:
            transport = DirectTransport(url)
            body = await ask(transport)
            assert all(text.encode() in body for text in texts[::100])
            assert body.count(b"data: ") >= 3000
            await transport.aclose()

    run(backend, scenario)


@each_backend
def test_the_tls_context_is_made_once_per_process_and_trusts_what_the_environment_names(
    backend: str, authority: trustme.CA, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    file = tmp_path / "ca.pem"
    file.write_bytes(authority.cert_pem.bytes())
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    monkeypatch.setattr(tls, "_context", None)

    async def scenario() -> None:
        async with ScriptedProvider([say("Okay.")]) as provider, tls_server(provider, authority) as port:
            first = DirectTransport(f"https://localhost:{port}", connect_timeout=20)
            await first.prewarm()
            context = tls._context
            second = DirectTransport(f"https://localhost:{port}")
            for transport in (first, second):
                assert b"Okay." in await ask(transport)
                await transport.aclose()
            assert tls._context is context is not None

    run(backend, scenario)
