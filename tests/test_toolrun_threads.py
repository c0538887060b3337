"""Blocking tools in threads, and what drives a tool step by step."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import anyio
import anyio.from_thread
import anyio.to_thread
import pytest
from toolrun_support import CANCELLED, chunks_of, pairs

from micdrop_agent import Agent, ToolCall
from micdrop_agent._core.ledger import OpenCall
from micdrop_agent._core.tool_run import _stepwise
from micdrop_agent.testing import BACKENDS, Call, ScriptedAgent, run_virtual
from micdrop_agent.tools import Tool, tool

if TYPE_CHECKING:
    from collections.abc import Generator

    from micdrop_agent.testing import Backend

pytestmark = pytest.mark.parametrize("backend", BACKENDS)


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


@pytest.mark.parametrize("on_cancel", ["cancel", "finish"])
def test_the_time_out_of_a_tool_does_not_wait_for_its_thread(backend: Backend, on_cancel: Any) -> None:
    """In real time: virtual time stands still while a thread works."""
    release = threading.Event()

    async def main() -> None:
        @tool(thread=True, on_cancel=on_cancel, timeout=0.02)
        def wait() -> None:
            release.wait(10)

        async with ScriptedAgent([Call("wait"), "ok"], tools=[wait]) as agent:
            assert await chunks_of(agent) == ["ok"]
            assert pairs(agent) == [("wait", '{"error":"the tool took longer than 0.02 seconds"}')]
            assert not release.is_set()
            release.set()

    try:
        anyio.run(main, backend=backend)
    finally:
        release.set()


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


# -- without a loop


def test_what_drives_a_tool_passes_everything_on_as_await_does(backend: Backend) -> None:
    call = OpenCall(ToolCall("1", "x", "{}"), None)
    log: list[str] = []

    def tool_of() -> Generator[str, str, str]:
        try:
            log.append((yield "one"))
            try:
                yield "two"
            except ValueError as error:
                log.append(f"{error} {call.on_stack}")
            yield "three"
        finally:
            log.append("closed")
        return "result"

    driver: Any = _stepwise(tool_of(), call, lambda: log.append(f"suspended {call.on_stack}"))
    assert driver.send(None) == "one"
    assert driver.send("sent") == "two"
    assert driver.throw(ValueError("thrown")) == "three"
    with pytest.raises(StopIteration) as stop:
        driver.send("")
    assert stop.value.value == "result"
    assert log == ["suspended False", "sent", "suspended False", "thrown True", "suspended False", "closed"]

    driver = _stepwise(tool_of(), call, lambda: None)
    driver.send(None)
    driver.close()
    assert log[-1] == "closed"
    assert not call.on_stack
