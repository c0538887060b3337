"""How fast the frames of one client are read, so that a flood costs its own call and no other (C7). No I/O."""

from __future__ import annotations

from typing import Final

from micdrop_agent.call._frames import BYTES_PER_SECOND

__all__ = ["Budget"]

FRAMES: Final = 400
"""Frames that may come at once: ten seconds of speech, queued while the network stood still, and more."""

FRAMES_PER_SECOND: Final = 200
"""A speaking browser sends ten; a gateway with frames of 10 ms sends a hundred."""

BYTES: Final = 32 * BYTES_PER_SECOND
BYTES_REFILL: Final = 10 * BYTES_PER_SECOND


MOST_WAITED: Final = 15.0
"""Seconds that a client may be ahead of what is read; beyond that its call ends, so that one who sends a flood and
leaves keeps no call alive: whoever reads slowly also learns late that nobody is there."""


class Budget:
    """A token bucket of frames and one of bytes."""

    __slots__ = ("_at", "_bytes", "_frames", "_waited")

    def __init__(self, now: float) -> None:
        self._at = now
        self._waited = 0.0
        self._frames: float = FRAMES
        self._bytes: float = BYTES

    def spend(self, count: int, now: float) -> float:
        """A frame of ``count`` bytes was read; returns the seconds to wait before the next one."""
        passed, self._at = now - self._at, now
        self._frames = min(FRAMES, self._frames + passed * FRAMES_PER_SECOND) - 1
        self._bytes = min(BYTES, self._bytes + passed * BYTES_REFILL) - count
        pause = max(0.0, -self._frames / FRAMES_PER_SECOND, -self._bytes / BYTES_REFILL)
        self._waited = 0.0 if self._frames > FRAMES // 2 else self._waited + pause
        return pause

    @property
    def is_flood(self) -> bool:
        """Whether the client has been too fast for too long."""
        return self._waited > MOST_WAITED
