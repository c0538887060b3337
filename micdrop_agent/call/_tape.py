"""What comes once and may be needed again: audio and text for one attempt after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

import anyio
from anyio.abc import ObjectReceiveStream

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Reader", "Tape"]

T = TypeVar("T")


class Tape(Generic[T]):
    """Everything that has come from ``source``.

    Args:
        source: Where it comes from; read by whoever needs the next item, and by nobody else.
        on_item: Called with each item as it comes.
        on_end: Called when the source has ended.
    """

    def __init__(
        self,
        source: ObjectReceiveStream[T],
        on_item: Callable[[T], object] = lambda _: None,
        on_end: Callable[[], object] = lambda: None,
    ) -> None:
        self.items: list[T] = []
        self.ended = False
        self._source = source
        self._on_item = on_item
        self._on_end = on_end
        self._lock = anyio.Lock()

    async def get(self, index: int) -> T:
        """The item at ``index``; waits until it has come.

        Raises:
            anyio.EndOfStream: There are fewer.
        """
        await anyio.lowlevel.checkpoint()
        while len(self.items) <= index:
            # One reader at a time, and the others look again afterwards.
            async with self._lock:
                if len(self.items) <= index:
                    await self._take()
        return self.items[index]

    async def _take(self) -> None:
        if self.ended:
            raise anyio.EndOfStream
        try:
            item = await self._source.receive()
        except anyio.EndOfStream:
            self.ended = True
            self._on_end()
            raise
        self.items.append(item)
        self._on_item(item)

    async def play(self) -> None:
        """Take everything as it comes, whether or not somebody needs it yet."""
        index = len(self.items)
        try:
            while True:
                await self.get(index)
                index += 1
        except anyio.EndOfStream:
            return


class Reader(ObjectReceiveStream[T]):
    """Reads a tape from some place on.

    Args:
        tape: What is read.
        start: Index of the first item.
        first: Read in place of that item.
        took: Called with the index of each item that is read.
    """

    def __init__(
        self,
        tape: Tape[T],
        start: int = 0,
        *,
        first: T | None = None,
        took: Callable[[int, T], object] = lambda _index, _item: None,
    ) -> None:
        self._tape = tape
        self._next = start
        self._first = first
        self._took = took

    async def receive(self) -> T:
        """The next item.

        Raises:
            anyio.EndOfStream: There is none.
        """
        item = await self._tape.get(self._next)
        if self._first is not None:
            item, self._first = self._first, None
        self._took(self._next, item)
        self._next += 1
        return item

    async def aclose(self) -> None:
        """Nothing more is read; the tape stays."""
        await anyio.lowlevel.checkpoint()
