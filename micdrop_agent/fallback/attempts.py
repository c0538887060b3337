"""What every supervisor has in common: attempts, their race, their clocks, and what is known of their health.

    run ──▶ start(slot) ──▶ attempt task ──▶ claim ──▶ _won      rivals fenced, clocks lifted
     ▲                           └─────────▶ end ──▶ _ended     answered, or on to the next one
     └── _watch: the clocks (hedge, time-outs), and the end

An attempt works through a rival of its own: a side of the work that has an effect until it is
fenced, and whose first effect claims the work for it (``Rival``, or a ``Turn``). Everything that
decides anything is synchronous and happens in the step of its cause; after each call of foreign
code (a factory, a listener) the fence is looked at again.

Subclasses say what an attempt is: ``Supervision`` for the answers of agents, and those in
``micdrop_agent.call`` for speech.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import anyio
import attrs

from micdrop_agent._core.groups import lone_error_unwrapped
from micdrop_agent._interrupts import defer_interrupts, start_soon
from micdrop_agent.errors import AllAgentsFailedError, Attempt, ProviderError, describe_error
from micdrop_agent.fallback.rotation import Rotation, SlotLike

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from anyio.abc import TaskGroup

    from micdrop_agent._core.log import SafeLog
    from micdrop_agent.fallback.health import HealthRegistry

__all__ = ["Attempts", "Clocks", "Side", "Try"]


class Side(Protocol):
    """An attempt's side of the work; ``Turn`` is one, and so is ``Rival``."""

    scope: anyio.CancelScope

    @property
    def fenced(self) -> bool:
        """Whether it has lost its effect."""
        ...

    @property
    def claimed(self) -> bool:
        """Whether it has had an effect."""
        ...

    def fence(self) -> None:
        """Take its effect away."""
        ...

    def claim(self) -> bool:
        """Make it the one that counts."""
        ...


S = TypeVar("S", bound=SlotLike)
R = TypeVar("R", bound=Side)


@attrs.frozen(kw_only=True)
class Clocks:
    """How long attempts may take, in seconds; ``None`` means no limit."""

    first: float | None
    """One attempt, to its first output."""
    first_name: str
    """The option that says so."""
    all: float | None = None
    """All attempts, to the first output of one."""
    all_name: str = "give_up_after"
    hedge: float | str | None = None
    """Before another one is asked too; ``"p95"``: by what is known of the first."""


@attrs.define(eq=False)
class Try(Generic[S, R]):
    """One attempt of one child."""

    slot: S
    child: Any
    side: R
    started_at: float
    deadline: float
    probing: bool
    """It is the one attempt that a half-open child is allowed."""
    output_after: float | None = None
    """Seconds to its first useful output."""
    over: bool = False


