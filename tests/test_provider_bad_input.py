"""What users and servers get wrong: a clear error each, nothing hangs, and no key is shown anywhere."""

from __future__ import annotations

import gc
import logging
import socket
import ssl
import traceback
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.abc
import httpx2
import openai
import pytest
from llmock_support import run

from micdrop_agent import ChatAgent, FallbackAgent, MistralAgent, OpenaiAgent, ProviderError, Retry, Timeouts, tool
from micdrop_agent.testing import BACKENDS, ScriptedProvider, call_tool, fault, parts, run_virtual, say
from micdrop_agent.testing._writers import writer_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from micdrop_agent.testing import Backend, Exchange, Reply

KEY: Final = "sk-very-secret-0123456789abcdef"
NEVER: Final = Retry(max_retries=0)
AGENTS: Final = [(ChatAgent, "OPENAI_API_KEY"), (OpenaiAgent, "OPENAI_API_KEY"), (MistralAgent, "MISTRAL_API_KEY")]
each_agent = pytest.mark.parametrize("make", [make for make, _ in AGENTS])
each_backend = pytest.mark.parametrize("backend", BACKENDS)
each_loop = pytest.mark.parametrize("backend", ["asyncio", "trio"])


def shown(error: BaseException) -> str:
    """All that a report of ``error`` may hold: its texts, its causes, and the local variables of every frame."""
    report = traceback.TracebackException.from_exception(error, capture_locals=True)
    return f"{error!r}{error}{vars(error)}{''.join(report.format())}"


async def failure(agent: Any) -> ProviderError:
    """What an answer of ``agent``, whose ``raise_on_failure`` is on, fails with."""
    async with agent:
        agent.add_user_message("hi")
        with pytest.raises(ProviderError) as caught:
            _ = [chunk async for chunk in agent.answer()]
    return caught.value


def fails(
    backend: Backend, make: Callable[..., Any], reply: Reply, caplog: pytest.LogCaptureFixture, **options: Any
) -> ProviderError:
    """The error of one answer to a scripted server, once it is sure that the key is nowhere in it."""
    server = ScriptedProvider([reply])

    async def scenario() -> ProviderError:
        given: dict[str, Any] = {"model": "m", "api_key": KEY, "base_url": server.base_url, "retry": NEVER, **options}
        async with server:
            agent = make(connect=server.connect, **given)
            assert KEY not in f"{agent!r}{agent}"
            error = await failure(agent)
            await server.until(lambda: server.open_connections == 0)
            return error

    with caplog.at_level(logging.DEBUG):
        error = run_virtual(backend, scenario)
    assert KEY not in caplog.text
    assert KEY not in shown(error)
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
    return error


def page(status: int, body: bytes, content_type: str = "text/html", **headers: str) -> Reply:
    async def reply(exchange: Exchange) -> None:
        await exchange.head(status, {"content-type": content_type, **headers})
        await exchange.send(body)
        await exchange.end()

    return reply


def endless(piece: bytes, *, gap: float = 0.0, first: bytes = b"") -> Reply:
    async def reply(exchange: Exchange) -> None:
        await exchange.send(first)
        while True:
            await exchange.send(piece)
            await anyio.sleep(gap)

    return reply


# -- keys


