"""How long one request, and a whole answer, may take.

    TotalClock ──▶ the answer: all its requests, retries and tools (``Timeouts.total``)
    RequestClock ──▶ one request: moved on by what is useful, never beyond the total

Pinned in tests/test_step_total.py and tests/test_step.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    import anyio

__all__ = ["RequestClock", "TotalClock"]


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
    """

    __slots__ = ("_name", "_now", "_seconds", "_total", "scope")

    def __init__(self, scope: anyio.CancelScope, total: TotalClock, now: Callable[[], float]) -> None:
        self.scope = scope
        self._total = total
        self._now = now
        self._seconds: float | None = None
        self._name = ""

    def allow(self, seconds: float | None, name: str) -> None:
        """From now on ``seconds`` for what ``name`` says; ``None`` for as long as the answer has."""
        self._seconds, self._name = seconds, name
        ends_at = self._total.ends_at
        self.scope.deadline = ends_at if seconds is None else min(self._now() + seconds, ends_at)

    def allow_all(self) -> None:
        """As long as the whole answer has: something runs that has a time-out of its own."""
        self.scope.deadline = self._total.ends_at

    @property
    def total_ran_out(self) -> bool:
        """Whether it was the answer's time that the scope's deadline stood for."""
        return self.scope.deadline == self._total.ends_at

    def __str__(self) -> str:
        """What was waited for last, and how long: for an error."""
        return f"{'' if self._seconds is None else f'{self._seconds:g} seconds, '}Timeouts: {self._name}"
