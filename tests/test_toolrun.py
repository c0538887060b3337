"""Running tools: at the same time or in turn, what they may do to their own answer, and time-outs."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import anyio.from_thread
import anyio.to_thread
import pytest
from core_support import log_of
from toolrun_support import CANCELLED, chunks_of, nap, pairs

from micdrop_agent import Agent, Message, ToolCall
from micdrop_agent.events import AnswerFinished, MessageAdded
from micdrop_agent.testing import BACKENDS, Call, ScriptedAgent, run_virtual
from micdrop_agent.tools import Tool, tool

if TYPE_CHECKING:
    from micdrop_agent import Turn
    from micdrop_agent.testing import Backend

pytestmark = pytest.mark.parametrize("backend", BACKENDS)


# -- parallel and in turn


@pytest.mark.parametrize(("parallel", "seconds"), [(True, 2), (False, 3)])
def test_calls_run_at_the_same_time_or_in_turn(backend: Backend, *, parallel: bool, seconds: float) -> None:
    async def main() -> None:
        agent = ScriptedAgent(
            [[Call("slow"), Call("quick")], "ok"], tools=[nap("slow", 2), nap("quick", 1)], parallel_tools=parallel
        )
        async with agent:
            assert await chunks_of(agent) == ["ok"]
            assert anyio.current_time() == seconds
            assert pairs(agent) == [("slow", '"slow slept"'), ("quick", '"quick slept"')]

    run_virtual(backend, main)


@pytest.mark.parametrize("parallel", [True, False])
def test_a_cancel_gives_every_open_call_its_result_at_once(backend: Backend, *, parallel: bool) -> None:
    async def main() -> None:
        agent = ScriptedAgent(
            [[Call("quick"), Call("slow"), Call("slow")], "late"],
            tools=[nap("slow", 2), nap("quick", 0.5)],
            parallel_tools=parallel,
        )
        async with agent:
            answer = agent.answer()
            await anyio.sleep(1)
            agent.cancel()
            expected = [("quick", '"quick slept"'), ("slow", CANCELLED), ("slow", CANCELLED)]
            assert pairs(agent) == (expected if parallel else expected[:2])
            before = list(agent.conversation)
            await anyio.sleep(5)
            assert agent.conversation == before
            assert answer.status == "cancelled"

    run_virtual(backend, main)


@pytest.mark.parametrize("parallel", [True, False])
def test_a_listener_that_cancels_as_a_call_is_stored_keeps_its_tool_from_starting(
    backend: Backend, *, parallel: bool
) -> None:
    async def main() -> None:
        ran: list[str] = []
        tools = [Tool(name=name, execute=partial(ran.append, name)) for name in ("one", "two", "three")]
        agent = ScriptedAgent([[Call("one"), Call("two"), Call("three")]], tools=tools, parallel_tools=parallel)
        async with agent:

            def listener(event: MessageAdded) -> None:
                if isinstance(event.message, ToolCall) and event.message.tool_name == "two":
                    agent.cancel()

            agent.on(MessageAdded, listener)
            await agent.answer().wait()
            await anyio.sleep(1)
            assert ran in ([], ["one"])
            assert pairs(agent) == [("one", "null" if ran else CANCELLED), ("two", CANCELLED)]

    run_virtual(backend, main)


# -- what a tool may do to its own answer


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("act", ["cancel", "answer", "listener", "cancel and say"])
def test_a_tool_that_ends_its_answer_and_returns_has_run_to_its_end(
    backend: Backend, act: str, *, is_async: bool
) -> None:
    async def main() -> None:
        def execute(agent: Agent) -> str:
            if act == "listener":
                agent.on(MessageAdded, lambda _event: agent.cancel())
                agent.add_user_message("x")
            elif act == "answer":
                agent.answer()
            else:
                agent.cancel()
            if act == "cancel and say":
                agent.add_assistant_message("Done.")
            return "real"

        async def execute_async(agent: Agent) -> str:
            return execute(agent)

        ends = Tool(name="ends", execute=execute_async if is_async else execute)
        async with ScriptedAgent([Call("ends"), "late"], ["next"], tools=[ends]) as agent:
            answer = agent.answer()
            assert [chunk async for chunk in answer] == []
            assert answer.status == "cancelled"
            await anyio.sleep(1)
            assert pairs(agent) == [("ends", '"real"')]
            assert [item.content for item in agent.conversation if isinstance(item, Message)][1:] == {
                "cancel": [],
                "answer": ["next"],
                "listener": ["x"],
                "cancel and say": ["Done."],
            }[act]

    run_virtual(backend, main)


@pytest.mark.parametrize("after", ["suspends", "raises", "raises base", "odd output"])
def test_a_tool_that_ends_its_answer_and_does_not_return_has_a_result_all_the_same(
    backend: Backend, after: str
) -> None:
    class Fatal(BaseException):
        pass

    outputs = {"suspends": CANCELLED, "raises": '{"error":"the tool failed"}', "raises base": CANCELLED}

    async def main() -> None:
        @tool
        async def ends(agent: Agent) -> Any:
            agent.cancel()
            assert agent.conversation[-1].role == "tool_call", "still on the stack"
            if after == "suspends":
                try:
                    await anyio.sleep(1)
                finally:
                    results.append(list(agent.conversation)[-1])
            elif after == "raises":
                raise ValueError("of the tool")
            elif after == "raises base":
                raise Fatal
            return object()

        results: list[Any] = []
        async with ScriptedAgent([Call("ends")], tools=[ends]) as agent:
            agents.append(agent)
            await agent.answer().wait()
            await anyio.sleep(1)

        if after == "suspends":
            assert results[0].output == CANCELLED, "the result comes with the first suspension"

    agents: list[Agent] = []
    if after == "raises base":
        with pytest.raises(Fatal):
            run_virtual(backend, main)
    else:
        run_virtual(backend, main)
    ((_, output),) = pairs(agents[0])
    assert output == outputs.get(after, output)
    assert "error" in output or after == "odd output"


def test_only_the_tool_on_the_stack_keeps_its_result_when_it_cancels_parallel_ones(backend: Backend) -> None:
    async def main() -> None:
        @tool
        async def ends(agent: Agent) -> str:
            await anyio.sleep(1)
            agent.cancel()
            return "real"

        async with ScriptedAgent([[Call("slow"), Call("ends"), Call("slow")]], tools=[ends, nap("slow", 5)]) as agent:
            await agent.answer().wait()
            await anyio.sleep(1)
            assert pairs(agent) == [("slow", CANCELLED), ("ends", '"real"'), ("slow", CANCELLED)]

    run_virtual(backend, main)


def test_the_answer_that_a_tool_starts_sees_a_whole_conversation(backend: Backend) -> None:
    async def main() -> None:
        seen: list[list[str]] = []

        @tool
        def restarts(agent: Agent) -> str:
            agent.add_user_message("again")
            agent.answer()
            return "restarted"

        def look(turn: Turn) -> None:
            seen.append([item.role for item in turn.conversation])

        async with ScriptedAgent([Call("restarts")], [look, "fine"], tools=[restarts]) as agent:
            agent.answer()
            await anyio.sleep(1)
            assert seen == [["system", "tool_call", "tool_result", "user"]]

    run_virtual(backend, main)


@pytest.mark.parametrize("on_cancel", ["cancel", "finish"])
def test_on_cancel_says_whether_a_running_tool_is_stopped(backend: Backend, on_cancel: Any) -> None:
    async def main() -> None:
        ended: list[float] = []

        async def execute() -> str:
            await anyio.sleep(2)
            ended.append(anyio.current_time())
            return "real"

        async with ScriptedAgent(
            [Call("pays")], tools=[Tool(name="pays", execute=execute, on_cancel=on_cancel)]
        ) as agent:
            answer = agent.answer()
            await anyio.sleep(1)
            agent.cancel()
            assert pairs(agent) == [("pays", CANCELLED)]
            await answer.wait()
            assert anyio.current_time() == 1
        assert ended == ([2] if on_cancel == "finish" else [])
        assert pairs(agent) == [("pays", CANCELLED)]

    run_virtual(backend, main)


def test_a_tool_that_swallows_its_cancellation_changes_nothing_any_more(backend: Backend) -> None:
    async def main() -> None:
        @tool
        async def stubborn() -> str:
            try:
                await anyio.sleep(10)
            except anyio.get_cancelled_exc_class():
                return "swallowed"
            return "slept"

        async with ScriptedAgent([Call("stubborn"), "late"], tools=[stubborn]) as agent:
            events = log_of(agent, MessageAdded, AnswerFinished)
            answer = agent.answer()
            await anyio.sleep(1)
            agent.cancel()
            seen = len(events)
            await anyio.sleep(1)
            assert pairs(agent) == [("stubborn", CANCELLED)]
            assert len(events) == seen
            assert [chunk async for chunk in answer] == []

    run_virtual(backend, main)


# -- time-outs


@pytest.mark.parametrize("on_cancel", ["cancel", "finish"])
def test_a_tool_that_takes_too_long_is_given_up(backend: Backend, on_cancel: Any) -> None:
    async def main() -> None:
        async with ScriptedAgent(
            [Call("slow"), "ok"], tools=[nap("slow", 5, timeout=1.5, on_cancel=on_cancel)]
        ) as agent:
            assert await chunks_of(agent) == ["ok"]
            assert anyio.current_time() == 1.5
            assert pairs(agent) == [("slow", '{"error":"the tool took longer than 1.5 seconds"}')]

    run_virtual(backend, main)


@pytest.mark.parametrize(
    ("error", "output"),
    [(TimeoutError("postgres://app:secret@db"), "the tool timed out"), (TimeoutError(), "the tool timed out")],
)
def test_a_time_out_of_the_tools_own_is_its_error(backend: Backend, error: Exception, output: str) -> None:
    async def main() -> None:
        @tool(timeout=5)
        async def slow() -> None:
            raise error

        async with ScriptedAgent([Call("slow"), "ok"], tools=[slow]) as agent:
            assert await chunks_of(agent) == ["ok"]
            assert pairs(agent) == [("slow", f'{{"error":"{output}"}}')]

    run_virtual(backend, main)
