"""Which result belongs to which tool call: the one place that says so.

    pair_calls([call a, call b, result b, result a])  ->  {0: 3, 1: 2}

A result belongs to the nearest call before it that has its id and no result yet. Ids come from models
and may be used again, so neither the first call of an id nor the last one would do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from micdrop_agent.messages import ToolCall, ToolResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from micdrop_agent.messages import Item

__all__ = ["first_open_call", "open_calls", "pair_calls"]


def pair_calls(items: Sequence[Item]) -> dict[int, int]:
    """The index of each call that has a result, with the index of that result."""
    waiting: dict[str, list[int]] = {}
    pairs: dict[int, int] = {}
    for index, item in enumerate(items):
        if isinstance(item, ToolCall):
            waiting.setdefault(item.tool_call_id, []).append(index)
        elif isinstance(item, ToolResult) and (calls := waiting.get(item.tool_call_id)):
            pairs[calls.pop()] = index
    return pairs


def open_calls(items: Sequence[Item]) -> list[int]:
    """The indexes of the calls that have no result, in order."""
    pairs = pair_calls(items)
    return [index for index, item in enumerate(items) if isinstance(item, ToolCall) and index not in pairs]


def first_open_call(items: Sequence[Item]) -> ToolCall | None:
    """The first call that has no result; ``None`` if every call has one."""
    for index in open_calls(items):
        call = items[index]
        if isinstance(call, ToolCall):
            return call
    return None
