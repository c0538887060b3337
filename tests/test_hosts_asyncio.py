"""Hosts that know asyncio and not AnyIO: task groups, errors, generators, callbacks, portals; on asyncio and uvloop."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import anyio.from_thread
import pytest
from hosts_support import assert_pairs_are_whole, forever, loops, run_on, texts, turns

from micdrop_agent import Agent, EchoAgent
from micdrop_agent.testing import HANG, Call, ScriptedAgent

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from micdrop_agent import Answer


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
        async def group_of_two() -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(call())
                await turns()
                raise ValueError("sibling")

        with pytest.raises(ExceptionGroup) as caught:
            await group_of_two()
        assert [repr(error) for error in caught.value.exceptions] == ["ValueError('sibling')"]
        assert texts(agents[0]) == ["a"]
        assert_pairs_are_whole(agents[0])
        assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr] # pyright: ignore[reportOptionalMemberAccess]

    run_on(loop, main)


@loops
@pytest.mark.parametrize("error", [ValueError("host"), KeyError(1), ExceptionGroup("own", [ValueError(1)])])
def test_an_error_of_the_host_leaves_the_block_as_itself(loop: str, error: Exception) -> None:
    async def main() -> None:
        context = RuntimeError("context")
        error.__cause__ = context
        agent = ScriptedAgent(["a", Call("forever")], tools=[forever])

        async def fail() -> None:
            async with agent:
                async for _ in agent.answer():
                    raise error

        with pytest.raises(type(error)) as caught:
            await fail()
        assert caught.value is error
        assert caught.value.__cause__ is context
        assert texts(agent) == ["a"]
        assert agent._core._alive == 0

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
        assert agents[0]._core.state == "closed"
        assert agents[0]._core._alive == 0

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


async def raise_while_reading(answer: Answer) -> None:
    async for _ in answer:
        raise ValueError("of the reader")


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
                        await raise_while_reading(answer)
                await turns()
                assert agent.answering
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
