"""Running tools: each call gets exactly one result, right behind it, whatever the tool does."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import anyio.from_thread
import anyio.to_thread
import pytest

from micdrop_agent import Agent, Message, MicdropError, ToolCall, ToolResult
from micdrop_agent.events import AnswerFinished, AnswerSkipped, Event, MessageAdded, ToolCalled, UserMessageCancelled
from micdrop_agent.testing import BACKENDS, HANG, Call, ScriptedAgent, run_virtual
from micdrop_agent.tools import Tool, tool

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from micdrop_agent import Turn
    from micdrop_agent.testing import Backend

pytestmark = pytest.mark.parametrize("backend", BACKENDS)

CANCELLED = '{"error":"cancelled"}'


def pairs(agent: Agent) -> list[tuple[str, str]]:
    """Each call's name with the output right behind it; fails when one has none, or is not alone."""
    found: list[tuple[str, str]] = []
    items = list(agent.conversation)
    for index, item in enumerate(items):
        if isinstance(item, ToolCall):
            result = items[index + 1] if index + 1 < len(items) else None
            assert isinstance(result, ToolResult), f"{item.tool_name} has no result behind it"
            assert result.tool_call_id == item.tool_call_id
            found.append((item.tool_name, result.output))
    assert len(found) == sum(isinstance(item, ToolResult) for item in items)
    return found


def log_of(agent: Agent, *kinds: type[Event]) -> list[Event]:
    events: list[Event] = []
    for kind in kinds:
        agent.on(kind, events.append)
    return events


async def chunks_of(agent: Agent) -> list[str]:
    return [chunk async for chunk in agent.answer()]


def nap(name: str, seconds: float, **options: Any) -> Tool:
    async def execute() -> str:
        await anyio.sleep(seconds)
        return f"{name} slept"

    return Tool(name=name, execute=execute, **options)


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

    outputs = {"suspends": CANCELLED, "raises": '{"error":"of the tool"}', "raises base": CANCELLED}

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
    assert "error" in output


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
    ("error", "output"), [(TimeoutError("my own"), "my own"), (TimeoutError(), "the tool timed out")]
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


# -- errors


class Awaitable:
    """Not a coroutine, and its iterator has neither ``send`` nor ``throw``."""

    def __await__(self) -> Generator[Any, Any, str]:
        yield from ()
        return "awaited"


@pytest.mark.parametrize(
    ("execute", "output"),
    [
        (lambda: 1 / 0, '{"error":"division by zero"}'),
        (lambda: next(iter(())), '{"error":"coroutine raised StopIteration"}'),
        (lambda: {}["é"], '{"error":"\'é\'"}'),
        (None, "null"),
        (lambda: Awaitable(), '"awaited"'),  # noqa: PLW0108 - a fresh one for each call
        (lambda: {"a": [1, None]}, '{"a":[1,null]}'),
    ],
)
@pytest.mark.parametrize("parallel", [True, False])
def test_what_a_tool_returns_or_raises_is_its_result(
    backend: Backend, execute: Callable[[], Any] | None, output: str, *, parallel: bool
) -> None:
    async def main() -> None:
        agent = ScriptedAgent(
            [[Call("odd"), Call("odd")], "ok"], tools=[Tool(name="odd", execute=execute)], parallel_tools=parallel
        )
        async with agent:
            assert await chunks_of(agent) == ["ok"]
            assert [found.replace(" ", "") for _, found in pairs(agent)] == [output.replace(" ", "")] * 2

    run_virtual(backend, main)


@pytest.mark.parametrize("parallel", [True, False])
def test_an_error_without_words_is_told_by_its_name(backend: Backend, *, parallel: bool) -> None:
    async def main() -> None:
        @tool
        async def mute() -> None:
            raise LookupError

        async with ScriptedAgent([Call("mute"), "ok"], tools=[mute], parallel_tools=parallel) as agent:
            assert await chunks_of(agent) == ["ok"]
            assert pairs(agent) == [("mute", '{"error":"LookupError"}')]

    run_virtual(backend, main)


@pytest.mark.parametrize("together", [1, 2])
def test_a_fatal_error_of_a_tool_ends_the_agent_as_itself_and_leaves_whole_pairs(
    backend: Backend, together: int
) -> None:
    class Fatal(BaseException):
        pass

    agents: list[Agent] = []

    async def main() -> None:
        @tool
        async def fatal() -> None:
            await anyio.sleep(1)
            raise Fatal

        calls = [Call("slow"), Call("fatal")][-together:]
        async with ScriptedAgent([calls], tools=[fatal, nap("slow", 5)]) as agent:
            agents.append(agent)
            agent.answer()
            await anyio.sleep(10)

    with pytest.raises(Fatal):
        run_virtual(backend, main)
    assert [output for _, output in pairs(agents[0])] == [CANCELLED] * together


