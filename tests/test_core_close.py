"""``aclose()`` from everywhere, and how the end of a call is told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest
from core_support import log_of, said

from micdrop_agent.events import (
    EndCallRequested,
    Event,
)
from micdrop_agent.testing import BACKENDS, HANG, Call, ScriptedAgent, run_virtual
from micdrop_agent.tools import tool

if TYPE_CHECKING:
    from collections.abc import Callable

    from micdrop_agent import Turn
    from micdrop_agent.testing import Backend

pytestmark = pytest.mark.parametrize("backend", BACKENDS)


# -- aclose()


@pytest.mark.parametrize("where", ["other task", "answer", "tool", "shielded tool", "background"])
def test_aclose_may_be_called_from_anywhere(backend: Backend, where: str) -> None:
    async def main() -> None:
        agents: list[ScriptedAgent] = []

        async def close() -> None:
            await agents[0].aclose()

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
            "background": ["a", lambda _turn: agents[0]._core.spawn(close, "closes"), HANG],
        }
        async with ScriptedAgent(scripts[where], tools=[closing, closing_shielded]) as agent:
            agents.append(agent)
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
        async with ScriptedAgent(
            [lambda turn: turn.emit("x")]  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        ) as agent:
            with pytest.raises(TypeError, match="not an event"):
                await agent.answer().receive()

    run_virtual(backend, main)


def test_closing_says_what_it_gave_up_on(backend: Backend, caplog: pytest.LogCaptureFixture) -> None:
    async def stubborn(_turn: Any) -> None:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(20)

    async def scenario() -> None:
        async with ScriptedAgent(["One.", stubborn]) as agent:
            answer = agent.answer()
            assert await answer.receive() == "One."
            await anyio.sleep(1)
            began = anyio.current_time()
            await agent.aclose()
            assert anyio.current_time() - began == pytest.approx(5)

    run_virtual(backend, scenario)
    assert (
        "closing gave up after 5 s: 1 of its tasks ignore their cancellation (an answer, or a tool of it)"
        in caplog.text
    )
