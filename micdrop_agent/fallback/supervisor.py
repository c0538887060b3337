"""One answer of a ``FallbackAgent``: attempts, clocks, hedges, and what follows a failure.

    Attempts ── start, claim, clocks, hedge, health ──▶ Supervision ── what that means for an answer

Attempts, their race and their clocks are those of every supervisor (``attempts``). Here is what an attempt at an
answer is: a turn within the turn, whose first effect claims the answer (``Turn.claim``) and fences its rivals.

A failed or slow attempt is fenced before anything of the next one is visible. Its clean-up is
awaited by the answer's task, never by the consumer (invariants 8, 9 and 10, pinned in
tests/test_fallback_invariants.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import anyio

from micdrop_agent._core.generate import respond
from micdrop_agent._core.race import Race
from micdrop_agent._core.scopes import task_scope
from micdrop_agent.errors import AllAgentsFailedError, ProviderError
from micdrop_agent.fallback.attempts import Attempts, Clocks, Try
from micdrop_agent.fallback.rotation import Rotation
from micdrop_agent.fallback.switches import Switches, partial, why_final

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from micdrop_agent._core.core import Core
    from micdrop_agent._core.turn import Turn
    from micdrop_agent.fallback.children import FallbackCore, Slot

__all__ = ["Supervision"]

SEAM_WAIT: Final = 0.15
"""Longest in seconds that a continuation is held back to find where it says something new."""


class Supervision(Attempts["Slot", "Turn"]):
    """Drives the children of ``core`` through one ``turn``."""

    def __init__(self, core: FallbackCore, turn: Turn) -> None:
        core.learn_names()
        rules = core.rules
        order = Rotation(core.slots, core.health, 0 if rules.prefer == "first" else core.active)
        clocks = Clocks(
            first=rules.first_chunk_timeout,
            first_name="first_chunk_timeout",
            all=rules.give_up_after,
            hedge=rules.hedge_after,
        )
        super().__init__(order, core.health, clocks, core.log)
        self.core = core
        self.rules = rules
        self.turn = turn
        self.began_with = core.active
        self.race: Race[Turn] = Race(self.won)
        self.switches = Switches(core, turn, order.first)
        self.restart = False
        """What was said is taken back as soon as the next child says something."""

    @property
    def fenced(self) -> bool:
        """Whether the answer was cut."""
        return self.turn.fenced

    # -- starting

    def begin(self, tasks: TaskGroup) -> None:
        """Start the first attempt, and let a preferred child that was out try again beside it."""
        super().begin(tasks)
        if self.rules.prefer == "first" and self.live:
            slot = self.order.take_probe(self.live[0].slot)
            if slot is not None:
                self.start(slot)

    def build(self, slot: Slot) -> Core:
        """The child, made by its factory if need be."""
        return self.core.built(slot)

    def at_work(self, slot: Slot) -> None:
        """The application knows who answers."""
        self.switches.to(slot, restarted=self.restart)

    def side_for(self, slot: Slot, child: Core, now: float) -> Turn:
        """A turn within the turn."""
        del now
        turn = self.turn.child(child, self.race, task_scope())
        turn.label = slot.key
        turn.continue_from = None if self.restart else partial(self.turn)
        turn.patient = self.turn.patient and not self.order.has_healthy()
        return turn

    def begins(self, attempt: Try[Slot, Turn]) -> None:
        """A turn reports its end to its supervisor in the step in which it ends."""
        attempt.side.on_end = lambda error: self.ended(attempt, error)
        kind: Literal["hedge", "attempt"] = "hedge" if self.live else "attempt"
        self.turn.facts.note(kind, attempt.started_at, agent=attempt.slot.key)

    def may_hedge(self) -> bool:
        """Not once anything was said, by whichever child, of a supervisor further out too."""
        return not self.turn.spoken

    async def ask(self, attempt: Try[Slot, Turn]) -> None:
        """Have the child answer."""
        slot, child = attempt.slot, attempt.child
        if not slot.started:
            await child.start()
            slot.started = slot.child is child
        await respond(child, attempt.side)

    # -- what happens to an attempt

    def has_won(self, attempt: Try[Slot, Turn], *, hedged: bool) -> None:
        """The child is the active one from now on."""
        del hedged
        turn = attempt.side
        if self.restart:
            self.restart = False
            self.turn.ledger.drop_open()
        self.core.take_over(attempt.slot, self.turn.ledger.conversation)
        self.switches.to(attempt.slot, restarted=False, faster=True)
        self.switches.tell()
        if turn.continue_from is not None and not turn.fenced:
            self.start_soon(self._flush_seam, turn)

    async def _flush_seam(self, turn: Turn) -> None:
        while turn.holds_seam():
            await anyio.sleep(SEAM_WAIT)
            turn.flush()

    def has_done(self, attempt: Try[Slot, Turn]) -> None:
        """The consumer sees the end now, and not when the last rival has cleaned up."""
        del attempt
        self.turn.succeeded()

    def why_final(self, attempt: Try[Slot, Turn], error: Exception) -> Exception | None:
        """What was said may be impossible to continue."""
        final = why_final(attempt.side, error, self.rules.after_partial)
        self.restart = self.rules.after_partial == "restart" and partial(self.turn) is not None
        if self.restart:
            self.turn.facts.filler = None  # it is taken back with the rest
        return final

    def new_race(self) -> None:
        """Those that come now are rivals of each other only."""
        self.race = Race(self.won)

    def is_fenced(self, attempt: Try[Slot, Turn]) -> None:
        """Its open calls get their results before the next child asks."""
        attempt.side.close_calls()

    def has_lost(self, slot: Slot, error: Exception) -> None:
        """For the result and the trace; the child is built again next time."""
        self.turn.facts.attempts.append(self.failed[-1])
        kind = error.kind if isinstance(error, ProviderError) else type(error).__name__
        self.turn.facts.note("failed_attempt", agent=slot.key, error=kind)
        self.switches.failed(slot, error)
        self.core.discard(slot)

    # -- after a failure

    def fails_early(self, error: Exception) -> bool:
        """Clean-up does not delay the consumer."""
        self.turn.failed(error)
        return True

    def ends_with(self, error: Exception) -> None:
        """The next turn is another child's."""
        following = self.order.peek()
        core = self.core
        core.active = (core.active + 1) % len(core.slots) if following is None else following.index
        super().ends_with(error)

    def give_up(self) -> None:
        """Say so, if nothing was heard yet."""
        self.core.active = self.began_with  # a full rotation ends where it began
        error = AllAgentsFailedError(self.failed)
        error.__cause__ = self.failed[-1].error
        # Within another supervisor it is not over yet: the next child may still answer.
        heard = any(not segment.aside for segment in self.turn.ledger.segments)  # more than a filler
        text = self.rules.give_up_text
        if text and self.turn.outermost and not heard and self.turn.claim():
            self.turn.write_nowait(text)
            self.turn.commit()
        self.error, self.done = error, True
