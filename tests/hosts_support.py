"""Running a host of asyncio on every loop, and looking at what it left."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import anyio
import anyio.from_thread
import pytest
import uvloop

from micdrop_agent import Agent, Message, ToolCall, ToolResult
from micdrop_agent.testing import run_virtual
from micdrop_agent.tools import tool

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


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
