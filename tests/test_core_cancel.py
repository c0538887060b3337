"""``cancel()``, ``answer()`` and ``aclose()`` from every place: hooks, listeners, tools, callbacks, other answers."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from micdrop_agent import Agent, ExtractTag, Message, ToolCall
from micdrop_agent.events import (
    EVENT_TYPES,
    AnswerFailed,
    AnswerFinished,
    EndCallRequested,
    Event,
    MessageAdded,
    MessageCorrected,
)
from micdrop_agent.testing import BACKENDS, HANG, Call, ScriptedAgent, run_virtual
from micdrop_agent.tools import tool

if TYPE_CHECKING:
    from collections.abc import Callable

    from micdrop_agent import Turn
    from micdrop_agent.testing import Backend

pytestmark = pytest.mark.parametrize("backend", BACKENDS)


def said(agent: Agent) -> list[tuple[Any, ...]]:
    """The conversation behind the system prompt, in short."""
    return [
        (item.role, item.content) if isinstance(item, Message) else (item.role, getattr(item, "output", item.tool_name))
        for item in agent.conversation[1:]
    ]


def log_of(agent: Agent) -> list[Event]:
    events: list[Event] = []
    for kind in EVENT_TYPES:
        agent.on(kind, events.append)
    return events


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
            agent.on(AnswerFinished, lambda _event: agent.cancel() if read_first else agent.answer())  # type: ignore[func-returns-value]
            answer = agent.answer()
            assert await answer.receive() == "a"
            await anyio.sleep(2)
            assert ends == []
        assert anyio.current_time() == 2

    run_virtual(backend, main)


# -- from a listener


@pytest.mark.parametrize("kind", EVENT_TYPES)
@pytest.mark.parametrize("act", ["cancel", "answer", "add", "raise"])
def test_a_listener_may_do_anything_inside_any_event(backend: Backend, kind: type[Event], act: str) -> None:
    async def main() -> None:
        @tool(emit_output=True)
        async def look() -> str:
            await anyio.sleep(0.5)
            return "a cat"

        script = [
            "text ",
            Call("look"),
            "more",
            lambda turn: turn.emit(MessageCorrected(Message("user", "x"), None, 0)),
            lambda turn: turn.skip_answer(),
            lambda turn: turn.cancel_prompt(),
            lambda turn: turn.end_call(),
            ValueError("broken"),
        ]
        async with ScriptedAgent(script, ["again"], tools=[look], raise_on_failure=False) as agent:  # type: ignore[arg-type]
            agent.add_user_message("hi")
            second: list[Any] = []
            acted: list[Event] = []

            def listener(event: Event) -> None:
                if acted:
                    return
                acted.append(event)
                if act == "cancel":
                    agent.cancel()
                elif act == "answer":
                    second.append(agent.answer())
                elif act == "add":
                    agent.add_user_message("wait")
                else:
                    raise ValueError("of the listener")

            events = log_of(agent)
            agent.on(kind, listener)
            answer = agent.answer()
            chunks = [chunk async for chunk in answer]
            await anyio.sleep(1)
            assert "".join(chunks) == answer.text
            assert answer.status in {"cancelled", "failed", "completed"}
            if second:
                assert [chunk async for chunk in second[0]] == ["again"]
            finished = [event for event in events if isinstance(event, AnswerFinished)]
            assert len(finished) == 1 + len(second)
            assert len([event for event in events if isinstance(event, AnswerFailed)]) <= 1
            calls = [item for item in agent.conversation if isinstance(item, ToolCall)]
            for call in calls:
                following = agent.conversation[agent.conversation.index_of(call) + 1]  # type: ignore[operator] # pyright: ignore[reportOptionalOperand]
                assert following.role == "tool_result"

    run_virtual(backend, main)


def test_a_listener_that_answers_whenever_an_answer_is_cancelled_is_told_so(backend: Backend) -> None:
    """Two parties that both insist would go on for ever inside one ``answer()``."""

    async def main() -> None:
        started: list[int] = []

        async with ScriptedAgent([HANG]) as agent:

            def again(_event: Event) -> None:
                started.append(1)
                assert len(started) < 1000
                agent.answer()

            remove = agent.on(AnswerFinished, again)
            agent.answer()
            with pytest.raises(RuntimeError, match="a listener starts another answer whenever one is cancelled"):
                agent.answer()
            assert agent.answering
            remove()
            agent.answer()

    run_virtual(backend, main)


def test_a_listener_of_the_superseded_answer_may_start_one_which_is_superseded_too(backend: Backend) -> None:
    async def main() -> None:
        own: list[Any] = []
        async with ScriptedAgent([HANG], ["x"]) as agent:

            def again(_event: Event) -> None:
                if not own:
                    own.append(agent.answer())

            first = agent.answer()
            await anyio.sleep(1)
            agent.on(AnswerFinished, again)
            last = agent.answer()
            assert [chunk async for chunk in last] == ["x"]
            assert [first.status, own[0].status, last.status] == ["cancelled", "cancelled", "completed"]

    run_virtual(backend, main)


def test_a_listener_that_closes_the_agent_inside_answer_is_reported(backend: Backend) -> None:
    async def main() -> None:
        async with ScriptedAgent([HANG]) as agent:
            agent.answer()
            agent.on(AnswerFinished, lambda _event: agent._close())
            with pytest.raises(RuntimeError, match="closed by a listener"):
                agent.answer()

    run_virtual(backend, main)


# -- from the extraction callback


@pytest.mark.parametrize("act", ["cancel", "answer", "close", "raise"])
def test_an_extract_callback_may_do_anything(backend: Backend, act: str) -> None:
    async def main() -> None:
        def callback(_value: str) -> None:
            if act == "cancel":
                agent.cancel()
            elif act == "answer":
                agent.answer()
            elif act == "close":
                agent._close()
            else:
                raise ValueError("of the callback")

        extract = ExtractTag(start_tag="<v>", end_tag="</v>", callback=callback, save_in_metadata=True)
        async with ScriptedAgent(["Fine. <v>7</v>"], ["again"], extract=extract) as agent:
            answer = agent.answer()
            chunks = [chunk async for chunk in answer]
            await anyio.sleep(1)
            assert answer.status == ("completed" if act == "raise" else "cancelled")
            assert chunks in (["Fine."], [])
            if act == "raise":
                (message,) = agent.conversation[1:]
                assert isinstance(message, Message)
                assert message.metadata == {"extracted": "7"}
                assert answer.result.extracted == "7"

    run_virtual(backend, main)


def test_an_async_extract_callback_runs_in_the_background_and_ends_with_the_agent(backend: Backend) -> None:
    async def main() -> None:
        seen: list[str] = []

        async def callback(value: str) -> None:
            seen.append(value)
            try:
                await anyio.sleep_forever()
            finally:
                seen.append("ended")

        async with ScriptedAgent(
            ["x<v>7</v>"], extract=ExtractTag(start_tag="<v>", end_tag="</v>", callback=callback)
        ) as agent:
            assert [chunk async for chunk in agent.answer()] == ["x"]
            await anyio.sleep(1)
            assert seen == ["7"]
        assert seen == ["7", "ended"]

    run_virtual(backend, main)


def test_an_async_extract_callback_that_raises_harms_nobody(backend: Backend) -> None:
    async def main() -> None:
        async def callback(_value: str) -> None:
            raise ValueError("of the callback")

        async with ScriptedAgent(
            ["x<v>7</v>"], extract=ExtractTag(start_tag="<v>", end_tag="</v>", callback=callback)
        ) as agent:
            assert [chunk async for chunk in agent.answer()] == ["x"]
            await anyio.sleep(1)
            assert [chunk async for chunk in agent.answer()] == ["x"]

    run_virtual(backend, main)


def test_a_cut_in_the_middle_of_an_extracted_value_stores_only_what_was_spoken(backend: Backend) -> None:
    async def main() -> None:
        called: list[str] = []
        extract = ExtractTag(start_tag="<v>", end_tag="</v>", callback=called.append)
        async with ScriptedAgent(["Fine. ", "<v>sec", HANG], extract=extract) as agent:
            answer = agent.answer()
            assert await answer.receive() == "Fine."
            await anyio.sleep(1)
            agent.cancel()
            assert said(agent) == [("assistant", "Fine.")]
            assert (called, answer.result.extracted) == ([], None)

    run_virtual(backend, main)


def test_text_after_a_message_of_the_authors_own_goes_through_fresh_filters(backend: Backend) -> None:
    async def main() -> None:
        script = ["one", Message("assistant", "one"), "two ", "<v>x</v>"]
        async with ScriptedAgent(script, extract=ExtractTag(start_tag="<v>", end_tag="</v>")) as agent:
            answer = agent.answer()
            assert "".join([chunk async for chunk in answer]) == "onetwo"
            assert answer.result.extracted == "x"
            assert said(agent) == [("assistant", "one"), ("assistant", "two")]

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
                cut = not ended or heard is not None and kept != "Hello there. "
                assert getattr(item, "metadata", None) == ({"interrupted": True} if cut else None)
            assert answer.status == ("completed" if ended else "cancelled")
            assert replayed(events) == list(agent.conversation[1:])
            agent.cancel(heard=heard)
            answer.cancel(heard=heard)
            assert said(agent) == ([] if kept is None else [("assistant", kept)])

    run_virtual(backend, main)


def replayed(events: list[Event]) -> list[Any]:
    """What an observer knows of the conversation from the events alone (behind the system prompt)."""
    items: list[Any] = []
    for event in events:
        if isinstance(event, MessageAdded):
            items.insert(event.index - 1, event.message)
        elif isinstance(event, MessageCorrected):
            if event.new is None:
                del items[event.index - 1]
            else:
                items[event.index - 1] = event.new
    return items


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


# -- aclose()


@pytest.mark.parametrize("where", ["other task", "answer", "tool", "shielded tool", "background"])
def test_aclose_may_be_called_from_anywhere(backend: Backend, where: str) -> None:
    async def main() -> None:
        async def close() -> None:
            await agent.aclose()

        @tool
        async def closing() -> str:
            await close()
            return "done"

        @tool(on_cancel="finish")
        async def closing_shielded() -> str:
            await close()
            return "done"

        scripts: dict[str, list[Any]] = {
            "other task": ["a", HANG],
            "answer": ["a", lambda _turn: close(), "b"],
            "tool": ["a", Call("closing"), "b"],
            "shielded tool": ["a", Call("closing_shielded"), "b"],
            "background": ["a", lambda _turn: agent._spawn(close, "closes"), HANG],
        }
        async with ScriptedAgent(scripts[where], tools=[closing, closing_shielded]) as agent:
            answer = agent.answer()
            chunks = list[str]()
            async with anyio.create_task_group() as tasks:
                if where == "other task":
                    await anyio.sleep(1)
                    tasks.start_soon(close)
                async for chunk in answer:
                    chunks += [chunk]
            assert answer.status == "cancelled"
            await agent.aclose()
            with pytest.raises(RuntimeError, match="was closed"):
                agent.answer()
            agent.cancel()
        pairs = [item.role for item in agent.conversation if item.role.startswith("tool")]
        assert pairs in ([], ["tool_call", "tool_result"])
        assert anyio.current_time() <= 5

    run_virtual(backend, main)


def test_aclose_waits_for_what_cleans_up_and_no_longer_than_five_seconds(backend: Backend) -> None:
    async def main() -> None:
        async def shielded(seconds: float) -> None:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(seconds)

        for seconds, waited in ((3, 3), (8, 5)):
            began = anyio.current_time()
            async with ScriptedAgent([lambda _turn, seconds=seconds: shielded(seconds)]) as agent:  # type: ignore[misc]
                agent.answer()
                await anyio.lowlevel.checkpoint()
                await anyio.lowlevel.checkpoint()
                await agent.aclose()
                assert anyio.current_time() - began == waited
            assert anyio.current_time() - began == seconds

    run_virtual(backend, main)


def test_a_closed_agent_is_silent_and_its_conversation_stays(backend: Backend) -> None:
    async def main() -> None:
        async with ScriptedAgent(["a"]) as agent:
            events = log_of(agent)
            stream = agent.events()
            assert [chunk async for chunk in agent.answer()] == ["a"]
            await agent.aclose()
            await agent.aclose()
            seen = len(events)
            agent.add_user_message("still written down")
            assert len(events) == seen
            assert len([event async for event in stream]) == seen
            assert [event async for event in agent.events()] == []
        assert said(agent) == [("assistant", "a"), ("user", "still written down")]

    run_virtual(backend, main)


# -- the end of the call


def test_the_end_of_the_call_is_told_once_after_the_last_chunk_and_the_end(backend: Backend) -> None:
    async def main() -> None:
        trace: list[str] = []
        async with ScriptedAgent(["a", lambda turn: turn.end_call(), lambda turn: turn.end_call(), "b"]) as agent:
            agent.on(EndCallRequested, lambda _event: trace.append("end of call"))
            async for chunk in agent.answer():
                trace.append(chunk)
                await anyio.sleep(5)
            trace.append("end of text")
            await anyio.sleep(1)
        assert trace == ["a", "b", "end of text", "end of call"]

    run_virtual(backend, main)


@pytest.mark.parametrize("reader", ["nobody", "waits", "gone"])
def test_the_end_of_the_call_is_told_also_when_nobody_reads_on(backend: Backend, reader: str) -> None:
    async def main() -> None:
        async with ScriptedAgent(["a", "b", lambda turn: turn.end_call()]) as agent:
            told: list[float] = []
            agent.on(EndCallRequested, lambda _event: told.append(anyio.current_time()))
            answer = agent.answer()
            if reader == "waits":
                await answer.wait()
            elif reader == "gone":
                await answer.receive()
            await anyio.sleep(100)
            assert told == [0 if reader == "waits" else 30]

    run_virtual(backend, main)


def test_a_barge_in_into_the_farewell_keeps_the_call(backend: Backend) -> None:
    async def main() -> None:
        async with ScriptedAgent(["a", lambda turn: turn.end_call(), "b"]) as agent:
            told: list[Event] = []
            agent.on(EndCallRequested, told.append)
            answer = agent.answer()
            assert await answer.receive() == "a"
            await anyio.sleep(1)
            assert answer.status == "completed"
            agent.cancel()
            await anyio.sleep(100)
            assert told == []
            assert said(agent) == [("assistant", "a")]

    run_virtual(backend, main)


@pytest.mark.parametrize("who", ["agent", "turn"])
def test_ending_the_call_and_skipping_from_outside_are_events(backend: Backend, who: str) -> None:
    async def main() -> None:
        script: list[Callable[[Turn], Any]] = [lambda turn: turn.skip_answer()]
        async with ScriptedAgent(script) as agent:
            events = log_of(agent)
            if who == "agent":
                agent.end_call()
                agent.skip_answer()
                agent.cancel_last_user_message()
                assert [type(event).__name__ for event in events] == [
                    "EndCallRequested",
                    "AnswerSkipped",
                    "UserMessageCancelled",
                ]
            else:
                assert (await agent.answer().wait()).status == "skipped"

    run_virtual(backend, main)


def test_an_event_that_is_none_is_refused_in_words(backend: Backend) -> None:
    async def main() -> None:
        async with ScriptedAgent([lambda turn: turn.emit("x")]) as agent:
            with pytest.raises(TypeError, match="not an event"):
                await agent.answer().receive()

    run_virtual(backend, main)
