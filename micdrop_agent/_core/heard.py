"""A conversation as it would be if an answer were cut now. No I/O, and nothing is changed but the given list.

What a worker that may die at any moment has in the store: it cannot cut the answer when that happens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from micdrop_agent.messages import Message, ToolCall, ToolResult, is_blank

if TYPE_CHECKING:
    from micdrop_agent._core.ledger import Ledger, Segment
    from micdrop_agent.messages import Item

__all__ = ["shorten", "show_heard"]


def show_heard(ledger: Ledger, items: list[Item], upto: int) -> None:
    """Change ``items`` as ``Ledger.interrupt(upto)`` changes the conversation; they are a copy of it."""
    if ledger.open is not None and not ledger.open.aside:
        # First, because it is put where its beginning was marked.
        _show_open(ledger, ledger.open, items, upto)
    for segment in ledger.segments:
        if not segment.aside and segment is not ledger.open and segment.stored is not None and segment.end > upto:
            heard = segment.text[: max(0, upto - segment.start)] if ledger.record_interrupted else ""
            shorten(items, segment.stored, heard)


def shorten(items: list[Item], message: Message, heard: str) -> None:
    """Cut ``message`` in ``items`` to what was heard of it; nothing heard: take it out."""
    # Last first: it is near the end.
    index = next((at for at in range(len(items) - 1, -1, -1) if items[at] is message), None)
    if index is None:
        return
    if is_blank(heard):
        del items[index]
    else:
        items[index] = attrs.evolve(message, content=heard, metadata={**(message.metadata or {}), "interrupted": True})


def _show_open(ledger: Ledger, segment: Segment, items: list[Item], upto: int) -> None:
    heard = ledger.text[segment.start : max(segment.start, min(segment.end, upto))]
    if is_blank(heard) or not ledger.record_interrupted:
        return
    message = Message("assistant", heard, {**segment.metadata, "interrupted": True})
    if segment.stored is not None:  # the beginning of an answer that goes on after a cut
        items[:] = [message if item is segment.stored else item for item in items]
        return
    mark = min(ledger.conversation.mark, len(items))
    if 0 < mark < len(items):
        call, result = items[mark - 1], items[mark]
        # Not between a call and its result.
        if isinstance(call, ToolCall) and isinstance(result, ToolResult):
            mark += call.tool_call_id == result.tool_call_id
    items.insert(mark, message)
