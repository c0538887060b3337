"""Which child agents are worth asking: a circuit breaker for each, fed by real answers only.

    closed ──3 counted failures, or auth / not_found / quota / rate_limit──▶ open
      ▲                                                                     │ back-off over
      └────────────── success ◀── one attempt by real traffic ◀── half_open ◀┘

Share one registry between the agents of an application, and the first call that meets a dead
provider spares all others the wait. No request is ever sent only to find out.
"""

from __future__ import annotations

import logging
import math
import random
import time
from collections import deque
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import anyio
import attrs
from anyio import NoEventLoopError

from micdrop_agent._core.guards import check_listener
from micdrop_agent._core.log import SafeLog
from micdrop_agent.errors import AllAgentsFailedError, ProviderError
from micdrop_agent.options import check_count, check_seconds

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ChildHealth", "HealthChanged", "HealthRegistry", "HealthState"]

logger: Final = SafeLog(logging.getLogger(__name__))

HealthState: TypeAlias = Literal["closed", "open", "half_open"]

UNTIL_RESET: Final = frozenset({"auth", "not_found"})
"""Failures that only a person can mend."""

NOT_ITS_FAULT: Final = frozenset({"bad_request", "context_length", "content_filter", "max_steps"})
"""Failures that say nothing of the child; every other kind counts (docs/guides/errors.md)."""

HISTORY: Final = 50
LEAST_HISTORY: Final = 10
"""Answers of a child before its own history says anything about it."""

RATE_LIMIT_BACK_OFF: Final = 10.0
"""Seconds out after a rate limit that named no wait."""


@attrs.frozen
class ChildHealth:
    """What a registry knows of one child.

    Args:
        state: ``"closed"`` (in use), ``"open"`` (out) or ``"half_open"`` (next attempt decides).
        failures: Counted failures in a row.
        retry_in: Seconds until it may be tried again; ``None`` while it is closed,
            ``math.inf`` until ``reset()``.
        last_error: The last failure that counted.
    """

    state: HealthState
    failures: int
    retry_in: float | None
    last_error: Exception | None


@attrs.frozen
class HealthChanged:
    """A child came into another state; see ``HealthRegistry.on_change``."""

    key: str
    state: HealthState
    reason: Exception | None


def _new_history() -> deque[float]:
    return deque(maxlen=HISTORY)


@attrs.define(eq=False)
class _Child:
    failures: int = 0
    opened: int = 0
    until: float | None = None
    since: float = 0.0
    trying: bool = False
    error: Exception | None = None
    history: deque[float] = attrs.field(factory=_new_history)