@defer_interrupts
class Attempts(ABC, Generic[S, R]):
    """Drives children through one piece of work, each at most once, until one has done it."""

    def __init__(self, order: Rotation[S], health: HealthRegistry, clocks: Clocks, log: SafeLog) -> None:
        self.order = order
        self.health = health
        self.clocks = clocks
        self.log = log
        self.live: list[Try[S, R]] = []
        self.winner: Try[S, R] | None = None
        self.failed: list[Attempt] = []
        self.hedge_at = math.inf
        self.give_up_at = math.inf
        self.done = False
        self.error: Exception | None = None
        self._unlogged: list[tuple[str, Exception]] = []
        """Failures that were not logged yet."""
        self._running = 0
        self._wake = anyio.Event()
        self._tasks: TaskGroup | None = None

    # -- what a subclass says

    @property
    @abstractmethod
    def fenced(self) -> bool:
        """Whether nobody wants the work any more."""

    @abstractmethod
    def build(self, slot: S) -> Any:
        """The child of ``slot``; raises what its factory raises."""

    @abstractmethod
    def side_for(self, slot: S, child: Any, now: float) -> R:
        """A side for a new attempt, as a rival of those that are at work."""

    @abstractmethod
    async def ask(self, attempt: Try[S, R]) -> None:
        """Have the child do the work."""

    @abstractmethod
    def new_race(self) -> None:
        """The winner has failed: those that come now are rivals of each other only."""

    def first_deadline(self, now: float) -> float:
        """When an attempt that starts now must have had its first output."""
        return math.inf if self.clocks.first is None else now + self.clocks.first

    def winner_deadline(self) -> float:
        """When the winner counts as failed if it does not go on."""
        return math.inf

    def may_hedge(self) -> bool:
        """Whether a second attempt beside the first one could still help."""
        return True

    def at_work(self, slot: S) -> None:
        """``slot`` is the one that is at work now."""

    def begins(self, attempt: Try[S, R]) -> None:
        """``attempt`` is about to start, beside those in ``live``."""

    def has_won(self, attempt: Try[S, R], *, hedged: bool) -> None:
        """``attempt`` has had its first effect."""

    def why_final(self, attempt: Try[S, R], error: Exception) -> Exception | None:
        """The error that ends everything, if nobody may go on after the winner ``attempt``, which failed."""
        del attempt, error
        return None

    def is_fenced(self, attempt: Try[S, R]) -> None:
        """``attempt`` has failed and has no effect any more."""

    def has_lost(self, slot: S, error: Exception) -> None:
        """``slot`` has failed."""

    def has_done(self, attempt: Try[S, R]) -> None:
        """``attempt`` has done the work."""

    def ends_with(self, error: Exception) -> None:
        """Nobody may go on after the winner, which has failed with ``error``."""
        self.error, self.done = error, True

    def fails_early(self, error: Exception) -> bool:
        """Whether ``error`` could be reported before the last clean-up is done; then it is not raised."""
        del error
        return False

    def give_up(self) -> None:
        """All have failed."""
        error = AllAgentsFailedError(self.failed)
        error.__cause__ = self.failed[-1].error if self.failed else None
        self.error, self.done = error, True

    # -- the run

    async def run(self) -> None:
        """Ask the children until one has done the work.

        Raises:
            AllAgentsFailedError: None could.
        """
        self.health.answer_started()
        if self.clocks.all is not None:
            self.give_up_at = anyio.current_time() + self.clocks.all
        with lone_error_unwrapped():
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                try:
                    self.begin(tasks)
                    await self._watch()
                finally:
                    # Now, and not when the last clean-up is done: somebody else may try.
                    for attempt in self.live:
                        self._abandon(attempt)
                    self._log_failures()
                if self.error is not None and self._running and self.fails_early(self.error):
                    self.error = None
                tasks.cancel_scope.cancel()
        if self.error is not None:
            raise self.error

    def begin(self, tasks: TaskGroup) -> None:
        """Start the first attempt."""
        del tasks
        self.go_on()

    def start_soon(self, work: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> None:
        """Run ``work(*args)`` until everything is done."""
        if self._tasks is not None:
            start_soon(self._tasks, work, *args)

    def wake(self) -> None:
        """Look at the clocks again."""
        self._wake.set()

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

    def go_on(self) -> None:
        """See that somebody is at work."""
        if self.fenced or self.done:
            return
        if self.live:
            self.at_work(self.live[0].slot)
            return
        while self.order and not self.fenced:
            if self.start(self.order.take()):
                return
        if not self.fenced:
            self.give_up()

    def start(self, slot: S) -> bool:
        """Start an attempt; ``False`` if the child could not be built."""
        try:
            child = self.build(slot)
        except Exception as error:  # foreign code: a factory that raises is a child that failed
            self.log.exception("factory %d raised", slot.index)
            self._note(slot, error)
            return False
        if not self.live and not self.fenced:
            self.at_work(slot)
        if self.fenced:
            return True  # the factory, or a listener of the switch, has cancelled everything
        assert self._tasks is not None
        now = anyio.current_time()
        side = self.side_for(slot, child, now)
        attempt = Try(slot, child, side, now, self.first_deadline(now), self.health.started(slot.key))
        self.begins(attempt)
        self.live.append(attempt)
        self.hedge_at = self._hedge_time(slot, now)
        start_soon(self._tasks, self._attempt, attempt, name=f"micdrop attempt {slot.key}")
        self._wake.set()
        return True

    def hedge(self) -> None:
        """Ask the next healthy child as well."""
        slot = self.order.take_healthy() if self.health.may_hedge() else None
        while slot is not None and not self.start(slot):
            slot = self.order.take_healthy()

    def _hedge_time(self, slot: S, now: float) -> float:
        after = self.clocks.hedge
        seconds = self.health.p95(slot.key) if isinstance(after, str) else after
        return math.inf if seconds is None or not self.may_hedge() or not self.order else now + seconds

    async def _attempt(self, attempt: Try[S, R]) -> None:
        side = attempt.side
        if side.fenced:
            return  # cut off before its first step: the child is not even asked
        error: Exception | None = None
        self._running += 1
        # The try stands outside the scope, which takes its own cancellation out of a group first.
        try:
            with side.scope:
                await self.ask(attempt)
                if not side.claimed and side.claim():
                    attempt.output_after = None  # work without any effect is done too
        except Exception as raised:  # noqa: BLE001 - the child's error is why the next one is asked
            error = raised
        except anyio.get_cancelled_exc_class() as cancelled:  # noqa: ASYNC103 - raised where it is ours; see below
            if anyio.current_effective_deadline() == -math.inf:
                raise
            # Only on asyncio: the child awaited something that somebody else had cancelled.
            error = RuntimeError(f"{attempt.slot.key} was cancelled from within")
            error.__cause__ = cancelled
        finally:
            self._running -= 1
        self.ended(attempt, error)

    # -- what happens to an attempt

    def won(self, side: R) -> None:
        """A side has had its first effect; its rivals are fenced already."""
        attempt = next(attempt for attempt in self.live if attempt.side is side)
        hedged = len(self.live) > 1
        attempt.output_after = anyio.current_time() - attempt.started_at
        self.winner = attempt
        self.hedge_at = self.give_up_at = math.inf
        for rival in self.live:
            if rival is not attempt:
                rival.over = True
                self._abandon(rival)
        self.live = [attempt]
        self.has_won(attempt, hedged=hedged)
        self._wake.set()

    def ended(self, attempt: Try[S, R], error: Exception | None) -> None:
        """Settle an attempt in the step in which it ended."""
        if attempt.over or self.fenced:
            return
        if error is not None:
            self.fail(attempt, error)
        else:  # it has claimed: who may not is over, or fenced with everything
            attempt.over = self.done = True
            self.live.remove(attempt)
            self.health.succeeded(attempt.slot.key, attempt.output_after)
            self.has_done(attempt)
        self._wake.set()

    def fail(self, attempt: Try[S, R], error: Exception) -> None:
        """An attempt has failed: the next one is asked, unless nobody may go on after it."""
        final: Exception | None = None
        if attempt is self.winner:
            final = self.why_final(attempt, error)
            self.winner = None
            self.new_race()
        self._lose(attempt, error)
        if final is None:
            self.go_on()
        elif not self.fenced:
            self.ends_with(final)

    def _lose(self, attempt: Try[S, R], error: Exception) -> None:
        """Fence a failed attempt and take note of it; nothing of it counts any more."""
        attempt.over = True
        attempt.side.fence()
        self.is_fenced(attempt)
        self.live.remove(attempt)
        self._note(attempt.slot, error)

    def _note(self, slot: S, error: Exception) -> None:
        """A child failed: for the registry and for the log."""
        self.failed.append(Attempt(slot.key, error))
        self.has_lost(slot, error)
        self._unlogged.append((slot.key, error))
        self.health.failed(slot.key, error)

    def _log_failures(self) -> None:
        # Not in the step in which a child failed: the next one is asked first.
        unlogged, self._unlogged = self._unlogged, []
        for key, error in unlogged:
            bug = not isinstance(error, ProviderError | AllAgentsFailedError)
            self.log.warning("%s failed: %s", key, describe_error(error), exc_info=error if bug else None)

    def _abandon(self, attempt: Try[S, R]) -> None:
        if attempt.probing:
            self.health.abandoned(attempt.slot.key)

    # -- the clocks

    def _next_timer(self) -> float:
        if self.winner is not None:
            return self.winner_deadline()
        return min([self.hedge_at, self.give_up_at, *(attempt.deadline for attempt in self.live)])

    def _timers(self) -> None:
        """A clock rang: replace who is too slow, hedge, or give up."""
        now = anyio.current_time()
        if self.winner is not None or self.done:
            self._check_winner(now)
            return
        if now >= self.give_up_at:
            self.order.clear()
            self._replace(math.inf, f"{self.clocks.all} seconds in all ({self.clocks.all_name})")
        self._replace(now, f"{self.clocks.first} seconds ({self.clocks.first_name})")
        if now >= self.hedge_at and self.live and not self.fenced:
            self.hedge_at = math.inf
            self.hedge()
        self.go_on()

    def _check_winner(self, now: float) -> None:
        if self.winner is not None and not self.done and now >= self.winner_deadline():
            self.winner_is_late(self.winner)

    def winner_is_late(self, attempt: Try[S, R]) -> None:
        """The winner has stopped to work."""
        error = ProviderError("it has stopped", kind="timeout", provider=attempt.slot.key, retryable=False)
        self.fail(attempt, error)
        attempt.side.scope.cancel()

    def _replace(self, now: float, limit: str) -> None:
        for attempt in tuple(self.live):
            if now >= attempt.deadline and not self.fenced:
                key = attempt.slot.key
                error = ProviderError(f"no output within {limit}", kind="timeout", provider=key, retryable=False)
                self._lose(attempt, error)
                attempt.side.scope.cancel()
