"""Clients of the user's own, over real sockets: shared by agents, never closed, their retries off, their errors ours."""

from __future__ import annotations

import gc
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import anyio
import httpx
import httpx2
import openai
import pytest
from llmock_support import MockServer, fresh, needs_llmock, run

from micdrop_agent import ChatAgent, MistralAgent, OpenaiAgent, ProviderError, Retry, Timeouts
from micdrop_agent.testing import ScriptedProvider, assert_no_leaks, fault, say

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator

    from micdrop_agent.testing import Reply

KEY: Final = "sk-own-secret-0123456789abcdef"
NEVER: Final = Retry(max_retries=0)
each_backend = pytest.mark.parametrize("backend", ["asyncio", "trio"])
each_kind = pytest.mark.parametrize("kind", ["httpx2", "httpx", "openai", "azure"])
each_agent = pytest.mark.parametrize("make", [ChatAgent, OpenaiAgent, MistralAgent])


def make_client(kind: str, url: str) -> Any:
    if kind == "httpx2":
        return httpx2.AsyncClient(headers={"authorization": f"Bearer {KEY}"})
    if kind == "httpx":
        return httpx.AsyncClient(headers={"authorization": f"Bearer {KEY}"})
    if kind == "openai":
        return openai.AsyncOpenAI(api_key=KEY, base_url=url, max_retries=5)
    endpoint = url.removesuffix("/v1")
    return openai.AsyncAzureOpenAI(
        api_key=KEY, azure_endpoint=endpoint, api_version="2025-04-01-preview", max_retries=5
    )


def is_closed(client: Any) -> bool:
    closed = client.is_closed
    return bool(closed() if callable(closed) else closed)


async def close(client: Any) -> None:
    await (client.close() if hasattr(client, "close") else client.aclose())


@asynccontextmanager
async def world(kind: str, script: list[Reply]) -> AsyncGenerator[tuple[ScriptedProvider, str, Any]]:
    """A server, its URL, and a client that is still open when all is over; then nothing is left."""
    async with assert_no_leaks(), ScriptedProvider(script) as server, server.listening() as url:
        client = make_client(kind, url)
        yield server, url, client
        assert not is_closed(client)
        await close(client)
        await server.until(lambda: server.open_connections == 0)
    gc.collect()


async def ask(agent: Any) -> Any:
    """The text of an answer, or the error it failed with."""
    agent.add_user_message("hi")
    answer = agent.answer()
    text = "".join([chunk async for chunk in answer])
    return answer.result.error or text


@each_backend
@each_kind
@each_agent
def test_a_client_is_shared_by_agents_and_outlives_them(backend: str, kind: str, make: Callable[..., Any]) -> None:
    async def scenario() -> None:
        async with world(kind, [say("Hello ", "you.")]) as (server, url, client):
            options: dict[str, Any] = {"model": "m", "client": client, "base_url": url}
            async with make(**options) as first, make(**options) as second:
                for _ in range(2):
                    assert await ask(first) == await ask(second) == "Hello you."
            async with make(**options) as third:
                assert await ask(third) == "Hello you."
            assert (len(server.requests), server.connections) == (5, 1)
            sent = server.requests[0].headers
            assert sent.get("authorization", sent.get("api-key")) in {KEY, f"Bearer {KEY}"}

    run(backend, scenario)


@each_backend
@pytest.mark.parametrize(
    ("make", "path"),
    [
        (ChatAgent, "/openai/deployments/my-gpt/chat/completions?api-version=2025-04-01-preview"),
        (OpenaiAgent, "/openai/responses?api-version=2025-04-01-preview"),
    ],
)
def test_azure_is_asked_at_its_own_urls_with_its_own_key(backend: str, make: Callable[..., Any], path: str) -> None:
    async def scenario() -> None:
        async with world("azure", [say("Hello.")]) as (server, _, client), make(model="my-gpt", client=client) as agent:
            assert await ask(agent) == "Hello."
            (request,) = server.requests
            assert request.path == path
            assert request.headers["api-key"] == KEY
            assert "authorization" not in request.headers
            assert (request.body["model"], request.body["stream"]) == ("my-gpt", True)

    run(backend, scenario)


@each_backend
@each_kind
def test_a_client_does_not_retry_and_the_agent_does(backend: str, kind: str) -> None:
    async def scenario() -> None:
        failing = [fault("status", status=503), fault("status", status=503), say("Hello.")]
        async with world(kind, failing) as (server, url, client):
            options: dict[str, Any] = {"model": "m", "client": client, "base_url": url, "raise_on_failure": False}
            async with ChatAgent(retry=NEVER, **options) as agent:
                error = await ask(agent)
                assert (error.kind, error.status, len(server.requests)) == ("overloaded", 503, 1)
            async with ChatAgent(retry=Retry(max_retries=1, first_wait=0), **options) as agent:
                assert await ask(agent) == "Hello."
            assert len(server.requests) == 3

    run(backend, scenario)


