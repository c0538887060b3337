"""Clients of the user's own, with what users do to them: mocks, hooks, headers, redirects, cookies, secrets that come back."""

from __future__ import annotations

import gzip
import traceback
from typing import TYPE_CHECKING, Any, Final

import anyio
import httpx
import httpx2
import openai
import pytest
from transport_support import (
    HELLO,
    KEY,
    OKAY,
    RawServer,
    agent_over,
    always,
    ask,
    close,
    each_backend,
    each_client,
    each_kind,
    head,
    make_client,
    outcome,
    replies,
    run,
    spoken,
    with_length,
)

from micdrop_agent import ChatAgent, MistralAgent, OpenaiAgent, ProviderError, Retry

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

TEXT: Final = spoken("Hello ", "you.")
NO_QUOTA: Final = b'{"error": {"message": "pay first", "code": "insufficient_quota"}}'
ONCE: Final = Retry(max_retries=1, first_wait=0)


def package(kind: str) -> Any:
    return httpx if kind in {"httpx", "openai-httpx"} else httpx2


# -- what the client has read already


def mocked(kind: str, status: int, body: bytes, calls: list[str], *, streamed: bool = False, **headers: str) -> Any:
    http = package(kind)

    async def pieces() -> AsyncIterator[bytes]:
        yield body[:10]
        yield body[10:]

    def answer(request: Any) -> Any:
        calls.append(str(request.url))
        return http.Response(status, content=pieces() if streamed else body, headers=headers)

    return make_client(kind, "http://mock.test/v1", transport=http.MockTransport(answer))


@each_backend
@each_client
@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("encoding", ["identity", "gzip"])
def test_a_mock_of_the_client_is_a_server(backend: str, kind: str, streamed: bool, encoding: str) -> None:
    async def scenario() -> None:
        calls: list[str] = []
        body = gzip.compress(TEXT) if encoding == "gzip" else TEXT
        client = mocked(kind, 200, body, calls, streamed=streamed, **{"content-encoding": encoding})
        async with agent_over(kind, "http://mock.test/v1", client=client) as agent:
            assert await ask(agent) == await ask(agent) == "Hello you."
        assert len(calls) == 2

    run(backend, scenario)


@each_backend
@each_client
@pytest.mark.parametrize("streamed", [False, True])
def test_the_body_of_an_error_of_a_mock_is_read(backend: str, kind: str, streamed: bool) -> None:
    async def scenario() -> None:
        calls: list[str] = []
        client = mocked(kind, 429, NO_QUOTA, calls, streamed=streamed)
        async with agent_over(kind, "http://mock.test/v1", client=client, retry=ONCE) as agent:
            error = await ask(agent)
        assert (error.kind, error.status, error.code, len(calls)) == ("quota", 429, "insufficient_quota", 1)
        assert "pay first" in str(error)

    run(backend, scenario)


async def read_all(response: Any) -> None:
    await response.aread()


async def raise_for_status(response: Any) -> None:
    response.raise_for_status()


async def read_and_raise(response: Any) -> None:
    await response.aread()
    response.raise_for_status()


@each_backend
@each_client
@pytest.mark.parametrize("hook", [read_all, raise_for_status, read_and_raise])
def test_a_hook_may_read_the_response_or_raise_for_its_status(backend: str, kind: str, hook: Any) -> None:
    async def scenario() -> None:
        quota = with_length(NO_QUOTA, "429 Too Many Requests", kind="application/json")
        auth = with_length(b"{}", "401 Unauthorized", kind="application/json")
        late = with_length(b"{}", "503 Service Unavailable", "retry-after: 7", kind="application/json")
        server = RawServer(*(replies(answer) for answer in (quota, auth, late)), always(HELLO))
        async with server.listening() as url:
            client = make_client(kind, url, event_hooks={"response": [hook]})
            async with agent_over(kind, url, client=client) as agent:
                first, second, third = [await ask(agent) for _ in range(3)]
                assert await ask(agent) == "Hello you."
        # Without the body's words nothing tells an empty account from too many requests.
        assert (outcome(first), first.code) in {("<quota 429>", "insufficient_quota"), ("<rate_limit 429>", None)}
        assert hook is raise_for_status or first.kind == "quota"
        assert (outcome(second), outcome(third), third.retry_after) == ("<auth 401>", "<overloaded 503>", 7)
        assert len(server.seen) == 4

    run(backend, scenario)


