"""Several attempts at one answer, of which at most one has an effect (invariant 9)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from micdrop_agent._core.turn import Turn

__all__ = ["Race"]


class Race:
    """The attempts of one round: at most one of them becomes the winner.

    Args:
        on_win: Called with the winner in the step in which it claims.
    """

    def __init__(self, on_win: Callable[[Turn], None] | None = None) -> None:
        self.turns: list[Turn] = []
        self.winner: Turn | None = None
        self._on_win = on_win

    def won_by(self, turn: Turn) -> None:
        """Fence every rival of ``turn`` and lift its deadline. Synchronous: no rival gets in."""
        self.winner = turn
        turn.scope.deadline = math.inf
        for rival in self.turns:
            if rival is not turn:
                rival.fence()
                rival.stop()

    def tell(self) -> None:
        """Tell of the winner, once the races around this one are decided too."""
        if self._on_win is not None and self.winner is not None:
            self._on_win(self.winner)
