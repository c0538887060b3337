"""One answer of a ``FallbackAgent``: attempts, clocks, hedges, and what follows a failure.

    run ──▶ start(child) ──▶ attempt task ──▶ claim ──▶ _won      rivals fenced, clocks lifted
     ▲                            └──────────▶ end ──▶ _ended     answered, or on to the next child
     └── _watch: the clocks (hedge, time-outs), and the end

Everything that decides anything is synchronous and happens in the step of its cause: the first
effect of an attempt claims the answer (``Turn.claim``) and fences its rivals; an attempt that ends
is settled where it ended. So nothing is decided on old news, and ``cancel()`` may come from any
foreign code in between (listener, factory); after each such call the fence is looked at again.

A failed or slow attempt is fenced before anything of the next one is visible. Its clean-up is
awaited by the answer's task, never by the consumer (invariants 8, 9 and 10, pinned in
tests/test_fallback_invariants.py).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import anyio
import attrs

from micdrop_agent._core.groups import lone_error_unwrapped
from micdrop_agent._core.race import Race
from micdrop_agent._core.scopes import task_scope
from micdrop_agent.errors import AllAgentsFailedError, Attempt, ProviderError, words_of
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


@attrs.define(eq=False)
class Try:
    """One attempt of one child."""

    slot: Slot
    child: Core
    turn: Turn
    started_at: float
    deadline: float
    probing: bool
    """It is the one attempt that a half-open child is allowed."""
    output_after: float | None = None
    """Seconds to its first useful output."""
    over: bool = False


class Supervision:
    """Drives the children of ``core`` through one ``turn``."""

    def __init__(self, core: FallbackCore, turn: Turn) -> None:
        core.learn_names()
        self.core = core
        self.rules = core.rules
        self.turn = turn
        self.health = core.health
        self.began_with = core.active
        self.order = Rotation(core.slots, core.health, 0 if core.rules.prefer == "first" else core.active)
        self.live: list[Try] = []
        self.race = Race(self._won)
        self.winner: Try | None = None
        self.failed: list[Attempt] = []
        self.switches = Switches(core, turn, self.order.first)
        self.restart = False
        """What was said is taken back as soon as the next child says something."""
        self.hedge_at = math.inf
        self.give_up_at = math.inf
        self.done = False
        self.error: Exception | None = None
        self._untold: list[tuple[str, Exception]] = []
        """Failures that were not logged yet."""
        self._running = 0
        self._wake = anyio.Event()
        self._tasks: TaskGroup | None = None

    async def run(self) -> None:
        """Ask the children until one has answered.

        Raises:
            AllAgentsFailedError: None could.
            ProviderError: One failed in mid-answer and its text cannot be continued.
        """
        self.health.answer_started()
        if self.rules.give_up_after is not None:
            self.give_up_at = anyio.current_time() + self.rules.give_up_after
        with lone_error_unwrapped():
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                try:
                    self._go_on()
                    self._probe()
                    await self._watch()
                finally:
                    # Now, and not when the last clean-up is done: somebody else may try.
                    for attempt in self.live:
                        self._abandon(attempt)
                    self._log_failures()
                if self.error is not None and self._running:
                    # Somebody still cleans up: that is no reason to keep the consumer waiting.
                    error, self.error = self.error, None
                    self.turn.failed(error)
                tasks.cancel_scope.cancel()
        if self.error is not None:
            raise self.error

    async def _watch(self) -> None:
        while not self.done:
            self._log_failures()
            self._wake = anyio.Event()
            with anyio.CancelScope(deadline=self._next_timer()):
                await self._wake.wait()
                continue
            # One checkpoint of grace: what arrived together with the timer counts.
            await anyio.lowlevel.checkpoint()
            self._timers()

    # -- starting

    def _go_on(self) -> None:
        """See that somebody is at work, and that the application knows who."""
        if self.turn.fenced or self.done:
            return
        if self.live:
            self.switches.to(self.live[0].slot, restarted=self.restart)
            return
        while self.order and not self.turn.fenced:
            if self._start(self.order.take()):
                return
        if not self.turn.fenced:
            self._give_up()

    def _hedge(self) -> None:
        """Ask the next healthy child as well."""
        slot = self.order.take_healthy() if self.health.may_hedge() else None
        while slot is not None and not self._start(slot):
            slot = self.order.take_healthy()

    def _probe(self) -> None:
        """Let a preferred child that was out try again, as the hedge of a healthy one."""
        if self.rules.prefer == "first" and self.live:
            slot = self.order.take_probe(self.live[0].slot)
            if slot is not None:
                self._start(slot)

    def _start(self, slot: Slot) -> bool:
        """Start an attempt; ``False`` if the child could not be built."""
        core, rules = self.core, self.rules
        try:
            child = core.built(slot)
        except Exception as error:  # foreign code: a factory that raises is a child that failed
            core.log.exception("factory %d raised", slot.index)
            self._note(slot, error)
            return False
        if not self.live and not self.turn.fenced:
            self.switches.to(slot, restarted=self.restart)
        if self.turn.fenced:
            return True  # the factory, or a listener of the switch, has cancelled the answer
        assert self._tasks is not None
        now = anyio.current_time()
        turn = self.turn.child(child, self.race, task_scope())
        turn.label = slot.key
        turn.continue_from = None if self.restart else partial(self.turn)
        turn.patient = self.turn.patient and not self.order.has_healthy()
        limit = math.inf if rules.first_chunk_timeout is None else now + rules.first_chunk_timeout
        attempt = Try(slot, child, turn, now, limit, self.health.started(slot.key))
        turn.on_end = lambda error: self._ended(attempt, error)
        self.turn.facts.note("hedge" if self.live else "attempt", now, agent=slot.key)
        self.live.append(attempt)
        self.hedge_at = self._hedge_time(slot, now)
        self._tasks.start_soon(self._attempt, attempt, name=f"micdrop attempt {slot.key}")
        self._wake.set()
        return True

    def _hedge_time(self, slot: Slot, now: float) -> float:
        after = self.rules.hedge_after
        seconds = self.health.p95(slot.key) if isinstance(after, str) else after
        spoken = self.turn.spoken  # by whichever child, of a supervisor further out too
        return math.inf if seconds is None or spoken or not self.order else now + seconds

    async def _attempt(self, attempt: Try) -> None:
        turn = attempt.turn
        if turn.fenced:
            return  # cancelled before its first step: the child is not even asked
        error: Exception | None = None
        self._running += 1
        # The try stands outside the scope, which takes its own cancellation out of a group first.
        try:
            with turn.scope:
                await self._ask(attempt)
        except Exception as raised:  # noqa: BLE001 - the child's error is why the next one is asked
            error = raised
        except anyio.get_cancelled_exc_class() as cancelled:  # noqa: ASYNC103 - raised where it is ours; see below
            if anyio.current_effective_deadline() == -math.inf:
                raise
            # Only on asyncio: the child awaited something that somebody else had cancelled.
            error = RuntimeError(f"{attempt.slot.key} was cancelled from within, not by its answer")
            error.__cause__ = cancelled
        finally:
            self._running -= 1
        self._ended(attempt, error)

    async def _ask(self, attempt: Try) -> None:
        slot, child, turn = attempt.slot, attempt.child, attempt.turn
        if not slot.started:
            await child.start()
            slot.started = slot.child is child
        await child.respond(turn)
        if not turn.claimed and turn.claim():
            attempt.output_after = None  # an answer without any effect is an answer too

    # -- what happens to an attempt

    def _won(self, turn: Turn) -> None:
        """An attempt has had its first effect; its rivals are fenced already."""
        attempt = next(attempt for attempt in self.live if attempt.turn is turn)
        attempt.output_after = anyio.current_time() - attempt.started_at
        self.winner = attempt
        self.hedge_at = self.give_up_at = math.inf
        for rival in self.live:
            if rival is not attempt:
                rival.over = True
                self._abandon(rival)
        self.live = [attempt]
        if self.restart:
            self.restart = False
            self.turn.ledger.drop_open()
        self.core.take_over(attempt.slot)
        self.switches.to(attempt.slot, restarted=False, faster=True)
        self.switches.tell()
        if turn.continue_from is not None and self._tasks is not None and not turn.fenced:
            self._tasks.start_soon(self._flush_seam, turn)

    async def _flush_seam(self, turn: Turn) -> None:
        while turn.holds_seam():
            await anyio.sleep(SEAM_WAIT)
            turn.flush()

    def _ended(self, attempt: Try, error: Exception | None) -> None:
        """Settle an attempt in the step in which it ended."""
        if attempt.over or self.turn.fenced:
            return
        if error is not None:
            attempt.over = True
            self._failed(attempt, error)
        else:  # it has claimed: who may not is over, or fenced with the answer
            attempt.over = self.done = True
            self.live.remove(attempt)
            self.health.succeeded(attempt.slot.key, attempt.output_after)
            self.turn.succeeded()
        self._wake.set()

    def _failed(self, attempt: Try, error: Exception) -> None:
        final: Exception | None = None
        if attempt is self.winner:
            final = why_final(attempt.turn, error, self.rules.after_partial)
            self.winner = None
            self.race = Race(self._won)
            self.restart = self.rules.after_partial == "restart" and partial(self.turn) is not None
            if self.restart:
                self.turn.facts.filler = None  # it is taken back with the rest
        self._lost(attempt, error)
        if final is None:
            self._go_on()
        elif not self.turn.fenced:
            self._next_turn_elsewhere()
            self.error, self.done = final, True

    def _lost(self, attempt: Try, error: Exception) -> None:
        """Fence a failed attempt and take note of it; nothing of it counts any more."""
        attempt.over = True
        attempt.turn.fence()
        attempt.turn.close_calls()
        self.live.remove(attempt)
        self._note(attempt.slot, error)

    def _note(self, slot: Slot, error: Exception) -> None:
        """A child failed: for the registry, the result, the log; it is built anew next time."""
        self.failed.append(Attempt(slot.key, error))
        self.turn.facts.attempts.append(self.failed[-1])
        kind = error.kind if isinstance(error, ProviderError) else type(error).__name__
        self.turn.facts.note("failed_attempt", agent=slot.key, error=kind)
        self.switches.failed(slot, error)
        self.core.discard(slot)
        self._untold.append((slot.key, error))
        self.health.failed(slot.key, error)

    def _log_failures(self) -> None:
        # Not in the step in which a child failed: the next one is asked first.
        untold, self._untold = self._untold, []
        for key, error in untold:
            bug = not isinstance(error, ProviderError | AllAgentsFailedError)
            self.core.log.warning("%s failed: %s", key, words_of(error), exc_info=error if bug else None)

    def _abandon(self, attempt: Try) -> None:
        if attempt.probing:
            self.health.abandoned(attempt.slot.key)

    # -- the clocks

    def _next_timer(self) -> float:
        if self.winner is not None:
            return math.inf
        return min([self.hedge_at, self.give_up_at, *(attempt.deadline for attempt in self.live)])

    def _timers(self) -> None:
        """A clock rang and nobody has claimed: give up, replace who is too slow, or hedge."""
        now = anyio.current_time()
        if self.winner is not None or self.done:
            return
        if now >= self.give_up_at:
            self.order.clear()
            self._replace(math.inf, f"{self.rules.give_up_after} seconds in all (give_up_after)")
        self._replace(now, f"{self.rules.first_chunk_timeout} seconds (first_chunk_timeout)")
        if now >= self.hedge_at and self.live and not self.turn.fenced:
            self.hedge_at = math.inf
            self._hedge()
        self._go_on()

    def _replace(self, now: float, limit: str) -> None:
        for attempt in tuple(self.live):
            if now >= attempt.deadline and not self.turn.fenced:
                key = attempt.slot.key
                why = f"no output within {limit}"
                self._lost(attempt, ProviderError(why, kind="timeout", provider=key, retryable=False))
                attempt.turn.stop()

    # -- after a failure

    def _next_turn_elsewhere(self) -> None:
        following = self.order.peek()
        core = self.core
        core.active = (core.active + 1) % len(core.slots) if following is None else following.index

    def _give_up(self) -> None:
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
