"""The moment between two answers, in which the conversation may be changed without disturbing any."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from micdrop_agent._core.answer import Answer
    from micdrop_agent._core.core import Core

__all__ = ["until_quiet"]


async def until_quiet(core: Core, *, heard: bool) -> None:
    """Wait until no answer runs or is paused, and no guess may become one.

    What the caller does next, before it awaits anything, happens in that moment.

    Args:
        core: The outermost agent.
        heard: Wait until the last answer was read to its end too, as long as somebody reads it.
    """
    read: Answer | None = None
    while True:
        live, guess = core.current, core.guess
        if guess is not None:
            await guess.decided()
        elif live is None or (live.ended and not live.paused and (live is read or not heard)):
            return
        else:
            await live.over()
            await live.pipe.wait_while_paused()
            if heard:
                await live.pipe.wait_until_read(partial(_is_cut, live))
            read = live


def _is_cut(answer: Answer) -> bool:
    return answer.turn.fenced
