"""An answer that was cut by mistake goes on: a cough was not an interruption.

    paused answer ── resume() ──▶ goes on
    cut answer ───── resume() ──▶ what was not heard, from its text ──▶ what was still to come, as a continuation

The answer that goes on is a new one that begins with the text of the old: its first segment is the stored
message, which becomes one complete text again. Pinned in tests/test_core_resume.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from micdrop_agent._core import guards
from micdrop_agent._core.answer import Answer
from micdrop_agent._core.generate import respond
from micdrop_agent._core.pause import go_on
from micdrop_agent.messages import is_blank

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from micdrop_agent._core.core import Core
    from micdrop_agent._core.turn import Turn

__all__ = ["resume"]


def resume(core: Core) -> Answer:
    """See ``Agent.resume``."""
    guards.may_answer(core.agent, core.state, owned=core.owner is not None)
    core.check_thread("resume()")
    cut, home = core.current, core.home
    if cut is not None and cut.paused:
        core.drop_guess()
        go_on(cut)
        return cut
    if cut is None or home is None or not cut.pipe.cut:
        raise RuntimeError("resume() goes on with an answer that was cancelled; there is none")
    core.conversation.settle()
    segments = cut.ledger.segments
    if len(segments) > 1 or any(segment.aside for segment in segments) or cut.turn.facts.called:
        raise RuntimeError("the answer cannot be resumed: it was more than one message, or called tools")
    cut_segment = segments[0] if segments else None
    stored = None if cut_segment is None else cut_segment.stored
    last = core.conversation[-1] if len(core.conversation) else None
    if last is not (cut.turn.prompt if stored is None else stored):
        raise RuntimeError("the answer cannot be resumed: the conversation has changed since it was cancelled")
    core.drop_guess()
    answer = core.current = Answer(core, cut.turn.prompt, home)
    unheard = cut.unheard
    if cut_segment is not None:
        answer.ledger.go_on(stored, cut_segment.text[: len(cut_segment.text) - len(unheard)], cut_segment.metadata)
    answer.work = _work(core, unheard, to_come=cut.status == "cancelled")
    for began in core.began:
        began(answer)
    core.launch(answer, cut)
    return answer


def _work(core: Core, unheard: str, *, to_come: bool) -> Callable[[Turn], Awaitable[None]]:
    async def rest(turn: Turn) -> None:
        if unheard:
            turn.write_nowait(unheard)  # no filter is there yet: it has passed them once
            await turn.drain()
        said = turn.ledger.open_text
        if to_come:
            turn.continue_from = None if is_blank(said) else said
            await respond(core, turn, hook=is_blank(said))
        turn.commit()

    return rest
