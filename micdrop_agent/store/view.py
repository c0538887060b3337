"""What the store is to hold of a call in which more is written than was heard. No I/O.

    conversation ── view (what was heard) ──▶ items ── difference to what was shown ──▶ one change

A worker that dies cannot cut its answer: so what is stored is cut already, and grows as it is heard.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from micdrop_agent.store.history import difference

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from micdrop_agent.messages import Item

    ViewOf: TypeAlias = Callable[[list[Item]], object]
    Delta: TypeAlias = tuple[int, int, tuple[Item, ...]]

__all__ = ["View"]

LOOK_EVERY: Final = 0.1
"""Seconds between two looks at how much was heard."""


class View:
    """Follows what was heard.

    Args:
        shown: The items that the store holds, or will hold when it has all changes.
        view: Changes a list of items, in place, into what was heard of them.
    """

    def __init__(self, shown: list[Item], view: ViewOf) -> None:
        self._shown = shown
        self._view = view
        self._looked_at = -math.inf
        self.due = math.inf
        """When it is to be looked at."""

    def changed(self) -> bool:
        """More was heard; whether a look is due that was not due before."""
        if self.due != math.inf:
            return False
        self.due = self._looked_at + LOOK_EVERY
        return True

    def look(self, items: list[Item], now: float) -> Delta | None:
        """The change that makes the store hold what was heard of ``items``."""
        self.due, self._looked_at = math.inf, now
        self._view(items)
        return self.end(items)

    def end(self, items: list[Item]) -> Delta | None:
        """The change that makes the store hold ``items`` as they are."""
        change = difference(self._shown, items)
        self._shown = items
        return change
