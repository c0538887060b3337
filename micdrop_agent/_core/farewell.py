"""The end of the call, told once its farewell was handed over, to the last chunk."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel

from micdrop_agent.events import EndCallRequested

if TYPE_CHECKING:
    from micdrop_agent._core.answer import Answer

__all__ = ["announce_end", "end_call"]


async def announce_end(answer: Answer) -> None:
    """Wait until ``answer`` was read, and tell the end of the call."""
    with anyio.CancelScope() as answer.linger:
        due = False
        while not due:
            await answer.pipe.wait_until_read(lambda: answer.turn.fenced)
            # One turn of the loop, so that the reader sees the end before the event comes.
            await anyio.lowlevel.checkpoint()
            await anyio.lowlevel.checkpoint()
            due = not answer.paused  # else the caller will hear some of it again
        end_call(answer)


def end_call(answer: Answer) -> None:
    """Tell the end of the call, once, unless ``answer`` was cut."""
    if answer.turn.facts.ends_call and not answer.turn.fenced:
        answer.turn.facts.ends_call = False
        answer.core.hub.emit(EndCallRequested())
