"""What a request holds beside the conversation: context for this one answer, never stored. No I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from micdrop_agent.messages import Message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from micdrop_agent._core.turn import Turn
    from micdrop_agent.messages import Item

__all__ = ["with_context"]


def with_context(items: Sequence[Item], turn: Turn) -> Sequence[Item]:
    """``items`` with what the hooks of ``turn`` want the model to know.

    The words for the system go after the system prompt; items go before what the caller said last, which
    is never between a call and its result.
    """
    listed = list(items)
    words = "\n\n".join(context.system for context in turn.context if context.system)
    extra = [item for context in turn.context for item in context.items]
    if extra:
        asked = range(len(listed) - 1, -1, -1)
        at = next((index for index in asked if listed[index] is turn.prompt), len(listed))
        listed[at:at] = extra
    if not words:
        return listed
    head = listed[0] if listed else None
    if isinstance(head, Message) and head.role == "system":
        content = f"{head.content}\n\n{words}" if head.content else words
        listed[0] = attrs.evolve(head, content=content)
    else:
        listed.insert(0, Message("system", words))
    return listed
