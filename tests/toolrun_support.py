"""What the tests of tool runs share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio

from micdrop_agent import ToolCall, ToolResult
from micdrop_agent.tools import Tool

if TYPE_CHECKING:
    from micdrop_agent import Agent

CANCELLED = '{"error":"cancelled"}'


def pairs(agent: Agent) -> list[tuple[str, str]]:
    """Each call's name with the output right after it; fails when one has none, or is not alone."""
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


async def chunks_of(agent: Agent) -> list[str]:
    return [chunk async for chunk in agent.answer()]


def nap(name: str, seconds: float, **options: Any) -> Tool:
    async def execute() -> str:
        await anyio.sleep(seconds)
        return f"{name} slept"

    return Tool(name=name, execute=execute, **options)
