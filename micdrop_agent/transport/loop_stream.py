"""A TCP stream on an asyncio loop that costs less per read than AnyIO's own.

    connect ──▶ create_connection (an address) ───────────────▶ LoopStream
       └──────▶ anyio.connect_tcp (a name) ──▶ SocketStream ──▶ LoopStream, on the same transport

AnyIO connects to names (every address of the host, the quickest wins), and its stream pauses the
transport after each read: two system calls and two turns of the selector for a chunk. This one reads
all the time and pauses only when nobody takes what came. While a connection is idle it therefore also
hears that the server has closed it. It reads into one buffer of the loop: a transport that makes the
bytes itself asks the system for 256 KiB at each read, and gives it back (about 15 µs).

Invariants, pinned in tests/test_http_loop_stream.py:

1. No byte is lost or doubled, also when a reader is cancelled, natively too, in the step in which it came.
2. At most ``MOST_WAITING`` bytes and one network read wait here.
3. After ``close_now()`` the socket is closed with the loop's next turn.
"""

from __future__ import annotations

import asyncio
import os
import socket
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

import anyio
from anyio.abc import ByteStream, SocketAttribute

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["LoopStream", "connect", "quicken"]

MOST_WAITING: Final = 256 * 1024
"""Bytes that wait for a reader before the transport is paused."""

READ_BYTES: Final = 64 * 1024
"""Most bytes of one network read."""

_buffers: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, memoryview]] = WeakKeyDictionary()


def _buffer_of(loop: asyncio.AbstractEventLoop) -> memoryview:
    """Where the connections of ``loop`` are read into: bytes stay there for no longer than a callback.

    Not on Windows, where a read may be under way for as long as the connection is idle.
    """
    if os.name != "posix":
        return memoryview(bytearray(READ_BYTES))
    buffer = _buffers.get(loop)
    if buffer is None:
        buffer = _buffers[loop] = memoryview(bytearray(READ_BYTES))
    return buffer


class LoopStream(ByteStream, asyncio.BufferedProtocol):
    """A connected TCP stream; for one reader and one writer at a time.

    Args:
        transport: Connected, with reading paused; left out where this is made as a new connection's protocol.
    """

    __slots__ = (
        "_buffer",
        "_closed",
        "_data",
        "_error",
        "_loop",
        "_lost",
        "_may_write",
        "_paused",
        "_reader",
        "_transport",
        "_writer",
    )

    def __init__(self, transport: Any = None) -> None:
        self._transport: Any = transport
        self._loop = asyncio.get_running_loop()
        self._buffer = _buffer_of(self._loop)
        self._data = b""
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None
        self._may_write = True
        self._paused = False
        self._closed = False
        self._lost = False
        self._error: Exception | None = None

    # -- what the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - the protocol's signature
        """The buffer that the loop's streams share."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Take what was read into the shared buffer."""
        self.data_received(self._buffer[:nbytes].tobytes())

    def data_received(self, data: bytes) -> None:
        """Append ``data``; stop reading when too much waits."""
        self._data = self._data + data if self._data else data
        if len(self._data) > MOST_WAITING and not self._paused:
            self._paused = True
            self._transport.pause_reading()
        self._wake_reader()

    def eof_received(self) -> None:  # the transport closes itself: nothing is sent into half a connection
        """The server sends nothing more."""
        self._lost = True
        self._wake_reader()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed; wake whoever waits for it."""
        self._lost = True
        self._error = exc
        self._wake_reader()
        self.resume_writing()

    def pause_writing(self) -> None:
        """The transport's buffer is full."""
        self._may_write = False

    def resume_writing(self) -> None:
        """The transport's buffer has room again."""
        self._may_write = True
        writer, self._writer = self._writer, None
        if writer is not None and not writer.done():
            writer.set_result(None)

    def _wake_reader(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None and not reader.done():
            reader.set_result(None)

    # -- the stream

    @property
    def disturbed(self) -> bool:
        """Whether the server has closed an idle connection, or said something without being asked."""
        return bool(self._lost or self._data) or self._transport.is_closing()

    async def receive(self, max_bytes: int = 65_536) -> bytes:
        """What came, at most ``max_bytes`` of it.

        Raises:
            EndOfStream, BrokenResourceError, ClosedResourceError, BusyResourceError: As AnyIO's.
        """
        if self._data:
            await anyio.lowlevel.checkpoint()
        while not self._data:
            self._check_readable()
            self._reader = self._loop.create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        data = self._data
        if len(data) > max_bytes:
            data, self._data = data[:max_bytes], data[max_bytes:]
        else:
            self._data = b""
        if self._paused and len(self._data) <= MOST_WAITING and not self._lost:
            self._paused = False
            self._transport.resume_reading()
        return data

    def _check_readable(self) -> None:
        if self._closed:
            raise anyio.ClosedResourceError
        if self._reader is not None:
            raise anyio.BusyResourceError("reading from")
        if self._error is not None:
            raise anyio.BrokenResourceError from self._error
        if self._lost:
            raise anyio.EndOfStream

    async def send(self, item: bytes) -> None:
        """Send ``item``, and wait until the system has taken it.

        Raises:
            BrokenResourceError, ClosedResourceError: As AnyIO's.
        """
        await anyio.lowlevel.checkpoint_if_cancelled()
        self._check_writable()
        self._transport.write(item)
        while not self._may_write:
            self._writer = self._loop.create_future()
            await self._writer
            self._check_writable()

    def _check_writable(self) -> None:
        if self._closed:
            raise anyio.ClosedResourceError
        if self._lost or self._transport.is_closing():
            raise anyio.BrokenResourceError from self._error

    async def send_eof(self) -> None:
        """Not needed for HTTP: a request says itself where it ends."""
        raise NotImplementedError

    def close_now(self) -> None:
        """Close, without a farewell and without waiting; idempotent."""
        if not self._closed:
            self._closed = self._lost = True
            self._transport.abort()
            self._wake_reader()

    async def aclose(self) -> None:
        """As ``close_now()``, then a checkpoint."""
        self.close_now()
        await anyio.lowlevel.checkpoint()

    @property
    def extra_attributes(self) -> Mapping[Any, Callable[[], Any]]:
        """The socket, and the addresses of both sides."""
        info = self._transport.get_extra_info
        return {
            SocketAttribute.raw_socket: lambda: info("socket"),
            SocketAttribute.local_address: lambda: info("sockname"),
            SocketAttribute.remote_address: lambda: info("peername"),
            SocketAttribute.remote_port: lambda: info("peername")[1],
        }


async def connect(host: str, port: int) -> ByteStream:
    """Connect to ``host``, a name or an address.

    Raises:
        OSError: No address of it can be reached.
    """
    if not _is_address(host):
        return quicken(await anyio.connect_tcp(host, port))
    # One address: there is nothing to look up and nothing to choose from.
    loop = asyncio.get_running_loop()
    _, stream = await loop.create_connection(LoopStream, host, port)
    return stream


def _is_address(host: str) -> bool:
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except (OSError, ValueError):
            continue
        return True
    return False


def quicken(stream: ByteStream) -> ByteStream:
    """``stream``, just connected by AnyIO, with our protocol on its transport; as it is where that cannot be."""
    # Not public. Without them, or with another protocol than the one known here, AnyIO's stream is as good.
    transport: Any = getattr(stream, "_transport", None)
    event: Any = getattr(getattr(stream, "_protocol", None), "read_event", None)
    if not hasattr(transport, "set_protocol") or event is None or event.is_set() or transport.is_closing():
        return stream
    quick = LoopStream(transport)
    transport.set_protocol(quick)
    transport.resume_reading()
    return quick
