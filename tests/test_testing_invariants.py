"""The check of the invariants has teeth: a right run that is damaged in one way is refused, by the right number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from micdrop_agent import Message, ToolResult
from micdrop_agent.testing import (
    BACKENDS,
    Call,
    InvariantError,
    Probe,
    ScriptedAgent,
    Trace,
    check_invariants,
    read,
    run_scenario,
)
from micdrop_agent.tools import tool

if TYPE_CHECKING:
    from collections.abc import Callable

    from micdrop_agent.testing import Backend

    Damage = Callable[[Trace], object]


@tool
def look() -> str:
    """Look."""
    return "a cat"


async def with_a_tool(probe: Probe) -> None:
    async with ScriptedAgent(["One ", "two. ", Call("look"), "There."], tools=[look]) as agent:
        probe.watch(agent)
        agent.add_user_message("Where?")
        await read(probe, agent.answer())


async def one_text(probe: Probe) -> None:
    async with ScriptedAgent(["One ", "two."]) as agent:
        probe.watch(agent)
        agent.add_user_message("Count!")
        await read(probe, agent.answer())


def ended_as(trace: Trace, status: Any, *, failures: int = 0) -> None:
    (answer,) = trace.answers
    answer.answer._status = status
    answer.finished, answer.failures = [status], failures


def cut_without_a_mark(trace: Trace) -> None:
    ended_as(trace, "cancelled")
    (answer,) = trace.answers
    answer.silent = True
    answer.received = answer.written[:1]
    answer.stored = [Message("assistant", answer.written[0])]


def without_results(trace: Trace) -> None:
    trace.final = [item for item in trace.final if not isinstance(item, ToolResult)]


def with_a_second_result(trace: Trace) -> None:
    (result,) = [item for item in trace.final if isinstance(item, ToolResult)]
    trace.final.append(result)


def told_otherwise(trace: Trace) -> None:
    trace.at_close = trace.final[:-1]


def with_a_group(trace: Trace) -> None:
    trace.error = ExceptionGroup("wrapped", [ValueError("alone")])


DAMAGES: list[tuple[Damage, int, str]] = [
    (lambda trace: trace.broken(2, "a late chunk"), 2, "a late chunk"),
    (lambda trace: ended_as(trace, "running"), 3, "never ended: running"),
    (lambda trace: trace.answers[0].finished.append("completed"), 3, "its end was announced as"),
    (lambda trace: ended_as(trace, "completed", failures=1), 3, "is completed and emitted 1 failures"),
    (lambda trace: ended_as(trace, "failed", failures=0), 3, "is failed and emitted 0 failures"),
    (lambda trace: ended_as(trace, "cancelled", failures=1), 8, "is cancelled and emitted 1 failures"),
    (lambda trace: trace.answers[0].received.reverse(), 4, "received .*, written"),
    (lambda trace: trace.answers[0].stored.append(Message("assistant", " \u200b")), 5, "stored a blank message"),
    (lambda trace: trace.answers[0].stored.clear(), 5, "stored ''; its consumer received 'One two"),
    (cut_without_a_mark, 5, "did not mark it as interrupted"),
    (without_results, 6, "of look has no result"),
    (with_a_second_result, 6, "a call has two results"),
    (lambda trace: setattr(trace, "tasks_left", 1), 11, "1 tasks are left"),
    (told_otherwise, 13, "the events give"),
    (with_a_group, 14, "a group of errors left the agent"),
]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("damage", "number", "words"), DAMAGES)
def test_a_run_in_which_one_thing_is_wrong_is_refused_by_the_number_of_its_invariant(
    backend: Backend, damage: Damage, number: int, words: str
) -> None:
    trace = run_scenario(one_text if damage is cut_without_a_mark else with_a_tool, backend)
    check_invariants(trace)

    damage(trace)

    with pytest.raises(InvariantError, match=rf"(?s)invariant {number}: .*{words}") as caught:
        check_invariants(trace)
    assert caught.value.number == number