@pytest.mark.parametrize(("make", "variable"), AGENTS)
@pytest.mark.parametrize("value", [None, "", "  \n"])
def test_a_missing_key_is_told_by_its_variable_before_any_request(
    make: Callable[..., Any], variable: str, value: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(variable, raising=False)
    if value is not None:
        monkeypatch.setenv(variable, value)
    server = ScriptedProvider([say("x")])
    with pytest.raises(ProviderError, match=rf"set the environment variable {variable}, or pass api_key=") as caught:
        make(connect=server.connect)
    assert caught.value.kind == "auth"
    assert server.requests == []


def test_a_missing_key_of_a_child_is_a_child_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    async def scenario() -> str:
        async with ScriptedProvider([say("Hello.")]) as server:
            down = [lambda: ChatAgent(model="m", base_url="http://x.test", connect=server.connect, api_key=KEY)]
            async with FallbackAgent([*down, OpenaiAgent]) as agent:
                server.refuse = 1
                agent.add_user_message("hi")
                answer = agent.answer()
                with pytest.raises(Exception, match="OPENAI_API_KEY"):
                    _ = [chunk async for chunk in answer]
                return str(answer.result.error)

    assert KEY not in run_virtual("asyncio", scenario)


@each_backend
@each_agent
@pytest.mark.parametrize("echo", [KEY, f"{KEY[:7]}*****{KEY[-4:]}", f"Bearer {KEY}"])
def test_a_wrong_key_is_told_without_it(
    backend: Backend, make: Callable[..., Any], echo: str, caplog: pytest.LogCaptureFixture
) -> None:
    body = b'{"error":{"message":"Incorrect API key provided: %b","code":"invalid_api_key"}}' % echo.encode()
    error = fails(backend, make, page(401, body, "application/json"), caplog)
    assert (error.kind, error.status, error.retryable) == ("auth", 401, False)
    assert "the key is not accepted" in str(error)


# -- what is asked for


@each_backend
@each_agent
@pytest.mark.parametrize(
    ("status", "body", "kind", "words"),
    [
        (
            404,
            b'{"error":{"message":"The model m does not exist","code":"model_not_found"}}',
            "not_found",
            "no such model",
        ),
        (400, b'{"error":{"message":"Unknown model: m","code":"invalid_model"}}', "not_found", "Unknown model: m"),
        (
            400,
            b'{"error":{"message":"maximum context length is 8 tokens","code":"context_length_exceeded"}}',
            "context_length",
            "too long for the model",
        ),
        (422, b'{"detail":[{"loc":["body","temperature"],"msg":"not a number"}]}', "bad_request", "not a number"),
    ],
)
def test_an_unknown_model_and_a_conversation_that_is_too_long_are_named(
    backend: Backend,
    make: Callable[..., Any],
    status: int,
    body: bytes,
    kind: str,
    words: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    error = fails(backend, make, page(status, body, "application/json"), caplog)
    assert (error.kind, error.retryable) == (kind, False)
    assert words in str(error)


@each_agent
@pytest.mark.parametrize("name", ["stream", "input", "messages"])
def test_settings_that_collide_with_what_the_agent_makes_are_refused_by_name(
    make: Callable[..., Any], name: str
) -> None:
    with pytest.raises(ValueError, match=f"settings must not hold '{name}'"):
        make(api_key=KEY, settings={"temperature": 0, name: None})


@each_agent
@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ([("temperature", 0)], "settings must be a mapping"),
        ("temperature", "settings must be a mapping"),
        ({1: 2}, "a name in settings"),
        ({"": 2}, "a name in settings"),
        ({"metadata": object()}, "'metadata'"),
        ({"temperature": float("nan")}, "'temperature'"),
        ({"stop": {1, 2}}, "'stop'"),
    ],
)
def test_settings_that_no_request_can_hold_are_refused_by_name(
    make: Callable[..., Any], settings: Any, words: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        make(api_key=KEY, settings=settings)


@each_agent
@pytest.mark.parametrize(
    "url",
    [
        "api.example.com/v1",
        "localhost:11434",
        "ftp://example.com",
        "http://",
        "http://:80/v1",
        "https://exa mple.com",
        "http://example.com:99999",
        "http://example.com:http",
        "http://[::1",
        "//example.com",
        "http://example.com/\nHost: evil",
        "file:///etc/passwd",
        "",
    ],
)
def test_a_base_url_that_is_no_url_is_refused_when_the_agent_is_made(make: Callable[..., Any], url: str) -> None:
    with pytest.raises(ValueError, match="base_url"):
        make(api_key=KEY, base_url=url)


def test_a_base_url_that_is_refused_is_not_repeated_with_its_password() -> None:
    with pytest.raises(ValueError, match="base_url") as caught:
        ChatAgent(base_url="ftp://user:hunter2@example.com")
    assert "hunter2" not in str(caught.value)


# -- servers that are none


@each_backend
@each_agent
@pytest.mark.parametrize(
    ("reply", "kind", "words"),
    [
        (
            page(200, b"<!DOCTYPE html><html>Log in</html>"),
            "protocol",
            "page in place of a model response; see base_url",
        ),
        (page(200, b"\n\n <html>"), "protocol", "page in place of a model response; see base_url"),
        (page(502, b"<html>Bad Gateway</html>"), "server", "HTTP 502"),
        (page(404, b"<html>Not Found</html>"), "not_found", "no such model or path"),
        (page(404, b"404 page not found\n", "text/plain"), "not_found", "404 page not found"),
        (page(405, b""), "bad_request", "HTTP 405"),
        (page(200, b'{"hello":"you"}', "application/json"), "protocol", "JSON that is not a model response"),
        (page(200, b"[1, 2]", "application/json"), "protocol", "JSON"),
        (page(200, b"hello", "text/plain"), "truncated", "cut off"),
        (page(200, b""), "truncated", "cut off"),
        (page(204, b""), "truncated", "cut off"),
        (
            page(302, b"", location="https://sso.test/login?token=1"),
            "protocol",
            "a redirect to https://sso.test/login, ",
        ),
        (page(307, b"", location="/v2/"), "protocol", "a redirect to /v2/, which is not followed; see base_url"),
        (page(304, b""), "protocol", "HTTP 304"),
    ],
)
def test_a_server_that_is_no_model_server_is_told_from_one(
    backend: Backend,
    make: Callable[..., Any],
    reply: Reply,
    kind: str,
    words: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    error = fails(backend, make, reply, caplog)
    assert (error.kind, error.text_sent) == (kind, False)
    assert words in str(error)
    assert "token=1" not in str(error)
    assert len(str(error)) < 500


# -- what does not end


@each_backend
@each_agent
@pytest.mark.parametrize(
    ("reply", "kind", "words"),
    [
        (endless(b"x" * 65536, first=b"data: "), "protocol", "a line of more than 1,048,576 bytes"),
        (endless(b"data: " + b"x" * 65536 + b"\n"), "protocol", "an event of more than 1,048,576 bytes"),
        (endless(b"x" * 65536, first=b'{"choices":"'), "protocol", "more than 1,048,576 bytes of JSON"),
        (endless(b" " * 65536), "protocol", "1,048,576 bytes"),
        (endless(b": keep-alive\n\n", gap=0.5), "timeout", "5 seconds, Timeouts: first chunk"),
        (endless(b"\n", gap=0.5), "timeout", "5 seconds, Timeouts: first chunk"),
        (endless(b'data: {"choices":[{"delta":{"role":"assistant"}}]}\n\n', gap=0.5), "timeout", "first chunk"),
        (fault("stall_before_headers"), "timeout", "first chunk"),
        (fault("stall_after_headers"), "timeout", "first chunk"),
    ],
)
def test_what_never_ends_is_ended_by_a_limit_or_a_clock(
    backend: Backend,
    make: Callable[..., Any],
    reply: Reply,
    kind: str,
    words: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    error = fails(backend, make, reply, caplog)
    assert (error.kind, error.retryable) == (kind, False)
    assert words in str(error)


@each_backend
@each_agent
def test_keep_alives_behind_words_do_not_keep_an_answer_alive(
    backend: Backend, make: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    reply = parts([{"text": ["Hello "]}, {"keepalives": 0.5}])
    error = fails(backend, make, reply, caplog)
    assert (error.kind, error.text_sent) == ("timeout", True)
    assert "between chunks" in str(error)


# -- too much


@tool
def look_up(what: str = "") -> str:
    """Look something up."""
    return what


def in_pieces(count: int) -> Reply:
    async def reply(exchange: Exchange) -> None:
        writer = writer_of(exchange.request.path)
        await exchange.send(writer.call_begun("c1", "look_up", '{"what":"'))
        piece = "x" * 2000
        responses = 'data: {"type":"response.function_call_arguments.delta","item_id":"fc_c1","output_index":0,"delta":"%s"}\n\n'
        chat = 'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"%s"}}]}}]}\n\n'
        event = (responses if exchange.request.path.endswith("/responses") else chat) % piece
        for _ in range(count):
            await exchange.send(event.encode())
        await exchange.until_closed()

    return reply


@each_backend
@each_agent
@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (call_tool("look_up", {"what": "x" * 10_000_000}), "1,048,576 bytes"),
        (in_pieces(5000), "more than 1,048,576 characters of tool arguments"),
    ],
    ids=["whole", "in pieces"],
)
def test_ten_megabytes_of_tool_arguments_are_refused_and_nothing_is_run(
    backend: Backend, make: Callable[..., Any], reply: Reply, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    error = fails(backend, make, reply, caplog, tools=[look_up])
    assert error.kind == "protocol"
    assert words in str(error)


# -- ports where nobody speaks HTTP


@asynccontextmanager
async def port_that_says(*pieces: bytes) -> AsyncGenerator[int]:
    """A TCP port that reads once, sends ``pieces`` and closes."""

    async def serve(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            try:
                await stream.receive()
                for piece in pieces:
                    await stream.send(piece)
            except (anyio.BrokenResourceError, anyio.EndOfStream):
                pass

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, serve)
        yield listener.extra(anyio.abc.SocketAttribute.local_port)
        group.cancel_scope.cancel()


def every_client(url: str) -> list[Any]:
    return [None, httpx2.AsyncClient(), openai.AsyncOpenAI(api_key=KEY, base_url=url)]


async def all_fail(url: str) -> list[ProviderError]:
    """What each kind of client makes of a port; the key is in nothing of it."""
    errors: list[ProviderError] = []
    for client in every_client(url):
        errors.append(
            await failure(
                ChatAgent(
                    model="m", api_key=KEY, base_url=url, client=client, retry=NEVER, timeouts=Timeouts(first_chunk=20)
                )
            )
        )
        assert KEY not in shown(errors[-1])
        if client is not None:
            await (client.close() if hasattr(client, "close") else client.aclose())
    return errors


@each_loop
@pytest.mark.parametrize(
    "says",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"\x15\x03\x01\x00\x02\x02\x46",  # a TLS port, spoken to in plain, answers with an alert
        b"HTTP/1.1 200 OK",
        b"",
    ],
)
def test_a_port_that_does_not_speak_http_is_a_connection_that_failed(
    backend: str, says: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with port_that_says(says) as port:
            for error in await all_fail(f"http://127.0.0.1:{port}/v1"):
                assert error.kind in {"connection", "protocol" if says.startswith(b"\x15") else "connection"}
                assert error.kind == "connection" or "https://" in str(error)

    with caplog.at_level(logging.DEBUG):
        run(backend, scenario)
    assert KEY not in caplog.text
    gc.collect()


@each_loop
def test_a_plain_port_that_is_spoken_to_in_tls_is_named(backend: str) -> None:
    async def scenario() -> None:
        async with port_that_says(b"HTTP/1.1 400 Bad Request\r\n\r\n") as port:
            for error in await all_fail(f"https://127.0.0.1:{port}/v1"):
                assert error.kind == "connection"
                assert "SSL" in str(error)

    run(backend, scenario)


@each_loop
def test_a_refused_connection_names_host_and_port(backend: str) -> None:
    async def scenario() -> None:
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))
            port = nobody.getsockname()[1]
            ours, *theirs = await all_fail(f"http://127.0.0.1:{port}/v1")
            assert ours.kind == "connection"
            assert f"cannot connect to 127.0.0.1:{port}" in str(ours)
            assert [error.kind for error in theirs] == ["connection"] * 2

    run(backend, scenario)


def test_the_context_of_tls_checks_names_and_certificates() -> None:
    from micdrop_agent.transport.tls import make_default_context

    context = make_default_context()
    assert (context.check_hostname, context.verify_mode) == (True, ssl.CERT_REQUIRED)
