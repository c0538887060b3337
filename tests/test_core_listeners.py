"""Listeners and extraction callbacks may do anything: cancel, answer, add, close, raise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest
from core_support import log_of, said

from micdrop_agent import ExtractTag, Message, ToolCall
from micdrop_agent.events import (
    EVENT_TYPES,
    AnswerFailed,
    AnswerFinished,
    Event,
    MessageCorrected,
)
from micdrop_agent.testing import BACKENDS, HANG, Call, ScriptedAgent, run_virtual
from micdrop_agent.tools import tool

if TYPE_CHECKING:
    from collections.abc import Callable

    from micdrop_agent.testing import Act, Backend

pytestmark = pytest.mark.parametrize("backend", BACKENDS)


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

            acts: dict[str, Callable[[], object]] = {
                "cancel": agent.cancel,
                "answer": lambda: second.append(agent.answer()),
                "add": lambda: agent.add_user_message("wait"),
                "raise": lambda: 1 / 0,
            }

            def listener(event: Event) -> None:
                if not acted:
                    acted.append(event)
                    acts[act]()

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
            agent.on(AnswerFinished, lambda _event: agent._core.close())
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
                agent._core.close()
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
        script: list[Act] = ["one", Message("assistant", "one"), "two ", "<v>x</v>"]
        async with ScriptedAgent(script, extract=ExtractTag(start_tag="<v>", end_tag="</v>")) as agent:
            answer = agent.answer()
            assert "".join([chunk async for chunk in answer]) == "onetwo"
            assert answer.result.extracted == "x"
            assert said(agent) == [("assistant", "one"), ("assistant", "two")]

    run_virtual(backend, main)
