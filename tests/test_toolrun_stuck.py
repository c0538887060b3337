"""Tools that ignore their cancellation: they starve nobody, keep no process alive, and are named."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import pytest
from toolrun_support import chunks_of

from micdrop_agent._core import threads
from micdrop_agent.testing import BACKENDS, Call, ScriptedAgent, run_virtual
from micdrop_agent.tools import tool

if TYPE_CHECKING:
    from micdrop_agent.testing import Backend

pytestmark = pytest.mark.parametrize("backend", BACKENDS)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    return [text for text in said if "has no description" not in text]  # the tools here have none


@pytest.mark.parametrize("seconds", [0.5, 1.5])
def test_a_tool_that_shields_itself_from_its_cancellation_is_named_after_a_second(
    backend: Backend, caplog: pytest.LogCaptureFixture, seconds: float
) -> None:
    async def main() -> None:
        @tool
        async def stubborn() -> None:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(1 + seconds)

        async with ScriptedAgent([Call("stubborn")], ["next"], tools=[stubborn]) as agent:
            agent.answer()
            await anyio.sleep(1)
            agent.cancel()
            await anyio.sleep(5)

    run_virtual(backend, main)
    named = [text for text in warnings(caplog) if "stubborn still runs 1 s after" in text]
    assert len(named) == (seconds > 1)


@pytest.mark.parametrize("on_cancel", ["cancel", "finish"])
def test_a_tool_that_heeds_it_or_may_finish_is_not_named(
    backend: Backend, caplog: pytest.LogCaptureFixture, on_cancel: Any
) -> None:
    async def main() -> None:
        @tool(on_cancel=on_cancel)
        async def slow() -> None:
            await anyio.sleep(3)

        async with ScriptedAgent([Call("slow")], ["next"], tools=[slow]) as agent:
            agent.answer()
            await anyio.sleep(1)
            agent.cancel()
            await anyio.sleep(5)

    run_virtual(backend, main)
    assert warnings(caplog) == []


def test_aclose_says_which_tools_it_gave_up_on(backend: Backend, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        @tool
        async def stubborn() -> None:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(60)

        async with ScriptedAgent([Call("stubborn")], tools=[stubborn]) as agent:
            agent.answer()
            await anyio.sleep(1)
            await agent.aclose()
            assert "the agent is closed while tools of it still run: stubborn" in warnings(caplog)

    run_virtual(backend, main)


def test_a_thread_that_hangs_is_named_when_the_agent_is_left(
    backend: Backend, caplog: pytest.LogCaptureFixture
) -> None:
    started, release = threading.Event(), threading.Event()

    async def main() -> None:
        @tool(thread=True)
        def hang() -> None:
            started.set()
            release.wait(10)

        async with ScriptedAgent([Call("hang")], tools=[hang]) as agent:
            agent.answer()
            await anyio.to_thread.run_sync(started.wait)
            agent.cancel()

    try:
        anyio.run(main, backend=backend)
        assert "the agent is closed while tools of it still run: hang" in warnings(caplog)
    finally:
        release.set()


def test_threads_that_hang_take_no_place_from_others(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "MOST_THREADS", 1)
    release = threading.Event()
    hanging: list[int] = []

    async def main() -> None:
        @tool(thread=True, timeout=0.02)
        def hang() -> None:
            hanging.append(1)
            release.wait(10)

        @tool(thread=True)
        def quick() -> str:
            return "quick"

        script: list[Any] = [Call("hang")] * 3 + [Call("quick"), "ok"]
        async with ScriptedAgent(script, tools=[hang, quick], parallel_tools=False) as agent:
            assert await chunks_of(agent) == ["ok"]
            assert await anyio.to_thread.run_sync(lambda: "free") == "free"

    try:
        anyio.run(main, backend=backend)
        assert len(hanging) == 3
    finally:
        release.set()


def test_at_most_so_many_are_waited_for_at_a_time(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "MOST_THREADS", 2)
    together: list[int] = []
    inside: set[int] = set()

    def work() -> None:
        inside.add(threading.get_ident())
        together.append(len(inside))
        threading.Event().wait(0.01)
        inside.discard(threading.get_ident())

    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            for _ in range(8):
                tasks.start_soon(threads.run_in_thread, work)

    anyio.run(main, backend=backend)
    assert max(together) <= 2
    assert len(together) == 8


def test_a_thread_that_hangs_does_not_keep_the_process_from_ending(backend: Backend) -> None:
    program = textwrap.dedent(
        f"""
        import anyio, threading
        from micdrop_agent import tool
        from micdrop_agent.testing import Call, ScriptedAgent

        @tool(thread=True, timeout=0.05)
        def hang() -> None:
            threading.Event().wait()

        async def main():
            async with ScriptedAgent([Call("hang"), "ok"], tools=[hang]) as agent:
                print(await agent.answer().wait())

        anyio.run(main, backend={backend!r})
        """
    )
    done = subprocess.run([sys.executable, "-c", program], timeout=60, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
