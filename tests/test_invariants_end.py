"""Invariants 2, 3, 7 and 8: nothing after the end, one end, one answer, and a barge-in is no failure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st
from property_support import Host, at_fraction, expected_items, fractions, quickly, scripts

from micdrop_agent import (
    AnswerFailed,
    AnswerFinished,
    ChatAgent,
    EndCallRequested,
    Message,
    MessageAdded,
    Retry,
    Timeouts,
    tool,
)
from micdrop_agent.testing import (
    BACKENDS,
    Call,
    Probe,
    ScriptedAgent,
    ScriptedProvider,
    call_tool,
    fault,
    read,
    run_scenario,
    run_virtual,
    say,
)
from micdrop_agent.testing._invariants import STATUSES

if TYPE_CHECKING:
    from micdrop_agent import Turn
    from micdrop_agent.testing import Backend, Reply

INTERRUPTIONS = ("cancel", "answer", "aclose", "close answer", "host scope")


@pytest.mark.parametrize("backend", BACKENDS)
@quickly
@given(script=scripts, fraction=fractions, inject=st.sampled_from(("cancel", "close answer")))
def test_invariant_2_after_cancel_nothing_of_that_answer_changes_anything(
    backend: Backend, script: list[Any], fraction: float, inject: str
) -> None:
    """The conversation and the events are final when ``cancel()`` returns, late tools and shields included."""
    trace = at_fraction(Host([script]), backend, inject, fraction)
    for answer in trace.answers:
        if answer.items_when_stopped is not None:
            assert trace.final == answer.items_when_stopped
            assert len(trace.events) == answer.events_when_stopped


@pytest.mark.parametrize("backend", BACKENDS)
@quickly
@given(fraction=fractions, shield=st.booleans(), swallow=st.booleans())
def test_invariant_2_holds_for_code_that_ignores_its_cancellation(
    backend: Backend, fraction: float, shield: bool, swallow: bool
) -> None:
    """An author's code may shield itself, or swallow the cancellation once: the fence holds all the same."""

    async def stubborn(turn: Turn) -> None:
        await turn.write("One ")
        try:
            with anyio.CancelScope(shield=shield):
                await anyio.sleep(0.1)
        except BaseException:
            if not swallow:
                raise
        turn.write_nowait("two ")
        turn.add(Message("assistant", "One two"))
        turn.emit(EndCallRequested())
        turn.skip_answer()
        turn.end_call()
        turn.cancel_last_user_message()

    # Its task may take what time it wants, and end as it wants: here only its effects are looked at.
    trace = at_fraction(Host([[stubborn]]), backend, "cancel", fraction, end_within=math.inf)
    for answer in trace.answers:
        if answer.answer.status == "cancelled":
            assert trace.final == answer.items_when_stopped
            assert len(trace.events) == answer.events_when_stopped


@pytest.mark.parametrize("backend", BACKENDS)
@quickly
@given(
    turns=st.lists(scripts, min_size=1, max_size=3),
    fraction=fractions,
    inject=st.sampled_from((*INTERRUPTIONS, "stop reading")),
)
def test_invariant_3_an_answer_ends_exactly_once_with_one_status(
    backend: Backend, turns: list[list[Any]], fraction: float, inject: str
) -> None:
    trace = at_fraction(Host(turns), backend, inject, fraction)
    for answer in trace.answers:
        assert answer.answer.status in STATUSES
        assert answer.finished == [answer.answer.status]
        assert answer.answer.result.status == answer.answer.status
    for place, event in enumerate(trace.events):
        if isinstance(event, AnswerFailed):
            ends = [later for later in trace.events[place:] if isinstance(later, AnswerFinished)]
            assert ends[0].result.error is event.error


@pytest.mark.parametrize("backend", BACKENDS)
@quickly
@given(script=scripts, first=fractions, others=st.lists(st.sampled_from(("cancel", "close", "aclose")), max_size=3))
def test_invariant_3_further_ends_of_an_ended_answer_are_nothing(
    backend: Backend, script: list[Any], first: float, others: list[str]
) -> None:
    trace = at_fraction(Host([script]), backend, "cancel", first)
    answer = trace.answers[0].answer if trace.answers else None
    if answer is None:
        return
    before = (answer.status, answer.text, list(trace.final), len(trace.events))

    async def end_again() -> None:
        for how in others:
            if how == "cancel":
                answer.cancel()
            elif trace.agent is not None:
                trace.agent.cancel()

    run_virtual(backend, end_again)
    assert (answer.status, answer.text, list(trace.final), len(trace.events)) == before


@pytest.mark.parametrize("backend", BACKENDS)
@quickly
@given(gaps=st.lists(st.sampled_from((0.0, 0.01, 0.05, 0.2)), min_size=2, max_size=6), script=scripts)
def test_invariant_7_at_most_one_answer_is_alive(backend: Backend, gaps: list[float], script: list[Any]) -> None:
    """``answer()`` while one runs cancels that one first; the last one is whole."""
    planned, _, failed = expected_items(script)

    async def impatient(probe: Probe) -> None:
        async with ScriptedAgent(script, raise_on_failure=False, tools=Host([]).options.get("tools", ())) as agent:
            probe.watch(agent)
            agent.add_user_message("Well?")
            async with anyio.create_task_group() as tasks:
                for gap in gaps:
                    tasks.start_soon(read, probe, agent.answer())
                    await anyio.sleep(gap)

    trace = run_scenario(impatient, backend)
    assert len(trace.answers) == len(gaps)
    last = trace.answers[-1]
    assert last.received == planned
    assert last.answer.status == ("failed" if failed else "completed")
    for answer in trace.answers[:-1]:
        assert answer.answer.status != "running"


