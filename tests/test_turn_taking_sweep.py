"""The mechanisms of turn-taking, cancelled at every scheduling step, with a listener and without, also in a fallback."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Any

import anyio
import attrs
import pytest
from core_support import nobody_listens
from step_support import STOP, Model

from micdrop_agent import Agent, FallbackAgent, Message, ProviderError, Turn, TurnContext, tool
from micdrop_agent.testing import BACKENDS, Call, ScriptedAgent, cancel_everywhere, read, run_scenario

if TYPE_CHECKING:
    from collections.abc import Iterator

    from micdrop_agent.testing import Backend, Probe, Scenario

DOWN = ProviderError("scripted", kind="server")


@pytest.fixture(autouse=True)
def _no_log() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def _open(agent: Agent) -> bool:
    return agent._core.state == "open"


@tool(filler="One moment. ", filler_after=0.05)
async def look(turn: Turn) -> str:
    """Look, and say so."""
    await anyio.sleep(0.1)
    turn.say("Nearly. ")
    await anyio.sleep(0.05)
    return "a cat"


@tool
def hand_over(agent: Agent) -> str:
    """Hand over."""
    agent.hand_off(system_prompt="You are billing.", tools=[])
    return "handed over"


def _in_fallback(make: Any) -> FallbackAgent:
    return FallbackAgent([lambda: ScriptedAgent([0.05, DOWN]), make], raise_on_failure=False)


async def speaking_tools(probe: Probe) -> None:
    probe.trace.tool_texts = ("One moment. ", "Nearly. ")

    async with _in_fallback(lambda: ScriptedAgent([Call("look"), "A cat."], tools=[look])) as agent:
        probe.watch(agent)
        for _ in range(2):
            if _open(agent):
                await read(probe, agent.answer())


async def resumed(probe: Probe) -> None:
    async with ScriptedAgent(["One ", 0.1, "two."], ["and ", 0.1, "three."]) as agent:
        probe.watch(agent)
        agent.add_user_message("Count")
        async with anyio.create_task_group() as tasks:
            if _open(agent):
                tasks.start_soon(read, probe, agent.answer())
            await anyio.sleep(0.05)
            agent.cancel()
            with contextlib.suppress(RuntimeError):  # it was refused: nothing was cut, or something was added
                tasks.start_soon(read, probe, agent.resume())
            await anyio.sleep(0.5)


async def guessed_in_a_fallback(probe: Probe) -> None:
    async with _in_fallback(lambda: ScriptedAgent([0.05, "One ", 0.1, Call("look"), "two."], tools=[look])) as agent:
        probe.trace.tool_texts = ("One moment. ", "Nearly. ")
        probe.watch(agent)
        for said in ("Well", "No"):
            if _open(agent):
                guess = agent.speculate("well")
                await anyio.sleep(0.12)
                answer = guess.adopt(said)
                if answer is not None:
                    await read(probe, answer)


async def in_another_role(probe: Probe) -> None:
    def hook(agent: Agent, turn: Turn) -> TurnContext:
        del agent, turn
        return TurnContext(system="It is Friday.", items=[Message("system", "Open.")])

    script: list[Any] = ["Wait. ", Call("hand_over"), 0.05, "Billing."]
    async with ScriptedAgent(script, ["Fine."], tools=[hand_over], on_before_answer=hook) as agent:
        probe.watch(agent)
        for number in range(2):
            if _open(agent):
                agent.add_user_message(f"Question {number}")
                await read(probe, agent.answer())


@attrs.frozen
class Mood:
    mood: str


async def asked_beside_an_answer(probe: Probe) -> None:
    """A typed question takes nothing from the answer, and closes its response whatever becomes of it."""
    model = Model([["One "], 0.1, ["two.", *STOP]], [[0.05], ["Hm.", *STOP]], [['{"mood": "fine"}', *STOP]])
    async with model as agent:
        probe.watch(agent)

        async def ask() -> None:
            await anyio.sleep(0.02)
            with contextlib.suppress(ProviderError):
                await agent.ask(Mood, "How are you?")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            if _open(agent):
                await read(probe, agent.answer())
    if not all(stream.closed for stream in model.served.streams):
        probe.trace.broken(11, "a response was left open")


SCENARIOS: list[Scenario] = [speaking_tools, resumed, guessed_in_a_fallback, in_another_role, asked_beside_an_answer]
SAID = {
    "speaking_tools": ["One moment. Nearly. A cat."] * 2,
    "resumed": ["One ", "and three."],
    "guessed_in_a_fallback": ["One One moment. Nearly. two."],
    "in_another_role": ["Wait. Billing.", "Fine."],
    "asked_beside_an_answer": ["One two."],
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_an_undisturbed_scenario_does_what_it_is_for(scenario: Any, backend: Backend) -> None:
    trace = run_scenario(scenario, backend)
    assert ["".join(answer.received) for answer in trace.answers] == SAID[scenario.__name__]


@pytest.mark.parametrize("listen", [True, False])
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_every_invariant_holds_wherever_it_is_interrupted(
    scenario: Any, listen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not listen:
        nobody_listens(monkeypatch)
        if scenario is resumed:
            pytest.skip("without events nobody knows that two answers are one message")
    names = ["cancel", "answer", "aclose", "task.cancel + scope"] if listen else ["cancel"]
    assert cancel_everywhere(scenario, inject=names, listen=listen, every=5).points > 5