@pytest.mark.parametrize("parallel", [True, False])
def test_a_tool_that_waits_for_something_that_was_cancelled_has_an_error(backend: Backend, *, parallel: bool) -> None:
    """On asyncio the await of a cancelled future raises CancelledError: nobody barged in."""

    async def main() -> None:
        @tool
        async def waits() -> None:
            other = asyncio.get_running_loop().create_future()
            other.cancel()
            await other

        @tool
        async def waits_for_a_task() -> None:
            other = asyncio.ensure_future(asyncio.sleep(10))
            asyncio.get_running_loop().call_later(1, other.cancel)
            await other

        calls = [Call("waits"), Call("waits_for_a_task"), Call("slow")]
        agent = ScriptedAgent([calls, "ok"], tools=[waits, waits_for_a_task, nap("slow", 5)], parallel_tools=parallel)
        async with agent:
            answer = agent.answer()
            assert [chunk async for chunk in answer] == ["ok"]
            error = '{"error":"something that the tool waited for was cancelled"}'
            assert [output for _, output in pairs(agent)] == [error, error, '"slow slept"']
            assert answer.status == "completed"

    if backend == "asyncio":
        run_virtual(backend, main)


def test_a_generation_that_waits_for_something_that_was_cancelled_has_failed(backend: Backend) -> None:
    async def main() -> None:
        async def waits(_turn: Turn) -> None:
            other = asyncio.get_running_loop().create_future()
            other.cancel()
            await other

        async with ScriptedAgent(["a", waits]) as agent:
            answer = agent.answer()
            assert await answer.receive() == "a"
            with pytest.raises(MicdropError, match="something that generate_answer waited for was cancelled"):
                await answer.receive()
            assert answer.status == "failed"

    if backend == "asyncio":
        run_virtual(backend, main)


def test_a_tool_that_is_removed_while_its_call_waits_is_unknown(backend: Backend) -> None:
    async def main() -> None:
        def removes(agent: Agent) -> None:
            agent.remove_tool("gone")

        tools = [Tool(name="removes", execute=removes), Tool(name="gone")]
        async with ScriptedAgent([[Call("removes"), Call("gone")], "ok"], tools=tools, parallel_tools=False) as agent:
            assert await chunks_of(agent) == ["ok"]
            assert "no tool 'gone'" in pairs(agent)[1][1]

    run_virtual(backend, main)


# -- threads


@pytest.mark.parametrize("on_cancel", ["cancel", "finish"])
def test_a_blocking_tool_runs_in_a_thread_and_may_reach_the_agent_from_there(backend: Backend, on_cancel: Any) -> None:
    async def main() -> None:
        threads: list[int] = []

        def blocking(agent: Agent, word: str) -> str:
            threads.append(threading.get_ident())
            with pytest.raises(RuntimeError, match="another thread"):
                agent.cancel()
            anyio.from_thread.run_sync(agent.add_user_message, "from the thread")
            return word * 2

        made = tool(thread=True, on_cancel=on_cancel)(blocking)
        async with ScriptedAgent([Call("blocking", {"word": "ab"}), "ok"], tools=[made]) as agent:
            assert await chunks_of(agent) == ["ok"]
            assert pairs(agent) == [("blocking", '"abab"')]
            assert threads != [threading.get_ident()]

    run_virtual(backend, main)


@pytest.mark.parametrize("on_cancel", ["cancel", "finish"])
def test_the_consumer_is_free_at_once_while_a_thread_still_works(backend: Backend, on_cancel: Any) -> None:
    async def main() -> None:
        started, release = threading.Event(), threading.Event()

        def blocking() -> str:
            started.set()
            release.wait(10)
            return "late"

        made = tool(thread=True, on_cancel=on_cancel)(blocking)
        try:
            async with ScriptedAgent([Call("blocking")], ["next"], tools=[made]) as agent:
                answer = agent.answer()
                await anyio.to_thread.run_sync(started.wait)
                agent.cancel()
                assert pairs(agent) == [("blocking", CANCELLED)]
                assert [chunk async for chunk in answer] == []
                release.set()
                assert await chunks_of(agent) == ["next"]
            assert pairs(agent) == [("blocking", CANCELLED)]
        finally:
            release.set()

    run_virtual(backend, main)


def test_a_thread_that_returns_something_to_await_has_it_awaited(backend: Backend) -> None:
    async def main() -> None:
        async def later() -> str:
            await anyio.sleep(1)
            return "awaited"

        made = Tool(name="odd", execute=lambda: later(), thread=True)  # noqa: PLW0108 - hides that it is async
        async with ScriptedAgent([Call("odd"), "ok"], tools=[made]) as agent:
            assert await chunks_of(agent) == ["ok"]
            assert pairs(agent) == [("odd", '"awaited"')]

    run_virtual(backend, main)


