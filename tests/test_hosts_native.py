"""A native cancellation of the host's task reaches the host, whatever of its agent is cancelled or unwinds then.

An asyncio host is cancelled with ``task.cancel()``: by ``asyncio.timeout``, by a server that stops, by Ctrl-C. The
sweep cancels it at every step of every scenario; here are the shapes in which that was lost, one by one.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from hosts_support import LOOPS, loops, run_on

from micdrop_agent import Agent, FallbackAgent, ProviderError
from micdrop_agent.testing import HANG, Call, ScriptedAgent, run_virtual
from micdrop_agent.tools import tool

if TYPE_CHECKING:
    from collections.abc import Callable

    from micdrop_agent import Turn

SLOW = 0.02
"""Seconds that a clean-up takes, shielded."""

ORDERS = [*itertools.permutations(["agent", "scope", "task"]), ("agent", "task"), ("scope", "task"), ("task",)]
"""What is cancelled in one step of the loop, and in which order."""

GAPS = [(0.01, -1, -1), (-1, -1, -1), (0.01, 0, 0), (0.01, 0, -1), (0.01, SLOW / 2, -1), (0.01, -1, SLOW / 2)]
"""Seconds before each of them; -1: not even a turn of the loop."""


class SlowToClose(Agent):
    """Says a word, waits, and takes its time to clean up."""

    async def generate_answer(self, turn: Turn) -> None:
        await turn.write("One ")
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(SLOW)


@tool
async def slow_tool() -> None:
    """Wait, and take time to clean up."""
    try:
        await anyio.sleep_forever()
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(SLOW)


def _in_tools() -> Agent:
    return ScriptedAgent(["One ", [Call("slow_tool"), Call("slow_tool")]], tools=[slow_tool])


def _hedged() -> Agent:
    down = ProviderError("scripted", kind="server")
    children: list[Callable[[], Agent]] = [lambda: ScriptedAgent([down]), SlowToClose, lambda: ScriptedAgent([HANG])]
    return FallbackAgent(children, hedge_after=0.001)


def _nested() -> Agent:
    return FallbackAgent([lambda: FallbackAgent([SlowToClose])])


AGENTS = [SlowToClose, _in_tools, _hedged, _nested]


class Host:
    """A host in a task of its own, with a scope around its agent."""

    def __init__(self, make: Callable[[], Agent]) -> None:
        self.make = make
        self.scope = anyio.CancelScope()
        self.agent: Agent | None = None
        self.task: asyncio.Task[None] | None = None
        self.went_on = False
        self.speaks = asyncio.Event()

    async def run(self) -> None:
        with self.scope:
            async with self.make() as agent:
                self.agent = agent
                agent.add_user_message("Well?")
                answer = agent.answer()
                await answer.receive()
                self.speaks.set()
                await anyio.sleep_forever()
        self.went_on = True

    def cancel(self, what: str) -> None:
        assert self.task is not None
        assert self.agent is not None
        ways: dict[str, Callable[[], object]] = {
            "agent": self.agent.cancel,
            "scope": self.scope.cancel,
            "task": self.task.cancel,
        }
        ways[what]()


async def _cancelled(host: Host, gaps: tuple[float, ...], order: tuple[str, ...]) -> None:
    """Let ``host`` run, cancel in ``order`` with ``gaps`` between, and check that it is told."""
    host.task = asyncio.create_task(host.run())
    await host.speaks.wait()
    for gap, what in zip(gaps, order, strict=False):
        if gap >= 0:
            await anyio.sleep(gap)
        host.cancel(what)
    with pytest.raises(asyncio.CancelledError):
        await host.task
    assert not host.went_on
    assert host.task.cancelling() == 1


@loops
@pytest.mark.parametrize("order", ORDERS, ids="+".join)
@pytest.mark.parametrize("make", AGENTS, ids=lambda make: make.__name__)
def test_a_host_is_told_that_it_was_cancelled_whatever_else_is(
    make: Callable[[], Agent], order: tuple[str, ...], loop: str
) -> None:
    async def main() -> None:
        for gaps in GAPS[:1] if loop == "uvloop" else GAPS:  # there the time is real
            await _cancelled(Host(make), gaps, order)

    run_on(loop, main)


@loops
def test_a_deadline_of_the_host_that_falls_together_with_its_cancellation(loop: str) -> None:
    """The shape in which it was found: the answer is cut, and still unwinds when both arrive."""

    async def main() -> None:
        for order in (["scope", "task"], ["task", "scope"]):
            host = Host(SlowToClose)
            host.task = asyncio.create_task(host.run())
            await host.speaks.wait()
            host.cancel("agent")
            now = asyncio.get_running_loop().time()
            for number, what in enumerate(order):
                asyncio.get_running_loop().call_at(now + SLOW / 2 + number * 1e-9, host.cancel, what)
            with pytest.raises(asyncio.CancelledError):
                await host.task
            assert not host.went_on

    run_on(loop, main)


async def _cut_and_wait(agent: Agent) -> None:
    async with asyncio.timeout(SLOW / 2):
        await agent.answer().receive()
        agent.cancel()
        await anyio.sleep_forever()


@loops
def test_a_time_out_of_the_host_is_a_time_out_although_answers_unwind(loop: str) -> None:
    async def main() -> None:
        for _ in range(3):
            async with SlowToClose() as agent:
                agent.add_user_message("Well?")
                with pytest.raises(TimeoutError):
                    await _cut_and_wait(agent)
            task = asyncio.current_task()
            assert task is not None
            assert task.cancelling() == 0

    run_on(loop, main)


@pytest.mark.parametrize("loop", LOOPS[:2])  # in virtual time: it comes while the answer unwinds
@pytest.mark.parametrize("taken_back", [False, True])
def test_a_cancellation_that_comes_with_an_error_of_the_host_is_seen_at_its_next_wait(
    loop: str, taken_back: bool
) -> None:
    seen: list[str] = []

    async def fail() -> None:
        async with SlowToClose() as agent:
            agent.add_user_message("Well?")
            await agent.answer().receive()
            await anyio.sleep(SLOW / 8)
            raise LookupError("the host")

    async def call() -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            await fail()
        except LookupError:
            seen.append("error")
        if taken_back:
            task.uncancel()
        await anyio.sleep(1)
        seen.append("went on")

    async def main() -> None:
        task = asyncio.create_task(call())
        await anyio.sleep(SLOW / 2)  # the answer unwinds
        task.cancel()
        if taken_back:
            await task
        else:
            with pytest.raises(asyncio.CancelledError):
                await task

    run_on(loop, main)
    assert seen == (["error", "went on"] if taken_back else ["error"])


@pytest.mark.skipif(sys.version_info < (3, 12), reason="Python 3.12 brought eager tasks")
def test_a_loop_whose_tasks_start_eagerly() -> None:
    async def main() -> None:
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)  # type: ignore[attr-defined,unused-ignore]
        for make in AGENTS:
            for order in ORDERS:
                await _cancelled(Host(make), (-1, -1, -1), order)

    run_virtual("asyncio", main)


def test_the_scope_of_a_task_knows_this_anyio() -> None:
    """What is mended is private to AnyIO: a release that has it no more must be seen."""
    from micdrop_agent._core.scopes import task_scope, task_scope_class

    async def main() -> None:
        plain: Any = type(anyio.CancelScope())
        assert issubclass(task_scope_class(), plain)
        assert task_scope_class() is not plain
        assert task_scope(shield=True).shield

    anyio.run(main)
