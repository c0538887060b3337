"""One turn of a model: requests, retries, clocks and tool calls, with a provider of scripted events in virtual time."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import anyio
import attrs
import pytest

from micdrop_agent import Agent, MaxStepsError, Message, ProviderError, Retry, Timeouts, ToolCall, ToolResult
from micdrop_agent.events import EVENT_TYPES, AnswerFailed, AnswerFinished, EndCallRequested, Event, MessageAdded
from micdrop_agent.model_agent import ModelAgent
from micdrop_agent.providers.protocol import PROGRESS, TEXT_DONE, CallReady, Finish, Refusal, Request, Usage
from micdrop_agent.testing import BACKENDS, run_virtual
from micdrop_agent.tools import Tool, tool

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from micdrop_agent.providers.protocol import ProviderEvent
    from micdrop_agent.testing import Backend

pytestmark = pytest.mark.parametrize("backend", BACKENDS)

Act = Any
"""A list is one network read, a number is a wait in seconds, an error is raised, ``"hang"`` never ends."""

STOP = [Finish("stop", "stop")]
CALLS = [Finish("tool_calls", "tool_calls")]
ONCE = Retry(max_retries=1, first_wait=1, jitter=0)
NEVER = Retry(max_retries=0)


def down(kind: Any = "server", **facts: Any) -> ProviderError:
    return ProviderError("down", kind=kind, **facts)


def call(name: str = "look", call_id: str = "1", arguments: str = "{}") -> CallReady:
    return CallReady(call_id, name, arguments)


@attrs.define(eq=False)
class Stream:
    acts: list[Act]
    closed: int = 0

    async def receive(self) -> list[ProviderEvent] | None:
        await anyio.lowlevel.checkpoint()
        while self.acts:
            act = self.acts.pop(0)
            if isinstance(act, Exception):
                raise act
            if act == "hang":
                await anyio.sleep_forever()
            if isinstance(act, list):
                return list(act)
            await anyio.sleep(act)
        return None

    async def aclose(self) -> None:
        self.closed += 1


class Provider:
    """Plays one script per request; the last one again and again. An error or a wait may come first."""

    name = "scripted"

    def __init__(self, *scripts: Sequence[Act]) -> None:
        self.scripts = scripts
        self.requests: list[tuple[float, tuple[Any, ...], tuple[str, ...], str | None]] = []
        self.streams: list[Stream] = []
        self.warm = self.closed = 0
        self.warming: Exception | None = None

    async def open(self, request: Request) -> Stream:
        script = list(self.scripts[min(len(self.requests), len(self.scripts) - 1)])
        names = tuple(tool.name for tool in request.tools)
        self.requests.append((anyio.current_time(), tuple(request.items), names, request.continue_from))
        await anyio.lowlevel.checkpoint()
        while script and not isinstance(script[0], list):
            if isinstance(script[0], Exception):
                raise script[0]
            if script[0] == "hang":
                await anyio.sleep_forever()
            await anyio.sleep(script.pop(0))
        self.streams.append(Stream(script))
        return self.streams[-1]

    async def prewarm(self) -> None:
        self.warm += 1
        if self.warming is not None:
            raise self.warming

    async def aclose(self) -> None:
        assert all(stream.closed for stream in self.streams)
        self.closed += 1

    @property
    def times(self) -> list[float]:
        return [request[0] for request in self.requests]


class Model(ModelAgent):
    def __init__(self, *scripts: Sequence[Act], **options: Any) -> None:
        super().__init__(**options)
        self.served = Provider(*scripts)

    def _make_provider(self) -> Provider:
        return self.served


def said(agent: Agent) -> list[tuple[Any, ...]]:
    """The conversation behind the system prompt, in short."""
    short: list[tuple[Any, ...]] = []
    for item in agent.conversation[1:]:
        if isinstance(item, Message):
            short.append((item.role, item.content, *([] if item.metadata is None else [item.metadata])))
        else:
            short.append((item.role, item.tool_name if isinstance(item, ToolCall) else item.output))
    return short


def with_model(
    backend: Backend,
    scripts: Sequence[Sequence[Act]],
    check: Callable[[Model], Awaitable[None]],
    **options: Any,
) -> None:
    """Run ``check`` with an open agent that was asked something; afterwards nothing is open any more."""

    async def main() -> None:
        async with Model(*scripts, **options) as agent:
            agent.add_user_message("hi")
            await check(agent)
        provider = agent.served
        assert provider.closed == (1 if provider.requests or provider.warm else 0)
        assert all(stream.closed == 1 for stream in provider.streams)

    run_virtual(backend, main)


async def chunks_of(agent: Agent) -> list[str]:
    return [chunk async for chunk in agent.answer()]


@tool
async def look() -> str:
    """Look around for a second."""
    await anyio.sleep(1)
    return "a cat"


@tool
def fast() -> int:
    return 7


@tool(skip_answer=True)
def mute() -> None: ...


# -- text


def test_text_is_spoken_as_it_comes_and_stored_as_one_message(backend: Backend) -> None:
    async def check(agent: Model) -> None:
        assert await chunks_of(agent) == ["Hel", "lo", " you"]
        assert said(agent) == [("user", "hi"), ("assistant", "Hello you")]
        (request,) = agent.served.requests
        assert [item.role for item in request[1]] == ["system", "user"]

    with_model(backend, [[["Hel", "lo"], 1, [" you", *STOP]]], check)


def test_the_first_chunk_goes_out_before_the_rest_of_its_burst_is_handled(backend: Backend) -> None:
    async def check(agent: Model) -> None:
        stored: list[str] = []
        agent.on(MessageAdded, lambda event: stored.append(event.message.content))  # type: ignore[union-attr] # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownArgumentType]
        answer = agent.answer()
        assert await answer.receive() == "first"
        assert answer._ledger.length == len("first")
        assert stored == []
        assert len([chunk async for chunk in answer]) == 200

    with_model(backend, [[["first", *["x"] * 200, *STOP]]], check)


def test_a_stretch_of_text_that_is_whole_is_stored_while_the_response_goes_on(backend: Backend) -> None:
    async def check(agent: Model) -> None:
        answer = agent.answer()
        assert [await answer.receive(), await answer.receive()] == ["one", "two"]
        agent.cancel()
        assert said(agent)[1:] == [("assistant", "one"), ("assistant", "two", {"interrupted": True})]

    with_model(backend, [[["one", TEXT_DONE], ["two"], "hang"]], check)


def test_a_refusal_is_spoken_and_marked(backend: Backend) -> None:
    async def check(agent: Model) -> None:
        assert await chunks_of(agent) == ["I ", "cannot."]
        assert said(agent)[1:] == [("assistant", "I cannot.", {"refusal": True})]

    with_model(backend, [[[Refusal("I ")], [Refusal("cannot."), *STOP]]], check)


def test_usage_is_summed_over_all_requests(backend: Backend) -> None:
    async def check(agent: Model) -> None:
        answer = agent.answer()
        result = await answer.wait()
        assert result.usage == Usage(input_tokens=30, output_tokens=3, cached_tokens=5)
        assert (result.requests, result.finish_reason, result.text) == (2, "stop", "A cat.")

    first = [call(), *CALLS, Usage(input_tokens=10, output_tokens=1)]
    second = ["A cat.", *STOP, Usage(input_tokens=20, output_tokens=2, cached_tokens=5)]
    with_model(backend, [[first], [second]], check, tools=[look])


# -- clocks


@pytest.mark.parametrize(
    ("script", "after", "which"),
    [
        (["hang"], 5, "5 seconds, Timeouts: first chunk"),
        ([[], "hang"], 5, "first chunk"),
        ([*[[], 1] * 20], 5, "first chunk"),
        ([2, ["a"], "hang"], 5, "3 seconds, Timeouts: between chunks"),
        ([2, [PROGRESS], "hang"], 5, "between chunks"),
        ([1, [PROGRESS], 2, [PROGRESS], 2, ["a"], *[1, []] * 20], 8, "between chunks"),
        ([1, [Usage(input_tokens=1)], "hang"], 5, "first chunk"),
    ],
)
@pytest.mark.parametrize("buffer_size", [None, 0, 3])
def test_the_clocks_are_moved_by_useful_output_only(
    backend: Backend, script: list[Act], after: float, which: str, buffer_size: int | None
) -> None:
    async def check(agent: Model) -> None:
        answer = agent.answer()
        with pytest.raises(ProviderError, match=which) as caught:
            async for _ in answer:
                pass
        assert (caught.value.kind, caught.value.retryable) == ("timeout", False)
        assert caught.value.text_sent is bool(answer.text)
        assert anyio.current_time() == after
        assert len(agent.served.requests) == 1

    timeouts = Timeouts(first_chunk=5, between_chunks=3)
    with_model(backend, [script], check, timeouts=timeouts, buffer_size=buffer_size)


@pytest.mark.parametrize("buffer_size", [0, 1])
def test_a_slow_consumer_is_not_the_providers_fault(backend: Backend, buffer_size: int) -> None:
    async def check(agent: Model) -> None:
        answer = agent.answer()
        chunks = list[str]()
        await anyio.sleep(9)
        async for chunk in answer:
            chunks += [chunk]
            await anyio.sleep(9)
        assert chunks == ["a", "b", "c"]
        assert answer.status == "completed"

    timeouts = Timeouts(first_chunk=5, between_chunks=3)
    with_model(backend, [[["a"], ["b"], 1, ["c", *STOP]]], check, timeouts=timeouts, buffer_size=buffer_size)


def test_without_limits_nothing_runs_out(backend: Backend) -> None:
    async def check(agent: Model) -> None:
        assert await chunks_of(agent) == ["a", "b"]
        assert anyio.current_time() == 2000

    limits = Timeouts(connect=None, first_chunk=None, between_chunks=None, total=None)
    with_model(backend, [[1000, ["a"], 1000, ["b", *STOP]]], check, timeouts=limits)


def test_the_total_counts_everything_and_gives_a_running_tool_its_result(backend: Backend) -> None:
    async def check(agent: Model) -> None:
        answer = agent.answer()
        result = await answer.wait()
        assert isinstance(result.error, ProviderError)
        assert (result.error.kind, result.error.text_sent) == ("timeout", True)
        assert "longer than 1.5 seconds in all" in str(result.error)
        assert anyio.current_time() == 1.5
        assert said(agent)[1:] == [
            ("assistant", "Let me see."),
            ("tool_call", "look"),
            ("tool_result", '{"error":"no result"}'),
        ]

    with_model(backend, [[1, ["Let me see.", call(), *CALLS]]], check, tools=[look], timeouts=Timeouts(total=1.5))


def test_after_the_finish_reason_a_silent_server_is_not_waited_for(backend: Backend) -> None:
    async def check(agent: Model) -> None:
        assert await chunks_of(agent) == ["a"]
        assert anyio.current_time() == 0.5

    with_model(backend, [[["a", *STOP], "hang"]], check)


# -- retries


def test_a_failed_request_is_sent_again_with_growing_waits(backend: Backend) -> None:
    async def check(agent: Model) -> None:
        assert await chunks_of(agent) == ["ok"]
        assert agent.served.times == [0, 1, 3, 6]

    retry = Retry(max_retries=3, first_wait=1, factor=2, max_wait=3, jitter=0)
    with_model(backend, [[down()], [down("connection")], [down("overloaded")], [["ok", *STOP]]], check, retry=retry)


@pytest.mark.parametrize(
    ("error", "requests"),
    [
        (down("server"), 2),
        (down("overloaded"), 2),
        (down("connection"), 2),
        (down("timeout"), 1),
        (down("timeout", retryable=True), 2),
        (down("bad_request"), 1),
        (down("context_length"), 1),
        (down("content_filter"), 1),
        (down("auth"), 1),
        (down("not_found"), 1),
        (down("quota"), 1),
        (down("rate_limit"), 1),
        (down("rate_limit", retry_after=1.5), 2),
        (down("rate_limit", retry_after=2.5), 1),
        (down("server", retry_after=2.0), 2),
        (down("server", retry_after=30.0), 1),
        (down("truncated"), 1),
        (down("protocol"), 1),
    ],
)
def test_what_is_sent_again(backend: Backend, error: ProviderError, requests: int) -> None:
    async def check(agent: Model) -> None:
        with pytest.raises(ProviderError) as caught:
            await chunks_of(agent)
        assert caught.value is error
        assert len(agent.served.requests) == requests
        waited = (1 if error.retry_after is None else error.retry_after) if requests > 1 else 0
        assert anyio.current_time() == waited

    with_model(backend, [[error]], check, retry=ONCE)


def test_nothing_is_sent_again_once_something_was_said(backend: Backend) -> None:
    async def check(agent: Model) -> None:
        answer = agent.answer()
        failed: list[Event] = []
        agent.on(AnswerFailed, failed.append)
        assert await answer.receive() == "Hel"
        with pytest.raises(ProviderError) as caught:
            await answer.receive()
        assert caught.value.text_sent
        assert len(agent.served.requests) == len(failed) == 1
        assert said(agent)[1:] == [("assistant", "Hel", {"interrupted": True})]

    with_model(backend, [[["Hel"], down()]], check, retry=ONCE)


def test_nothing_said_yet_may_be_sent_again_whatever_else_came(backend: Backend) -> None:
    async def check(agent: Model) -> None:
        assert await chunks_of(agent) == ["ok"]
        assert len(agent.served.requests) == 2

    with_model(backend, [[[PROGRESS], [Usage(input_tokens=1)], down()], [["ok", *STOP]]], check, retry=ONCE)


@pytest.mark.parametrize("parallel", [True, False])
def test_a_cut_response_lets_the_tools_it_started_end_and_asks_on_with_their_results(
    backend: Backend, *, parallel: bool
) -> None:
    async def check(agent: Model) -> None:
        assert await chunks_of(agent) == ["A cat."]
        assert said(agent)[1:] == [("tool_call", "look"), ("tool_result", '"a cat"'), ("assistant", "A cat.")]
        assert agent.served.times == [0, 2]
        assert [item.role for item in agent.served.requests[1][1]][2:] == ["tool_call", "tool_result"]

    script = [[[call()], down()], [["A cat.", *STOP]]]
    with_model(backend, script, check, tools=[look], retry=ONCE, parallel_tools=parallel)


def test_a_cut_response_fails_with_its_tools_results_when_there_is_no_retry(backend: Backend) -> None:
    async def check(agent: Model) -> None:
        result = await agent.answer().wait()
        assert result.status == "failed"
        assert said(agent)[1:] == [("tool_call", "look"), ("tool_result", '"a cat"')]

    with_model(backend, [[[call()], down("truncated")]], check, tools=[look])


def test_a_cut_after_a_tool_that_ends_the_turn_is_of_no_interest(backend: Backend) -> None:
    async def check(agent: Model) -> None:
        result = await agent.answer().wait()
        assert (result.status, result.error) == ("skipped", None)
        assert said(agent)[1:] == [("tool_call", "mute"), ("tool_result", "null")]

    with_model(backend, [[[call("mute")], 1, down()]], check, tools=[mute])


def test_a_barge_in_during_the_wait_before_a_retry_is_no_failure(backend: Backend) -> None:
    async def check(agent: Model) -> None:
        events: list[Event] = []
        for kind in EVENT_TYPES:
            agent.on(kind, events.append)
        answer = agent.answer()
        await anyio.sleep(0.5)
        agent.cancel()
        assert [chunk async for chunk in answer] == []
        await anyio.sleep(10)
        assert [type(event) for event in events] == [AnswerFinished]
        assert len(agent.served.requests) == 1

    with_model(backend, [[down()]], check, retry=ONCE)


def test_a_bug_in_a_provider_is_not_retried_and_is_raised_as_it_is(backend: Backend) -> None:
    async def check(agent: Model) -> None:
        with pytest.raises(KeyError, match="broken"):
            await chunks_of(agent)
        assert said(agent)[1:] == [("tool_call", "look"), ("tool_result", '{"error":"no result"}')]

    with_model(backend, [[[call()], 0.5, KeyError("broken")]], check, tools=[look])


def test_a_barge_in_warms_a_connection_for_the_next_answer(backend: Backend) -> None:
    async def check(agent: Model) -> None:
        agent.served.warming = down("connection")
        agent.answer()
        await anyio.sleep(1)
        agent.cancel()
        await anyio.sleep(1)
        assert agent.served.warm == 1
        agent.answer()
        agent.cancel()  # nothing was sent: no connection was lost
        await anyio.sleep(1)
        assert agent.served.warm == 1

    with_model(backend, [["hang"]], check)


def test_prewarm_after_the_end_opens_nothing_that_nobody_would_close(backend: Backend) -> None:
    async def main() -> None:
        agent = Model([["a", *STOP]])
        await agent.prewarm()
        async with agent:
            assert agent.served.warm == 1
            await agent.aclose()
            await agent.prewarm()
        await agent.prewarm()
        assert (agent.served.warm, agent.served.closed) == (1, 1)
        assert agent._provider_made is None

    run_virtual(backend, main)


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

    scripts = [[["before ", call(), "after "], *([] if parallel else [0.1]), CALLS], [["end", *STOP]]]
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
