"""Whether the tool calls of a conversation are whole pairs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from micdrop_agent.messages import ToolCall, ToolResult

if TYPE_CHECKING:
    from micdrop_agent.messages import Item


def unpaired(items: list[Item]) -> ToolCall | None:
    """The first tool call without exactly one result behind it; ``None`` if every pair is whole."""
    waiting: list[ToolCall] = []
    for item in items:
        if isinstance(item, ToolCall):
            waiting.append(item)
        elif isinstance(item, ToolResult):
            waiting = [call for call in waiting if call.tool_call_id != item.tool_call_id]
    return waiting[0] if waiting else None
