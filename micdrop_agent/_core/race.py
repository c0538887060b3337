"""Several attempts at one piece of work, of which at most one has an effect (invariant 9)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    import anyio

__all__ = ["Race", "Runner"]


class Runner(Protocol):
    """One attempt: a ``Turn`` of an answer, or a rival of a call."""

    scope: anyio.CancelScope

    def fence(self) -> None:
        """Take all effect from it."""

    def stop(self) -> None:
        """Cancel its work."""


R = TypeVar("R", bound=Runner)


class Race(Generic[R]):
    """The attempts of one round: at most one of them becomes the winner.

    Args:
        on_win: Called with the winner in the step in which it claims.
    """

    def __init__(self, on_win: Callable[[R], None] | None = None) -> None:
        self.rivals: list[R] = []
        self.winner: R | None = None
        self._on_win = on_win

    def won_by(self, winner: R) -> None:
        """Fence every rival of ``winner`` and lift its deadline. Synchronous: no rival gets in."""
        self.winner = winner
        winner.scope.deadline = math.inf
        for rival in self.rivals:
            if rival is not winner:
                rival.fence()
                rival.stop()

    def tell(self) -> None:
        """Report the winner, once the races around this one are decided too."""
        if self._on_win is not None and self.winner is not None:
            self._on_win(self.winner)
