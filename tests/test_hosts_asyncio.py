"""Hosts that know asyncio and not AnyIO: task groups, time-outs, native cancellation; on asyncio and on uvloop."""

from __future__ import annotations

import asyncio
import gc
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import anyio.from_thread
import pytest
import uvloop

from micdrop_agent import Agent, EchoAgent, Message, ToolCall, ToolResult
from micdrop_agent.testing import HANG, Call, ScriptedAgent, count_steps, run_virtual
from micdrop_agent.tools import tool

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

LOOPS = ["virtual", "virtual native", "uvloop"]
loops = pytest.mark.parametrize("loop", LOOPS)


def run_on(loop: str, main: Callable[[], Awaitable[None]]) -> None:
    async def whole() -> None:
        await main()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        assert not others, f"left running: {others}"

    if loop == "uvloop":
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(whole())
    else:
        run_virtual("asyncio-native" if "native" in loop else "asyncio", whole)
    gc.collect()


async def turns(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def texts(agent: Agent) -> list[str]:
    return [item.content for item in agent.conversation[1:] if isinstance(item, Message)]


def assert_pairs_are_whole(agent: Agent) -> None:
    items = list(agent.conversation)
    for index, item in enumerate(items):
        if isinstance(item, ToolCall):
            assert isinstance(items[index + 1], ToolResult)


@tool
async def forever() -> None:
    await anyio.sleep_forever()


@loops
def test_an_agent_inside_a_task_group_and_a_task_group_inside_an_agent(loop: str) -> None:
    async def talk(agent: Agent, into: list[str]) -> None:
        async for chunk in agent.answer():
            into += [chunk]

    async def main() -> None:
        chunks = list[str]()
        async with asyncio.TaskGroup() as group, ScriptedAgent(["a", "b"]) as agent:
            await group.create_task(talk(agent, chunks))
        async with ScriptedAgent(["c"]) as agent, asyncio.TaskGroup() as group:
            group.create_task(talk(agent, chunks))
        assert chunks == ["a", "b", "c"]

    run_on(loop, main)


@loops
def test_a_failing_sibling_in_a_task_group_takes_the_agent_down_cleanly(loop: str) -> None:
    agents: list[Agent] = []

    async def call() -> None:
        async with ScriptedAgent(["a", Call("forever")], tools=[forever]) as agent:
            agents.append(agent)
            async for _ in agent.answer():
                pass

    async def main() -> None:
        with pytest.raises(ExceptionGroup) as caught:
            async with asyncio.TaskGroup() as group:
                group.create_task(call())
                await turns()
                raise ValueError("sibling")
        assert [repr(error) for error in caught.value.exceptions] == ["ValueError('sibling')"]
        assert texts(agents[0]) == ["a"]
        assert_pairs_are_whole(agents[0])
        assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr] # pyright: ignore[reportOptionalMemberAccess]

    run_on(loop, main)


@loops
@pytest.mark.parametrize("around", ["agent", "reader", "wait"])
def test_a_time_out_around_the_agent_its_reader_or_wait(loop: str, around: str) -> None:
    async def main() -> None:
        with pytest.raises(TimeoutError):
            if around == "agent":
                async with asyncio.timeout(0.01), ScriptedAgent(["a", HANG]) as agent:
                    async for _ in agent.answer():
                        pass
            else:
                async with ScriptedAgent(["a", HANG]) as agent:
                    answer = agent.answer()
                    assert await answer.receive() == "a"
                    try:
                        async with asyncio.timeout(0.01):
                            await (answer.receive() if around == "reader" else answer.wait())
                    finally:
                        assert answer.status == "running"
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
@pytest.mark.parametrize("error", [ValueError("host"), KeyError(1), ExceptionGroup("own", [ValueError(1)])])
def test_an_error_of_the_host_leaves_the_block_as_itself(loop: str, error: Exception) -> None:
    async def main() -> None:
        context = RuntimeError("context")
        error.__cause__ = context
        with pytest.raises(type(error)) as caught:
            async with ScriptedAgent(["a", Call("forever")], tools=[forever]) as agent:
                async for _ in agent.answer():
                    raise error
        assert caught.value is error
        assert caught.value.__cause__ is context
        assert texts(agent) == ["a"]
        assert agent._alive == 0

    run_on(loop, main)


@loops
def test_an_agent_inside_an_async_generator_that_is_closed(loop: str) -> None:
    agents: list[Agent] = []

    async def chunks() -> AsyncGenerator[str, None]:
        async with ScriptedAgent(["a", "b", HANG]) as agent:
            agents.append(agent)
            async for chunk in agent.answer():
                yield chunk

    async def main() -> None:
        generator = chunks()
        assert await anext(generator) == "a"
        await generator.aclose()
        assert agents[0]._state == "closed"
        assert agents[0]._alive == 0

    run_on(loop, main)


@loops
def test_an_agent_inside_an_asynccontextmanager_of_the_host(loop: str) -> None:
    @asynccontextmanager
    async def call() -> AsyncGenerator[Agent, None]:
        async with EchoAgent(delay=0) as agent:
            agent.add_user_message("hi")
            yield agent

    async def main() -> None:
        async with call() as agent:
            assert [chunk async for chunk in agent.answer()] == ['You said: "hi"']
        with pytest.raises(ValueError, match="host"):
            async with call() as agent:
                raise ValueError("host")

    run_on(loop, main)


@loops
def test_callbacks_of_the_loop_may_cancel_and_answer(loop: str) -> None:
    async def main() -> None:
        async with ScriptedAgent(["a", HANG], ["b"]) as agent:
            answer = agent.answer()
            assert await answer.receive() == "a"
            answers: list[Any] = []
            asyncio.get_running_loop().call_soon(agent.cancel)
            asyncio.get_running_loop().call_soon(lambda: answers.append(agent.answer()))
            await turns(3)
            assert answer.status == "cancelled"
            assert [chunk async for chunk in answers[0]] == ["b"]
            asyncio.get_running_loop().call_soon_threadsafe(agent.cancel)
            await turns(3)

    run_on(loop, main)


@loops
def test_a_host_that_stops_reading_and_leaves(loop: str) -> None:
    async def main() -> None:
        for way in ("break", "never", "raise"):
            async with ScriptedAgent(["a", "b", HANG]) as agent:
                answer = agent.answer()
                if way == "break":
                    async for _ in answer:
                        break
                elif way == "raise":
                    with pytest.raises(ValueError, match="of the reader"):
                        async for _ in answer:
                            raise ValueError("of the reader")
                await turns()
                assert answer.status == "running"
            assert answer.status == "cancelled"
            assert texts(agent) == ([] if way == "never" else ["a"])

    run_on(loop, main)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_blocking_portal_drives_an_agent_from_plain_threads(backend: str) -> None:
    with (
        anyio.from_thread.start_blocking_portal(backend) as portal,
        portal.wrap_async_context_manager(EchoAgent(delay=0)) as agent,
    ):
        portal.call(agent.add_user_message, "hi")
        answer = portal.call(agent.answer)
        assert portal.call(answer.receive) == 'You said: "hi"'
        with pytest.raises(anyio.EndOfStream):
            portal.call(answer.receive)
        with pytest.raises(RuntimeError, match="another thread"):
            agent.cancel()
        portal.call(agent.cancel)
    assert texts(agent) == ["hi", 'You said: "hi"']
