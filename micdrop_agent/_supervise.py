"""One answer of a ``FallbackAgent``: attempts, clocks, hedges, and what follows a failure.

    run ──▶ launch(child) ──▶ attempt task ──▶ outcome ─┐
     ▲                                                   │
     └── timer (hedge, time-out) or outcome ◀────────────┘

The first effect of an attempt claims the answer (``Turn.claim``) and fences its rivals in the
same step. A failed or slow attempt is fenced before anything of the next one is visible; its
clean-up is awaited by the answer's task, never by the consumer (invariants 9 and 10).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import anyio
import attrs

from micdrop_agent._groups import lone_error_unwrapped
from micdrop_agent.errors import AllAgentsFailedError, Attempt, ProviderError
from micdrop_agent.events import AgentSwitched
from micdrop_agent.messages import is_blank
from micdrop_agent.turn import Race

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from micdrop_agent.fallback import FallbackAgent, Slot
    from micdrop_agent.turn import Turn

__all__ = ["CLOSE_TIMEOUT", "Supervision"]

CLOSE_TIMEOUT: Final = 0.5
"""Longest in seconds that the connections of a discarded child may take to close."""

SEAM_WAIT: Final = 0.15
"""Longest in seconds that a continuation is held back to find where it says something new."""


@attrs.define(eq=False)
class Try:
    """One attempt of one child."""

    slot: Slot
    turn: Turn
    started_at: float
    deadline: float
    over: bool = False


@attrs.frozen
class Outcome:
    """How an attempt ended; ``error`` is ``None`` if it answered."""

    attempt: Try
    error: Exception | None


class Supervision:
    """Drives the children of ``agent`` through one ``turn``."""

    def __init__(self, agent: FallbackAgent, turn: Turn) -> None:
        self.agent = agent
        self.turn = turn
        self.health = agent.health
        self.first = agent._active
        self.order = self._rotation()
        self.restarting = False
        self.live: list[Try] = []
        self.race = Race(self._won)
        self.failed: list[Attempt] = []
        self.last: Slot | None = None
        self.last_error: Exception | None = None
        self.winner: Try | None = None
        self.hedge_at = math.inf
        self.give_up_at = math.inf
        self._tasks: TaskGroup | None = None
        self._outbox, self._inbox = anyio.create_memory_object_stream[Outcome](math.inf)

    def _rotation(self) -> list[Slot]:
        """The children in the order in which they are asked: each once, the healthy ones first."""
        self.agent._learn_names()
        slots = self.agent._slots
        start = 0 if self.agent.prefer == "first" else self.agent._active
        ring = [slots[(start + step) % len(slots)] for step in range(len(slots))]
        if self.agent.prefer == "first":
            ring.sort(key=lambda slot: slot.index)
        rank = {"closed": 0, "half_open": 1, "open": 2}
        return sorted(ring, key=lambda slot: (rank[self.health.state(slot.key)], self._badness(slot)))

    def _badness(self, slot: Slot) -> float:
        return self.health.badness(slot.key)

    async def run(self) -> None:
        """Ask the children until one has answered.

        Raises:
            AllAgentsFailedError: None could.
            ProviderError: One failed in mid-answer and its text cannot be continued.
        """
        self.health.answer_started()
        now = anyio.current_time()
        if self.agent.give_up_after is not None:
            self.give_up_at = now + self.agent.give_up_after
        try:
            with lone_error_unwrapped():
                async with anyio.create_task_group() as tasks:
                    self._tasks = tasks
                    if not self._launch():
                        self._give_up()
                    self._probe()
                    await self._watch()
                    tasks.cancel_scope.cancel()
        finally:
            for attempt in self.live:
                self.health.abandoned(attempt.slot.key)
            self._outbox.close()
            self._inbox.close()

    async def _watch(self) -> None:
        while True:
            outcome: Outcome | None = None
            with anyio.CancelScope(deadline=self._next_timer()):
                outcome = await self._inbox.receive()
            if outcome is None:
                # One checkpoint of grace: what arrived together with the timer counts.
                await anyio.lowlevel.checkpoint()
                self._timers()
            elif self._settle(outcome):
                return

    # -- starting

    def _launch(self) -> bool:
        """Start the next child; ``False`` if there is none left, or none could be built."""
        while self.order:
            slot = self.order.pop(0)
            try:
                self.agent._built(slot)
            except Exception as error:  # foreign code: a factory that raises is a child that failed
                self.agent.logger.exception("factory %d raised", slot.index)
                self._note(slot, error)
                continue
            self._start(slot)
            return True
        return False

    def _probe(self) -> None:
        """Let a preferred child that was out try again, as the hedge of a healthy one."""
        if self.agent.prefer != "first" or not self.live:
            return
        healthy = self.live[0].slot
        for slot in self.order:
            if slot.index < healthy.index and self.health.state(slot.key) == "half_open":
                self.order.remove(slot)
                self.order.insert(0, slot)
                self._launch()
                return

    def _start(self, slot: Slot) -> None:
        agent, now = self.agent, anyio.current_time()
        assert slot.agent is not None
        assert self._tasks is not None
        if self.last is not None and self.last_error is not None:
            self._switched(self.last, slot, self.last_error)
            self.last_error = None
        turn = self.turn.child(slot.agent, self.race, anyio.CancelScope())
        turn.label = slot.key
        turn.continue_from = self._partial()
        turn.patient = not any(self.health.state(other.key) == "closed" for other in self.order)
        limit = math.inf if agent.first_chunk_timeout is None else now + agent.first_chunk_timeout
        attempt = Try(slot, turn, now, limit)
        self.turn.facts.note("hedge" if self.live else "attempt", now, agent=slot.key)
        self.live.append(attempt)
        self.health.started(slot.key)
        self.hedge_at = self._hedge_time(slot, now)
        self._tasks.start_soon(self._attempt, attempt, name=f"micdrop attempt {slot.key}")

    def _hedge_time(self, slot: Slot, now: float) -> float:
        after = self.agent.hedge_after
        seconds = self.health.p95(slot.key) if isinstance(after, str) else after
        return math.inf if seconds is None or not self.order else now + seconds

    async def _attempt(self, attempt: Try) -> None:
        turn, slot = attempt.turn, attempt.slot
        error: Exception | None = None
        child = turn.responder
        turn._on_success = lambda: self._report(Outcome(attempt, None))
        # The try stands outside the scope, which takes its own cancellation out of a group first.
        try:
            with turn._scope:
                if not slot.started:
                    await child._start()
                    slot.started = True
                await child._respond(turn)
                turn.claim()  # an answer without any effect is an answer too
        except Exception as raised:  # noqa: BLE001 - the child's error is why the next one is asked
            error = raised
        if turn._scope.cancelled_caught and error is None:
            return  # fenced by the supervisor, which knows why
        self._report(Outcome(attempt, error))

    def _report(self, outcome: Outcome) -> None:
        if not outcome.attempt.over:
            outcome.attempt.over = True
            self._outbox.send_nowait(outcome)

    # -- events of an answer

    def _won(self, turn: Turn) -> None:
        """An attempt has had its first effect; its rivals are fenced already."""
        attempt = next(attempt for attempt in self.live if attempt.turn is turn)
        self.winner = attempt
        for rival in self.live:
            if rival is not attempt:
                rival.over = True
                self.health.abandoned(rival.slot.key)
        if self.live[0] is not attempt:
            reason = TimeoutError(f"{attempt.slot.key} was faster")
            self._switched(self.live[0].slot, attempt.slot, reason)
        self.live = [attempt]
        self.agent._take_over(attempt.slot)
        if turn.continue_from is not None and self._tasks is not None:
            self._tasks.start_soon(self._flush_seam, turn)

    async def _flush_seam(self, turn: Turn) -> None:
        await anyio.sleep(SEAM_WAIT)
        turn._flush()

    def _next_timer(self) -> float:
        if self.winner is not None:
            return math.inf
        limits = [attempt.deadline for attempt in self.live]
        return min([*limits, self.hedge_at, self.give_up_at])

    def _timers(self) -> None:
        """A clock rang and nobody has claimed: give up, replace who is too slow, or hedge."""
        now = anyio.current_time()
        if self.winner is not None or self.turn.fenced:
            return
        agent = self.agent
        if now >= self.give_up_at:
            self.order.clear()
            self._replace_all(self.give_up_at, f"{agent.give_up_after} seconds in all (give_up_after)")
        self._replace_all(now, f"{agent.first_chunk_timeout} seconds (first_chunk_timeout)")
        if now >= self.hedge_at and self.live:
            self.hedge_at = math.inf
            if self.health.may_hedge():
                self._launch()
        if not self.live and not self._launch():
            self._give_up()

    def _replace_all(self, now: float, limit: str) -> None:
        for attempt in tuple(self.live):
            if now >= min(attempt.deadline, self.give_up_at):
                self._too_slow(attempt, f"no output within {limit}")

    def _too_slow(self, attempt: Try, why: str) -> None:
        error = ProviderError(f"{attempt.slot.key}: {why}", kind="timeout", provider=attempt.slot.key, retryable=False)
        attempt.over = True
        self._lost(attempt, error)
        attempt.turn._scope.cancel()

    def _settle(self, outcome: Outcome) -> bool:
        """Take in how an attempt ended; whether the answer is complete."""
        attempt, error = outcome.attempt, outcome.error
        if self.turn.fenced:
            return True
        if error is None:
            first = self.turn.facts.first_chunk_at
            self.health.succeeded(
                attempt.slot.key, None if first is None or first < attempt.started_at else first - attempt.started_at
            )
            self.live.remove(attempt)
            self.turn.succeeded()
            return True
        was_winner = attempt is self.winner
        fatal = self._why_final(attempt, error) if was_winner else None
        self._lost(attempt, error)
        if was_winner:
            self.winner = None
            self.race = Race(self._won)
            self.hedge_at = math.inf
            if fatal is not None:
                self._next_turn_elsewhere()
                raise fatal
            if self._partial() is not None and self.agent.after_partial == "restart":
                self._restart()
        if not self.live and not self._launch():
            self._give_up()
        return False

    def _lost(self, attempt: Try, error: Exception) -> None:
        """Fence a failed attempt and take note of it; nothing of it counts any more."""
        attempt.turn.fence()
        attempt.turn._close_calls()
        self.live.remove(attempt)
        self._note(attempt.slot, error)

    def _note(self, slot: Slot, error: Exception) -> None:
        """A child failed: for the registry, the result, the log; it is built anew next time."""
        self.health.failed(slot.key, error)
        self.failed.append(Attempt(slot.key, error))
        self.turn.facts.attempts.append(self.failed[-1])
        kind = error.kind if isinstance(error, ProviderError) else type(error).__name__
        self.turn.facts.note("failed_attempt", agent=slot.key, error=kind)
        self.last, self.last_error = slot, error
        self.agent._discard(slot)
        bug = not isinstance(error, ProviderError | AllAgentsFailedError)
        self.agent.logger.warning("%s failed: %s", slot.key, error, exc_info=error if bug else None)

    # -- after a failure

    def _partial(self) -> str | None:
        """What was said of the answer and can be continued; ``None`` if nothing was."""
        text = self.turn.ledger.open_text
        return None if is_blank(text) else text

    def _why_final(self, attempt: Try, error: Exception) -> Exception | None:
        """The error that ends the answer, if the next child may not go on after this one."""
        if self._partial() is None:
            return None
        filtered = isinstance(error, ProviderError) and error.kind == "content_filter"
        if self.agent.after_partial == "stop" or filtered:
            return error
        if self.agent.after_partial == "restart":
            return None
        return error if attempt.turn.ran_tool or attempt.turn._in_value() else None

    def _restart(self) -> None:
        """The next child starts over: what was said so far is taken back, by the host too."""
        self.turn.ledger.drop_open()
        self.restarting = True

    def _switched(self, old: Slot, new: Slot, reason: Exception) -> None:
        self.turn.facts.note("switch", old=old.key, new=new.key, restarted=self.restarting)
        self.turn._emit([AgentSwitched(old.key, new.key, reason, self.restarting)])
        self.restarting = False

    def _next_turn_elsewhere(self) -> None:
        self.agent._active = (self.agent._active + 1) % len(self.agent._slots)
        if self.order:
            self.agent._active = self.order[0].index

    def _give_up(self) -> None:
        agent = self.agent
        agent._active = self.first  # a full rotation ends where it began
        error = AllAgentsFailedError(self.failed)
        if agent.give_up_text and not self.turn.ledger.length and self.turn.claim():
            self.turn.write_nowait(agent.give_up_text)
            self.turn.commit()
        raise error from self.failed[-1].error
