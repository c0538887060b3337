"""Chunks on their way from a turn to its consumer: in order, each exactly once, or cut off.

    push ──▶ [memory object stream] ──▶ receive
      └───── unpark ─────▶ [parking lot] ──┘

A reader waits in the parking lot and takes its chunk from the stream in the step in which it goes on:
a native asyncio cancellation loses the item that a memory stream has handed to a waiting task (anyio #536).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, cast

import anyio

from micdrop_agent._core.parking import parking_lot

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeAlias

    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

    from micdrop_agent._core.parking import ParkingLot

    Streams: TypeAlias = tuple[MemoryObjectSendStream[str], MemoryObjectReceiveStream[str]]

__all__ = ["Pipe"]

IDLE_READER: Final = 30.0
"""Seconds without a chunk being read after which a reader is not waited for any more."""

LEFT_READER: Final = 5.0
"""The same when every chunk was handed over, but nobody has come to see that it was the last."""


class Pipe:
    """One producer, any number of readers one after the other.

    Args:
        took: Called with the number of characters that count as received, in the step in which they do.
        loop: The asyncio loop; ``None`` on Trio.
    """

    __slots__ = (
        "_inbox",
        "_loop",
        "_outbox",
        "_progress",
        "_readers",
        "_rest",
        "_room",
        "_took",
        "_uncounted",
        "counted",
        "cut",
        "drained",
        "over",
        "paused",
        "pending",
        "put_first",
        "read",
        "waiting",
    )

    def __init__(self, took: Callable[[int], None], loop: Any) -> None:
        self._took = took
        self._loop = loop
        self._outbox: MemoryObjectSendStream[str] | None = None
        self._inbox: MemoryObjectReceiveStream[str]
        self._rest: list[str] = []
        """What was unread at the end, the last chunk first."""
        self.pending = 0
        """Chunks that nobody has taken yet."""
        self.counted = 0
        """How many of them count as received."""
        self._uncounted = 0
        """Characters of the others."""
        self.waiting = 0
        """Readers that wait inside ``receive`` right now."""
        self.read = False
        """Whether anybody ever asked for a chunk."""
        self.over = False
        """Whether no chunk is added any more."""
        self.drained = False
        """Whether a reader has seen the end."""
        self.cut = False
        """Whether it was cut off before that."""
        self.paused = False
        """Whether readers wait although there may be chunks."""
        self.put_first = False
        """A subclass has something to hand over that comes before what is pending."""
        self._readers = parking_lot(loop)
        self._room: ParkingLot | None = None
        self._progress: ParkingLot | None = None

    # -- the producer's end

    def open(self) -> MemoryObjectSendStream[str]:
        """Make the stream; ``push()`` does it if nobody did it while there was time."""
        # Not create_memory_object_stream[str]: a typing alias that is called costs more than the streams.
        self._outbox, self._inbox = cast("Streams", anyio.create_memory_object_stream(math.inf))
        return self._outbox

    def open_early(self) -> None:
        """Make the stream now, unless it is there or no longer needed."""
        if self._outbox is None and not self.over:
            self.open()

    def push(self, chunk: str) -> None:
        """Add the next chunk; never waits."""
        outbox = self._outbox
        if outbox is None:
            outbox = self.open()
        outbox.send_nowait(chunk)
        self.pending += 1
        self._uncounted += len(chunk)
        if self.waiting:
            self._readers.unpark_all()

    @property
    def backlog(self) -> int:
        """Characters that nobody has received."""
        return self._uncounted

    def end(self) -> None:
        """No chunk follows; what is pending can still be received."""
        if self.over:
            return
        self.over = True
        # What nobody has read yet does not stay in the stream, which is closed with the answer's task.
        first = self._rest  # what was put back
        self._rest = [self._inbox.receive_nowait() for _ in range(self.pending - len(first))]
        self._rest.reverse()
        self._rest += first
        self._readers.unpark_all()

    def cut_off(self) -> None:
        """Nothing is received from now on, not even a chunk that was handed over but not yet taken."""
        self.cut = self.cut or not self.drained
        self.over = True
        self.paused = False
        self.pending = self.counted = self._uncounted = 0
        if self.waiting:
            self._readers.unpark_all()
        if self._room is not None or self._progress is not None:
            self.moved()

    def close(self) -> None:
        """Close both ends of the stream, for nobody uses them any more; wakes nobody.

        Not left to the garbage collector: in a cycle the stream may be finalized before the answer, and
        warn that it was never closed.
        """
        if self._outbox is not None:
            self._outbox.close()
            self._inbox.close()

    async def wait_for_room(self, size: int, given_up: Callable[[], bool]) -> None:
        """Wait until at most ``size`` chunks are pending, or ``given_up()`` is true."""
        while self.pending - self.counted > size and not self.cut and not given_up():
            if self._room is None:
                self._room = parking_lot(self._loop)
            await self._room.park()

    # -- a pause

    def pause(self) -> None:
        """Nothing is received from now on, not even a chunk that was handed over but not yet taken, until ``go_on()``."""
        self.paused = True

    def go_on(self) -> None:
        """What was held back by a pause can be received."""
        self.paused = False
        self._readers.unpark_all()
        self.moved()  # whoever waits for the end to be read begins to count

    async def wait_while_paused(self) -> None:
        """Wait for the end of a pause; returns at once if there is none."""
        while self.paused:
            await self.wait_for_progress()

    def put_back(self, text: str) -> None:
        """Have ``text``, which was received last, received again before anything else."""
        self._rest.append(text)
        self.pending += 1
        self._uncounted += len(text)
        self.drained = False

    # -- the consumer's end

    async def receive(self) -> str | None:
        """The next chunk; ``None`` at the end, and after it was cut off."""
        self.read = True
        self.waiting += 1
        try:
            if self.pending or self.over:
                await anyio.lowlevel.checkpoint()
            woken = False
            while self.paused or not (self.pending or self.over or self.put_first):
                await self._readers.park()
                woken = True
            if woken and not self.cut:
                # A reader whose scope was cancelled after it had been woken goes on as if it had not
                # been: it gets no chunk, and the next reader does.
                await anyio.lowlevel.checkpoint_if_cancelled()
        finally:
            self.waiting -= 1
        if self.pending:
            return self._take()
        if self.over and not self.cut:
            self._reached_end()
        return None

    def heard_in_original(self, heard: int | str | None) -> int | str | None:
        """What was heard of what was received, in the terms of the text that is stored: the same."""
        return heard

    def count_all(self) -> None:
        """What is pending counts as received, and stays there to be read."""
        self._took(self._uncounted)
        self._uncounted = 0
        self.counted = self.pending
        self.moved()

    @property
    def due(self) -> bool:
        """Whether a reader waits inside ``receive`` although a chunk is there."""
        return self.pending > 0 and self.waiting > 0

    @property
    def unread(self) -> bool:
        """Whether a chunk is pending that does not count as received."""
        return self.pending > self.counted

    async def wait_until_read(self, given_up: Callable[[], bool]) -> None:
        """Wait until a reader has seen the end, as long as it is worth waiting for one."""
        while not (self.drained or given_up()) and (self.unread or self.read):
            with anyio.move_on_after(IDLE_READER if self.unread else LEFT_READER) as idle:
                await self.wait_for_progress()
            if idle.cancelled_caught and not self.paused:
                return

    async def wait_for_progress(self) -> None:
        """Wait until a chunk is received, or the end is seen."""
        if self._progress is None:
            self._progress = parking_lot(self._loop)
        await self._progress.park()

    def moved(self) -> None:
        """Wake whoever waits for room or for progress, to look again."""
        if self._room is not None:
            self._room.unpark_all()
        if self._progress is not None:
            self._progress.unpark_all()

    def _reached_end(self) -> None:
        """A reader sees that no chunk follows."""
        self.drained = True
        self.moved()

    def _take(self) -> str:
        chunk = self._rest.pop() if self._rest else self._inbox.receive_nowait()
        self.pending -= 1
        if self.counted:
            self.counted -= 1
        else:
            self._uncounted -= len(chunk)
            self._took(len(chunk))
        self.moved()
        return chunk
