"""Hosts that cancel natively or run out of time, once and several times, on asyncio and uvloop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import anyio
import anyio.from_thread
import pytest
from hosts_support import assert_pairs_are_whole, forever, loops, run_on, texts, turns

from micdrop_agent import Agent, ExtractJson, ToolResult, tool
from micdrop_agent.testing import HANG, Call, ScriptedAgent, count_steps, run_virtual

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from micdrop_agent import Turn


@loops
@pytest.mark.parametrize("around", ["agent", "reader", "wait"])
def test_a_time_out_around_the_agent_its_reader_or_wait(loop: str, around: str) -> None:
    async def main() -> None:
        async def late_agent() -> None:
            async with asyncio.timeout(0.01), ScriptedAgent(["a", HANG]) as agent:
                async for _ in agent.answer():
                    pass

        async def late_reader() -> None:
            async with ScriptedAgent(["a", HANG]) as agent:
                answer = agent.answer()
                assert await answer.receive() == "a"
                try:
                    async with asyncio.timeout(0.01):
                        await (answer.receive() if around == "reader" else answer.wait())
                finally:
                    assert answer.status == "running"

        with pytest.raises(TimeoutError):
            await (late_agent() if around == "agent" else late_reader())
        assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr] # pyright: ignore[reportOptionalMemberAccess]

    run_on(loop, main)


@loops
def test_wait_for_around_receive_loses_no_chunk(loop: str) -> None:
    async def main() -> None:
        script: list[Any] = []
        for number in range(6):
            script += [0.004, str(number)]
        async with ScriptedAgent(script) as agent:
            answer, chunks = agent.answer(), list[str]()
            while True:
                try:
                    chunks.append(await asyncio.wait_for(answer.receive(), 0.001))
                except TimeoutError:
                    continue
                except anyio.EndOfStream:
                    break
            assert chunks == list("012345")
            assert answer.text == "012345"

    run_on(loop, main)


@loops
def test_a_reader_cancelled_in_the_tick_of_a_chunk_does_not_lose_it(loop: str) -> None:
    async def main() -> None:
        go = asyncio.Event()

        async def when_told(_turn: Any) -> None:
            await go.wait()
            go.clear()

        async with ScriptedAgent([when_told, "a", when_told, "b"]) as agent:
            answer = agent.answer()
            for expected in "ab":
                for ticks in range(4):
                    reader = asyncio.ensure_future(answer.receive())
                    await turns()
                    if ticks == 3:
                        go.set()
                    await turns(ticks)
                    reader.cancel()
                    await asyncio.wait([reader])
                    if not reader.cancelled():
                        assert reader.result() == expected
                        break
                else:
                    assert await answer.receive() == expected
            assert [chunk async for chunk in answer] == []
            assert answer.text == "ab"

    run_on(loop, main)


@loops
@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_host_cancelled_natively_leaves_whole_pairs_and_no_task(loop: str, times: int) -> None:
    agents: list[Agent] = []

    async def call() -> None:
        async with ScriptedAgent(["a", [Call("forever"), Call("forever")]], tools=[forever]) as agent:
            agents.append(agent)
            async for _ in agent.answer():
                pass

    async def main() -> None:
        for gap in range(5):
            task = asyncio.create_task(call())
            await turns()
            for _ in range(times):
                task.cancel()
                await turns(gap)
            with pytest.raises(asyncio.CancelledError):
                await task
            agent = agents.pop()
            assert texts(agent) == ["a"]
            assert sum(isinstance(item, ToolResult) for item in agent.conversation) == 2
            assert_pairs_are_whole(agent)

    run_on(loop, main)


@pytest.mark.parametrize("again", [0, 1, 3])
def test_a_native_cancellation_of_the_answers_task_at_any_step_is_only_a_cancel_of_that_answer(again: int) -> None:
    """The agent lives on; twice is no different from once."""

    def scenario(agents: list[ScriptedAgent]) -> Callable[[], Awaitable[None]]:
        async def main() -> None:
            async with ScriptedAgent(["a", [Call("forever"), Call("forever")]], ["next"], tools=[forever]) as agent:
                agents.append(agent)
                answer = agent.answer()
                with anyio.move_on_after(5):
                    async for _ in answer:
                        pass
                agents.clear()  # a task cancelled before its first step is AnyIO's to handle, and ends the group
                agent.cancel()
                await turns()
                agent.asked = 1
                assert [chunk async for chunk in agent.answer()] == ["next"]
                assert_pairs_are_whole(agent)

        return main

    total = count_steps("asyncio", scenario([]))
    assert total > 10
    for point in range(1, total):
        agents: list[ScriptedAgent] = []
        struck: list[asyncio.Task[Any]] = []

        def strike(
            step: int, agents: list[ScriptedAgent] = agents, struck: list[Any] = struck, point: int = point
        ) -> None:
            if step == point and agents and agents[0].asked == 1:
                tasks = [task for task in asyncio.all_tasks() if task.get_name() == "micdrop answer"]
                struck.extend(tasks)
            if struck and step in {point, point + again}:
                struck[0].cancel()

        run_virtual("asyncio", scenario(agents), on_step=strike)


@loops
def test_a_tool_that_is_cancelled_natively_ends_none_of_those_beside_it(loop: str) -> None:
    seen: list[list[str]] = []

    @tool
    async def hit() -> str:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)
        return "never"

    @tool
    async def nap() -> str:
        await anyio.sleep(0.01)
        return "slept"

    def look(turn: Turn) -> None:
        seen.append([item.output for item in turn.conversation if isinstance(item, ToolResult)])

    async def main() -> None:
        async with ScriptedAgent([[Call("nap"), Call("hit"), Call("nap")], look, "ok"], tools=[hit, nap]) as agent:
            assert (await agent.answer().wait()).text == "ok"
            assert_pairs_are_whole(agent)
        async with ScriptedAgent([Call("hit"), "never"], ["next"], tools=[hit]) as agent:
            assert (await agent.answer().wait()).status == "cancelled"  # it ran in the answer's own task
            assert_pairs_are_whole(agent)
            assert (await agent.answer().wait()).text == "next"

    run_on(loop, main)
    assert seen == [['"slept"', '{"error":"cancelled"}', '"slept"']]


@loops
@pytest.mark.parametrize("how", ["what it waited for", "its task"])
def test_background_work_that_is_cancelled_natively_does_not_end_the_agent(loop: str, how: str) -> None:
    """The body of its block was cancelled by that, and the block left without an error."""
    began: list[asyncio.Task[Any] | None] = []
    heard: list[str] = []

    async def callback(_value: Any) -> None:
        began.append(asyncio.current_task())
        future = asyncio.get_running_loop().create_future()
        if how == "what it waited for":
            future.cancel()
        await future

    async def main() -> None:
        async with ScriptedAgent(['a {"x": 1}'], ["b"], extract=ExtractJson(callback=callback)) as agent:
            await agent.answer().wait()
            await anyio.sleep(0.01)
            (task,) = began
            assert task is not None
            task.cancel()
            await anyio.sleep(0.01)
            heard.append((await agent.answer().wait()).text)

    run_on(loop, main)
    assert heard == ["b"]