def _slow_start() -> Reply:
    from micdrop_agent.testing import parts

    return parts([{"after_ms": 50}, {"text": ["One ", "two "]}, {"after_ms": 50}, {"text": ["three."]}])


@pytest.mark.parametrize("backend", BACKENDS)
@quickly
@given(gaps=st.lists(st.sampled_from((0.0, 0.01, 0.06, 0.08)), min_size=2, max_size=4))
def test_invariant_7_the_superseded_request_is_closed_before_the_next_is_sent(
    backend: Backend, gaps: list[float]
) -> None:
    async def scenario() -> int:
        async with ScriptedProvider([_slow_start()]) as provider:
            options: dict[str, Any] = {"base_url": provider.base_url, "connect": provider.connect}
            async with ChatAgent(model="m", api_key="k", **options) as agent:
                agent.add_user_message("Well?")
                for gap in gaps[:-1]:
                    agent.answer()
                    await anyio.sleep(gap)
                assert (await agent.answer().wait()).text == "One two three."
            return max(request.overlap for request in provider.requests)

    assert run_virtual(backend, scenario) == 1


FAULTS = ("status", "close_before_status", "stall_after_headers", "reset_after_text", "end_without_mark")


@pytest.mark.parametrize("backend", BACKENDS)
@quickly
@given(faults=st.lists(st.sampled_from(FAULTS), max_size=2), fraction=fractions, with_tool=st.booleans())
def test_invariant_8_a_barge_in_is_never_a_failure(
    backend: Backend, faults: list[Any], fraction: float, with_tool: bool
) -> None:
    """Before the status, in a retry wait, in a tool, between chunks: no ``AnswerFailed``, and no further request."""
    asked: list[int] = []

    @tool
    async def look() -> str:
        """Look."""
        await anyio.sleep(0.05)
        return "a cat"

    async def hosted(probe: Probe) -> None:
        replies = [*(fault(name) for name in faults)]
        replies += [call_tool("look")] if with_tool else []
        async with ScriptedProvider([*replies, say("One ", "two.", gap=0.02)]) as provider:
            agent = ChatAgent(
                model="m",
                api_key="k",
                base_url=provider.base_url,
                connect=provider.connect,
                retry=Retry(max_retries=3, first_wait=0.1),
                timeouts=Timeouts(first_chunk=0.5),
                tools=[look],
                raise_on_failure=False,
            )
            async with agent:
                probe.watch(agent)
                agent.add_user_message("Well?")
                await read(probe, agent.answer())
                await anyio.sleep(0.001)  # what was on its way may arrive
                at_end = len(provider.requests)
                await anyio.sleep(5)
                asked[:] = [at_end, len(provider.requests)]

    trace = at_fraction(hosted, backend, "cancel", fraction)  # type: ignore[arg-type]
    for answer in trace.answers:
        if answer.answer.status == "cancelled":
            assert not any(isinstance(event, AnswerFailed) for event in trace.events)
            assert answer.answer.result.error is None
    assert asked[0] == asked[1]


@pytest.mark.parametrize("backend", BACKENDS)
@quickly
@given(
    name=st.sampled_from(("status", "close_before_status", "keepalives_only", "end_without_mark")),
    retries=st.integers(0, 3),
)
def test_invariant_9_and_10_a_failed_request_leaves_no_trace_and_retries_are_counted(
    backend: Backend, name: Any, retries: int
) -> None:
    """Each step sends at most ``max_retries + 1`` requests; what a failed one did is not seen anywhere."""

    async def hosted(probe: Probe) -> None:
        async with ScriptedProvider([fault(name, text=())] * 2 + [say("All of it.")]) as provider:
            agent = ChatAgent(
                model="m",
                api_key="k",
                base_url=provider.base_url,
                connect=provider.connect,
                retry=Retry(max_retries=retries, first_wait=0.1),
                timeouts=Timeouts(first_chunk=0.5),
                raise_on_failure=False,
            )
            async with agent:
                probe.watch(agent)
                agent.add_user_message("Well?")
                await read(probe, agent.answer())
            sent.append(len(provider.requests))

    sent: list[int] = []
    trace = run_scenario(hosted, backend)
    assert sent[0] <= retries + 1
    added = [event.message for event in trace.events if isinstance(event, MessageAdded)]
    said = "".join(trace.answers[0].received)
    assert said in ("", "All of it.")
    assert [item.content for item in added if isinstance(item, Message)] == ["Well?", *([said] if said else [])]


@pytest.mark.parametrize("backend", BACKENDS)
@quickly
@given(fraction=fractions)
def test_invariant_8_a_barge_in_in_a_hook_is_no_failure(backend: Backend, fraction: float) -> None:
    async def think(agent: Any, turn: Turn) -> None:
        await anyio.sleep(0.05)
        turn.write_nowait("Hmm. ")
        await anyio.sleep(0.05)

    async def hosted(probe: Probe) -> None:
        probe.trace.hook_text = "Hmm. "
        async with ScriptedAgent(["Yes."], [Call("x")], on_before_answer=think) as agent:
            probe.watch(agent)
            await read(probe, agent.answer())

    trace = at_fraction(hosted, backend, "cancel", fraction)  # type: ignore[arg-type]
    assert not any(isinstance(event, AnswerFailed) for event in trace.events)
