"""The transports over clients of the user's own: httpx2, and the openai SDK; read raw, never closed."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import anyio
import httpx2
import openai
import pytest

from micdrop_agent.errors import ProviderError
from micdrop_agent.testing import ScriptedProvider, fault, say
from micdrop_agent.transport.choose import open_transport
from micdrop_agent.transport.client_transport import ClientTransport
from micdrop_agent.transport.sdk_transport import SdkTransport

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from micdrop_agent.testing import Exchange
    from micdrop_agent.transport.base import Response, Transport

PATH = "/chat/completions"
BODY = b'{"model": "m", "messages": []}'
each_backend = pytest.mark.parametrize("backend", ["asyncio", "trio"])
each_kind = pytest.mark.parametrize("kind", ["httpx2", "openai", "azure"])


class Made:
    """A transport over a client of the given kind, and how to close that client."""

    def __init__(self, kind: str, url: str) -> None:
        self.client: Any
        if kind == "httpx2":
            self.client = httpx2.AsyncClient()
            self.close = self.client.aclose
        elif kind == "openai":
            self.client = openai.AsyncOpenAI(api_key="sk-own", base_url=url)
            self.close = self.client.close
        else:
            endpoint = url.removesuffix("/v1")
            self.client = openai.AsyncAzureOpenAI(api_key="az-own", azure_endpoint=endpoint, api_version="1")
            self.close = self.client.close
        self.transport: Transport = open_transport(url, client=self.client)

    async def __aenter__(self) -> Transport:
        return self.transport

    async def __aexit__(self, *_: object) -> None:
        await self.transport.aclose()
        with anyio.CancelScope(shield=True):
            await self.close()


async def ask(transport: Transport) -> bytes:
    async with await transport.post(PATH, {"authorization": "Bearer ours"}, BODY) as response:
        data = b""
        try:
            while True:
                data += await response.receive()
        except anyio.EndOfStream:
            return data


def run(backend: str, scenario: Callable[[], Awaitable[None]]) -> None:
    anyio.run(scenario, backend=backend)
    gc.collect()


@each_backend
@each_kind
def test_turns_are_read_raw_and_the_client_keeps_its_connection_and_its_credentials(backend: str, kind: str) -> None:
    async def scenario() -> None:
        async with (
            ScriptedProvider([say("Hello ", "you.")]) as provider,
            provider.listening() as url,
            Made(kind, url) as transport,
        ):
            for _ in range(3):
                assert (await ask(transport)).endswith(b"data: [DONE]\n\n")
            assert provider.connections == 1
            request = provider.requests[0]
            assert request.body == {"model": "m", "messages": []}
            assert request.headers["accept-encoding"] == "identity"
            expected = {
                "httpx2": ("/v1/chat/completions", "Bearer ours"),
                "openai": ("/v1/chat/completions", "Bearer sk-own"),
                "azure": ("/openai/deployments/m/chat/completions?api-version=1", None),
            }
            assert (request.path, request.headers.get("authorization")) == expected[kind]
            assert not transport.needs_spare
            await transport.prewarm()
            assert provider.connections == 1

    run(backend, scenario)


@each_backend
def test_a_connection_that_died_in_the_pool_is_no_failure_and_a_fresh_one_that_dies_is(backend: str) -> None:
    async def scenario() -> None:
        gone = fault("close_before_status")
        async with (
            ScriptedProvider([say("One."), gone, say("Two."), gone, gone]) as provider,
            provider.listening() as url,
            Made("httpx2", url) as transport,
        ):
            await ask(transport)
            assert b"Two." in await ask(transport)
            assert (len(provider.requests), provider.connections) == (3, 2)
            with pytest.raises(ProviderError) as caught:
                await ask(transport)
            assert caught.value.kind == "connection"
            assert len(provider.requests) == 5

    run(backend, scenario)


@each_backend
@each_kind
def test_an_error_status_is_a_response_whose_body_can_be_read(backend: str, kind: str) -> None:
    async def limited(exchange: Exchange) -> None:
        await exchange.head(429, {"retry-after": "1"})
        await exchange.send(b'{"error": {"code": "insufficient_quota"}}')
        await exchange.end()

    async def scenario() -> None:
        async with ScriptedProvider([limited]) as provider, provider.listening() as url, Made(kind, url) as transport:
            async with await transport.post(PATH, {}, BODY) as response:
                assert (response.status, response.headers["retry-after"]) == (429, "1")
                assert b"insufficient_quota" in await response.read()
            assert len(provider.requests) == 1

    run(backend, scenario)


@each_backend
@each_kind
@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("cut_after_text", {"truncated"}),
        ("reset_after_text", {"connection"}),
        ("close_before_status", {"connection"}),
    ],
)
def test_their_failures_become_ours(backend: str, kind: str, name: Any, kinds: set[str]) -> None:
    async def scenario() -> None:
        async with (
            ScriptedProvider([fault(name), say("Okay.")]) as provider,
            provider.listening() as url,
            Made(kind, url) as transport,
        ):
            with pytest.raises(ProviderError) as caught:
                await ask(transport)
            assert caught.value.kind in kinds
            assert len(provider.requests) == 1
            assert b"Okay." in await ask(transport)

    run(backend, scenario)


@each_backend
@each_kind
def test_a_server_that_is_not_there_is_a_connection_failure(backend: str, kind: str) -> None:
    async def scenario() -> None:
        async with Made(kind, "http://127.0.0.1:9/v1") as transport:
            with pytest.raises(ProviderError) as caught:
                await ask(transport)
            assert caught.value.kind == "connection"

    run(backend, scenario)


@each_backend
@each_kind
def test_leaving_in_the_middle_by_any_way_closes_the_connection_and_leaves_no_generator(
    backend: str, kind: str
) -> None:
    async def scenario() -> None:
        script = [say(*["word "] * 50, gap=0.02)] * 3 + [say("Okay.")]
        async with ScriptedProvider(script) as provider, provider.listening() as url, Made(kind, url) as transport:
            # Between two reads, with bytes waiting.
            async with await transport.post(PATH, {}, BODY) as response:
                await response.receive()
            # Cancelled in a read: on a busy machine a time-out from the beginning may come before the request is sent.
            with anyio.CancelScope() as scope:
                async with await transport.post(PATH, {}, BODY) as response:
                    await response.receive()
                    scope.deadline = anyio.current_time() + 0.05
                    while True:
                        await response.receive()
            # By an exception of the reader's.
            left: list[Response] = []

            async def leave(transport: Transport) -> None:
                async with await transport.post(PATH, {}, BODY) as response:
                    left.append(response)
                    await response.receive()
                    raise ZeroDivisionError

            with pytest.raises(ZeroDivisionError):
                await leave(transport)
            with pytest.raises(ProviderError):
                await left[0].receive()
            await provider.until(lambda: provider.open_connections == 0)
            assert [request.closed_by_client for request in provider.requests] == [True] * 3
            assert b"Okay." in await ask(transport)

    run(backend, scenario)


@each_backend
def test_cancels_at_random_points_leave_the_client_usable(backend: str) -> None:
    async def scenario() -> None:
        async with (
            ScriptedProvider([say("a ", "b ", gap=0.001)]) as provider,
            provider.listening() as url,
            Made("httpx2", url) as transport,
        ):
            for number in range(150):
                with anyio.move_on_after(0.0001 * (number % 60)):
                    await ask(transport)
            assert b"b " in await ask(transport)

    run(backend, scenario)


def test_a_transport_of_our_own_client_closes_it_and_a_users_client_stays_open() -> None:
    async def scenario() -> None:
        for owned in (True, False):
            client = httpx2.AsyncClient()
            await ClientTransport(client, "http://x.test", owned=owned).aclose()
            assert client.is_closed is owned
            await client.aclose()

    anyio.run(scenario)


def test_a_client_that_is_closed_is_the_callers_mistake_and_no_failure_of_the_server() -> None:
    async def scenario() -> None:
        client = httpx2.AsyncClient()
        await client.aclose()
        with pytest.raises(RuntimeError, match="closed"):
            await ask(ClientTransport(client, "http://x.test"))

    anyio.run(scenario)


def test_what_is_no_client_is_refused_and_no_key_is_shown() -> None:
    with pytest.raises(TypeError, match="AsyncOpenAI"):
        open_transport("http://x.test", client=object())
    assert "sk-own" not in repr(SdkTransport(openai.AsyncOpenAI(api_key="sk-own")))