class HealthRegistry:
    """A circuit breaker for each child, by its key (its name in the ``FallbackAgent``).

    Args:
        failures: Counted failures in a row that take a child out.
        first_back_off: Longest first time out, in seconds; it doubles each time, and the real
            one is drawn between 0 and that (full jitter).
        max_back_off: Cap of the doubling, in seconds.
        quota_back_off: Seconds out when the account has no credit left.
        hedge_budget: Share of all answers (0 to 1) that may send a second request early.
        clock: Seconds that only grow. The default is the clock of the event loop; a registry
            shared between threads needs ``time.monotonic``.
        chance: Numbers in [0, 1) for the jitter.

    Raises:
        TypeError: An option has the wrong type.
        ValueError: An option is out of range; the message names it.
    """

    def __init__(
        self,
        *,
        failures: int = 3,
        first_back_off: float = 5.0,
        max_back_off: float = 300.0,
        quota_back_off: float = 1800.0,
        hedge_budget: float = 0.05,
        clock: Callable[[], float] | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        check_count("failures", failures, least=1)
        check_seconds("first_back_off", first_back_off, zero=False)
        check_seconds("max_back_off", max_back_off, zero=False)
        check_seconds("quota_back_off", quota_back_off, zero=False)
        check_seconds("hedge_budget", hedge_budget)
        if hedge_budget > 1:
            raise ValueError(f"hedge_budget is a share between 0 and 1, not {hedge_budget!r}")
        self._failures = failures
        self._first = first_back_off
        self._max = max_back_off
        self._quota = quota_back_off
        self._budget = hedge_budget
        self._tokens = HEDGE_BURST if hedge_budget else 0.0
        self._clock = _loop_clock if clock is None else clock
        self._chance = chance
        self._children: dict[str, _Child] = {}
        self._listeners: dict[object, Callable[[HealthChanged], object]] = {}

    # -- asked by a supervisor

    def state(self, key: str) -> HealthState:
        """The state of a child; one that was never seen is ``"closed"``."""
        child = self._children.get(key)
        if child is None or child.until is None:
            return "closed"
        return "open" if child.trying or self._clock() < child.until else "half_open"

    def seconds_until_retry(self, key: str) -> float:
        """Seconds until a child may be tried; the smallest is the least bad one."""
        child = self._children.get(key)
        return 0.0 if child is None or child.until is None else max(0.0, child.until - self._clock())

    def p95(self, key: str) -> float | None:
        """95th percentile of a child's seconds to first chunk; ``None`` before 10 answers."""
        child = self._children.get(key)
        if child is None or len(child.history) < LEAST_HISTORY:
            return None
        ordered: list[float] = sorted(child.history)
        return ordered[math.ceil(0.95 * len(ordered)) - 1]

    def started(self, key: str) -> bool:
        """An attempt starts; whether it is the one attempt that a half-open child is allowed."""
        child = self._child(key)
        probing = child.until is not None and not child.trying and self._clock() >= child.until
        child.trying = child.trying or probing
        return probing

    def abandoned(self, key: str) -> None:
        """The one attempt of a half-open child was cancelled or lost a race: another may try."""
        self._child(key).trying = False

    def succeeded(self, key: str, first_chunk: float | None = None) -> None:
        """An attempt answered, its first chunk after that many seconds."""
        child = self._child(key)
        was_out = child.until is not None
        if first_chunk is not None:
            child.history.append(first_chunk)
            if was_out and self._clock() - first_chunk < child.since:
                return  # it was asked before the child went out: that says nothing of how it is now
        child.failures = child.opened = 0
        child.until, child.trying = None, False
        if was_out:
            self._tell(HealthChanged(key, "closed", None))

    def failed(self, key: str, error: Exception) -> None:
        """An attempt failed with ``error``."""
        child = self._child(key)
        now = self._clock()
        # Of many calls that fail at the same time only the first ones open the circuit.
        was_out = child.until is not None and not child.trying and now < child.until
        seconds = self._time_out(child, error, was_out=was_out)
        child.trying = False
        if seconds is None:
            return
        before, child.error = child.until, error
        if not was_out:
            child.since = now
        child.until = now + seconds if before is None else max(before, now + seconds)
        if not was_out or (child.until == math.inf and before != math.inf):
            self._tell(HealthChanged(key, "open", error))

    def _time_out(self, child: _Child, error: Exception, *, was_out: bool) -> float | None:
        """Seconds that the child is out for ``error``; ``None`` if that changes nothing."""
        kind = error.kind if isinstance(error, ProviderError) else "bug"
        asked = error.retry_after if isinstance(error, ProviderError) else None
        if _blameless(error):
            return None
        if kind in UNTIL_RESET:
            return math.inf
        if kind == "quota":
            return max(self._quota, asked or 0.0)
        if kind == "rate_limit":
            return RATE_LIMIT_BACK_OFF if asked is None else asked
        child.error = error
        child.failures += 1
        if was_out:
            return asked
        if child.failures < self._failures and child.until is None:
            return None
        longest = min(self._max, self._first * 2.0 ** min(child.opened, 32))
        child.opened += 1
        return max(asked or 0.0, self._chance() * longest)

    def may_hedge(self) -> bool:
        """Whether the budget allows one more early second request; takes it if so."""
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def answer_started(self) -> None:
        """Each answer adds its share to the budget of hedges."""
        if self._budget:
            self._tokens = min(HEDGE_BURST, self._tokens + self._budget)

    # -- for applications

    def snapshot(self) -> dict[str, ChildHealth]:
        """What is known of each child, by key."""
        return {
            key: ChildHealth(
                state=self.state(key),
                failures=child.failures,
                retry_in=None if child.until is None else self.seconds_until_retry(key),
                last_error=child.error,
            )
            for key, child in self._children.copy().items()
        }

    def reset(self, key: str | None = None) -> None:
        """Take a child (or all) back in, as after a new key or a paid bill.

        Raises:
            KeyError: No child of that key was ever tried.
        """
        if key is not None and key not in self._children:
            known = ", ".join(self._children) or "none"
            raise KeyError(f"no child {key!r} was tried yet; known are: {known}")
        for name in tuple(self._children) if key is None else (key,):
            child = self._children[name]
            was_out = child.until is not None
            self._children[name] = _Child(history=child.history)
            if was_out:
                self._tell(HealthChanged(name, "closed", None))

    def on_change(self, listener: Callable[[HealthChanged], object]) -> Callable[[], None]:
        """Call ``listener`` whenever a child goes out or comes back; returns what removes it."""
        check_listener(listener, "a listener is a function of one HealthChanged")
        token = object()
        self._listeners[token] = listener

        def remove() -> None:
            self._listeners.pop(token, None)

        return remove

    def _tell(self, change: HealthChanged) -> None:
        for listener in tuple(self._listeners.values()):
            try:
                listener(change)
            except Exception:
                logger.exception("a health listener raised; it is ignored")

    def _child(self, key: str) -> _Child:
        child = self._children.get(key)
        return self._children.setdefault(key, _Child()) if child is None else child


HEDGE_BURST: Final = 10.0
"""Hedges that may come close together, as slow answers do."""


def _blameless(error: Exception) -> bool:
    """Whether the request was at fault and not the child; a supervisor is as its children are."""
    if isinstance(error, AllAgentsFailedError):
        return all(_blameless(attempt.error) for attempt in error.attempts)
    return isinstance(error, ProviderError) and error.kind in NOT_ITS_FAULT


def _loop_clock() -> float:
    try:
        return anyio.current_time()
    except NoEventLoopError:
        return time.monotonic()
