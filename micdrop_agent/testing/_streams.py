"""A network in memory: two byte streams, each the other's far end.

Whatever is sent in one call is received in one call (or less), so every cut of a script is seen by the reader.
"""

from __future__ import annotations

from collections import deque

import anyio
import anyio.abc
import anyio.lowlevel
import attrs


@attrs.define(eq=False)
class _Pipe:
    """One direction."""

    pieces: deque[bytes] = attrs.field(factory=deque[bytes])
    ended: bool = False
    broken: bool = False
    reader_gone: bool = False
    changed: anyio.Event = attrs.Factory(anyio.Event)

    def notify(self) -> None:
        self.changed.set()
        self.changed = anyio.Event()


class MemoryByteStream(anyio.abc.ByteStream):
    """One end of a connection in memory; made by ``memory_connection``.

    Attributes:
        closed: Whether this end was closed.
    """

    def __init__(self, incoming: _Pipe, outgoing: _Pipe) -> None:
        self._incoming = incoming
        self._outgoing = outgoing
        self.closed: bool = False

    async def receive(self, max_bytes: int = 65536) -> bytes:
        """The bytes of one ``send`` of the far end, or the first ``max_bytes`` of them.

        Raises:
            anyio.EndOfStream: The far end has sent everything.
            anyio.BrokenResourceError: The far end reset the connection.
            anyio.ClosedResourceError: This end is closed.
        """
        await anyio.lowlevel.checkpoint()
        pipe = self._incoming
        while not self.closed and not pipe.pieces and not pipe.ended and not pipe.broken:
            await pipe.changed.wait()
        if self.closed:
            raise anyio.ClosedResourceError
        if pipe.broken and not pipe.pieces:
            raise anyio.BrokenResourceError
        if not pipe.pieces:
            raise anyio.EndOfStream
        piece = pipe.pieces.popleft()
        if len(piece) > max_bytes:
            pipe.pieces.appendleft(piece[max_bytes:])
        return piece[:max_bytes]

    async def send(self, item: bytes) -> None:
        """Hand ``item`` to the far end.

        Raises:
            anyio.BrokenResourceError: The far end is closed or was reset.
            anyio.ClosedResourceError: This end is closed.
        """
        await anyio.lowlevel.checkpoint()
        if self.closed or self._outgoing.ended:
            raise anyio.ClosedResourceError
        if self._outgoing.reader_gone or self._outgoing.broken:
            raise anyio.BrokenResourceError
        if item:
            self._outgoing.pieces.append(bytes(item))
            self._outgoing.notify()

    async def send_eof(self) -> None:
        """Say that nothing more will be sent."""
        await anyio.lowlevel.checkpoint()
        self._outgoing.ended = True
        self._outgoing.notify()

    async def aclose(self) -> None:
        """Close both directions at once; works in a cancelled scope too."""
        self.close()
        await anyio.lowlevel.checkpoint()

    def close(self) -> None:
        """Close both directions, without awaiting."""
        if self.closed:
            return
        self.closed = True
        self._outgoing.ended = True
        self._incoming.reader_gone = True
        self._outgoing.notify()
        self._incoming.notify()

    def reset(self) -> None:
        """Break the connection, as a TCP RST does once the far end has read what was sent."""
        self._outgoing.broken = True
        self.close()


def memory_connection() -> tuple[MemoryByteStream, MemoryByteStream]:
    """Two connected ends."""
    there, back = _Pipe(), _Pipe()
    return MemoryByteStream(there, back), MemoryByteStream(back, there)
