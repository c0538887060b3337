"""What a server sent goes back to it as it came, and is made good where another model sent it; on both loops."""

from __future__ import annotations

import json
import logging
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from micdrop_agent import ChatAgent, FallbackAgent, Message, OpenaiAgent, Retry, Tool, ToolCall, ToolResult
from micdrop_agent.providers.quirks import GEMINI, OPENAI, ChatQuirks, quirks_of
from micdrop_agent.testing import BACKENDS, ScriptedProvider, parts, run_virtual, say

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from micdrop_agent import Agent, Item
    from micdrop_agent.testing import Backend, Exchange, Reply

LOOK = Tool(name="look", description="Look.", execute=lambda: 1)
PLACEHOLDER = {"google": {"thought_signature": "skip_thought_signature_validator"}}


def make(maker: Callable[..., Any], server: ScriptedProvider, host: str = "a.test", **options: Any) -> Any:
    more: dict[str, Any] = {
        "base_url": f"http://{host}/v1",
        "api_key": "k",
        "retry": Retry(max_retries=0),
        "tools": [LOOK],
        **options,
    }
    return maker(connect=server.connect, raise_on_failure=False, **more)


def bodies_of(
    backend: Backend,
    script: Any,
    agent_of: Callable[[ScriptedProvider], Agent],
    *,
    items: Sequence[Item] = (),
    turns: int = 1,
) -> list[dict[str, Any]]:
    server = ScriptedProvider(script)

    async def scenario() -> None:
        async with server, agent_of(server) as agent:
            if items:
                agent.conversation.replace([*agent.conversation, *items])
            for _ in range(turns):
                agent.add_user_message("Hi.")
                await agent.answer().wait()

    run_virtual(backend, scenario)
    return [request.body for request in server.requests]


def calls_in(body: dict[str, Any]) -> list[list[dict[str, Any]]]:
    return [message["tool_calls"] for message in body["messages"] if "tool_calls" in message]


def call(call_id: str = "c1") -> Reply:
    return parts([{"tool": "look", "args": {}, "id": call_id}, {"end": True}])


def events(*values: dict[str, Any]) -> Reply:
    """A reply in the form of the Responses API."""

    async def reply(exchange: Exchange) -> None:
        await exchange.head()
        for value in values:
            await exchange.send(b"data: %b\n\n" % json.dumps(value).encode())
        await exchange.end()

    return reply


# -- signatures (Gemini 3)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_call_by_another_model_is_signed_for_gemini_in_the_current_turn_only(backend: Backend) -> None:
    items: list[Item] = [Message("user", "So?"), ToolCall("old", "look", "{}"), ToolResult("old", "look", "1")]
    script = {"a.test": [call("x"), call("y"), parts([{"status": 500}])], "b.test": [say("Fine."), say("Bye.")]}

    def agent_of(server: ScriptedProvider) -> Agent:
        hosts = {"a.test": "gpt-4o", "b.test": "gemini-3-pro-preview"}
        return FallbackAgent([partial(make, ChatAgent, server, host, model=model) for host, model in hosts.items()])

    bodies = bodies_of(backend, script, agent_of, items=items, turns=2)
    (old,), (first,), (second,) = calls_in(bodies[3])
    assert "extra_content" not in old
    assert first["extra_content"] == second["extra_content"] == PLACEHOLDER
    assert not any("extra_content" in made for group in calls_in(bodies[4]) for made in group)
    assert not any("extra_content" in made for body in bodies[:3] for group in calls_in(body) for made in group)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_signature_of_geminis_own_is_not_replaced(backend: Backend) -> None:
    own = {"google": {"thought_signature": "c2ln"}}
    fragments: list[dict[str, Any]] = [
        {"index": index, "id": f"c{index}", "function": {"name": "look", "arguments": "{}"}} for index in range(2)
    ]
    fragments[0]["extra_content"] = own
    script = [parts([{"raw_delta": {"tool_calls": fragments}}, {"end": True}]), say("Fine.")]
    bodies = bodies_of(backend, script, lambda server: make(ChatAgent, server, model="google/gemini-3-flash"))
    (group,) = calls_in(bodies[1])
    assert [made.get("extra_content") for made in group] == [own, None]


