"""What each provider's error codes mean, and what is done about an output that is of no use."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from micdrop_agent import ChatAgent, ProviderError, Retry
from micdrop_agent.providers.code_sources import CODES
from micdrop_agent.providers.failure_codes import KIND_OF_CODE
from micdrop_agent.providers.failures import status_error, stream_error
from micdrop_agent.testing import BACKENDS, ScriptedProvider, parts, run_virtual, say

if TYPE_CHECKING:
    from micdrop_agent.testing import Backend, Exchange, Reply

ROWS = [(row.provider, code, kind) for row in CODES for kind, codes in row.codes.items() for code in codes]


@pytest.mark.parametrize(("provider", "code", "kind"), ROWS)
def test_a_code_means_the_same_in_every_row_and_in_a_stream(provider: str, code: str, kind: str) -> None:
    assert code == code.lower()
    assert KIND_OF_CODE[code] == kind
    for spelling in (code, code.upper()):
        for error in ({"code": spelling}, {"type": spelling, "message": "x"}):
            assert stream_error({"error": error}, provider=provider).kind == kind


def test_every_row_has_a_source() -> None:
    assert all(row.source.startswith("https://") for row in CODES)


@pytest.mark.parametrize("status", [400, 429, 500, 503])
def test_an_overload_is_one_whatever_its_status(status: int) -> None:
    body = json.dumps({"error": {"type": "service_unavailable_error", "code": "server_is_overloaded"}}).encode()
    error = status_error(status, {}, body, provider="p")
    assert (error.kind, error.retryable) == ("overloaded", True)


TOO_LONG = [
    ("anthropic", {"type": "invalid_request_error", "message": "prompt is too long: 201000 tokens > 200000 maximum"}),
    (
        "anthropic",
        {"type": "invalid_request_error", "message": "input length and `max_tokens` exceed context limit: 1"},
    ),
    (
        "gemini",
        {
            "status": "INVALID_ARGUMENT",
            "message": "The input token count (9) exceeds the maximum number of tokens allowed (8).",
        },
    ),
    ("vllm", {"type": "BadRequestError", "message": "This model's maximum context length is 8192 tokens. However, …"}),
    ("mistral", {"message": "Prompt contains 40000 tokens, too large for model with 32768 maximum context length"}),
    ("bedrock", {"message": "Input is too long for requested model."}),
]


@pytest.mark.parametrize(("provider", "error"), TOO_LONG)
def test_a_conversation_that_is_too_long_is_known_by_its_words_where_there_is_no_code(
    provider: str, error: dict[str, str]
) -> None:
    assert status_error(400, {}, json.dumps({"error": error}).encode(), provider=provider).kind == "context_length"
    assert stream_error({"error": error}, provider=provider).kind == "context_length"


@pytest.mark.parametrize("words", ["prompt is too short", "context", "the maximum number of requests"])
def test_other_words_mean_nothing(words: str) -> None:
    body = json.dumps({"error": {"type": "invalid_request_error", "message": words}}).encode()
    assert status_error(400, {}, body, provider="p").kind == "bad_request"


def refused(status: int, error: dict[str, Any]) -> Reply:
    async def reply(exchange: Exchange) -> None:
        await exchange.head(status)
        await exchange.send(json.dumps({"error": error}).encode())
        await exchange.end()

    return reply


def in_stream(error: dict[str, Any]) -> Reply:
    async def reply(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.send(b"data: %b\n\n" % json.dumps({"error": error}).encode())
        await exchange.end()

    return reply


FAILED = {"message": "Failed to call a function.", "type": "invalid_request_error", "code": "tool_use_failed"}
USELESS = {
    "refused": refused(400, FAILED),
    "in the stream": in_stream({**FAILED, "status_code": 400}),
    "finish reason": parts([{"finish": "MALFORMED_FUNCTION_CALL"}, {"end": True}]),
    "detailed finish reason": parts([{"finish": "malformed_function_call: Malformed function call: x"}, {"end": True}]),
}


def ask(backend: Backend, script: list[Reply], retries: int) -> tuple[Any, int, float]:
    server = ScriptedProvider(script)

    async def scenario() -> Any:
        async with (
            server,
            ChatAgent(
                base_url="http://a.test/v1",
                connect=server.connect,
                retry=Retry(max_retries=retries, first_wait=3, jitter=0),
                raise_on_failure=False,
            ) as agent,
        ):
            agent.add_user_message("Hi.")
            return await agent.answer().wait()

    result = run_virtual(backend, scenario)
    return result, len(server.requests), result.duration


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("reply", USELESS.values(), ids=USELESS)
def test_an_output_of_no_use_is_asked_for_once_more_and_at_once(backend: Backend, reply: Reply) -> None:
    result, requests, duration = ask(backend, [reply, say("Good.")], 3)
    assert (result.status, result.text, requests) == ("completed", "Good.", 2)
    assert duration < 1
    result, requests, _ = ask(backend, [reply, reply, say("Good.")], 3)
    assert (result.status, requests) == ("failed", 2)
    assert isinstance(result.error, ProviderError)
    assert result.error.kind == "empty"


@pytest.mark.parametrize("backend", BACKENDS)
def test_without_retries_it_is_not(backend: Backend) -> None:
    result, requests, _ = ask(backend, [USELESS["refused"], say("Good.")], 0)
    assert (result.status, requests) == ("failed", 1)
