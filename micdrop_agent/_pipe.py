"""Chunks on their way from a turn to its consumer: in order, each exactly once, or cut off.

    push ──▶ pending ──▶ receive
      └──▶ [memory object stream] ──┘   the stream carries the wake-ups

The chunks themselves wait in ``pending``, because a native asyncio cancellation can lose the item
that a memory stream had just handed over (anyio #536): here it loses a wake-up, which is sent again.
"""

from __future__ import annotations

import math
from collections import deque
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, cast

import anyio

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

    Streams: TypeAlias = tuple[MemoryObjectSendStream[str], MemoryObjectReceiveStream[str]]

__all__ = ["Pipe"]


class Pipe:
    """One producer, any number of readers one after the other.

    Args:
        took: Called with each chunk in the step in which it counts as received.
    """

    def __init__(self, took: Callable[[str], None]) -> None:
        self._took = took
        # Not create_memory_object_stream[str]: a typing alias that is called costs more than the streams.
        self.outbox, self.inbox = cast("Streams", anyio.create_memory_object_stream(math.inf))
        self.pending: deque[str] = deque()
        self.waiting = 0
        """Readers that wait inside ``receive`` right now."""
        self.read = False
        """Whether anybody ever asked for a chunk."""
        self.drained = False
        """Whether a reader has seen the end."""
        self.cut = False
        """Whether it was cut off before that."""
        self.counted = 0
        self._room: anyio.Event | None = None
        self._progress: anyio.Event | None = None

    # -- the producer's end

    def push(self, chunk: str) -> None:
        """Add the next chunk; never waits."""
        self.pending.append(chunk)
        self.outbox.send_nowait(chunk)

    def end(self) -> None:
        """No chunk follows; what is pending can still be received."""
        self.outbox.close()
        # An answer nobody reads ends as garbage in a cycle, where the stream may be finalized before
        # the answer, and would warn that it was never closed. What is left is read from pending.
        self.inbox.close()

    def cut_off(self) -> None:
        """Nothing is received from now on, not even a chunk that was handed over but not yet taken."""
        self.cut = self.cut or not self.drained
        self.outbox.close()
        if not self.waiting:  # else the reader does it: cancel() has not the time
            self.inbox.close()
        self.pending.clear()
        self.counted = 0
        if self._room is not None or self._progress is not None:
            self.moved()

    async def wait_for_room(self, size: int, given_up: Callable[[], bool]) -> None:
        """Wait until at most ``size`` chunks are pending, or ``given_up()`` is true."""
        while len(self.pending) - self.counted > size and not self.cut and not given_up():
            if self._room is None:
                self._room = anyio.Event()
            await self._room.wait()

    # -- the consumer's end

    async def receive(self) -> str | None:
        """The next chunk; ``None`` at the end, and after it was cut off."""
        self.read = True
        self.waiting += 1
        waits = not self.pending
        try:
            await self.inbox.receive()  # at least as many wake-ups as there are chunks
            while not self.pending and not self.cut:
                await self.inbox.receive()
            # A reader whose scope was cancelled after its chunk had been handed over is woken as if it
            # had not been: it gets no chunk, and the next reader does.
            if waits:
                await anyio.lowlevel.checkpoint_if_cancelled()
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            pass
        except BaseException:  # seen and raised on: a native cancellation too
            self._reader_lost()
            raise
        finally:
            self.waiting -= 1
        if self.cut:
            self.inbox.close()
            return None
        if self.pending:
            return self._take()
        self.drained = True
        self.moved()
        return None

    def count_all(self) -> None:
        """What is pending counts as received, and stays there to be read."""
        for chunk in islice(self.pending, self.counted, None):
            self._took(chunk)
        self.counted = len(self.pending)
        self.moved()

    @property
    def unread(self) -> bool:
        """Whether a chunk is pending that does not count as received."""
        return len(self.pending) > self.counted

    async def wait_for_progress(self) -> None:
        """Wait until a chunk is received, or the end is seen."""
        self._progress = anyio.Event()
        await self._progress.wait()

    def moved(self) -> None:
        """Wake whoever waits for room or for progress, to look again."""
        if self._room is not None:
            self._room.set()
            self._room = None
        if self._progress is not None:
            self._progress.set()
            self._progress = None

    def _take(self) -> str:
        chunk = self.pending.popleft()
        if self.counted:
            self.counted -= 1
        else:
            self._took(chunk)
        self.moved()
        return chunk

    def _reader_lost(self) -> None:
        """A reader was cancelled."""
        if self.cut:
            self.inbox.close()
        elif len(self.pending) > self.inbox.statistics().current_buffer_used:
            # The wake-up for a chunk that is still here went with it.
            with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
                self.outbox.send_nowait("")  # a closed stream wakes everybody
