"""Invariant 6: every tool call has its result next to it, or is still running under a live answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from property_support import TOOLS, Host, at_fraction, fractions, quickly

from micdrop_agent import Message, Tool, ToolCall, ToolResult, tool
from micdrop_agent.testing import (
    BACKENDS,
    NATIVE,
    Call,
    Probe,
    ScriptedAgent,
    read,
    run_scenario,
    run_virtual,
)
from micdrop_agent.testing.strategies import answers, calls

if TYPE_CHECKING:
    from collections.abc import Sequence

    from micdrop_agent import Turn
    from micdrop_agent.messages import Item
    from micdrop_agent.testing import Backend

CANCELLED = '{"error":"cancelled"}'

tool_scripts = st.builds(
    lambda head, group, tail: [*head, group, *tail],
    answers(TOOLS, failures=False, max_size=2),
    st.lists(calls(TOOLS), min_size=1, max_size=3),
    answers(TOOLS, max_size=2),
)
"""Scripts with at least one tool call."""


def _each_result_behind_its_call(items: Sequence[Item]) -> None:
    for place, item in enumerate(items):
        if isinstance(item, ToolCall):
            following = items[place + 1] if place + 1 < len(items) else None
            assert isinstance(following, ToolResult), f"{item} is followed by {following}"
            assert following.tool_call_id == item.tool_call_id
    calls_seen = [item.tool_call_id for item in items if isinstance(item, ToolCall)]
    results = [item.tool_call_id for item in items if isinstance(item, ToolResult)]
    assert calls_seen == results
    assert len(set(results)) == len(results)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("parallel", [True, False])
@quickly
@given(script=tool_scripts, fraction=fractions, inject=st.sampled_from(("cancel", "answer", "aclose", "host scope")))
def test_invariant_6_no_interruption_leaves_a_call_without_its_result(
    backend: Backend, parallel: bool, script: list[Any], fraction: float, inject: str
) -> None:
    trace = at_fraction(Host([script], {"parallel_tools": parallel}), backend, inject, fraction)
    _each_result_behind_its_call(trace.final)


@pytest.mark.parametrize("backend", BACKENDS)
@quickly
@given(script=tool_scripts, fraction=fractions)
def test_invariant_6_a_cancelled_call_gets_its_result_inside_cancel(
    backend: Backend, script: list[Any], fraction: float
) -> None:
    trace = at_fraction(Host([script]), backend, "cancel", fraction)
    for answer in trace.answers:
        if answer.items_when_stopped is not None:
            _each_result_behind_its_call(answer.items_when_stopped)


@pytest.mark.parametrize("inject", sorted(NATIVE))
@quickly
@given(script=tool_scripts, fraction=fractions)
def test_invariant_6_native_cancellation_once_or_twice_leaves_no_orphan(
    inject: str, script: list[Any], fraction: float
) -> None:
    trace = at_fraction(Host([script]), "asyncio", inject, fraction)
    _each_result_behind_its_call(trace.final)


@pytest.mark.parametrize("backend", BACKENDS)
@quickly
@given(how=st.sampled_from(("cancel", "cancel then sleep", "answer", "aclose", "raise after cancel")))
def test_invariant_6_a_tool_may_stop_its_own_answer(backend: Backend, how: str) -> None:
    """What it returns counts if it never waited after that; the pair is whole in every case."""

    async def stop(agent: Any) -> str:
        if how == "aclose":
            await agent.aclose()
        elif how == "answer":
            agent.answer()
        else:
            agent.cancel()
        if how == "cancel then sleep":
            await anyio.sleep(0.1)
        if how == "raise after cancel":
            raise LookupError("and failed")
        return "stopped"

    async def hosted(probe: Probe) -> None:
        stopper = Tool.from_schema(
            "stop", "", {"type": "object", "properties": {}}, lambda arguments, agent: stop(agent)
        )
        async with ScriptedAgent(["One ", Call("stop"), "never"], ["Two."], tools=[stopper]) as agent:
            probe.watch(agent)
            await read(probe, agent.answer())
            await anyio.sleep(1)

    trace = run_scenario(hosted, backend)
    _each_result_behind_its_call(trace.final)
    result = next(item for item in trace.final if isinstance(item, ToolResult))
    assert result.output == ('"stopped"' if how == "cancel" else CANCELLED) or how in {
        "answer",
        "aclose",
        "raise after cancel",
    }
    assert not any(isinstance(item, Message) and "never" in item.content for item in trace.final)


@pytest.mark.parametrize("backend", BACKENDS)
def test_invariant_6_a_late_result_is_dropped_for_good(backend: Backend) -> None:
    """Shielded, the tool ends two turns later; its call has its result since the cancel."""

    @tool(on_cancel="finish")
    async def slow() -> str:
        """Take long."""
        await anyio.sleep(1)
        return "late"

    async def scenario() -> list[Item]:
        async with ScriptedAgent([Call("slow")], ["Hello."], tools=[slow]) as agent:
            agent.answer()
            await anyio.sleep(0.5)
            agent.cancel()
            agent.add_user_message("Hi.")
            assert [chunk async for chunk in agent.answer()] == ["Hello."]
            await anyio.sleep(2)
            return list(agent.conversation)

    items = run_virtual(backend, scenario)
    _each_result_behind_its_call(items)
    assert [item.output for item in items if isinstance(item, ToolResult)] == [CANCELLED]


@pytest.mark.parametrize("backend", BACKENDS)
def test_invariant_6_a_call_that_an_author_leaves_open_is_closed_with_an_error(backend: Backend) -> None:
    async def forgetful(turn: Turn) -> None:
        turn.add(ToolCall("c1", "look", "{}"))

    async def scenario() -> list[Item]:
        async with ScriptedAgent([forgetful]) as agent:
            await agent.answer().wait()
            return list(agent.conversation)

    items = run_virtual(backend, scenario)
    _each_result_behind_its_call(items)