@pytest.mark.parametrize(
    ("url", "model", "quirks"),
    [
        ("https://generativelanguage.googleapis.com/v1beta/openai", "x", GEMINI),
        ("https://europe-west1-aiplatform.googleapis.com/v1", "x", GEMINI),
        ("https://gateway.test/v1", "google/gemini-3-pro", GEMINI),
        ("https://gateway.test/v1", "not-gemini-3", ChatQuirks()),
        ("https://api.openai.com/v1", "gpt-4o", OPENAI),
        ("https://x.openai.azure.com/openai/v1", "gpt-4o", OPENAI),
        ("https://openai.azure.com.evil.test/v1", "gpt-4o", ChatQuirks()),
        ("http://localhost:11434/v1", "qwen3", ChatQuirks()),
    ],
)
def test_a_server_is_recognised_by_its_host_or_its_model(url: str, model: str, quirks: ChatQuirks) -> None:
    assert quirks_of(url, model) == quirks


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_quirk_can_be_switched_off(backend: Backend) -> None:
    script = {"a.test": [call("x"), parts([{"status": 500}])], "b.test": [say("Fine.")]}

    def agent_of(server: ScriptedProvider) -> Agent:
        return FallbackAgent(
            [
                partial(make, ChatAgent, server),
                partial(make, ChatAgent, server, "b.test", model="gemini-3", quirks=ChatQuirks()),
            ]
        )

    ((made,),) = calls_in(bodies_of(backend, script, agent_of)[-1])
    assert "extra_content" not in made


# -- ids

KIMI = "functions.check_restaurant_table_availability:0"


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("call_id", [KIMI, "call_" + "x" * 90, "chatcmpl-tool-" + "0" * 32, "fc_" + "0" * 60])
def test_a_servers_own_id_goes_back_as_it_came(backend: Backend, call_id: str) -> None:
    bodies = bodies_of(backend, [call(call_id), say("Fine.")], lambda server: make(ChatAgent, server))
    ((made,),) = calls_in(bodies[1])
    assert made["id"] == call_id


@pytest.mark.parametrize("call_id", [KIMI, "chatcmpl-tool-" + "0" * 32])
def test_and_so_it_does_when_the_call_is_resumed(call_id: str) -> None:
    items: list[Item] = [Message("user", "So?"), ToolCall(call_id, "look", "{}"), ToolResult(call_id, "look", "1")]
    (body,) = bodies_of("asyncio", [say("Fine.")], lambda server: make(ChatAgent, server), items=items)
    assert calls_in(body)[0][0]["id"] == call_id


@pytest.mark.parametrize("call_id", [KIMI, "call_" + "x" * 90, "fc_" + "0" * 60])
def test_an_id_is_shortened_for_a_server_that_refuses_long_ones(call_id: str) -> None:
    items: list[Item] = [Message("user", "So?"), ToolCall(call_id, "look", "{}"), ToolResult(call_id, "look", "1")]
    (body,) = bodies_of("asyncio", [say("Fine.")], lambda server: make(ChatAgent, server, quirks=OPENAI), items=items)
    assert len(calls_in(body)[0][0]["id"]) <= 40


# -- thoughts


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("member", ["reasoning", "reasoning_content"])
def test_thoughts_go_back_under_the_name_they_came_by(backend: Backend, member: str) -> None:
    script = [
        parts(
            [
                {"raw_delta": {member: "I "}},
                {"raw_delta": {member: "look."}},
                {"tool": "look", "args": {}, "id": "c1"},
                {"end": True},
            ]
        ),
        say("Fine."),
    ]
    bodies = bodies_of(backend, script, lambda server: make(ChatAgent, server))
    (message,) = [message for message in bodies[1]["messages"] if "tool_calls" in message]
    assert {name for name in message if name.startswith("reasoning")} == {member}
    assert message[member] == "I look."


REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAA"}


