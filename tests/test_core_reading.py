"""Reading an answer: iteration, ``receive()``, ``wait()``, in every mixture and with every buffer."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from micdrop_agent import Answer, EchoAgent, MockAgent
from micdrop_agent.events import MessageCorrected
from micdrop_agent.testing import BACKENDS, HANG, ScriptedAgent, run_virtual

if TYPE_CHECKING:
    from micdrop_agent.testing import Backend

pytestmark = pytest.mark.parametrize("backend", BACKENDS)


async def read(answer: Answer, into: list[str]) -> None:
    async for chunk in answer:
        into += [chunk]


def said(agent: ScriptedAgent) -> list[tuple[str, str, Any]]:
    """The conversation behind the system prompt."""
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


# -- iteration


def test_a_second_loop_goes_on_where_the_first_stopped(backend: Backend) -> None:
    async def main() -> None:
        async with ScriptedAgent(["a", "b", "c"]) as agent:
            answer = agent.answer()
            async for chunk in answer:
                assert chunk == "a"
                break
            assert [chunk async for chunk in answer] == ["b", "c"]
            assert [chunk async for chunk in answer] == []

    run_virtual(backend, main)


def test_a_reader_that_times_out_does_not_stop_the_answer(backend: Backend) -> None:
    async def main() -> None:
        async with ScriptedAgent(["a", 5.0, "b"]) as agent:
            answer = agent.answer()
            assert await answer.receive() == "a"
            with anyio.move_on_after(1) as scope:
                await answer.receive()
            assert scope.cancelled_caught
            assert await answer.receive() == "b"
            with pytest.raises(anyio.EndOfStream):
                await answer.receive()

    run_virtual(backend, main)


@pytest.mark.parametrize("buffer_size", [None, 0, 1, 5])
def test_two_readers_share_the_chunks(backend: Backend, buffer_size: int | None) -> None:
    async def main() -> None:
        async with ScriptedAgent([*"abcdefgh"], buffer_size=buffer_size) as agent:
            answer, one, two = agent.answer(), list[str](), list[str]()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(read, answer, one)
                tasks.start_soon(read, answer, two)
            assert sorted(one + two) == list("abcdefgh")
            assert one == sorted(one)
            assert two == sorted(two)
            assert answer.text == "abcdefgh"

    run_virtual(backend, main)


@pytest.mark.parametrize("buffer_size", [0, 1, 3])
def test_a_producer_waits_when_its_consumer_has_not_kept_up(backend: Backend, buffer_size: int) -> None:
    async def main() -> None:
        written: list[int] = []
        acts = [act for n in range(6) for act in (str(n), lambda _turn, n=n: written.append(n))]
        async with ScriptedAgent(acts, buffer_size=buffer_size) as agent:
            answer = agent.answer()
            await anyio.sleep(1)
            assert written == list(range(buffer_size))
            assert await answer.receive() == "0"
            await anyio.sleep(1)
            assert written == list(range(buffer_size + 1))
            assert [chunk async for chunk in answer] == ["1", "2", "3", "4", "5"]

    run_virtual(backend, main)


@pytest.mark.parametrize("way", ["cancel", "supersede", "leave"])
def test_a_producer_that_waits_for_room_is_released(backend: Backend, way: str) -> None:
    async def main() -> None:
        async with ScriptedAgent(["a", "b"], ["x"], buffer_size=0) as agent:
            answer = agent.answer()
            await anyio.sleep(1)
            if way == "cancel":
                agent.cancel()
            elif way == "supersede":
                assert [chunk async for chunk in agent.answer()] == ["x"]
            else:
                await agent.aclose()
            with anyio.fail_after(1):
                assert (await answer.wait()).status == "cancelled"

    run_virtual(backend, main)


def test_a_cut_reader_ends_without_an_error_and_without_another_chunk(backend: Backend) -> None:
    async def main() -> None:
        async with ScriptedAgent(["a", "b", "c", HANG]) as agent, anyio.create_task_group() as tasks:
            answer, chunks = agent.answer(), list[str]()
            assert await answer.receive() == "a"
            tasks.start_soon(read, answer, chunks)  # has not run yet: "b" and "c" wait in the buffer
            agent.cancel()
            await anyio.sleep(1)
            assert chunks == []
            assert said(agent) == [("assistant", "a", {"interrupted": True})]

    run_virtual(backend, main)


def test_leaving_the_answers_block_stops_it_and_joins_its_task(backend: Backend) -> None:
    async def main() -> None:
        ended: list[float] = []

        async def slow_to_die(_turn: object) -> None:
            try:
                await anyio.sleep_forever()
            finally:
                with anyio.CancelScope(shield=True):
                    await anyio.sleep(0.25)
                ended.append(anyio.current_time())

        async with ScriptedAgent(["a", slow_to_die]) as agent:
            async with agent.answer() as answer:
                assert await answer.receive() == "a"
                await anyio.sleep(1)
            assert ended == [1.25]
            assert answer.status == "cancelled"
            await answer.aclose()
            assert anyio.current_time() == 1.25

    run_virtual(backend, main)


def test_aclose_gives_up_after_half_a_second(backend: Backend) -> None:
    async def main() -> None:
        async def shielded(_turn: object) -> None:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(10)

        async with ScriptedAgent([shielded]) as agent:
            answer = agent.answer()
            await anyio.sleep(1)
            await answer.aclose()
            assert anyio.current_time() == 1.5

    run_virtual(backend, main)


def test_an_answer_ended_early_by_its_author_ends_for_the_reader_and_goes_on(backend: Backend) -> None:
    async def main() -> None:
        async with ScriptedAgent(["a", lambda turn: turn.end(), 1.0]) as agent:
            answer = agent.answer()
            assert [chunk async for chunk in answer] == ["a"]
            assert anyio.current_time() == 0
            assert answer.status == "running"
            await answer.wait()
            assert anyio.current_time() == 1

        async with ScriptedAgent(["a", lambda turn: turn.end(), "b"]) as agent:
            answer = agent.answer()
            assert await answer.receive() == "a"
            with pytest.raises(RuntimeError, match="nothing follows it"):
                await answer.receive()

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
            assert not answer._turn.fenced
            assert answer._inbox._closed, "left to the order in which a cycle is finalized"

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
            assert agent._alive == 0
            assert not agent._background

    run_virtual(backend, main)
