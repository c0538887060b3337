"""What a stored conversation and that of an agent become together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from micdrop_agent.messages import Message, ToolCall, ToolResult, is_blank
from micdrop_agent.pairs import open_calls

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from micdrop_agent.messages import Item

__all__ = ["LOST_OUTPUT", "difference", "joined", "repaired"]

LOST_OUTPUT: Final = (
    '{"error":"interrupted","note":"The program ended while the tool ran; it may or may not have taken effect."}'
)
"""Output of a call whose process died: the model reads that the outcome is unknown."""


def repaired(items: Iterable[Item]) -> list[Item]:
    """``items``, with an error as the result of each call that has none, right after it."""
    old = list(items)
    lost = set(open_calls(old))
    new: list[Item] = []
    for index, item in enumerate(old):
        new.append(item)
        if index in lost and isinstance(item, ToolCall):
            new.append(ToolResult(item.tool_call_id, item.tool_name, LOST_OUTPUT))
    return new


def joined(stored: Sequence[Item], own: Sequence[Item]) -> list[Item]:
    """The stored items, under the agent's own system prompt if it has one, then its other items."""
    own = list(own)
    head = [own.pop(0)] if own and _is_system(own[0]) else []
    if stored and _is_system(stored[0]):
        head = head if any(isinstance(item, Message) and not is_blank(item.content) for item in head) else [stored[0]]
        stored = stored[1:]
    return [*head, *repaired(stored), *own]


def _is_system(item: Item) -> bool:
    return isinstance(item, Message) and item.role == "system"


def difference(old: Sequence[Item], new: Sequence[Item]) -> tuple[int, int, tuple[Item, ...]] | None:
    """The one change that turns ``old`` into ``new``; ``None`` if they are equal."""
    shorter = min(len(old), len(new))
    start = next((index for index in range(shorter) if _differ(old[index], new[index])), shorter)
    if start == len(old) == len(new):
        return None
    same = next((back for back in range(shorter - start) if _differ(old[-1 - back], new[-1 - back])), shorter - start)
    return start, len(old) - same - start, tuple(new[start : len(new) - same])


def _differ(one: Item, other: Item) -> bool:
    # Most are the same object: a long call is compared whenever a word of it was heard.
    return one is not other and one != other