@each_backend
@each_kind
@pytest.mark.parametrize(
    ("reply", "failure"),
    [
        (fault("status", status=401), "auth"),
        (fault("status", status=404), "not_found"),
        (fault("status", status=429, retry_after="7"), "rate_limit"),
        (fault("status", status=500), "server"),
        (fault("close_before_status"), "connection"),
        (fault("stall_before_headers"), "timeout"),
        (fault("stall_after_headers"), "timeout"),
        (fault("keepalives_only"), "timeout"),
        (fault("cut_after_text"), "truncated"),
        (fault("end_without_mark"), "truncated"),
        (fault("error_after_text"), "server"),
    ],
)
def test_each_failure_of_a_client_is_named_as_ours_and_the_client_works_on(
    backend: str, kind: str, reply: Reply, failure: str
) -> None:
    async def scenario() -> None:
        async with world(kind, [reply, say("Hello.")]) as (_, url, client):
            options: dict[str, Any] = {
                "model": "m",
                "client": client,
                "base_url": url,
                "raise_on_failure": False,
                "retry": NEVER,
            }
            async with ChatAgent(
                timeouts=Timeouts(first_chunk=0.2 if failure == "timeout" else 30.0), **options
            ) as agent:
                error = await ask(agent)
                assert isinstance(error, ProviderError)
                assert (error.kind, error.provider) == (failure, "chat")
                assert error.retry_after == (7 if failure == "rate_limit" else None)
            async with ChatAgent(**options) as agent:
                assert await ask(agent) == "Hello."

    run(backend, scenario)


@each_backend
@each_kind
def test_a_client_finds_nobody_at_home(backend: str, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        client = make_client(kind, "http://127.0.0.1:9/v1")
        options: dict[str, Any] = {
            "model": "m",
            "client": client,
            "base_url": "http://127.0.0.1:9/v1",
            "raise_on_failure": False,
        }
        async with ChatAgent(retry=NEVER, **options) as agent:
            assert (await ask(agent)).kind == "connection"
        await close(client)

    with caplog.at_level(logging.DEBUG):
        run(backend, scenario)
    assert KEY not in caplog.text


@each_backend
@each_kind
def test_a_barge_in_closes_the_connection_of_a_client_and_leaves_the_client_usable(backend: str, kind: str) -> None:
    async def scenario() -> None:
        async with (
            world(kind, [say(*["word "] * 200, gap=0.01), say("Hello.")]) as (server, url, client),
            ChatAgent(model="m", client=client, base_url=url) as agent,
        ):
            agent.add_user_message("Tell me all.")
            assert await agent.answer().receive() == "word "
            agent.cancel()
            await server.until(server.requests[0].closed.is_set)
            assert server.requests[0].closed_by_client
            assert await ask(agent) == "Hello."

    run(backend, scenario)


@pytest.mark.parametrize("first", ["asyncio", "trio"])
@pytest.mark.parametrize("second", ["asyncio", "trio"])
@each_kind
def test_a_client_in_a_second_event_loop_is_one_clear_error(first: str, second: str, kind: str) -> None:
    """Its pool holds connections of the first loop, which the second one can neither use nor close."""
    client = make_client(kind, "http://127.0.0.1:9/v1")
    options: dict[str, Any] = {"model": "m", "client": client, "base_url": "http://127.0.0.1:9/v1", "retry": NEVER}

    async def once() -> None:
        async with ChatAgent(raise_on_failure=False, **options) as agent:
            assert (await ask(agent)).kind == "connection"

    async def again() -> None:
        async with ChatAgent(**options) as agent:
            with pytest.raises(RuntimeError, match=r"another event loop.*make a new one"):
                await ask(agent)

    run(first, once)
    run(second, again)
    run(second, lambda: close(client))


@each_backend
def test_an_agent_in_a_second_event_loop_is_one_clear_error(backend: str) -> None:
    agent = ChatAgent(model="m", api_key=KEY, base_url="http://127.0.0.1:9/v1", retry=NEVER, raise_on_failure=False)

    async def once() -> None:
        async with agent:
            await ask(agent)

    run(backend, once)
    with pytest.raises(RuntimeError, match=r"once|closed"):
        run(backend, once)


@each_agent
def test_what_is_no_asynchronous_client_is_refused_when_the_agent_is_made(make: Callable[..., Any]) -> None:
    blocking: list[Any] = [httpx2.Client(), httpx.Client(), openai.OpenAI(api_key=KEY)]
    for client in (object(), "client", httpx2.Client, httpx2.AsyncClient, openai.AsyncOpenAI, *blocking):
        with pytest.raises(TypeError, match=r"client must be an openai\.AsyncOpenAI") as caught:
            make(model="m", api_key=KEY, client=client)
        assert KEY not in str(caught.value)
    for client in blocking:
        client.close()


@pytest.fixture(scope="module")
def mock_server() -> Generator[MockServer]:
    with MockServer() as running:
        yield running


@needs_llmock
@each_backend
@each_agent
def test_llmock_is_asked_through_the_sdk_without_its_retries(
    mock_server: MockServer, backend: str, make: Callable[..., Any]
) -> None:
    path = "/mistral/v1" if make is MistralAgent else "/v1"

    async def scenario() -> None:
        client = make_client("openai", mock_server.root + path)
        async with assert_no_leaks(), make(model="m", client=client, raise_on_failure=False, retry=NEVER) as agent:
            with fresh(mock_server, {"type": "fail", "status": 503}, {"type": "reply", "text": "We open at nine."}):
                assert (await ask(agent)).kind == "overloaded"
                assert await ask(agent) == "We open at nine."
            requests = await mock_server.until_ended(2)
            assert [asked["status"] for asked in requests] == [503, 200]
            with fresh(mock_server, {"type": "stream_fault", "kind": "stall", "after_chunks": 6, "stall_seconds": 600}):
                agent.add_user_message("hi")
                await agent.answer().receive()
                agent.cancel()
                (request,) = await mock_server.until_ended(1)
                assert not request["completed"]
        with anyio.CancelScope(shield=True):
            await client.close()

    run(backend, scenario)
