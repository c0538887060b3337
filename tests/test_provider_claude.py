"""``AnthropicAgent`` over a scripted server: requests, streams, thoughts, usage, failures; on both loops."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from micdrop_agent import AnthropicAgent, Message, ProviderError, Retry, Tool, ToolCall, ToolResult
from micdrop_agent.model.protocol import CallReady, Finish, Usage
from micdrop_agent.providers.responses.claude_stream import ClaudeTranslator
from micdrop_agent.providers.responses.http_stream import BodyReader
from micdrop_agent.testing import BACKENDS, ScriptedProvider, parts, run_virtual, say
from micdrop_agent.testing._block_writers import ClaudeWriter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from micdrop_agent import Item
    from micdrop_agent.testing import Backend, Exchange, Reply

EMPTY = {"type": "object", "properties": {}, "additionalProperties": False}
LOOK = Tool(name="look", description="Look.", execute=lambda: 1)
WEATHER = Tool.from_schema(
    "weather", "Weather.", {"type": "object", "properties": {"city": {"type": "string"}}}, lambda _: {"sun": True}
)


def talk(
    backend: Backend, script: list[Reply], *, items: Sequence[Item] = (), turns: int = 1, **options: Any
) -> tuple[list[Any], Any, list[Item]]:
    """The requests of some turns, the last result, and the conversation."""
    server = ScriptedProvider(script)
    seen: list[Any] = []

    async def scenario() -> None:
        more: dict[str, Any] = {
            "base_url": "http://a.test/v1",
            "api_key": "test-key",
            "retry": Retry(max_retries=0),
            **options,
        }
        async with server, AnthropicAgent(connect=server.connect, raise_on_failure=False, **more) as agent:
            if items:
                agent.conversation.replace([*agent.conversation, *items])
            for _ in range(turns):
                agent.add_user_message("Hi.")
                seen.append(await agent.answer().wait())
            seen.append(list(agent.conversation))

    run_virtual(backend, scenario)
    return server.requests, seen[-2], seen[-1]


def raw(*pieces: bytes) -> Reply:
    async def reply(exchange: Exchange) -> None:
        await exchange.head()
        for piece in pieces:
            await exchange.send(piece)
        await exchange.end()

    return reply


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_request_has_what_the_api_asks_for(backend: Backend) -> None:
    (request,), result, _ = talk(backend, [say("Hello ", "there.")], system_prompt="Be kind.", tools=[LOOK])
    assert (result.text, result.status, result.finish_reason) == ("Hello there.", "completed", "stop")
    assert request.path == "/v1/messages"
    assert request.headers["x-api-key"] == "test-key"
    assert request.headers["anthropic-version"] == "2023-06-01"
    assert "authorization" not in request.headers
    assert request.body == {
        "model": "claude-haiku-5-5",
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi."}]}],
        "system": "Be kind.",
        "tools": [{"name": "look", "description": "Look.", "input_schema": EMPTY}],
        "stream": True,
        "max_tokens": 1024,
        "cache_control": {"type": "ephemeral"},
    }
    assert result.usage == Usage(input_tokens=14, output_tokens=7, cached_tokens=4)


def test_caching_and_the_limit_can_be_set() -> None:
    (request,), _, _ = talk("asyncio", [say("x")], cache=False, settings={"max_tokens": 9, "temperature": 0})
    assert "cache_control" not in request.body
    assert (request.body["max_tokens"], request.body["temperature"]) == (9, 0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_parallel_calls_and_their_results_stand_in_one_message_each(backend: Backend) -> None:
    script = [
        parts(
            [
                {"text": ["One ", "moment."]},
                {"tool": "look", "args": {}, "id": "toolu_1"},
                {"tool": "weather", "args": {"city": "Oslo"}, "id": "toolu_2"},
                {"end": True},
            ]
        ),
        say("Sun."),
    ]
    requests, result, _ = talk(backend, script, tools=[LOOK, WEATHER])
    assert result.text.replace(".S", ". S") == "One moment. Sun."
    assert requests[1].body["messages"][1:] == [
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "One moment."},
                {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}},
                {"type": "tool_use", "id": "toolu_2", "name": "weather", "input": {"city": "Oslo"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": "1"},
                {"type": "tool_result", "tool_use_id": "toolu_2", "content": '{"sun":true}'},
            ],
        },
    ]


@pytest.mark.parametrize("backend", BACKENDS)
def test_thoughts_are_not_spoken_and_go_back_signed_before_their_call(backend: Backend) -> None:
    writer = ClaudeWriter()
    redacted = {"type": "redacted_thinking", "data": "AAAA"}
    stream = (
        writer.thought("I look.", "c2ln") + writer.block("redacted_thinking", data="AAAA") + writer.text("One moment.")
    )
    stream += writer.calls([("toolu_1", "look", {})]) + writer.done()
    budget = {"type": "enabled", "budget_tokens": 1024}
    requests, result, _ = talk(
        backend, [raw(stream), say("Fine."), say("Bye.")], tools=[LOOK], turns=2, settings={"thinking": budget}
    )
    assert "I look" not in result.text
    for request in requests[1:]:
        assert request.body["messages"][1]["content"] == [
            {"type": "thinking", "thinking": "I look.", "signature": "c2ln"},
            redacted,
            {"type": "text", "text": "One moment."},
            {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}},
        ]
        assert request.body["thinking"] == budget


@pytest.mark.parametrize(
    ("thoughts", "kept"), [({"type": "enabled", "budget_tokens": 1024}, False), ({"type": "adaptive"}, True)]
)
def test_a_turn_that_another_model_began_goes_on_without_a_budget_for_thoughts(thoughts: Any, kept: bool) -> None:
    items: list[Item] = [Message("user", "So?"), ToolCall("x", "look", "{}"), ToolResult("x", "look", "1")]
    server = ScriptedProvider([say("Fine."), say("Bye.")])

    async def scenario() -> None:
        agent = AnthropicAgent(
            connect=server.connect, base_url="http://a.test", api_key="k", settings={"thinking": thoughts}, tools=[LOOK]
        )
        async with server, agent:
            agent.conversation.replace([*agent.conversation, *items])
            await agent.answer().wait()
            agent.add_user_message("Hi.")
            await agent.answer().wait()

    run_virtual("asyncio", scenario)
    assert ["thinking" in request.body for request in server.requests] == [kept, True]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_failed_tool_is_marked_and_the_users_words_come_after_the_results(backend: Backend) -> None:
    items: list[Item] = [
        Message("user", "So?"),
        ToolCall("functions.look:0", "look", "{}"),
        ToolResult("functions.look:0", "look", '{"error":"x"}'),
        Message("system", "Be brief."),
    ]
    (request,), _, _ = talk(backend, [say("Fine.")], items=items, system_prompt="Be kind.")
    *_, made, answered = request.body["messages"]
    call_id = made["content"][0]["id"]
    assert call_id.startswith("call_")
    assert answered["content"] == [
        {"type": "tool_result", "tool_use_id": call_id, "content": '{"error":"x"}', "is_error": True},
        {"type": "text", "text": "Hi."},
    ]
    assert request.body["system"] == "Be kind.\n\nBe brief."
    assert (request.body["tools"][0]["name"], request.body["tool_choice"]) == ("look", {"type": "none"})


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_forced_call_is_made_once(backend: Backend) -> None:
    script = [parts([{"tool": "look", "args": {}, "id": "toolu_1"}, {"end": True}]), say("Fine.")]
    settings = {"tool_choice": {"type": "any", "disable_parallel_tool_use": True}}
    requests, _, _ = talk(backend, script, tools=[LOOK], settings=settings)
    assert [request.body["tool_choice"] for request in requests] == [
        settings["tool_choice"],
        {"type": "auto", "disable_parallel_tool_use": True},
    ]


ERRORS = [
    (400, "invalid_request_error", "bad_request"),
    (401, "authentication_error", "auth"),
    (402, "billing_error", "quota"),
    (403, "permission_error", "auth"),
    (404, "not_found_error", "not_found"),
    (413, "request_too_large", "bad_request"),
    (429, "rate_limit_error", "rate_limit"),
    (500, "api_error", "server"),
    (504, "timeout_error", "server"),
    (529, "overloaded_error", "overloaded"),
]


@pytest.mark.parametrize(("status", "code", "kind"), ERRORS)
def test_a_refusal_is_an_error_of_its_kind(status: int, code: str, kind: str) -> None:
    body = {"type": "error", "error": {"type": code, "message": "no"}, "request_id": "req_1"}
    headers = {"request-id": "req_1"}
    _, result, _ = talk("asyncio", [parts([{"status": status, "body": body, "headers": headers}])])
    assert isinstance(result.error, ProviderError)
    assert (result.error.kind, result.error.status, result.error.provider) == (kind, status, "anthropic")
    assert result.error.request_id == "req_1"


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_error_in_the_stream_is_one_of_its_kind(backend: Backend) -> None:
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    _, result, _ = talk(backend, [raw(b"event: error\ndata: %b\n\n" % json.dumps(error).encode())])
    assert result.error.kind == "overloaded"


@pytest.mark.parametrize(
    ("finish", "status", "kind"),
    [("refusal", "failed", "content_filter"), ("max_tokens", "completed", None), ("pause_turn", "completed", None)],
)
def test_why_it_stopped(finish: str, status: str, kind: str | None) -> None:
    script = [parts([{"text": ["Hello."]}, {"finish": finish}, {"end": True}])]
    _, result, _ = talk("asyncio", script)
    assert result.status == status
    assert getattr(result.error, "kind", None) == kind


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_call_that_was_cut_is_not_run(backend: Backend) -> None:
    script = [parts([{"text": ["One moment."]}, {"tool_begun": "look"}, {"finish": "length"}, {"end": True}])]
    requests, result, items = talk(backend, script, tools=[LOOK])
    assert (len(requests), result.text) == (1, "One moment.")
    assert not any(isinstance(item, ToolCall) for item in items)


def test_a_response_without_its_end_is_cut() -> None:
    writer = ClaudeWriter()
    _, result, _ = talk("asyncio", [raw(writer.text("Hello."))])
    assert (result.status, result.error.kind) == ("failed", "truncated")


WHOLE = {
    "type": "message",
    "content": [
        {"type": "thinking", "thinking": "Hm.", "signature": "s"},
        {"type": "text", "text": "One moment."},
        {"type": "tool_use", "id": "t", "name": "look", "input": {"a": 1}},
    ],
    "stop_reason": "tool_use",
    "usage": {"input_tokens": 3, "output_tokens": 4},
}


def read(pieces: list[bytes]) -> list[Any]:
    translator = ClaudeTranslator("p")
    body = BodyReader(translator)
    for piece in pieces:
        body.feed(piece)
    body.end()
    assert translator.failure is None
    return translator.events


def test_an_answer_that_was_not_streamed_is_read_too() -> None:
    events = read([json.dumps(WHOLE).encode()])
    assert "One moment." in events
    assert CallReady("t", "look", '{"a":1}') in events
    assert Finish("tool_calls", "tool_use") in events


@given(size=st.integers(1, 400))
def test_the_same_comes_out_however_the_bytes_are_cut(size: int) -> None:
    writer = ClaudeWriter()
    stream = writer.thought("Hm. 日本", "s") + writer.text("Ålesund ") + writer.text("日本.<|im_end|>")
    stream += writer.calls([("t1", "look", {"a": "日本"}), ("t2", "look", {})]) + writer.done()
    events = read([stream[at : at + size] for at in range(0, len(stream), size)])
    assert "".join(event for event in events if isinstance(event, str)) == "Ålesund 日本."
    calls = [(event.id, event.name, json.loads(event.arguments)) for event in events if isinstance(event, CallReady)]
    assert calls == [("t1", "look", {"a": "日本"}), ("t2", "look", {})]
    assert events[-1] == Finish("tool_calls", "tool_use")