@each_backend
@pytest.mark.parametrize("kind", ["httpx2", "httpx"])
def test_an_auth_flow_that_reads_the_response_does_no_harm(backend: str, kind: str) -> None:
    http = package(kind)

    class Reading(http.Auth):  # type: ignore[misc, name-defined, unused-ignore]  # one of two packages
        requires_response_body = True

        def auth_flow(self, request: Any) -> Any:
            response = yield request
            assert response.content

    async def scenario() -> None:
        server = RawServer(replies(with_length(NO_QUOTA, "429 Too Many Requests")), always(HELLO))
        async with server.listening() as url:
            client = http.AsyncClient(auth=Reading())
            async with agent_over(kind, url, client=client) as agent:
                assert outcome(await ask(agent)) == "<quota 429>"
                assert await ask(agent) == "Hello you."

    run(backend, scenario)


# -- what the client sends


@each_backend
@each_kind
def test_a_clients_own_headers_survive(backend: str, kind: str) -> None:
    own = {"User-Agent": "hotel-line/7", "Accept": "text/event-stream;q=1", "X-Team": "front desk"}

    async def scenario() -> None:
        server = RawServer(always(HELLO))
        async with server.listening() as url:
            client = None
            if kind.startswith("openai"):
                client = openai.AsyncOpenAI(api_key=KEY, base_url=url, default_headers=own)
            elif kind != "own":
                client = package(kind).AsyncClient(headers=own)
            async with agent_over(kind, url, client=client) as agent:
                assert await ask(agent) == "Hello you."
        sent = server.seen[0].headers
        if kind == "own":
            assert (sent["user-agent"], sent["accept"]) == ("micdrop-agent", "text/event-stream, application/json")
        else:
            assert {name: sent[name.lower()] for name in own} == own
        assert sent["accept-encoding"] == "identity"
        assert sent["content-type"] == "application/json"

    run(backend, scenario)


@each_backend
@each_kind
@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent"])
def test_no_redirect_takes_the_conversation_to_another_host(backend: str, kind: str, status: str) -> None:
    async def scenario() -> None:
        other = RawServer(always(HELLO))
        async with other.listening() as elsewhere:
            server = RawServer(always(head(status, f"location: {elsewhere}/chat?token=1", "content-length: 0")))
            async with server.listening() as url:
                options = {} if kind == "own" else {"follow_redirects": True}
                client = make_client(kind, url, **options)
                async with agent_over(kind, url, client=client) as agent:
                    error = await ask(agent)
        assert (error.kind, error.status, len(server.seen), len(other.seen)) == ("protocol", int(status[:3]), 1, 0)
        assert elsewhere in str(error)
        assert "token" not in str(error)

    run(backend, scenario)


@each_backend
@each_kind
def test_no_cookie_is_kept_of_what_a_server_sets_and_the_users_own_stay(backend: str, kind: str) -> None:
    async def scenario() -> None:
        answer = with_length(TEXT, "200 OK", "set-cookie: track=1; Path=/", "set-cookie: lang=xx; Path=/")
        server = RawServer(always(answer))
        async with server.listening() as url:
            client = make_client(kind, url)
            if client is not None:
                jar = getattr(client, "_client", client).cookies
                jar.set("mine", "1", domain="127.0.0.1", path="/")
            async with agent_over(kind, url, client=client) as agent:
                assert await ask(agent) == await ask(agent) == "Hello you."
        cookies = [seen.headers.get("cookie", "") for seen in server.seen]
        assert cookies == ([""] * 2 if kind == "own" else ["mine=1"] * 2)

    run(backend, scenario)


# -- what comes back


def told(error: BaseException) -> str:
    """Everything that a report of ``error`` could show."""
    facts = [str(value) for value in vars(error).values()]
    return "".join(traceback.format_exception(error)) + repr(error) + "".join(facts)


