"""Where tasks wait until another one wakes them: Trio's parking lot, and the same for asyncio.

An ``anyio.Event`` serves once and is four objects on asyncio; a live answer waits for its next chunk
all the time. Here a waiting task costs one future. A wake-up without anybody waiting is not
remembered: whoever parks looks at the state first, and again when woken.

Source: ``trio.lowlevel.ParkingLot``.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import asyncio

__all__ = ["ParkingLot", "parking_lot"]


class ParkingLot(Protocol):
    """What both kinds can do."""

    async def park(self) -> None:
        """Wait until somebody else wakes this task."""

    def unpark_all(self) -> object:
        """Wake every task that waits here."""


class _LoopLot:
    """On asyncio.

    Args:
        loop: The event loop.
    """

    __slots__ = ("_loop", "_parked")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        # One future for each task: a cancelled task cancels the future that it waits for.
        self._parked: list[asyncio.Future[None]] = []

    async def park(self) -> None:
        future = self._loop.create_future()
        self._parked.append(future)
        try:
            await future
        finally:
            if future in self._parked:
                self._parked.remove(future)

    def unpark_all(self) -> None:
        parked = self._parked
        while parked:
            future = parked.pop(0)
            if not future.done():
                future.set_result(None)


def parking_lot(loop: Any) -> ParkingLot:
    """A lot for the tasks of ``loop``, an asyncio loop, or ``None`` on Trio."""
    lot: ParkingLot = sys.modules["trio"].lowlevel.ParkingLot() if loop is None else _LoopLot(loop)
    return lot
