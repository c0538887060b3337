"""The sweep: every scenario is interrupted at every scheduling step, on both loops, in every way there is."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel
import pytest
from core_support import nobody_listens
from sweep_expected import EXPECTED, told
from sweep_scenarios import FALLBACK, SINGLE
from sweep_stories import STORIES

from micdrop_agent import Agent, ToolCall
from micdrop_agent._core.ledger import Ledger
from micdrop_agent.testing import (
    BACKENDS,
    INJECTIONS,
    InvariantError,
    Probe,
    ScriptedAgent,
    assert_no_leaks,
    cancel_everywhere,
    read,
    run_scenario,
    run_virtual,
    talk_to,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sweep_scenarios import Scenario

    from micdrop_agent import Turn
    from micdrop_agent.testing import Backend


SCENARIOS = [*SINGLE, *FALLBACK, *STORIES]
EVERYWHERE = sorted(INJECTIONS.keys() - {"pause"})
"""What is injected at each step; a pause has a test of its own, and its own scenarios in test_core_pause.py."""

_points: list[int] = []


@pytest.fixture(autouse=True)
def _no_log() -> Iterator[None]:
    """Thousands of answers fail on purpose here; capturing what they log takes longer than the answers."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_an_undisturbed_scenario_does_what_it_is_for(scenario: Scenario, backend: Backend) -> None:
    """Without this, a scenario in which every answer fails at once would pass the whole sweep."""
    assert told(run_scenario(scenario, backend)) == EXPECTED[scenario.__name__]


@pytest.mark.parametrize("inject", EVERYWHERE)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_every_invariant_holds_wherever_a_scenario_is_interrupted(scenario: Scenario, inject: str) -> None:
    # The stories are many and long; the other half of their steps would cost ten seconds.
    every = 2 if scenario in STORIES else 1
    _points.append(cancel_everywhere(scenario, inject=inject, every=every).points)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_every_invariant_holds_wherever_a_scenario_is_paused_and_goes_on(scenario: Scenario) -> None:
    cancel_everywhere(scenario, inject="pause", every=13)  # each step would cost 25 seconds


@pytest.mark.parametrize("inject", EVERYWHERE)
@pytest.mark.parametrize("scenario", [*SINGLE, *FALLBACK], ids=lambda scenario: scenario.__name__)
def test_every_invariant_holds_where_nobody_listens(
    scenario: Scenario, inject: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    nobody_listens(monkeypatch)
    cancel_everywhere(scenario, inject=inject, listen=False)


def test_the_sweep_covers_at_least_ten_thousand_points() -> None:
    if len(_points) == len(SCENARIOS) * len(EVERYWHERE):  # not when only some of them were selected
        assert sum(_points) >= 10_000


# -- a user's wrong agents


class WritesLater(Agent):
    """Keeps its turn and writes to it after its answer is over."""

    async def generate_answer(self, turn: Turn) -> None:
        async def later() -> None:
            await anyio.sleep(0.2)
            await turn.write("and another thing")

        self._core.spawn(later, "later")
        await turn.write("One ")
        await anyio.sleep(0.1)
        await turn.write("two.")


class IgnoresCancellation(Agent):
    """Takes its cancellation for an error and tries again."""

    async def generate_answer(self, turn: Turn) -> None:
        await turn.write("One ")
        done = False
        while not done:
            try:
                await anyio.sleep(0.1)
                done = True
            except anyio.get_cancelled_exc_class():  # that is what is wrong with it
                done = False


class LeavesACallOpen(Agent):
    """Stores a tool call and never its result."""

    async def generate_answer(self, turn: Turn) -> None:
        turn.add(ToolCall("c1", "look", "{}"))
        await anyio.sleep(0.1)
        await turn.write("Hm.")


def _one_answer(make: Callable[[], Agent]) -> Scenario:
    async def scenario(probe: Probe) -> None:
        async with make() as agent:
            probe.watch(agent)
            await read(probe, agent.answer())
            await anyio.sleep(1)

    return scenario


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("wrong", "number", "where"),
    [
        (WritesLater, 2, "undisturbed"),
        (LeavesACallOpen, 6, "undisturbed"),
        (IgnoresCancellation, 11, r"cancel at step \d+"),
    ],
    ids=str,
)
def test_a_wrong_agent_is_caught_with_the_invariant_and_the_step(
    backend: Backend, wrong: type[Agent], number: int, where: str
) -> None:
    with pytest.raises(InvariantError, match=rf"(?s)invariant {number}: .*\({where} on {backend}\)") as caught:
        cancel_everywhere(_one_answer(wrong), backends=[backend])
    assert caught.value.number == number
    assert caught.value.backend == backend
    assert (caught.value.step is None) == (where == "undisturbed")


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_cut_that_is_lost_is_caught_although_nobody_listens(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    nobody_listens(monkeypatch)
    scenario = talk_to(lambda: ScriptedAgent(["One ", 0.1, "two."], ["One ", 0.1, "two."]))
    cancel_everywhere(scenario, backends=[backend], listen=False)

    monkeypatch.setattr(Ledger, "interrupt_unheard", lambda _self, _upto: None)
    with pytest.raises(InvariantError, match="invariant 5: the conversation has"):
        cancel_everywhere(scenario, backends=[backend], listen=False)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_right_agent_leaks_nothing_and_a_leak_is_seen(backend: Backend) -> None:
    async def clean() -> None:
        async with assert_no_leaks(), ScriptedAgent(["One ", 0.1, "two."]) as agent:
            agent.answer()
            await anyio.sleep(0.05)

    run_virtual(backend, clean)

    async def leaky() -> None:
        async with anyio.create_task_group() as group, assert_no_leaks():
            group.start_soon(anyio.sleep, math.inf)
            await anyio.lowlevel.checkpoint()

    with pytest.raises(ExceptionGroup) as caught:
        run_virtual(backend, leaky)
    assert caught.group_contains(AssertionError, match="tasks are left")
