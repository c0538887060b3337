"""Makes a conversation that a crash cut off a valid one again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from micdrop_agent.messages import ToolCall, ToolResult

if TYPE_CHECKING:
    from collections.abc import Iterable

    from micdrop_agent.messages import Item

__all__ = ["LOST_OUTPUT", "repaired"]

LOST_OUTPUT: Final = (
    '{"error":"interrupted","note":"The program ended while the tool ran; it may or may not have taken effect."}'
)
"""Output of a call whose process died; the model is told that nobody knows what became of it."""


def repaired(items: Iterable[Item]) -> list[Item]:
    """``items``, with an error as the result of each call that has none, right behind it."""
    whole: list[Item] = []
    # From the end: a result belongs to the nearest call of its id before it.
    waiting: dict[str, int] = {}
    for item in reversed(list(items)):
        if isinstance(item, ToolResult):
            waiting[item.tool_call_id] = waiting.get(item.tool_call_id, 0) + 1
        elif isinstance(item, ToolCall):
            if waiting.get(item.tool_call_id):
                waiting[item.tool_call_id] -= 1
            else:
                whole.append(ToolResult(item.tool_call_id, item.tool_name, LOST_OUTPUT))
        whole.append(item)
    whole.reverse()
    return whole
