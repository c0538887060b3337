"""Hosts that know Trio and not AnyIO: nurseries, scopes, channels; and what the two loops have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest
import trio

from micdrop_agent import Agent, Answer, Message, ToolResult
from micdrop_agent.events import EVENT_TYPES
from micdrop_agent.testing import BACKENDS, HANG, Call, ScriptedAgent, run_virtual
from micdrop_agent.tools import tool

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from micdrop_agent.testing import Act, Backend


def run_trio(main: Callable[[], Awaitable[None]]) -> None:
    run_virtual("trio", main)


def texts(agent: Agent) -> list[str]:
    return [item.content for item in agent.conversation[1:] if isinstance(item, Message)]


@tool
async def forever() -> None:
    await anyio.sleep_forever()


def test_an_agent_inside_a_nursery_and_a_nursery_inside_an_agent() -> None:
    async def talk(agent: Agent, into: list[str]) -> None:
        async for chunk in agent.answer():
            into += [chunk]

    async def main() -> None:
        chunks = list[str]()
        async with trio.open_nursery() as nursery, ScriptedAgent(["a", "b"]) as agent:
            nursery.start_soon(talk, agent, chunks)
            await trio.sleep(1)
        async with ScriptedAgent(["c"]) as agent, trio.open_nursery() as nursery:
            nursery.start_soon(talk, agent, chunks)
        assert chunks == ["a", "b", "c"]

    run_trio(main)


def test_a_failing_sibling_in_a_nursery_takes_the_agent_down_cleanly() -> None:
    agents: list[Agent] = []

    async def call() -> None:
        async with ScriptedAgent(["a", [Call("forever"), Call("forever")]], tools=[forever]) as agent:
            agents.append(agent)
            async for _ in agent.answer():
                pass

    async def main() -> None:
        async def group_of_two() -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(call)
                await trio.sleep(1)
                raise ValueError("sibling")

        with pytest.raises(ExceptionGroup) as caught:
            await group_of_two()
        assert [repr(error) for error in caught.value.exceptions] == ["ValueError('sibling')"]
        assert texts(agents[0]) == ["a"]
        assert sum(isinstance(item, ToolResult) for item in agents[0].conversation) == 2

    run_trio(main)


@pytest.mark.parametrize("around", ["agent", "reader"])
def test_a_time_out_around_the_agent_or_its_reader(around: str) -> None:
    async def main() -> None:
        async def late_agent() -> None:
            with trio.fail_after(1):
                async with ScriptedAgent(["a", HANG]) as agent:
                    async for _ in agent.answer():
                        pass

        async def late_reader() -> None:
            async with ScriptedAgent(["a", HANG]) as agent:
                answer = agent.answer()
                assert await answer.receive() == "a"
                with trio.fail_after(1):
                    await answer.receive()

        with pytest.raises(trio.TooSlowError):
            await (late_agent() if around == "agent" else late_reader())

    run_trio(main)


def test_an_agent_inside_an_async_generator_that_is_closed() -> None:
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

    run_trio(main)


@pytest.mark.parametrize("error", [ValueError("host"), ExceptionGroup("own", [ValueError(1)])])
def test_an_error_of_the_host_leaves_the_block_as_itself(error: Exception) -> None:
    async def main() -> None:
        async def fail() -> None:
            async with ScriptedAgent(["a", Call("forever")], tools=[forever]) as agent:
                async for _ in agent.answer():
                    raise error

        with pytest.raises(type(error)) as caught:
            await fail()
        # Trio takes the Cancelled of the answer out of the group, and makes new groups of the rest.
        assert repr(caught.value) == repr(error)
        assert caught.value is error or getattr(caught.value, "exceptions", ()) == getattr(error, "exceptions", None)

    run_trio(main)


# -- both


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("script", ["plain", "ends call", "tools"])
def test_a_host_that_is_cancelled_keeps_what_nobody_has_begun_to_read(backend: Backend, seed: int, script: str) -> None:
    """Whichever task hears of the cancellation first, the agent or its answer."""

    async def main() -> None:
        scripts = {
            "plain": ["a"],
            "ends call": ["a", lambda turn: turn.end_call()],
            "tools": ["a", Call("forever")],
        }
        agent = ScriptedAgent(scripts[script], tools=[forever])  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        answers: list[Answer] = []
        with anyio.CancelScope() as scope:
            async with agent:
                answers.append(agent.answer())
                await anyio.sleep(1)
                scope.cancel()
                await anyio.sleep(1)
        assert scope.cancelled_caught
        (answer,) = answers
        # An answer cut while it ran stores what was received: nothing. One that had ended keeps its text.
        assert texts(agent) == ([] if script == "tools" else ["a"])
        assert answer.status == ("cancelled" if script == "tools" else "completed")

    run_virtual(backend, main, shuffle_seed=seed)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_fatal_error_of_a_generation_ends_the_agent_as_itself(backend: Backend) -> None:
    class Fatal(BaseException):
        pass

    agents: list[Agent] = []

    async def fatal(_turn: object) -> None:
        raise Fatal

    async def main() -> None:
        async with ScriptedAgent(["a", 1.0, fatal]) as agent:
            agents.append(agent)
            async for _ in agent.answer():
                pass
            await anyio.sleep_forever()

    with pytest.raises(Fatal):
        run_virtual(backend, main)
    assert texts(agents[0]) == ["a"]
    assert agents[0]._core.current is not None
    assert agents[0]._core.current.status == "cancelled"


@pytest.mark.parametrize("backend", BACKENDS)
def test_several_agents_side_by_side_do_not_disturb_each_other(backend: Backend) -> None:
    async def main() -> None:
        async with ScriptedAgent(["a", 1.0, "b"]) as one, ScriptedAgent(["c", HANG]) as two:
            first, second = one.answer(), two.answer()
            assert await second.receive() == "c"
            two.cancel()
            assert [chunk async for chunk in first] == ["a", "b"]
            await two.aclose()
            assert [chunk async for chunk in one.answer()] == ["a", "b"]

    run_virtual(backend, main)


def test_one_scenario_leaves_the_same_events_on_both_loops() -> None:
    logs: list[list[str]] = []

    async def main() -> None:
        log = list[str]()
        logs.append(log)

        @tool
        async def look(seconds: float) -> float:
            await anyio.sleep(seconds)
            return seconds

        calls = [Call("look", {"seconds": 2.0}), Call("look", {"seconds": 1.0}), Call("forever")]
        script: list[Act] = ["a ", calls, "late"]
        async with ScriptedAgent(script, ["b"], tools=[look, forever]) as agent:
            for kind in EVENT_TYPES:
                agent.on(kind, lambda event: log.append(f"{anyio.current_time()} {event}"))
            agent.add_user_message("hi")
            answer = agent.answer()
            assert await answer.receive() == "a "
            await anyio.sleep(5)
            agent.add_user_message("wait")
            assert [chunk async for chunk in agent.answer()] == ["b"]

    for backend in BACKENDS:
        run_virtual(backend, main)
    assert logs[0]
    assert logs[0] == logs[1]
