"""The result of an answer tells what was known at its end, whenever somebody looks at it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest
from core_support import nobody_listens
from step_support import Model, down, with_model

from micdrop_agent import Message
from micdrop_agent._core.event_hub import signal_of
from micdrop_agent.errors import Attempt
from micdrop_agent.events import EVENT_TYPES, AnswerFinished, MessageAdded
from micdrop_agent.model.protocol import Usage
from micdrop_agent.testing import BACKENDS, HANG, Backend, ScriptedAgent, run_virtual

if TYPE_CHECKING:
    from collections.abc import Callable

    from micdrop_agent import Turn
    from micdrop_agent._core.record import Facts
    from micdrop_agent.events import Event

both = pytest.mark.parametrize("backend", BACKENDS)


def learns_usage(facts: Facts) -> None:
    facts.usage = Usage(input_tokens=1)


def learns_the_reason(facts: Facts) -> None:
    facts.finish_reason = "length"


def counts_a_request(facts: Facts) -> None:
    facts.requests += 1


def extracts(facts: Facts) -> None:
    facts.extracted = {"late": True}


def loses_an_attempt(facts: Facts) -> None:
    facts.attempts.append(Attempt("ghost", down()))


def notes(facts: Facts) -> None:
    facts.note("response", number=1)


LATE: list[Callable[[Facts], None]] = [
    learns_usage,
    learns_the_reason,
    counts_a_request,
    extracts,
    loses_an_attempt,
    notes,
]


@both
@pytest.mark.parametrize("late", LATE)
@pytest.mark.parametrize("cut", [False, True])
def test_what_is_learned_after_the_end_is_not_in_the_result(
    backend: Backend, late: Callable[[Facts], None], cut: bool
) -> None:
    """Faults "… after the end is in the …": it is looked at only then, and is as if it had been made at the end."""

    async def scenario() -> None:
        turns: list[Turn] = []
        async with ScriptedAgent([turns.append, "One. ", "Two.", *([HANG] if cut else [])]) as agent:
            answer = agent.answer()
            await answer.receive()
            await anyio.sleep(1)
            agent.cancel()
            late(turns[0].facts)
            await anyio.sleep(1)

            result = answer.result
            assert (result.status, result.text) == (("cancelled", "One. ") if cut else ("completed", "One. Two."))
            assert (result.usage, result.finish_reason, result.requests, result.extracted) == (None, None, 0, None)
            assert result.attempts == ()
            assert result.trace[-1].kind == "end"
            assert result.trace[-1].at == result.duration == (1 if cut else 0)
            late(turns[0].facts)
            assert answer.result is result is await answer.wait()

    run_virtual(backend, scenario)


@both
def test_the_trace_of_a_barge_in_ends_with_it_although_the_response_is_closed_later(backend: Backend) -> None:
    async def check(agent: Model) -> None:
        answer = agent.answer()
        await answer.receive()
        await anyio.sleep(1)
        agent.cancel()
        await anyio.sleep(1)
        assert [noted[1] for noted in answer.turn.facts.trace][-3:] == ["cancel", "end", "response"]
        assert [event.kind for event in answer.result.trace] == ["request", "headers", "first_chunk", "cancel", "end"]
        assert answer.result.duration == 1

    with_model(backend, [[["One. "], "hang"]], check)


# -- who hears of it


@both
def test_nothing_is_made_for_nobody_and_the_result_is_there_for_who_asks(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        nobody_listens(monkeypatch)
        async with ScriptedAgent(["One. ", HANG]) as agent:
            assert agent._core.hub.unheard
            answer = agent.answer()
            await answer.receive()
            agent.cancel()
            assert answer.ending is not None
            assert answer.ending._made is None
            assert answer.result.text == "One. "

    run_virtual(backend, scenario)


@both
def test_an_observer_of_all_agents_hears_everything_also_when_it_is_the_only_one(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[tuple[object, Event]] = []

    def observe(sender: object, *, event: Event) -> None:
        heard.append((sender, event))

    async def scenario() -> None:
        nobody_listens(monkeypatch)
        async with ScriptedAgent(["One. ", HANG]) as agent:
            agent.add_user_message("unheard")
            for kind in EVENT_TYPES:
                signal_of(kind).connect(observe)
            assert not agent._core.hub.unheard
            agent.add_user_message("Hello?")
            answer = agent.answer()
            await answer.receive()
            agent.cancel()
            assert heard == [
                (agent, MessageAdded(Message("user", "Hello?"), 2)),
                (agent, MessageAdded(Message("assistant", "One. ", {"interrupted": True}), 3)),
                (agent, AnswerFinished(answer.result)),
            ]

    try:
        run_virtual(backend, scenario)
    finally:
        for kind in EVENT_TYPES:
            signal_of(kind).disconnect(observe)


@both
@pytest.mark.parametrize("who", ["a listener", "a stream"])
def test_one_who_hears_of_this_agent_is_enough(backend: Backend, monkeypatch: pytest.MonkeyPatch, who: str) -> None:
    async def scenario() -> None:
        nobody_listens(monkeypatch)
        async with ScriptedAgent(["One."]) as agent:
            heard: list[Event] = []
            stream = agent.events() if who == "a stream" else None
            if stream is None:
                agent.on(AnswerFinished, heard.append)
            assert not agent._core.hub.unheard
            result = await agent.answer().wait()
            if stream is not None:
                heard.append(await anext(stream))
                assert isinstance(heard.pop(), MessageAdded)
                heard.append(await anext(stream))
            assert heard == [AnswerFinished(result)]

    run_virtual(backend, scenario)
