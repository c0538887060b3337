"""``cancel()`` and ``answer()`` before an answer has begun, from within it, after its end, and with ``heard``."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from core_support import log_of, replayed, said

from micdrop_agent import Agent, Message, ToolCall
from micdrop_agent.events import (
    AnswerFinished,
    EndCallRequested,
    Event,
    MessageAdded,
)
from micdrop_agent.testing import BACKENDS, HANG, ScriptedAgent, run_virtual

if TYPE_CHECKING:
    from micdrop_agent import Turn
    from micdrop_agent.testing import Backend

pytestmark = pytest.mark.parametrize("backend", BACKENDS)


# -- before the task has begun


def test_an_answer_cancelled_in_the_same_tick_runs_nothing(backend: Backend) -> None:
    async def main() -> None:
        hooked: list[int] = []
        async with ScriptedAgent(["a"], on_before_answer=lambda _agent, _turn: hooked.append(1)) as agent:
            answer = agent.answer()
            agent.cancel()
            assert (await answer.wait()).status == "cancelled"
            await anyio.sleep(1)
            assert (hooked, agent.asked) == ([], 0)

    run_virtual(backend, main)


def test_of_several_answers_in_one_tick_only_the_last_one_runs(backend: Backend) -> None:
    async def main() -> None:
        async with ScriptedAgent(["a"]) as agent:
            first, second, third = agent.answer(), agent.answer(), agent.answer()
            assert [chunk async for chunk in third] == ["a"]
            assert [first.status, second.status, third.status] == ["cancelled", "cancelled", "completed"]
            assert agent.asked == 1

    run_virtual(backend, main)


@pytest.mark.parametrize("order", list(itertools.permutations(["cancel", "user", "answer"])))
def test_cancel_message_and_answer_in_one_tick_give_a_whole_conversation(
    backend: Backend, order: tuple[str, ...]
) -> None:
    """Case c-03, in every order: what was heard of the first answer comes before what was said into it."""

    async def main() -> None:
        async with ScriptedAgent(["one ", "two ", "three ", HANG], ["yes"]) as agent:
            agent.add_user_message("When?")
            first = agent.answer()
            heard = [await first.receive(), await first.receive()]
            assert heard == ["one ", "two "]
            second = None
            for act in order:
                if act == "cancel" and second is None:
                    agent.cancel()
                elif act == "cancel":
                    first.cancel()
                elif act == "user":
                    agent.add_user_message("Go on")
                else:
                    second = agent.answer()
            assert said(agent) == [("user", "When?"), ("assistant", "one two "), ("user", "Go on")]
            assert second is not None
            assert [chunk async for chunk in second] == ["yes"]
            assert [chunk async for chunk in first] == []
            assert said(agent)[3:] == [("assistant", "yes")]

    run_virtual(backend, main)


# -- from the hook and from the generation itself


@pytest.mark.parametrize("verdict", [None, True, "said instead"])
def test_a_hook_that_cancels_its_answer_keeps_it_silent(backend: Backend, verdict: Any) -> None:
    async def main() -> None:
        def hook(agent: Agent, _turn: Turn) -> Any:
            agent.cancel()
            return verdict

        async with ScriptedAgent(["a"], on_before_answer=hook) as agent:
            answer = agent.answer()
            assert [chunk async for chunk in answer] == []
            assert answer.status == "cancelled"
            await anyio.sleep(1)
            assert (said(agent), agent.asked) == ([], 0)

    run_virtual(backend, main)


def test_a_generation_that_cancels_or_supersedes_itself_has_no_effect_afterwards(backend: Backend) -> None:
    async def main() -> None:
        agents: list[Agent] = []

        async def cancels(turn: Turn) -> None:
            agents[0].cancel()
            turn.write_nowait("late")
            turn.add(Message("user", "late"))
            turn.emit(EndCallRequested())
            turn.skip_answer()
            turn.end_call()
            turn.cancel_last_user_message()
            turn.cancel_prompt()
            turn.end()
            turn.commit()
            await turn.run_tools([ToolCall("1", "none", "{}")])

        async with ScriptedAgent(["a", 0.1, cancels, "b"]) as agent:
            agents.append(agent)
            agent.add_user_message("hi")
            events = log_of(agent)
            answer = agent.answer()
            assert await answer.receive() == "a"
            assert [chunk async for chunk in answer] == []
            await anyio.sleep(1)
            assert said(agent) == [("user", "hi"), ("assistant", "a")]
            assert [type(event) for event in events] == [MessageAdded, AnswerFinished]

    run_virtual(backend, main)


# -- after the end


def test_nothing_done_through_the_turn_of_an_answer_that_has_ended_has_an_effect(backend: Backend) -> None:
    async def main() -> None:
        turns: list[Turn] = []
        async with ScriptedAgent(["a", turns.append], [turns.append]) as agent:
            events = log_of(agent)
            for expected in (["a"], []):
                answer = agent.answer()
                await anyio.sleep(1)
                seen = len(events)
                turn = turns.pop()
                turn.write_nowait("late")
                await turn.write("late")
                turn.add(Message("user", "late"))
                turn.emit(EndCallRequested())
                turn.skip_answer()
                turn.commit()
                assert (await turn.run_tools([ToolCall("1", "none", "{}")])).ran == 0
                assert [chunk async for chunk in answer] == expected
                assert len(events) == seen
            assert said(agent) == [("assistant", "a")]

    run_virtual(backend, main)


@pytest.mark.parametrize("read_first", [True, False])
def test_a_listener_that_cuts_an_ending_answer_does_not_keep_the_agent_open(
    backend: Backend, *, read_first: bool
) -> None:
    async def main() -> None:
        async with ScriptedAgent(["a", lambda turn: turn.end_call(), 1.0, "b"], [HANG]) as agent:
            ends: list[Event] = []
            agent.on(EndCallRequested, ends.append)
            agent.on(AnswerFinished, lambda _event: agent.cancel() if read_first else agent.answer())
            answer = agent.answer()
            assert await answer.receive() == "a"
            await anyio.sleep(2)
            assert ends == []
        assert anyio.current_time() == 2

    run_virtual(backend, main)


# -- heard


@pytest.mark.parametrize(
    ("heard", "kept"),
    [
        (None, "Hello there. "),
        (5, "Hello"),
        (99, "Hello there. "),
        ("hello  THERE", "Hello there"),
        (0, None),
        ("", None),
    ],
)
@pytest.mark.parametrize("ended", [False, True])
def test_heard_cuts_the_stored_text(backend: Backend, heard: Any, kept: str | None, *, ended: bool) -> None:
    async def main() -> None:
        async with ScriptedAgent(["Hello ", "there. ", *([] if ended else [HANG])]) as agent:
            events = log_of(agent)
            answer = agent.answer()
            assert await answer.receive() == "Hello "
            assert await answer.receive() == "there. "
            if ended:
                assert [chunk async for chunk in answer] == []
            agent.cancel(heard=heard)
            assert said(agent) == ([] if kept is None else [("assistant", kept)])
            for item in agent.conversation[1:]:
                cut = not ended or (heard is not None and kept != "Hello there. ")
                assert getattr(item, "metadata", None) == ({"interrupted": True} if cut else None)
            assert answer.status == ("completed" if ended else "cancelled")
            assert replayed(events) == list(agent.conversation[1:])
            agent.cancel(heard=heard)
            answer.cancel(heard=heard)
            assert said(agent) == ([] if kept is None else [("assistant", kept)])

    run_virtual(backend, main)


@pytest.mark.parametrize("bad", [True, 1.5, b"x", -1])
def test_a_wrong_heard_is_refused_before_anything_is_cancelled(backend: Backend, bad: Any) -> None:
    async def main() -> None:
        async with ScriptedAgent(["a", HANG]) as agent:
            answer = agent.answer()
            await answer.receive()
            with pytest.raises((TypeError, ValueError), match="heard must be"):
                agent.cancel(heard=bad)
            assert answer.status == "running"
            assert said(agent) == []

    run_virtual(backend, main)


def test_heard_may_be_told_again_and_shorter(backend: Backend) -> None:
    async def main() -> None:
        async with ScriptedAgent(["Hello there."]) as agent:
            answer = agent.answer()
            assert [chunk async for chunk in answer] == ["Hello there."]
            for heard, kept in ((8, "Hello th"), (5, "Hello"), (7, "Hello")):
                agent.cancel(heard=heard)
                assert said(agent) == [("assistant", kept)]
            agent.cancel(heard=0)
            assert said(agent) == []
            agent.cancel(heard=3)
            assert said(agent) == []

    run_virtual(backend, main)


def test_without_record_interrupted_a_cut_answer_leaves_nothing(backend: Backend) -> None:
    async def main() -> None:
        async with ScriptedAgent(
            ["a", HANG], ["b", ValueError("x")], record_interrupted=False, raise_on_failure=False
        ) as agent:
            answer = agent.answer()
            assert await answer.receive() == "a"
            agent.cancel()
            assert said(agent) == []
            assert answer.text == "a"
            assert [chunk async for chunk in agent.answer()] == ["b"]
            assert said(agent) == []

    run_virtual(backend, main)


@pytest.mark.parametrize("heard", [None, 5])
def test_without_record_interrupted_nothing_is_left_either_when_the_model_was_done_before_the_cut(
    backend: Backend, heard: int | None
) -> None:
    """The usual case: a model writes faster than anybody speaks, so the message was stored already."""

    async def main() -> None:
        async with ScriptedAgent(["We open ", "at nine."], record_interrupted=False) as agent:
            events = log_of(agent)
            answer = agent.answer()
            assert await answer.receive() == "We open "
            await anyio.sleep(1)
            assert said(agent) == [("assistant", "We open at nine.")]
            agent.cancel(heard=heard)
            assert said(agent) == []
            assert replayed(events) == []
            # What was heard to its end stays.
            assert [chunk async for chunk in agent.answer()] == ["We open ", "at nine."]
            agent.cancel()
            assert said(agent) == [("assistant", "We open at nine.")]

    run_virtual(backend, main)