def responses_call(*, stored: bool = False, streamed: bool = True) -> Reply:
    thought = {key: value for key, value in REASONING.items() if not stored or key != "encrypted_content"}
    words = {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "phase": "commentary",
        "content": [{"type": "output_text", "text": "One moment."}],
    }
    made = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "look", "arguments": "{}"}
    output = [thought, words, made]
    done = [
        {"type": "response.output_item.done", "output_index": index, "item": item} for index, item in enumerate(output)
    ]
    text = {"type": "response.output_text.done", "output_index": 1, "content_index": 0, "text": "One moment."}
    added = {"type": "response.output_item.added", "output_index": 1, "item": {**words, "content": []}}
    sent = [done[0], added, text, *done[1:]] if streamed else []
    return events(*sent, {"type": "response.completed", "response": {"status": "completed", "output": output}})


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("streamed", [True, False])
def test_encrypted_reasoning_and_phase_go_back_before_their_call(backend: Backend, streamed: bool) -> None:
    bodies = bodies_of(
        backend,
        [responses_call(streamed=streamed), say("Fine."), say("Bye.")],
        lambda server: make(OpenaiAgent, server, settings={"store": False}),
        turns=2,
    )
    for body in bodies[1:]:
        kinds = [item.get("type", item.get("role")) for item in body["input"]]
        start = kinds.index("message")
        assert kinds[start : start + 4] == ["message", "reasoning", "function_call", "function_call_output"]
        assert body["input"][start]["phase"] == "commentary"
        assert body["input"][start + 1] == REASONING


@pytest.mark.parametrize("backend", BACKENDS)
def test_reasoning_that_the_server_stores_itself_is_not_sent(backend: Backend) -> None:
    bodies = bodies_of(backend, [responses_call(stored=True), say("Fine.")], lambda server: make(OpenaiAgent, server))
    assert not any(item.get("type") == "reasoning" for item in bodies[1]["input"])


@pytest.mark.parametrize("backend", BACKENDS)
def test_another_server_gets_none_of_it(backend: Backend) -> None:
    script = {"a.test": [responses_call(), parts([{"status": 500}])], "b.test": [say("Fine.")]}
    bodies = bodies_of(
        backend,
        script,
        lambda server: FallbackAgent([partial(make, OpenaiAgent, server, host) for host in ("a.test", "b.test")]),
    )
    for item in bodies[-1]["input"]:
        assert item.get("type") != "reasoning"
        assert "phase" not in item


# -- too long


def too_long(exchange_status: int = 400) -> Reply:
    async def reply(exchange: Exchange) -> None:
        await exchange.head(exchange_status)
        await exchange.send(b'{"error":{"code":"context_length_exceeded","message":"too long"}}')
        await exchange.end()

    return reply


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("maker", [ChatAgent, OpenaiAgent])
def test_a_conversation_that_is_too_long_is_shortened_and_sent_once_more(
    backend: Backend, maker: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    items: list[Item] = []
    for number in range(40):
        items += [Message("user", f"Question {number}? " + "x" * 100), Message("assistant", f"Answer {number}.")]
    script = [too_long(), say("Fine."), say("Bye.")]
    with caplog.at_level(logging.WARNING):
        bodies = bodies_of(backend, script, lambda server: make(maker, server), items=items, turns=2)
    histories: list[list[Any]] = [body.get("messages") or body["input"] for body in bodies]
    sizes = [len(history) for history in histories]
    assert len(sizes) == 3
    assert sizes[1] < sizes[0] * 2 / 3
    assert sizes[2] <= sizes[0] * 2 / 3  # the next turn does not fail first
    assert "too long for the model" in caplog.text
    assert histories[1][-1]["content"] == "Hi."


@pytest.mark.parametrize("backend", BACKENDS)
def test_it_is_sent_only_once_more_and_not_at_all_if_nothing_can_go(backend: Backend) -> None:
    items = [
        Message("user", "x" * 4000),
        Message("assistant", "Answer."),
        Message("user", "So?"),
        Message("assistant", "y"),
    ]
    assert len(bodies_of(backend, [too_long()] * 3, lambda server: make(ChatAgent, server), items=items)) == 2
    assert len(bodies_of(backend, [too_long()] * 3, lambda server: make(ChatAgent, server))) == 1
