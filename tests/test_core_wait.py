"""``wait()`` with and without a reader, and what answers leave behind."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from micdrop_agent import Answer, EchoAgent, MockAgent
from micdrop_agent.events import MessageAdded, MessageCorrected
from micdrop_agent.testing import BACKENDS, HANG, ScriptedAgent, run_virtual

if TYPE_CHECKING:
    from micdrop_agent.testing import Backend

pytestmark = pytest.mark.parametrize("backend", BACKENDS)


async def read(answer: Answer, into: list[str]) -> None:
    async for chunk in answer:
        into += [chunk]


def said(agent: ScriptedAgent) -> list[tuple[str, str, Any]]:
    """The conversation after the system prompt."""
    return [(item.role, item.content, item.metadata) for item in agent.conversation[1:]]  # type: ignore[union-attr] # pyright: ignore[reportAttributeAccessIssue]


# -- wait() with and without a reader


def test_a_reader_that_starts_while_another_task_waits_misses_nothing(backend: Backend) -> None:
    async def main() -> None:
        async with ScriptedAgent(["a", "b", 1.0, "c"]) as agent:
            answer, chunks = agent.answer(), list[str]()
            await anyio.sleep(0.5)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(answer.wait)
                await anyio.sleep(0.1)
                tasks.start_soon(read, answer, chunks)
            assert chunks == ["a", "b", "c"]
            assert answer.text == "abc"
            assert answer.status == "completed"

    run_virtual(backend, main)


def test_a_reader_that_comes_after_wait_has_returned_still_gets_the_text(backend: Backend) -> None:
    async def main() -> None:
        async with ScriptedAgent(["a", "b"]) as agent:
            answer, chunks = agent.answer(), list[str]()
            assert (await answer.wait()).text == answer.text == "ab"
            await read(answer, chunks)
            assert chunks == ["a", "b"]
            assert answer.text == "ab"

    run_virtual(backend, main)


@pytest.mark.parametrize("buffer_size", [None, 0, 1])
def test_wait_alone_takes_the_text_as_a_whole_with_every_buffer(backend: Backend, buffer_size: int | None) -> None:
    async def main() -> None:
        async with ScriptedAgent(["a", "b", 0.5, "c"], buffer_size=buffer_size) as agent:
            answer = agent.answer()
            with anyio.fail_after(10):
                assert (await answer.wait()).text == "abc"
            agent.cancel()
            assert said(agent) == [("assistant", "abc", None)]

    run_virtual(backend, main)


def test_wait_that_begins_while_the_producer_waits_for_room_lets_it_go_on(backend: Backend) -> None:
    async def main() -> None:
        async with ScriptedAgent(["a", "b"], buffer_size=0) as agent:
            answer = agent.answer()
            await anyio.sleep(1)
            assert answer.status == "running"
            with anyio.fail_after(10):
                assert (await answer.wait()).status == "completed"

    run_virtual(backend, main)


def test_a_barge_in_while_somebody_only_waits_stores_nothing(backend: Backend) -> None:
    async def main() -> None:
        async with ScriptedAgent(["a", HANG]) as agent, anyio.create_task_group() as tasks:
            answer = agent.answer()
            tasks.start_soon(answer.wait)
            await anyio.sleep(1)
            agent.cancel()
            assert said(agent) == []

    run_virtual(backend, main)


def test_wait_returns_the_result_of_a_cancelled_and_of_a_failed_answer(backend: Backend) -> None:
    async def main() -> None:
        async with ScriptedAgent([HANG], ["a", ValueError("broken")]) as agent:
            answer = agent.answer()
            await anyio.sleep(1)
            agent.cancel()
            assert (await answer.wait()).status == "cancelled"
            result = await agent.answer().wait()
            assert (result.status, result.text, repr(result.error)) == ("failed", "a", "ValueError('broken')")

    run_virtual(backend, main)


def test_the_result_of_a_running_answer_says_to_wait(backend: Backend) -> None:
    async def main() -> None:
        async with ScriptedAgent([HANG]) as agent:
            with pytest.raises(RuntimeError, match=r"still running; await answer\.wait\(\)"):
                _ = agent.answer().result

    run_virtual(backend, main)


def test_wait_mixed_with_reading_counts_each_chunk_once(backend: Backend) -> None:
    async def main() -> None:
        async with ScriptedAgent(["ab", "cd", "ef"]) as agent:
            answer = agent.answer()
            assert await answer.receive() == "ab"
            await answer.wait()
            assert answer.text == "ab"
            assert [chunk async for chunk in answer] == ["cd", "ef"]
            await answer.wait()
            assert answer.text == "abcdef"

    run_virtual(backend, main)


# -- the error of a failed answer


def test_the_error_comes_after_the_last_good_chunk_and_to_each_reader(backend: Backend) -> None:
    async def main() -> None:
        async with ScriptedAgent(["a", "b", ValueError("broken")]) as agent:
            answer = agent.answer()
            assert [await answer.receive(), await answer.receive()] == ["a", "b"]
            for _ in range(2):
                with pytest.raises(ValueError, match="broken"):
                    await answer.receive()
            assert said(agent) == [("assistant", "ab", {"interrupted": True})]

    run_virtual(backend, main)


def test_a_quiet_agent_just_ends(backend: Backend) -> None:
    async def main() -> None:
        async with ScriptedAgent(["a", ValueError("broken")], raise_on_failure=False) as agent:
            answer = agent.answer()
            assert [chunk async for chunk in answer] == ["a"]
            assert answer.status == "failed"

    run_virtual(backend, main)


def test_a_cut_of_the_unread_rest_of_a_failed_answer_keeps_its_error_quiet(backend: Backend) -> None:
    async def main() -> None:
        async with ScriptedAgent(["a", "b", ValueError("broken")]) as agent:
            corrected: list[MessageCorrected] = []
            agent.on(MessageCorrected, corrected.append)
            answer = agent.answer()
            assert await answer.receive() == "a"
            await anyio.sleep(1)
            agent.cancel()
            assert [chunk async for chunk in answer] == []
            assert answer.status == "failed"
            assert said(agent) == [("assistant", "a", {"interrupted": True})]
            assert [event.new.content for event in corrected] == ["a"]  # type: ignore[union-attr] # pyright: ignore[reportOptionalMemberAccess, reportAttributeAccessIssue]

    run_virtual(backend, main)


# -- nothing is left behind


def test_answers_that_nobody_reads_leave_nothing_unclosed(backend: Backend) -> None:
    async def main() -> None:
        async with MockAgent() as agent:
            for _ in range(50):
                agent.answer()
                await anyio.sleep(1)
                assert not agent.answering

    gc.collect()
    run_virtual(backend, main)
    gc.collect()  # an unclosed stream would warn here, which is an error


def test_unread_answers_in_cycles_close_their_streams_whatever_is_finalized_first(backend: Backend) -> None:
    async def main() -> None:
        async with MockAgent() as agent:
            answer = agent.answer()
            await anyio.sleep(1)
            assert not answer.turn.fenced
            assert answer.pipe._outbox is not None
            assert answer.pipe._inbox._closed, "left to the order in which a cycle is finalized"

    run_virtual(backend, main)


def test_the_streams_of_an_answer_that_was_cut_are_closed_with_its_task(backend: Backend) -> None:
    async def main() -> None:
        async with ScriptedAgent(["One. ", HANG]) as agent:
            answer = agent.answer()
            assert await answer.receive() == "One. "
            answer.cancel()
            await anyio.sleep(1)
            assert answer.pipe._outbox is not None
            assert answer.pipe._inbox._closed, "left to the order in which a cycle is finalized"

    run_virtual(backend, main)


def test_a_thousand_answers_leave_no_objects_behind(backend: Backend) -> None:
    async def turns(agent: EchoAgent, count: int) -> None:
        for number in range(count):
            agent.add_user_message("hi")
            answer = agent.answer()
            if number % 3 == 0:
                agent.cancel()
            elif number % 3 == 1:
                async for _ in answer:
                    break
            else:
                await answer.wait()

    async def main() -> None:
        async with EchoAgent(delay=0) as agent:
            await turns(agent, 50)
            agent.cancel()
            agent.conversation.replace([])
            gc.collect()
            before = sum(1 for found in gc.get_objects() if type(found) is Answer)
            await turns(agent, 1000)
            agent.cancel()
            await anyio.sleep(1)
            gc.collect()
            after = sum(1 for found in gc.get_objects() if type(found) is Answer)
            assert after <= before
            assert agent._core._alive == 0
            assert not agent._core._background

    run_virtual(backend, main)


@pytest.mark.parametrize("how", ["cancel", "answer", "aclose"])
def test_a_cut_under_wait_stores_the_same_for_every_size_of_the_buffer(backend: Backend, how: str) -> None:
    """Who only waits takes the text as a whole, when it is complete: of one that was cut it has received nothing."""
    stored: list[list[str]] = []

    async def scenario(size: int | None, listens: bool) -> None:
        async with ScriptedAgent(["One ", "two ", 0.1, "three ", HANG], buffer_size=size) as agent:
            if listens:
                agent.on(MessageAdded, lambda _: None)
            answer = agent.answer()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(answer.wait)
                await anyio.sleep(0.05)
                if how == "cancel":
                    agent.cancel()
                elif how == "answer":
                    agent.answer()
                    agent.cancel()
                else:
                    await answer.aclose()
            assert answer.result.status == "cancelled"
            stored.append([answer.text, answer.result.text, *(m.content for m in agent.conversation.messages[1:])])

    for size in (None, 0, 1, 2, 100):
        for listens in (False, True):
            run_virtual(backend, scenario, size, listens)
    assert stored == [["", ""]] * 10
