"""What comes of a tool call: errors, threads, and what its outcome means for the turn."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from datetime import date
from decimal import Decimal
from fractions import Fraction
from ipaddress import ip_address
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import anyio
import anyio.from_thread
import anyio.to_thread
import pytest
from core_support import log_of
from toolrun_support import CANCELLED, chunks_of, nap, pairs

from micdrop_agent import Agent, Message, MicdropError, ToolCall, ToolError, ToolResult
from micdrop_agent.events import AnswerSkipped, Event, MessageAdded, ToolCalled, UserMessageCancelled
from micdrop_agent.testing import BACKENDS, HANG, Call, ScriptedAgent, run_virtual
from micdrop_agent.tools import Tool, tool

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from micdrop_agent import Turn
    from micdrop_agent.testing import Backend

pytestmark = pytest.mark.parametrize("backend", BACKENDS)


# -- errors


class Awaitable:
    """Not a coroutine, and its iterator has neither ``send`` nor ``throw``."""

    def __await__(self) -> Generator[Any, Any, str]:
        yield from ()
        return "awaited"


@pytest.mark.parametrize(
    ("execute", "output"),
    [
        (lambda: 1 / 0, '{"error":"thetoolfailed"}'),
        (lambda: next(iter(())), '{"error":"thetoolfailed"}'),
        (lambda: dict[str, int]()["é"], '{"error":"thetoolfailed"}'),
        (None, "{}"),
        (lambda: None, "null"),
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
def test_the_words_of_a_program_stay_at_home_and_those_for_the_model_reach_it(
    backend: Backend, caplog: pytest.LogCaptureFixture, *, parallel: bool
) -> None:
    secret = "postgres://app:secret@db " * 4_000

    async def main() -> None:
        @tool
        async def look(how: str) -> None:
            if how == "words":
                raise ToolError("No table is free on Friday.")
            if how == "no words":
                raise ToolError
            raise {"program": RuntimeError(secret), "clock": TimeoutError(secret), "file": OSError(secret)}[how]

        steps = [Call("look", {"how": how}) for how in ("words", "no words", "program", "clock", "file")]
        async with ScriptedAgent([steps, "ok"], tools=[look], parallel_tools=parallel) as agent:
            assert await chunks_of(agent) == ["ok"]
            assert [json.loads(output)["error"] for _, output in pairs(agent)] == [
                "No table is free on Friday.",
                "the tool failed",
                "the tool failed",
                "the tool timed out",
                "the tool failed",
            ]
        raised = [str(record.exc_info[1]) for record in caplog.records if record.exc_info]
        assert [text.count("secret") for text in raised] == [4_000] * 3

    run_virtual(backend, main)


class Socket:
    """No text says what it is."""


class Model:
    """As pydantic has it: known by its protocol."""

    def model_dump(self, *, mode: str) -> dict[str, Any]:
        return {"mode": mode}


class Broken:
    def model_dump(self, *, mode: str) -> dict[str, Any]:
        raise RuntimeError("secret")


class Row:
    def keys(self) -> list[str]:
        return ["id"]

    def __getitem__(self, key: str) -> int:
        return 7


LOOP: list[Any] = [1]
LOOP.append(LOOP)


@pytest.mark.parametrize(
    ("value", "output"),
    [
        ({"id": 1, "price": Decimal("12.50")}, '{"id":1,"price":"12.50"}'),
        (Model(), '{"mode":"json"}'),
        (PurePosixPath("/tmp/x"), '"/tmp/x"'),
        (b"caf\xc3\xa9", '"café"'),
        (Row(), '{"id":7}'),
        (deque([1, 2]), "[1,2]"),
        ({"a": 1}.values(), "[1]"),
        (Fraction(1, 3), '"1/3"'),
        (ip_address("10.0.0.1"), '"10.0.0.1"'),
        ({date(2026, 12, 1): 1, (1, 2): 2}, '{"2026-12-01":1,"[1, 2]":2}'),
        ([float("nan"), float("-inf")], '["NaN","-Infinity"]'),
        ({"id": 1, "of": Socket()}, '{"id":1,"of":"(Socket, not shown)"}'),
        ([Broken(), 1], '["(Broken, not shown)",1]'),
        (LOOP, '[1,"(list, not shown)"]'),
        (RuntimeError("secret"), '{"result": "the tool ran; its output (RuntimeError) cannot be shown"}'),
        (Socket(), '{"result": "the tool ran; its output (Socket) cannot be shown"}'),
        (b"\xff", '{"result": "the tool ran; its output (bytes) cannot be shown"}'),
        (10**5000, '{"result": "the tool ran; its output (int) cannot be shown"}'),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else "",
)
def test_a_tool_that_ran_has_run_whatever_it_returned(
    backend: Backend, caplog: pytest.LogCaptureFixture, value: Any, output: str
) -> None:
    async def main() -> None:
        runs: list[str] = []

        @tool(skip_answer=True)
        async def book() -> Any:
            runs.append("booked")
            return value

        async with ScriptedAgent([Call("book")], ["never asked"], tools=[book]) as agent:
            assert await chunks_of(agent) == []
            assert pairs(agent) == [("book", output)]
            assert runs == ["booked"]
        hidden = "not shown" in output or "cannot be shown" in output
        assert [record.levelname for record in caplog.records] == ["WARNING"] * hidden
        assert "secret" not in caplog.text

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
                raise ToolError("no")

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
