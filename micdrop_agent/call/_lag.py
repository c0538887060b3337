"""How late the event loop runs its timers: what every call of a process feels when it has too much to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import anyio

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["LoopLag"]

EVERY: Final = 0.1
"""Seconds between two looks."""

SHARE: Final = 0.2
"""Weight of the newest look: one long pause is forgotten after about a second, a full processor is not."""


class LoopLag:
    """Measures the lag of the event loop while ``run()`` runs.

    Attributes:
        seconds: How late timers are at present, smoothed.
    """

    __slots__ = ("seconds",)

    def __init__(self) -> None:
        self.seconds = 0.0

    async def run(self, clock: Callable[[], float]) -> None:
        """Measure until cancelled."""
        while True:
            due = clock() + EVERY
            await anyio.sleep(EVERY)
            self.note(clock() - due)

    def note(self, late: float) -> None:
        """A timer was that many seconds late."""
        self.seconds += (max(0.0, late) - self.seconds) * SHARE
