"""An answer that waits: its consumer gets nothing for a while, and the generation goes on into the buffer.

    cancel(pause=True) ──▶ reader waits, what was not heard is put back ──▶ resume(): the reader goes on
                                                                        └─▶ a message, answer(), cancel(): it is cut there

Nothing of the conversation changes in a pause: ``ledger.received`` is what was heard, so whatever ends the answer
cuts it there (invariant 5). Pinned in tests/test_core_pause.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from micdrop_agent._core.playback import heard_since

if TYPE_CHECKING:
    from micdrop_agent._core.answer import Answer

__all__ = ["go_on", "pause", "written_in_pause"]


def pause(answer: Answer, heard: int | str | None) -> None:
    """Hand out nothing more for now; what was not heard is handed out again later."""
    pipe, ledger = answer.pipe, answer.ledger
    if pipe.cut or answer.held is not None:
        return
    if heard is not None and not pipe.counted:
        received = ledger.text[: ledger.received]
        upto = heard_since(ledger.restarted, pipe.heard_in_original(heard), received)
        if upto < ledger.received:
            ledger.received = upto
            pipe.put_back(received[upto:])
    pipe.pause()
    answer.turn.facts.note("pause", received=ledger.received, written=ledger.length)


def go_on(answer: Answer) -> None:
    """A pause is over."""
    answer.turn.facts.note("resume", received=answer.ledger.received, written=answer.ledger.length)
    answer.pipe.go_on()


def written_in_pause(answer: Answer) -> None:
    """More was written that nobody hears: beyond a limit the request is given up, and resume() asks for the rest."""
    waiting = answer.pipe.backlog
    if waiting > answer.core.options.pause_buffer:
        answer.core.log.info("a paused answer has written %d characters; it is cancelled", waiting)
        answer.stop(None)
