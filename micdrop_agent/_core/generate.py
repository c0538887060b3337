"""One agent at work on one turn: its hook, its ``generate_answer``, and the commit of what was written."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from micdrop_agent._interrupts import interruptible
from micdrop_agent.errors import MicdropError, describe_error
from micdrop_agent.options import TurnContext

if TYPE_CHECKING:
    from micdrop_agent._core.core import Core
    from micdrop_agent._core.turn import Turn

__all__ = ["respond"]


async def respond(core: Core, turn: Turn, *, hook: bool = True) -> None:
    """Hook, generation, and the commit of what was written; as root or as a child."""
    turn.filters = core.text_filters()
    if turn.continue_from is not None:
        from micdrop_agent.text.joining import LeadInFilter, SeamFilter

        said = turn.continue_from
        turn.filters += (SeamFilter(said, exact=True) if core.continues_exactly else LeadInFilter(said),)
    if hook and core.options.on_before_answer is not None and await _skipped_by_hook(core, turn):
        return
    name = type(core.agent).__name__
    ours = type(core.agent).generate_answer.__module__.startswith("micdrop_agent.")
    generating: object = core.agent.generate_answer(turn)
    if not inspect.isawaitable(generating):
        raise TypeError(
            f"{name}.generate_answer must be an 'async def' that writes its text with "
            f"'await turn.write(text)'; it returned {generating!r} (a 'yield' or a missing 'async'?)"
        )
    returned = await (generating if ours else interruptible(generating))
    if returned is not None:
        raise TypeError(
            f"{name}.generate_answer returned {returned!r}, which nobody hears; write it with 'await turn.write(text)'"
        )
    turn.commit()


async def _skipped_by_hook(core: Core, turn: Turn) -> bool:
    hook = core.options.on_before_answer
    assert hook is not None
    await turn.adopted()  # what a hook does cannot be taken back
    turn.aside = True
    try:
        verdict = hook(core.agent, turn)
        if inspect.isawaitable(verdict):
            verdict = await interruptible(verdict)
    except Exception as error:  # foreign code: the hook fails this answer, and says so
        raise MicdropError(f"on_before_answer raised {type(error).__name__}: {describe_error(error)}") from error
    finally:
        turn.aside = False
    if turn.fenced:
        return True
    if isinstance(verdict, str):
        turn.write_nowait(verdict)
        turn.commit()
        return True
    if verdict is True:
        turn.facts.skipped = turn.facts.skipped or turn.claim()
    elif isinstance(verdict, TurnContext):
        turn.context += (verdict,)
    return verdict is True