# -- what an outcome means


def test_the_output_of_a_tool_may_be_an_event(backend: Backend) -> None:
    async def main() -> None:
        @tool(emit_output=True)
        def add(a: int, b: int = 2) -> int:
            return a + b

        async with ScriptedAgent([Call("add", {"a": 1}), Call("add", {"a": "x"}), "ok"], tools=[add]) as agent:
            events = log_of(agent, ToolCalled, MessageAdded)
            assert await chunks_of(agent) == ["ok"]
            (called,) = [event for event in events if isinstance(event, ToolCalled)]
            assert called == ToolCalled("add", {"a": 1, "b": 2}, 3)
            assert [type(event) for event in events[:3]] == [MessageAdded, MessageAdded, ToolCalled]

    run_virtual(backend, main)


@pytest.mark.parametrize(
    ("name", "event", "left"),
    [("semantic_turn", AnswerSkipped, ["hi"]), ("ignore_user_noise", UserMessageCancelled, [])],
)
def test_control_tools_end_the_turn_with_their_event_within_the_pair(
    backend: Backend, name: str, event: type[Event], left: list[str]
) -> None:
    async def main() -> None:
        agent = ScriptedAgent(
            [Call(name, {"reason": "noise"}), "not spoken"], auto_semantic_turn=True, auto_ignore_user_noise="Noise."
        )
        async with agent:
            agent.add_user_message("hi")
            events = log_of(agent, MessageAdded, event)
            answer = agent.answer()
            assert [chunk async for chunk in answer] == []
            assert answer.status == "skipped"
            assert [type(seen) for seen in events] == [MessageAdded, event, MessageAdded]
            assert [item.content for item in agent.conversation[1:] if isinstance(item, Message)] == left
            assert pairs(agent) == [(name, "null")]

    run_virtual(backend, main)


def test_noise_takes_out_the_message_its_answer_was_started_for_and_no_other(backend: Backend) -> None:
    async def main() -> None:
        agent = ScriptedAgent([1.0, Call("ignore_user_noise")], auto_ignore_user_noise=True)
        async with agent:
            agent.add_user_message("real")
            agent.add_user_message("noise")
            events: list[UserMessageCancelled] = []
            agent.on(UserMessageCancelled, events.append)
            answer = agent.answer()
            await anyio.sleep(0.5)
            agent.add_user_message("noise")
            await answer.wait()
            assert [item.content for item in agent.conversation[1:] if isinstance(item, Message)] == ["real", "noise"]
            assert events[0].index == 2
            # A second time there is nothing to take out.
            agent.conversation.replace([])
            await agent.answer().wait()
            assert events[1] == UserMessageCancelled(None, None)

    run_virtual(backend, main)


def test_a_skipping_tool_that_fails_is_told_to_the_model(backend: Backend) -> None:
    async def main() -> None:
        @tool(skip_answer=True)
        def quiet(fails: bool) -> None:
            if fails:
                raise ValueError("no")

        async with ScriptedAgent(
            [Call("quiet", {"fails": True}), "Sorry.", Call("quiet", {"fails": False}), "x"], tools=[quiet]
        ) as agent:
            assert await chunks_of(agent) == ["Sorry."]
            assert [output for _, output in pairs(agent)] == ['{"error":"no"}', "null"]

    run_virtual(backend, main)


def test_two_calls_of_one_id_have_a_result_each(backend: Backend) -> None:
    async def main() -> None:
        async with ScriptedAgent(
            [[Call("slow", call_id="1"), Call("quick", call_id="1")], "ok"], tools=[nap("slow", 2), nap("quick", 1)]
        ) as agent:
            assert await chunks_of(agent) == ["ok"]
            assert pairs(agent) == [("slow", '"slow slept"'), ("quick", '"quick slept"')]

    run_virtual(backend, main)


def test_an_author_may_store_calls_and_results_by_hand(backend: Backend) -> None:
    async def main() -> None:
        def store(turn: Turn) -> None:
            turn.add(ToolCall("1", "one", "{}"))
            turn.add(ToolCall("2", "two", "{}"))
            turn.add(Message("user", "in between"))
            turn.add(ToolResult("1", "one", "1"))

        async with ScriptedAgent([store], [store, HANG]) as agent:
            await agent.answer().wait()
            assert pairs(agent) == [("one", "1"), ("two", '{"error":"no result"}')]
            agent.conversation.replace([])
            agent.answer()
            await anyio.sleep(1)
            agent.cancel()
            assert pairs(agent) == [("one", "1"), ("two", CANCELLED)]

    run_virtual(backend, main)
