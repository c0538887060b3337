"""Reading an answer: loops and ``receive()``, in every mixture and with every buffer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest

from micdrop_agent.testing import BACKENDS, HANG, ScriptedAgent, run_virtual

if TYPE_CHECKING:
    from micdrop_agent import Answer
    from micdrop_agent.testing import Backend

pytestmark = pytest.mark.parametrize("backend", BACKENDS)


async def read(answer: Answer, into: list[str]) -> None:
    async for chunk in answer:
        into += [chunk]


def said(agent: ScriptedAgent) -> list[tuple[str, str, Any]]:
    """The conversation after the system prompt."""
    return [(item.role, item.content, item.metadata) for item in agent.conversation[1:]]  # type: ignore[union-attr] # pyright: ignore[reportAttributeAccessIssue]


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
