"""Reading a response to its end for the sake of its connection, beside the answer; no I/O.

A response that has said everything is drained in the background (docs/design.md D14). The next request may come
before that is done: a tool step asks again at once. Then a moment's wait is cheaper than a new connection.
"""

from __future__ import annotations

from typing import Final

import anyio

__all__ = ["DRAIN_PATIENCE_S", "Draining"]

DRAIN_PATIENCE_S: Final = 0.005
"""Longest that a request waits for the end of the last response: less than a handshake takes, and mostly 0.1 ms."""


class Draining:
    """Knows whether a response is being drained."""

    __slots__ = ("_ended",)

    def __init__(self) -> None:
        self._ended: anyio.Event | None = None

    @property
    def active(self) -> bool:
        """Whether a connection may come back in a moment."""
        return self._ended is not None

    def begin(self) -> anyio.Event:
        """A response is about to be drained; of several, the latest counts. Pass what this returns to ``end()``."""
        self._ended = anyio.Event()
        return self._ended

    def end(self, begun: anyio.Event) -> None:
        """Its connection has come back, or will not."""
        begun.set()
        if self._ended is begun:
            self._ended = None

    async def wait_a_moment(self) -> None:
        """Wait for the connection that is coming back, but not for long."""
        if self._ended is not None:
            with anyio.move_on_after(DRAIN_PATIENCE_S):
                await self._ended.wait()
