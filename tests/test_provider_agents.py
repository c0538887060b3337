"""The three agents over a scripted server: keys, options, connections, failures."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

from micdrop_agent import ChatAgent, MistralAgent, OpenaiAgent, ProviderError, Retry
from micdrop_agent.testing import BACKENDS, ScriptedProvider, fault, run_virtual, say

if TYPE_CHECKING:
    from collections.abc import Callable

    from micdrop_agent.testing import Backend, Exchange, Reply

AGENTS = [(OpenaiAgent, "OPENAI_API_KEY"), (MistralAgent, "MISTRAL_API_KEY"), (ChatAgent, "OPENAI_API_KEY")]
ONCE = Retry(max_retries=0)


def body_of(*pieces: bytes, status: int = 200, end: bool = True, headers: dict[str, str] | None = None) -> Reply:
    async def reply(exchange: Exchange) -> None:
        await exchange.head(status, headers)
        for piece in pieces:
            await exchange.send(piece)
        if end:
            await exchange.end()
        else:
            await exchange.until_closed()

    return reply


def ask(
    backend: Backend, script: list[Reply], make: Callable[..., Any] = ChatAgent, **options: Any
) -> tuple[str, Any, ScriptedProvider]:
    """What an agent says to "hi", its result, and the server it asked."""
    server = ScriptedProvider(script)

    async def scenario() -> tuple[str, Any]:
        more = {"base_url": "http://provider.test/v1", "api_key": "test-key", "retry": ONCE, **options}
        async with server, make(connect=server.connect, raise_on_failure=False, **more) as agent:
            agent.add_user_message("hi")
            answer = agent.answer()
            text = "".join([piece async for piece in answer])
            return text, answer.result

    text, result = run_virtual(backend, scenario)
    return text, result, server


@pytest.mark.parametrize(("make", "variable"), AGENTS)
def test_a_missing_key_is_told_by_the_name_of_its_variable(
    make: Callable[..., Any], variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(variable, raising=False)
    with pytest.raises(ProviderError, match=variable) as caught:
        make()
    assert caught.value.kind == "auth"


@pytest.mark.parametrize(("make", "variable"), AGENTS)
def test_a_key_from_the_environment_is_used_and_never_shown(
    make: Callable[..., Any], variable: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(variable, "sk-very-secret\n")
    agent = make()
    provider = agent._core.provider
    assert provider.headers == {"authorization": "Bearer sk-very-secret"}
    for thing in (agent, provider, provider.transport, provider.builder, caplog.text):
        assert "very-secret" not in repr(thing)


def test_the_environments_key_goes_to_openai_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    provider: Any = ChatAgent(base_url="http://localhost:11434/v1", model="m")._core.provider
    assert provider.headers == {}


@pytest.mark.parametrize("key", ["two words", "schlüssel", "a\nb"])
def test_a_key_that_no_header_can_hold_is_refused_and_not_shown(key: str) -> None:
    with pytest.raises(ValueError, match="api_key") as caught:
        OpenaiAgent(api_key=key)
    assert key not in str(caught.value)


@pytest.mark.parametrize(
    ("make", "model", "path"),
    [
        (OpenaiAgent, "gpt-4o", "/v1/responses"),
        (MistralAgent, "mistral-large-latest", "/v1/chat/completions"),
        (ChatAgent, "gpt-4o", "/v1/chat/completions"),
    ],
)
@pytest.mark.parametrize("backend", BACKENDS)
def test_an_agent_asks_its_model_on_its_path_with_its_key(
    backend: Backend, make: Callable[..., Any], model: str, path: str
) -> None:
    text, result, server = ask(backend, [say("Hello ", "there.")], make)
    assert (text, result.status) == ("Hello there.", "completed")
    (request,) = server.requests
    assert (request.path, request.body["model"], request.body["stream"]) == (path, model, True)
    assert request.headers["authorization"] == "Bearer test-key"
    assert request.headers["accept-encoding"] == "identity"


@pytest.mark.parametrize(
    "options",
    [
        {"settings": {"stream": False}},
        {"settings": {"input": []}},
        {"settings": {"messages": []}},
        {"model": ""},
        {"base_url": "localhost:11434"},
        {"max_steps": 0},
    ],
)
@pytest.mark.parametrize(("make", "_variable"), AGENTS)
def test_a_bad_option_is_refused_when_the_agent_is_made(
    make: Callable[..., Any], _variable: str, options: dict[str, Any]
) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        make(api_key="k", **options)


def test_an_unknown_dialect_is_refused() -> None:
    with pytest.raises(ValueError, match="dialect"):
        ChatAgent(api_key="k", dialect="klingon")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["max_tokens", "maxTokens"])
def test_mistral_settings_may_have_the_names_of_either_world(name: str) -> None:
    _, _, server = ask("asyncio", [say("x")], MistralAgent, settings={name: 9, "temperature": 0.5})
    assert server.requests[0].body["max_tokens"] == 9
    assert "stream_options" not in server.requests[0].body


def test_usage_is_asked_for_unless_the_server_refuses_to_be_asked() -> None:
    _, _, server = ask("asyncio", [say("x")])
    assert server.requests[0].body["stream_options"] == {"include_usage": True}
    _, _, server = ask("asyncio", [say("x")], include_usage=False)
    assert "stream_options" not in server.requests[0].body


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_refused_request_is_an_error_with_the_facts_and_without_the_key(
    backend: Backend, caplog: pytest.LogCaptureFixture
) -> None:
    body = b'{"error":{"message":"Incorrect API key provided: test-key","code":"invalid_api_key"}}'
    with caplog.at_level(logging.DEBUG):
        _, result, server = ask(backend, [body_of(body, status=401, headers={"x-request-id": "req_1"})])
    error = result.error
    assert isinstance(error, ProviderError)
    assert (error.kind, error.status, error.code, error.request_id) == ("auth", 401, "invalid_api_key", "req_1")
    assert error.provider == "chat"
    assert "test-key" not in f"{error}{caplog.text}"
    assert len(server.requests) == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_error_whose_body_never_ends_is_that_error_all_the_same(backend: Backend) -> None:
    _, result, _ = ask(backend, [body_of(b'{"error":', status=400, end=False)])
    assert result.error.kind == "bad_request"


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_page_in_place_of_an_answer_is_a_clear_failure(backend: Backend) -> None:
    _, result, _ = ask(backend, [body_of(b"<!DOCTYPE html><html>Log in</html>", headers={"content-type": "text/html"})])
    assert (result.error.kind, result.error.provider) == ("protocol", "chat")


CHUNK = b'data: {"choices":[{"index":0,"delta":{"content":"Hi."},"finish_reason":%b}]}\n\n'


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_cut_behind_the_finish_reason_costs_the_connection_and_not_the_answer(backend: Backend) -> None:
    async def reply(exchange: Exchange) -> None:
        await exchange.send(CHUNK % b'"stop"')
        await exchange.reset()

    text, result, _ = ask(backend, [reply])
    assert (text, result.status, result.finish_reason) == ("Hi.", "completed", "stop")


@pytest.mark.parametrize("name", ["cut_after_text", "reset_after_text", "end_without_mark", "error_after_text"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_cut_in_the_answer_fails_behind_its_words(backend: Backend, name: Any) -> None:
    text, result, _ = ask(backend, [fault(name)])
    assert text == "Hello "
    assert result.error.kind in {"truncated", "connection", "server"}
    assert (result.error.text_sent, result.error.retryable, result.error.provider) == (True, False, "chat")


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_cut_before_the_first_word_is_tried_again(backend: Backend) -> None:
    cut = fault("cut_after_text", text=[])
    text, result, server = ask(backend, [cut, say("Okay.")], retry=Retry(max_retries=1))
    assert (text, result.status, len(server.requests)) == ("Okay.", "completed", 2)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_connection_serves_the_next_answer_too(backend: Backend) -> None:
    async def scenario() -> list[int]:
        async with ScriptedProvider([say("one"), say("two"), say("three")]) as server:
            async with OpenaiAgent(api_key="k", base_url="http://x.test/v1", connect=server.connect) as agent:
                for _ in range(3):
                    agent.add_user_message("hi")
                    await agent.answer().wait()
            return [request.connection for request in server.requests]

    assert run_virtual(backend, scenario) == [1, 1, 1]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_server_that_ignores_stream_is_understood(backend: Backend) -> None:
    body = b'{"choices":[{"message":{"content":"Hello."},"finish_reason":"stop"}],"usage":{"prompt_tokens":3}}'
    text, result, _ = ask(backend, [body_of(body, headers={"content-type": "application/json"})])
    assert text == "Hello."
    assert result.usage.input_tokens == 3


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_typed_dialect_calls_what_the_model_said_a_message(backend: Backend) -> None:
    """llama.cpp answers 400 ("Cannot determine type of 'item'") to the short form: tests/test_servers_llama.py."""

    async def scenario() -> list[Any]:
        async with ScriptedProvider([say("Hello.")]) as server:
            options: dict[str, Any] = {"api_key": "k", "base_url": server.base_url, "connect": server.connect}
            async with OpenaiAgent(dialect="typed", **options) as agent:
                for _ in range(2):
                    agent.add_user_message("hi")
                    await agent.answer().wait()
            return [item for item in server.requests[1].body["input"] if item["role"] == "assistant"]

    assert run_virtual(backend, scenario) == [{"type": "message", "role": "assistant", "content": "Hello."}]
    with pytest.raises(ValueError, match="dialect"):
        OpenaiAgent(api_key="k", dialect="klingon")  # type: ignore[arg-type]


@pytest.mark.parametrize(("make", "_variable"), AGENTS)
def test_a_member_of_the_request_is_sent_to_the_settings(make: Callable[..., Any], _variable: str) -> None:
    with pytest.raises(TypeError, match=r"no option 'temperature'.*settings=\{'temperature': …\}"):
        make(api_key="k", temperature=0.3)
    with pytest.raises(TypeError, match="did you mean 'base_url'"):
        make(api_key="k", base_ur="http://a.test")
