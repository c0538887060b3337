"""``GeminiAgent`` over a scripted server: requests, streams, signatures, usage, failures; on both loops."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from micdrop_agent import GeminiAgent, Message, ProviderError, Retry, Tool, ToolCall, ToolResult
from micdrop_agent.model.protocol import CallReady, Finish, Usage
from micdrop_agent.providers.responses.gemini_stream import GeminiTranslator
from micdrop_agent.providers.responses.http_stream import BodyReader
from micdrop_agent.testing import BACKENDS, ScriptedProvider, parts, run_virtual, say
from micdrop_agent.testing._block_writers import GeminiWriter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from micdrop_agent import Item
    from micdrop_agent.testing import Backend, Exchange, Reply

LOOK = Tool(name="look", description="Look.", execute=lambda: 1)
CITY = {"type": "object", "properties": {"city": {"type": ["string", "null"]}}}
WEATHER = Tool.from_schema("weather", "Weather.", CITY, lambda _: {"sun": True})
PLACEHOLDER = "skip_thought_signature_validator"


def talk(
    backend: Backend, script: list[Reply], *, items: Sequence[Item] = (), turns: int = 1, **options: Any
) -> tuple[list[Any], Any]:
    """The requests of some turns, and the last result."""
    server = ScriptedProvider(script)
    seen: list[Any] = []

    async def scenario() -> None:
        more: dict[str, Any] = {
            "base_url": "http://a.test/v1beta",
            "api_key": "test-key",
            "retry": Retry(max_retries=0),
            **options,
        }
        async with server, GeminiAgent(connect=server.connect, raise_on_failure=False, **more) as agent:
            if items:
                agent.conversation.replace([*agent.conversation, *items])
            for _ in range(turns):
                agent.add_user_message("Hi.")
                seen.append(await agent.answer().wait())

    run_virtual(backend, scenario)
    return server.requests, seen[-1]


def raw(*pieces: bytes) -> Reply:
    async def reply(exchange: Exchange) -> None:
        await exchange.head()
        for piece in pieces:
            await exchange.send(piece)
        await exchange.end()

    return reply


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_request_has_what_the_api_asks_for(backend: Backend) -> None:
    script = [say("Hello ", "there.")]
    (request,), result = talk(backend, script, system_prompt="Be kind.", tools=[LOOK, WEATHER])
    assert (result.text, result.status, result.finish_reason) == ("Hello there.", "completed", "stop")
    assert request.path == "/v1beta/models/gemini-flash-latest:streamGenerateContent?alt=sse"
    assert request.headers["x-goog-api-key"] == "test-key"
    assert "authorization" not in request.headers
    assert request.body == {
        "contents": [{"role": "user", "parts": [{"text": "Hi."}]}],
        "systemInstruction": {"parts": [{"text": "Be kind."}]},
        "tools": [
            {
                "functionDeclarations": [
                    {"name": "look", "description": "Look."},
                    {
                        "name": "weather",
                        "description": "Weather.",
                        "parametersJsonSchema": {
                            "type": "object",
                            "properties": {"city": {"type": "string", "nullable": True}},
                            "additionalProperties": False,
                        },
                    },
                ]
            }
        ],
    }
    assert result.usage == Usage(input_tokens=10, output_tokens=10, reasoning_tokens=3)


def with_calls(*parts: dict[str, Any]) -> Reply:
    writer = GeminiWriter()
    return raw(writer.parts([{"text": "Hm.", "thought": True}]), writer.parts(list(parts)), writer.done())


@pytest.mark.parametrize("backend", BACKENDS)
def test_thoughts_are_not_spoken_and_signatures_go_back_with_their_calls(backend: Backend) -> None:
    signed = {"functionCall": {"name": "look", "args": {}, "id": "f1"}, "thoughtSignature": "c2ln"}
    plain = {"functionCall": {"name": "weather", "args": {"city": "Oslo"}}}
    script = [with_calls({"text": "One moment. "}, signed, plain), say("Fine."), say("Bye.")]
    requests, result = talk(backend, script, tools=[LOOK, WEATHER], turns=2)
    assert result.text == "Bye."
    for request in requests[1:]:
        assert request.body["contents"][1:3] == [
            {"role": "model", "parts": [{"text": "One moment. "}, signed, plain]},
            {
                "role": "user",
                "parts": [
                    {"functionResponse": {"id": "f1", "name": "look", "response": {"output": 1}}},
                    {"functionResponse": {"name": "weather", "response": {"output": {"sun": True}}}},
                ],
            },
        ]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("model", "signed"), [("gemini-3-pro-preview", True), ("gemini-2.5-flash", False)])
def test_calls_of_another_model_are_signed_in_the_current_turn(backend: Backend, model: str, signed: bool) -> None:
    old: list[Item] = [Message("user", "So?"), ToolCall("a", "look", "{}"), ToolResult("a", "look", "1")]
    now: list[Item] = [ToolCall("b", "look", "{}"), ToolResult("b", "look", '{"error":"x"}')]
    server = ScriptedProvider([say("Fine.")])

    async def scenario() -> None:
        agent = GeminiAgent(connect=server.connect, base_url="http://a.test", api_key="k", model=model, tools=[LOOK])
        async with server, agent:
            agent.conversation.replace([*agent.conversation, *old, Message("user", "And?"), *now])
            await agent.answer().wait()

    run_virtual(backend, scenario)
    contents = server.requests[0].body["contents"]
    calls = [part for content in contents for part in content["parts"] if "functionCall" in part]
    assert [part.get("thoughtSignature") for part in calls] == [None, PLACEHOLDER if signed else None]
    assert contents[-1]["parts"][0]["functionResponse"]["response"] == {"error": "x"}


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_forced_call_is_made_once_and_the_last_request_makes_none(backend: Backend) -> None:
    script = [parts([{"tool": "look", "args": {}, "id": "f1"}, {"end": True}]) for _ in range(2)]
    config = {"mode": "ANY", "allowedFunctionNames": ["look"]}
    settings: dict[str, Any] = {
        "toolConfig": {"functionCallingConfig": config, "retrievalConfig": {"languageCode": "no"}}
    }
    settings |= {"tools": [{"googleSearch": {}}], "generationConfig": {"temperature": 0}}
    requests, result = talk(backend, [*script, say("Enough.")], tools=[LOOK], settings=settings, max_steps=2)
    assert result.text == "Enough."
    modes = [request.body["toolConfig"]["functionCallingConfig"] for request in requests]
    assert modes == [config, {"mode": "AUTO"}, {"mode": "NONE"}]
    for request in requests:
        assert request.body["toolConfig"]["retrievalConfig"] == {"languageCode": "no"}
        assert request.body["tools"] == [
            {"functionDeclarations": [{"name": "look", "description": "Look."}]},
            {"googleSearch": {}},
        ]
        assert request.body["generationConfig"] == {"temperature": 0}


ERRORS = [
    (400, "INVALID_ARGUMENT", "bad_request"),
    (400, "FAILED_PRECONDITION", "bad_request"),
    (403, "PERMISSION_DENIED", "auth"),
    (404, "NOT_FOUND", "not_found"),
    (429, "RESOURCE_EXHAUSTED", "rate_limit"),
    (500, "INTERNAL", "server"),
    (503, "UNAVAILABLE", "overloaded"),
    (504, "DEADLINE_EXCEEDED", "server"),
]


@pytest.mark.parametrize(("status", "code", "kind"), ERRORS)
def test_a_refusal_is_an_error_of_its_kind(status: int, code: str, kind: str) -> None:
    body = [{"error": {"code": status, "message": "no", "status": code}}]
    _, result = talk("asyncio", [parts([{"status": status, "body": body}])])
    assert isinstance(result.error, ProviderError)
    assert (result.error.kind, result.error.status, result.error.provider) == (kind, status, "gemini")


def test_a_wrong_key_is_told_by_the_reason_in_its_details() -> None:
    details = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}]
    body = {"error": {"code": 400, "message": "API key not valid.", "status": "INVALID_ARGUMENT", "details": details}}
    _, result = talk("asyncio", [parts([{"status": 400, "body": body}])])
    assert result.error.kind == "auth"


@pytest.mark.parametrize(
    ("finish", "kind"),
    [
        ("STOP", None),
        ("MAX_TOKENS", None),
        ("OTHER", None),
        ("SAFETY", "content_filter"),
        ("RECITATION", "content_filter"),
        ("PROHIBITED_CONTENT", "content_filter"),
        ("SPII", "content_filter"),
        ("LANGUAGE", "content_filter"),
        ("MALFORMED_FUNCTION_CALL", "empty"),
        ("UNEXPECTED_TOOL_CALL", "empty"),
    ],
)
def test_why_it_stopped(finish: str, kind: str | None) -> None:
    writer = GeminiWriter()
    _, result = talk("asyncio", [raw(writer.text("Hello."), writer.parts([], finish))])
    assert getattr(result.error, "kind", None) == kind


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_request_that_is_blocked_is_a_content_filter(backend: Backend) -> None:
    blocked = {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 4}}
    _, result = talk(backend, [raw(b"data: %b\n\n" % json.dumps(blocked).encode())])
    assert (result.status, result.error.kind) == ("failed", "content_filter")


def test_a_response_without_its_end_is_cut() -> None:
    _, result = talk("asyncio", [raw(GeminiWriter().text("Hello."))])
    assert (result.status, result.error.kind) == ("failed", "truncated")


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_reason_with_every_chunk_is_no_end(backend: Backend) -> None:
    writer = GeminiWriter()
    chunks = [writer.parts([{"text": text}], "STOP") for text in ("Hello ", "there.")]
    _, result = talk(backend, [raw(*chunks)])
    assert (result.text, result.status) == ("Hello there.", "completed")


def read(pieces: list[bytes]) -> list[Any]:
    translator = GeminiTranslator("p")
    body = BodyReader(translator)
    for piece in pieces:
        body.feed(piece)
    body.end()
    assert translator.failure is None
    return translator.events


@given(size=st.integers(1, 300))
def test_the_same_comes_out_however_the_bytes_are_cut(size: int) -> None:
    writer = GeminiWriter()
    stream = writer.text("Ålesund ") + writer.text("日本.<|im_end|>")
    stream += writer.calls([("f1", "look", {"a": "日本"}), ("", "default_api.look", {})]) + writer.done()
    events = read([stream[at : at + size] for at in range(0, len(stream), size)])
    assert "".join(event for event in events if isinstance(event, str)) == "Ålesund 日本."
    calls = [(event.name, json.loads(event.arguments)) for event in events if isinstance(event, CallReady)]
    assert calls == [("look", {"a": "日本"}), ("look", {})]
    assert events[-1] == Finish("tool_calls", "STOP")


def test_an_answer_that_was_not_streamed_is_read_too() -> None:
    body = {"candidates": [{"content": {"parts": [{"text": "Hello."}]}, "finishReason": "STOP"}]}
    assert "Hello." in read([json.dumps(body).encode()])
    assert "Hello." in read([json.dumps([body]).encode()])
