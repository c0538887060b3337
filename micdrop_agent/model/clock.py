"""How long one request, and a whole answer, may take.

    TotalClock ──▶ the answer: all its requests, retries and tools (``Timeouts.total``)
    RequestClock ──▶ one request: moved on by what is useful, never beyond the total

Pinned in tests/test_step_total.py and tests/test_step.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import anyio

    from micdrop_agent.options import Timeouts

__all__ = ["RequestClock", "TotalClock"]

_LETTERS_OF_A_PART: Final = 10
"""What a useful event without text (a part of a call, a thought) counts as."""

_LONGEST_WINDOW: Final = 60.0
"""Seconds over which the rate is measured where pauses have no limit."""


class TotalClock:
    """When a whole answer has to be over; stands while the consumer is waited for.

    Args:
        ends_at: Time of the loop's clock, infinite for no limit.
    """

    __slots__ = ("ends_at",)

    def __init__(self, ends_at: float) -> None:
        self.ends_at = ends_at


class RequestClock:
    """When a request has to have brought something useful.

    Args:
        scope: Is cancelled when the time is over.
        total: The clock of the whole answer.
        now: The time of the loop's clock.
        timeouts: Pauses and rate that are allowed.
    """

    __slots__ = ("_flows_until", "_name", "_now", "_rate", "_seconds", "_total", "_window", "scope")

    def __init__(
        self, scope: anyio.CancelScope, total: TotalClock, now: Callable[[], float], timeouts: Timeouts
    ) -> None:
        self.scope = scope
        pause = timeouts.between_chunks
        self._window = _LONGEST_WINDOW if pause is None else 2 * pause
        self._rate = timeouts.min_rate
        self._flows_until: float | None = None
        """When the credit of what came is used up: each letter adds the time that it may take, up to a window."""
        self._total = total
        self._now = now
        self._seconds: float | None = None
        self._name = ""

    def allow(self, seconds: float | None, name: str) -> None:
        """From now on ``seconds`` for what ``name`` says; ``None`` for as long as the answer has."""
        self._seconds, self._name = seconds, name
        ends_at = self._total.ends_at
        self.scope.deadline = ends_at if seconds is None else min(self._now() + seconds, ends_at)

    def flows(self, events: Sequence[object], pause: float | None) -> None:
        """Something useful came: from now on ``pause`` seconds for the next, while the rate is high enough."""
        self._seconds, self._name = pause, "between chunks"
        now, ends_at = self._now(), self._total.ends_at
        if pause is not None and now + pause < ends_at:
            ends_at = now + pause
        if self._rate is not None:
            # Of several events that came together the first is enough to see that it flows.
            first = events[0]
            letters = len(events) - 1 + (len(first) if type(first) is str else _LETTERS_OF_A_PART)
            latest = now + self._window
            if self._flows_until is not None and self._flows_until + letters / self._rate < latest:
                latest = self._flows_until + letters / self._rate
            self._flows_until = latest
            if latest < ends_at:
                ends_at, self._name, self._seconds = latest, "min_rate", None
        self.scope.deadline = ends_at

    def forget_rate(self) -> None:
        """The response waits for somebody else: its rate is measured afresh afterwards."""
        self._flows_until = None

    def allow_all(self) -> None:
        """As long as the whole answer has: something runs that has a time-out of its own."""
        self.forget_rate()
        self.scope.deadline = self._total.ends_at

    @property
    def total_ran_out(self) -> bool:
        """Whether it was the answer's time that the scope's deadline stood for."""
        return self.scope.deadline == self._total.ends_at

    def __str__(self) -> str:
        """What was waited for last, and how long: for an error."""
        return f"{'' if self._seconds is None else f'{self._seconds:g} seconds, '}Timeouts: {self._name}"
