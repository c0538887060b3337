"""What follows the failure of a child: whether the next one may go on, and who is told. No I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING

from micdrop_agent._core.filters import in_value
from micdrop_agent.errors import ProviderError
from micdrop_agent.events import AgentSwitched
from micdrop_agent.messages import is_blank

if TYPE_CHECKING:
    from micdrop_agent._core.turn import Turn
    from micdrop_agent.fallback.children import FallbackCore, Slot

__all__ = ["Switches", "partial", "why_final"]


def partial(turn: Turn) -> str | None:
    """What was said of the answer and can be continued; ``None`` if nothing was."""
    text = turn.ledger.open_text
    return None if is_blank(text) else text


def why_final(turn: Turn, error: Exception, after_partial: str) -> Exception | None:
    """The error that ends the answer, if no other child may go on after ``turn``, which failed.

    Source: docs/design.md D2.
    """
    if turn.facts.ended:
        return error  # its author ended the stream: nothing can follow
    if partial(turn) is None:
        return None
    filtered = isinstance(error, ProviderError) and error.kind == "content_filter"
    if after_partial == "stop" or filtered:
        return error
    if after_partial == "restart":
        return None
    speaker = turn.speaker()
    return error if speaker.ran_tool or in_value(speaker.filters) else None


class Switches:
    """Which child the application takes to be answering, and the events that keep it right.

    Each event begins where the one before it ended. Within a supervisor that is itself a rival
    they wait until it has won, and are never reported if it does not (invariant 9).
    """

    def __init__(self, core: FallbackCore, turn: Turn, face: Slot) -> None:
        self._core = core
        self._turn = turn
        self._face = face
        self._error: Exception | None = None
        self._untold: list[AgentSwitched] = []

    def failed(self, slot: Slot, error: Exception) -> None:
        """``slot`` has failed: the reason of the next switch, if it is the one that is known."""
        if slot is self._face:
            self._error = error

    def to(self, slot: Slot, *, restarted: bool, faster: bool = False) -> None:
        """``slot`` answers from now on: after the failure of the other, or because it was ``faster``."""
        if slot is self._face:
            return
        reason = TimeoutError(f"{slot.key} was faster") if faster or self._error is None else self._error
        self._turn.facts.note("switch", old=self._face.key, new=slot.key, restarted=restarted)
        self._untold.append(AgentSwitched(self._face.key, slot.key, reason, restarted))
        self._face = slot
        self._core.active = slot.index
        self.tell()

    def tell(self) -> None:
        """Emit what may be reported by now."""
        if (self._turn.outermost or self._turn.claimed) and not self._turn.fenced:
            events, self._untold = self._untold, []
            self._turn.emit_all([*events])
