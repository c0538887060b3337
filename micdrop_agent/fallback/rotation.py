"""In which order the children of a ``FallbackAgent`` are asked within one answer. No I/O.

Each child comes at most once (one full rotation), the healthy ones first, the least bad of the
others last: the last child is never out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from micdrop_agent.fallback.agent import FallbackAgent, Slot
    from micdrop_agent.fallback.health import HealthRegistry

__all__ = ["Rotation"]

_RANK: Final = {"closed": 0, "half_open": 1, "open": 2}


class Rotation:
    """The children of ``agent`` that this answer has not asked yet."""

    def __init__(self, agent: FallbackAgent) -> None:
        self._health: HealthRegistry = agent.health
        slots = agent._slots
        start = 0 if agent.prefer == "first" else agent._active
        ring = [slots[(start + step) % len(slots)] for step in range(len(slots))]
        self._left = sorted(ring, key=self._how_bad)
        self.first = self._left[0]

    def _how_bad(self, slot: Slot) -> tuple[int, float]:
        return _RANK[self._health.state(slot.key)], self._health.badness(slot.key)

    def __bool__(self) -> bool:
        return bool(self._left)

    def peek(self) -> Slot | None:
        """The child that is next."""
        return self._left[0] if self._left else None

    def take(self) -> Slot:
        """The child that is next; it is not offered again."""
        return self._left.pop(0)

    def take_healthy(self) -> Slot | None:
        """The next child that is not out, for a hedge; ``None`` if there is none."""
        for slot in self._left:
            if self._health.state(slot.key) != "open":
                self._left.remove(slot)
                return slot
        return None

    def take_probe(self, healthy: Slot) -> Slot | None:
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
