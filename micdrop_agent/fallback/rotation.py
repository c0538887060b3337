"""In which order the children of a supervisor are asked within one piece of work. No I/O.

Each child comes at most once (one full rotation), the healthy ones first, the least bad of the
others last: the last child is never out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from micdrop_agent.fallback.health import HealthRegistry

__all__ = ["Rotation", "SlotLike"]

_RANK: Final = {"closed": 0, "half_open": 1, "open": 2}


class SlotLike(Protocol):
    """The place of one child."""

    index: int
    key: str


S = TypeVar("S", bound="SlotLike")


class Rotation(Generic[S]):
    """The children that this piece of work has not asked yet.

    Args:
        slots: All of them, in the order of the application.
        health: Who is in and out.
        start: Index of the one that is preferred.
    """

    def __init__(self, slots: Sequence[S], health: HealthRegistry, start: int) -> None:
        self._health = health
        ring = [slots[(start + step) % len(slots)] for step in range(len(slots))]
        self._left: list[S] = sorted(ring, key=self._how_bad)
        self.first: S = self._left[0]

    def _how_bad(self, slot: S) -> tuple[int, float]:
        return _RANK[self._health.state(slot.key)], self._health.seconds_until_retry(slot.key)

    def __bool__(self) -> bool:
        return bool(self._left)

    def peek(self) -> S | None:
        """The child that is next."""
        return self._left[0] if self._left else None

    def take(self) -> S:
        """The child that is next; it is not offered again."""
        return self._left.pop(0)

    def take_healthy(self) -> S | None:
        """The next child that is not out, for a hedge; ``None`` if there is none."""
        for slot in self._left:
            if self._health.state(slot.key) != "open":
                self._left.remove(slot)
                return slot
        return None

    def take_probe(self, healthy: S) -> S | None:
        """A child in front of ``healthy`` that was out and may be tried again."""
        for slot in self._left:
            if slot.index < healthy.index and self._health.state(slot.key) == "half_open":
                self._left.remove(slot)
                return slot
        return None

    def has_healthy(self) -> bool:
        """Whether one of the children that are left could be asked at once."""
        return any(self._health.state(slot.key) == "closed" for slot in self._left)

    def clear(self) -> None:
        """Nobody else is asked."""
        self._left.clear()
