"""One turn of a model: its tool calls, and how it ends."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from step_support import CALLS, NEVER, ONCE, STOP, Model, call, chunks_of, down, fast, look, mute, said, with_model

from micdrop_agent import Agent, MaxStepsError, ProviderError, Retry, Timeouts, ToolCall, ToolResult
from micdrop_agent.events import EndCallRequested, Event
from micdrop_agent.model.protocol import Finish, Refusal
from micdrop_agent.testing import BACKENDS
from micdrop_agent.tools import Tool

if TYPE_CHECKING:
    from micdrop_agent.testing import Backend

pytestmark = pytest.mark.parametrize("backend", BACKENDS)


# -- tools


def test_a_tools_result_is_spoken(backend: Backend) -> None:
    async def check(agent: Model) -> None:
        assert await chunks_of(agent) == ["Let me see.", "A cat."]
        assert said(agent)[1:] == [
            ("assistant", "Let me see."),
            ("tool_call", "look"),
            ("tool_result", '"a cat"'),
            ("assistant", "A cat."),
        ]

    with_model(backend, [[["Let me see."], [call(), *CALLS]], [["A cat.", *STOP]]], check, tools=[look])


@pytest.mark.parametrize("parallel", [True, False])
def test_text_behind_a_call_stands_behind_its_result(backend: Backend, *, parallel: bool) -> None:
    async def check(agent: Model) -> None:
        assert "".join(await chunks_of(agent)) == "before after end"
        assert said(agent)[1:] == [
            ("assistant", "before "),
            ("tool_call", "look"),
            ("tool_result", '"a cat"'),
            ("assistant", "after "),
            ("assistant", "end"),
        ]

    scripts: list[list[Any]] = [[["before ", call(), "after "], *([] if parallel else [0.1]), CALLS], [["end", *STOP]]]
    with_model(backend, scripts, check, tools=[look], parallel_tools=parallel)


def test_tools_start_while_the_response_still_streams_and_run_at_the_same_time(backend: Backend) -> None:
    async def check(agent: Model) -> None:
        assert await chunks_of(agent) == ["Two."]
        assert agent.served.times == [0, 2.5]  # the second call came after 1.5 s and took 1 s
        assert said(agent)[1:5] == [
            ("tool_call", "look"),
            ("tool_result", '"a cat"'),
            ("tool_call", "look"),
            ("tool_result", '"a cat"'),
        ]

    with_model(backend, [[[call()], 1.5, [call(call_id="2"), *CALLS]], [["Two.", *STOP]]], check, tools=[look])


def test_sequential_tools_stop_the_clock_of_the_provider(backend: Backend) -> None:
    async def check(agent: Model) -> None:
        assert await chunks_of(agent) == ["Two."]
        assert agent.served.times == [0, 2]

    scripts = [[[call(), call(call_id="2"), *CALLS]], [["Two.", *STOP]]]
    options = {"parallel_tools": False, "timeouts": Timeouts(first_chunk=0.5, between_chunks=0.5)}
    with_model(backend, scripts, check, tools=[look], **options)


def test_a_barge_in_while_tools_run_gives_each_its_result_at_once(backend: Backend) -> None:
    async def check(agent: Model) -> None:
        agent.answer()
        await anyio.sleep(0.5)
        agent.cancel()
        assert said(agent)[1:] == [("tool_call", "look"), ("tool_result", '{"error":"cancelled"}')] * 2
        await anyio.sleep(5)
        assert len(agent.served.requests) == 1

    with_model(backend, [[[call(), call(call_id="2"), *CALLS]]], check, tools=[look])


def test_a_tool_that_ends_the_turn_mutes_what_follows_it(backend: Backend) -> None:
    async def check(agent: Model) -> None:
        answer = agent.answer()
        assert [chunk async for chunk in answer] == ["Hm. "]
        assert answer.status == "completed"
        assert said(agent)[1:] == [("assistant", "Hm. "), ("tool_call", "mute"), ("tool_result", "null")]
        assert len(agent.served.requests) == 1

    with_model(backend, [[["Hm. "], [call("mute"), "not spoken", Refusal("nor this"), *CALLS]]], check, tools=[mute])


def test_an_unknown_tool_and_bad_arguments_are_told_to_the_model(backend: Backend) -> None:
    async def check(agent: Model) -> None:
        assert await chunks_of(agent) == ["Sorry."]
        outputs = [item.output for item in agent.conversation if isinstance(item, ToolResult)]
        assert "there is no tool 'nothing'; the tools are: look, fast" in outputs[0]
        assert "error" in outputs[1]
        assert outputs[2] == "7"

    calls = [call("nothing", "1"), call("fast", "2", "{"), call("fast", "3", ""), *CALLS]
    with_model(backend, [[calls], [["Sorry.", *STOP]]], check, tools=[look, fast])


@pytest.mark.parametrize("words", [[], ["Goodbye."]])
def test_the_end_of_a_call_has_words_and_comes_after_them(backend: Backend, words: list[str]) -> None:
    async def check(agent: Model) -> None:
        trace: list[str] = []
        agent.on(EndCallRequested, lambda _event: trace.append("end"))
        async for chunk in agent.answer():
            trace.append(chunk)  # noqa: PERF401 - the listener writes to it in between
        await anyio.sleep(1)
        assert trace == [*(words or ["Bye."]), "end"]
        assert len(agent.served.requests) == (1 if words else 2)
        if not words:
            assert agent.served.requests[1][2] == ()

    with_model(backend, [[[*words, call("end_call"), *CALLS]], [["Bye.", *STOP]]], check, auto_end_call=True)


def test_a_farewell_that_fails_does_not_fail_the_end_of_the_call(backend: Backend) -> None:
    async def check(agent: Model) -> None:
        told: list[Event] = []
        agent.on(EndCallRequested, told.append)
        result = await agent.answer().wait()
        await anyio.sleep(1)
        assert (result.status, len(told)) == ("completed", 1)

    with_model(backend, [[[call("end_call"), *CALLS]], [down("auth")]], check, auto_end_call=True)


def test_a_farewell_that_is_cut_short_is_stored_as_cut(backend: Backend) -> None:
    async def check(agent: Model) -> None:
        assert await chunks_of(agent) == ["Good"]
        assert said(agent)[-1] == ("assistant", "Good", {"interrupted": True})

    with_model(backend, [[[call("end_call"), *CALLS]], [["Good"], down("truncated")]], check, auto_end_call=True)


# -- how a turn ends


@pytest.mark.parametrize("max_steps", [1, 3])
def test_after_max_steps_one_last_request_without_tools_wants_words(backend: Backend, max_steps: int) -> None:
    async def check(agent: Model) -> None:
        assert await chunks_of(agent) == ["Enough."]
        offered = [request[2] for request in agent.served.requests]
        assert offered == [("fast",)] * max_steps + [()]

    with_model(
        backend,
        [*[[[call("fast"), *CALLS]]] * max_steps, [["Enough.", *STOP]]],
        check,
        tools=[fast],
        max_steps=max_steps,
    )


def test_a_model_that_only_calls_fails_after_max_steps(backend: Backend) -> None:
    async def check(agent: Model) -> None:
        with pytest.raises(MaxStepsError, match="all of its 2 steps"):
            await chunks_of(agent)
        assert len(agent.served.requests) == 3
        calls = [item for item in agent.conversation if isinstance(item, ToolCall)]
        assert len(calls) == 2

    with_model(backend, [[[call("fast"), *CALLS]]], check, tools=[fast], max_steps=2)


@pytest.mark.parametrize("max_steps", [1, 2, 5])
def test_an_empty_response_is_asked_for_once_more_in_the_same_words(backend: Backend, max_steps: int) -> None:
    async def check(agent: Model) -> None:
        with pytest.raises(ProviderError) as caught:
            await chunks_of(agent)
        assert caught.value.kind == "empty"
        assert [request[2] for request in agent.served.requests] == [("fast",), ("fast",)]

    with_model(backend, [[STOP]], check, tools=[fast], max_steps=max_steps)


def test_an_empty_response_may_be_followed_by_a_good_one(backend: Backend) -> None:
    async def check(agent: Model) -> None:
        assert await chunks_of(agent) == ["ok"]

    with_model(backend, [[STOP], [["ok", *STOP]]], check)


@pytest.mark.parametrize(
    ("script", "retry", "kind"), [([STOP], NEVER, "empty"), ([[Finish("length")]], ONCE, "truncated")]
)
def test_an_empty_response_is_final_without_retries_or_tokens(
    backend: Backend, script: Any, retry: Retry, kind: str
) -> None:
    async def check(agent: Model) -> None:
        with pytest.raises(ProviderError) as caught:
            await chunks_of(agent)
        assert caught.value.kind == kind
        assert len(agent.served.requests) == 1

    with_model(backend, [script], check, retry=retry)


def test_a_content_filter_in_the_middle_fails_and_keeps_what_was_said(backend: Backend) -> None:
    async def check(agent: Model) -> None:
        answer = agent.answer()
        assert await answer.receive() == "Well, "
        with pytest.raises(ProviderError) as caught:
            await answer.receive()
        assert caught.value.kind == "content_filter"
        assert said(agent)[1:] == [("assistant", "Well, ", {"interrupted": True})]
        assert len(agent.served.requests) == 1

    with_model(backend, [[["Well, "], [Finish("content_filter")]]], check, retry=ONCE)


def test_a_call_that_is_told_in_words_is_not_spoken(backend: Backend) -> None:
    async def check(agent: Model) -> None:
        text = "".join(await chunks_of(agent))
        assert text == "Seven."

    with_model(backend, [[["fast()", call("fast"), *CALLS]], [["Seven.", *STOP]]], check, tools=[fast])


def test_calls_without_offered_tools_are_left_alone(backend: Backend) -> None:
    async def check(agent: Model) -> None:
        assert await chunks_of(agent) == ["Words."]
        assert said(agent)[1:] == [("assistant", "Words.")]

    with_model(backend, [[[call(), "Words.", *CALLS]]], check)


def test_a_tool_may_change_the_tools_of_the_next_request(backend: Backend) -> None:
    def grow(agent: Agent) -> None:
        agent.add_tool(fast)
        agent.remove_tool("grow")

    async def check(agent: Model) -> None:
        assert await chunks_of(agent) == ["ok"]
        assert [request[2] for request in agent.served.requests] == [("grow",), ("fast",)]

    with_model(backend, [[[call("grow"), *CALLS]], [["ok", *STOP]]], check, tools=[Tool(name="grow", execute=grow)])


@pytest.mark.parametrize(
    "options",
    [
        {"retry": 3},
        {"timeouts": 5},
        {"max_steps": 0},
        {"max_steps": True},
        {"max_steps": 1.5},
    ],
)
def test_options_of_a_model_agent_are_checked_by_name(backend: Backend, options: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError), match=next(iter(options))):
        Model(**options)


def test_retries_are_logged_and_leave_no_word_of_the_conversation(
    backend: Backend, caplog: pytest.LogCaptureFixture
) -> None:
    async def check(agent: Model) -> None:
        agent.add_user_message("a secret")
        assert await chunks_of(agent) == ["ok"]

    with caplog.at_level(logging.DEBUG, "micdrop_agent"):
        with_model(backend, [[down()], [["ok", *STOP]]], check, retry=ONCE)
    assert "retry 1 in 1.00 s" in caplog.text
    assert "a secret" not in caplog.text
