"""What a server attaches to its calls goes back to it, and to nobody else."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from micdrop_agent import ChatAgent, FallbackAgent, Retry, Tool
from micdrop_agent.messages import ToolCall
from micdrop_agent.model.protocol import CallReady
from micdrop_agent.providers.attachments import Attachments
from micdrop_agent.testing import BACKENDS, ScriptedProvider, fault, run_virtual, say

if TYPE_CHECKING:
    from micdrop_agent.testing import Backend, Exchange, Reply

SIGNED = {"google": {"thought_signature": "c2ln"}}


def call(index: int, name: str, **more: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": "{}"}
    return {"index": index, "id": f"{name}_{index}", "type": "function", "function": function, **more}


def stream(*deltas: dict[str, Any]) -> Reply:
    async def reply(exchange: Exchange) -> None:
        await exchange.head()
        for delta in deltas:
            chunk = {"choices": [{"index": 0, "delta": delta}]}
            await exchange.send(b"data: %b\n\n" % json.dumps(chunk).encode())
        await exchange.send(b"data: [DONE]\n\n")
        await exchange.end()

    return reply


def tools() -> list[Tool]:
    return [Tool(name=name, description=name, execute=lambda: "sun") for name in ("weather", "clock")]


def member(server: ScriptedProvider, host: str = "a.test", **options: Any) -> ChatAgent:
    return ChatAgent(
        base_url=f"http://{host}/v1",
        connect=server.connect,
        retry=Retry(max_retries=0),
        tools=tools(),
        raise_on_failure=False,
        **options,
    )


def with_calls(body: dict[str, Any]) -> list[dict[str, Any]]:
    return [message for message in body["messages"] if "tool_calls" in message]


def requests_of(backend: Backend, script: list[Reply], turns: int, **options: Any) -> list[dict[str, Any]]:
    server = ScriptedProvider(script)

    async def scenario() -> None:
        async with server, member(server, **options) as agent:
            for _ in range(turns):
                agent.add_user_message("Hi.")
                await agent.answer().wait()

    run_virtual(backend, scenario)
    return [request.body for request in server.requests]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dialect", ["openai", "template"])
def test_a_signature_goes_back_with_its_call_in_this_turn_and_in_the_next(backend: Backend, dialect: str) -> None:
    script = [stream({"tool_calls": [call(0, "weather", extra_content=SIGNED)]}), say("Sun."), say("Bye.")]
    first, *later = requests_of(backend, script, 2, dialect=dialect)
    assert with_calls(first) == []
    for body in later:
        (message,) = with_calls(body)
        assert message["tool_calls"][0]["extra_content"] == SIGNED
    assert len(later) == 2


@pytest.mark.parametrize("backend", BACKENDS)
def test_calls_of_one_response_go_back_together_when_only_the_first_is_signed(backend: Backend) -> None:
    calls = [call(0, "weather", extra_content=SIGNED), call(1, "clock")]
    again = [call(0, "clock", id="other", extra_content=SIGNED)]
    script = [stream({"tool_calls": calls}), stream({"tool_calls": again}), say("Sun.")]
    body = requests_of(backend, script, 1)[-1]
    assert [[made["id"] for made in message["tool_calls"]] for message in with_calls(body)] == [
        ["weather_0", "clock_1"],
        ["other"],
    ]
    assert [message["role"] for message in body["messages"][-5:]] == ["assistant", "tool", "tool", "assistant", "tool"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_thinking_before_a_call_goes_back_as_it_came_and_is_not_spoken(backend: Backend) -> None:
    details = [{"type": "reasoning.text", "text": "Look "}, {"type": "reasoning.encrypted", "data": "e"}]
    thoughts: list[dict[str, Any]] = [
        {"reasoning_content": "I look "},
        {"reasoning_content": "outside. 日本", "reasoning_details": details[:1]},
        {"reasoning_details": details[1:]},
    ]
    script = [stream(*thoughts, {"tool_calls": [call(0, "weather")]}), say("Sun.")]
    (message,) = with_calls(requests_of(backend, script, 1)[-1])
    assert message["reasoning_content"] == "I look outside. 日本"
    assert message["reasoning_details"] == details
    assert message["content"] is None


@pytest.mark.parametrize("backend", BACKENDS)
def test_calls_that_nothing_came_with_are_sent_as_before(backend: Backend) -> None:
    script = [stream({"tool_calls": [call(0, "weather"), call(1, "clock")]}), say("Sun.")]
    for message in with_calls(requests_of(backend, script, 1)[-1]):
        assert set(message) == {"role", "content", "tool_calls"}
        assert [set(made) for made in message["tool_calls"]] == [{"id", "type", "function"}]


@pytest.mark.parametrize("backend", BACKENDS)
def test_another_server_does_not_get_it(backend: Backend) -> None:
    signed = stream({"reasoning_content": "Hm."}, {"tool_calls": [call(0, "weather", extra_content=SIGNED)]})
    server = ScriptedProvider({"a.test": [signed, fault("status")], "b.test": [say("Sun.")]})

    async def scenario() -> None:
        async with server:
            agent = FallbackAgent([lambda: member(server), lambda: member(server, "b.test")], raise_on_failure=False)
            async with agent:
                agent.add_user_message("Hi.")
                await agent.answer().wait()

    run_virtual(backend, scenario)
    (message,) = with_calls([request.body for request in server.requests if request.host == "b.test"][-1])
    assert set(message) == {"role", "content", "tool_calls"}
    assert set(message["tool_calls"][0]) == {"id", "type", "function"}


def test_what_is_remembered_is_bounded_and_what_is_no_json_is_dropped() -> None:
    kept = Attachments()
    for number in range(1000):
        response = kept.next_response()
        kept.keep(CallReady(f"c{number}", "w", "{}", {"extra_content": number or 1}), response, {})
    names = ("extra_content", "reasoning_content")
    assert kept.of_call(ToolCall("c999", "w", "{}"), names) == {"extra_content": b"999"}
    assert kept.of_call(ToolCall("c0", "w", "{}"), names) == {}
    kept.keep(CallReady("n", "w", "{}", {"extra_content": float("nan")}), 0, {"reasoning_content": "x" * 300_000})
    assert kept.of_call(ToolCall("n", "w", "{}"), names) == kept.of_calls([ToolCall("n", "w", "{}")], names) == {}