ECHOES: Final[dict[str, Callable[[bytes], bytes]]] = {
    "message": lambda key: b'{"error": {"message": "bad key %s"}}' % key,
    "code": lambda key: b'{"error": {"code": "bad_key:%s", "message": "no"}}' % key,
    "type": lambda key: b'{"error": {"type": "Bearer %s", "message": "no"}}' % key,
    "cut by the limit": lambda key: b'{"error": {"message": "%s %s"}}' % (b"x" * 290, key),
    "cut behind blanks": lambda key: b'{"error": {"message": "%s %s"}}' % (b" " * 1190, key),
    "cut in a code": lambda key: b'{"error": {"code": "%s%s"}}' % (b"x" * 90, key),
    "page": lambda key: b"<html><title>Refused %s</title></html>" % key,
    "text": lambda key: b"Refused " + key,
}


@each_backend
@each_kind
@pytest.mark.parametrize("echo", ECHOES)
@pytest.mark.parametrize("key", [KEY, "8f14e45fceea167a"])
def test_a_key_that_a_server_repeats_is_shown_nowhere(backend: str, kind: str, echo: str, key: str) -> None:
    body = ECHOES[echo](key.encode())

    async def scenario() -> None:
        answers = [
            with_length(body, "401 Unauthorized", f"x-request-id: {key}", kind="application/json"),
            with_length(b"event: error\ndata: " + body + b"\n\n"),
            head(f"HTTP/{key}"),
            head("307 Moved", f"location: http://x.test/{key}", "content-length: 0"),
            f"HTTP/1.1 200 OK\r\nbad header {key}\r\n\r\n".encode(),
        ]
        server = RawServer(*(replies(answer) for answer in answers))
        async with server.listening() as url:
            if kind == "own":
                client = None
            elif kind.startswith("openai"):
                client = openai.AsyncOpenAI(api_key=key, base_url=url, http_client=package(kind).AsyncClient())
            else:
                client = package(kind).AsyncClient(headers={"authorization": f"Bearer {key}"})
            options: dict[str, Any] = {"api_key": key} if kind == "own" else {}
            async with ChatAgent(
                model="m", base_url=url, client=client, retry=Retry(max_retries=0), raise_on_failure=False, **options
            ) as agent:
                for _ in answers:
                    error = await ask(agent)
                    assert isinstance(error, ProviderError)
                    shown = told(error)
                    assert key not in shown
                    assert key[:-2] not in shown
            await close(client)

    run(backend, scenario)


# -- which clients


@each_backend
def test_the_response_to_come_is_told_of_a_client_that_was_made_for_an_older_package(backend: str) -> None:
    """An SDK client runs on httpx too (openai 2.x always does): its responses are read like any other."""

    async def scenario() -> None:
        server = RawServer(always(HELLO))
        async with server.listening() as url:
            legacy: Any = httpx.AsyncClient()
            client = openai.AsyncOpenAI(api_key=KEY, base_url=url, http_client=legacy)
            for make in (ChatAgent, OpenaiAgent, MistralAgent):
                if make is OpenaiAgent:
                    continue
                made: Any = make
                async with made(model="m", client=client) as agent:
                    assert await ask(agent) == "Hello you."
            await close(client)
        assert {seen.headers["authorization"] for seen in server.seen} == {f"Bearer {KEY}"}

    run(backend, scenario)


@each_backend
@each_client
def test_an_answer_that_is_cut_leaves_the_client_usable(backend: str, kind: str) -> None:
    async def scenario() -> None:
        async def held(connection: Any) -> None:
            await connection.request()
            await connection.send(HELLO[:-40])
            await connection.hold()

        server = RawServer(held, held, always(OKAY))
        async with server.listening() as url, agent_over(kind, url) as agent:
            for _ in range(2):
                agent.add_user_message("hi")
                answer = agent.answer()
                await answer.receive()
                agent.cancel()
            await server.until(lambda: server.left == 2)
            assert await ask(agent) == "Okay."
            await anyio.lowlevel.checkpoint()

    run(backend, scenario)
