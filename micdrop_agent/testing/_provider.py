"""A model server that follows a script, byte for byte, over memory or over loopback TCP.

    transport ──connect(host, port, tls)──▶ ScriptedProvider ──▶ Exchange ──▶ a reply of the script
    any client ──TCP (``listening()``)────▶        │
                                                   └──▶ ``requests``: what was asked, and how it ended

It speaks HTTP/1.1 with chunked bodies over any byte stream, so whole calls run in virtual time.
"""

# The kit looks inside on purpose.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import json
import socket
import struct
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import anyio
import anyio.abc
import attrs

from micdrop_agent._core.scopes import task_scope
from micdrop_agent.testing._streams import MemoryByteStream, memory_connection

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

Reply: TypeAlias = "Callable[[Exchange], Awaitable[None]]"
"""What the server does with one request."""

Script: TypeAlias = "Sequence[Reply] | Callable[[ReceivedRequest], Reply]"
"""The replies in order, or a function that picks one."""


@attrs.define(eq=False)
class ReceivedRequest:
    """One HTTP request as the server got it, and what became of it.

    Attributes:
        number: 0 for the first request of this host.
        host: Host that the client connected to; distinguishes children of a fallback.
        path: Path of the request.
        headers: Headers, names in lower case.
        body: The decoded JSON body; ``None`` if there was none.
        connection: Number of the connection it came on.
        closed_by_client: The client closed the connection before the reply was complete.
        finished: The reply came to its end.
        overlap: How many requests were unanswered when it came, itself included.
    """

    number: int
    host: str
    path: str
    headers: dict[str, str]
    body: Any
    connection: int
    overlap: int = 1
    closed_by_client: bool = False
    finished: bool = False
    closed: anyio.Event = attrs.Factory(anyio.Event)


class Exchange:
    """The server's side of one request: what a reply writes to."""

    def __init__(self, request: ReceivedRequest, stream: anyio.abc.ByteStream) -> None:
        self.request = request
        self._stream = stream
        self.head_sent: bool = False
        self.complete: bool = False

    async def head(self, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        """Send the status line and the headers, once."""
        if self.head_sent:
            return
        self.head_sent = True
        fields = {"content-type": "text/event-stream", **(headers or {}), "transfer-encoding": "chunked"}
        try:
            reason = HTTPStatus(status).phrase
        except ValueError:
            reason = "Unknown"
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        await self._stream.send(f"HTTP/1.1 {status} {reason}\r\n{lines}\r\n".encode())

    async def send(self, data: bytes) -> None:
        """Send one piece of the body, in one write."""
        await self.head()
        if data:
            await self._stream.send(b"%x\r\n%s\r\n" % (len(data), data))

    async def end(self) -> None:
        """End the body properly; the connection stays open for the next request."""
        await self.head()
        self.complete = True
        await self._stream.send(b"0\r\n\r\n")

    async def until_closed(self) -> None:
        """Stay silent until the client closes the connection."""
        await anyio.sleep_forever()

    async def reset(self) -> None:
        """Break the connection (TCP RST) once the client has read what was sent."""
        if isinstance(self._stream, MemoryByteStream):
            self._stream.reset()
            return
        await anyio.sleep(0.02)
        raw = self._stream.extra(anyio.abc.SocketAttribute.raw_socket)  # noqa: S610  # not Django's
        with suppress(OSError):  # the client was faster, and the socket is closed
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await anyio.aclose_forcefully(self._stream)


class _Connection:
    """Reads requests, and notices at once when the client goes."""

    def __init__(self, stream: anyio.abc.ByteStream) -> None:
        self.stream = stream
        self._buffer = b""
        self._gone = False
        self._more = anyio.Event()
        self.reply_scope: anyio.CancelScope | None = None

    async def pump(self) -> None:
        try:
            while True:
                received = await self.stream.receive()
                self._buffer += received
                self._wake()
        except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            self._gone = True
            self._wake()
            if self.reply_scope is not None:
                self.reply_scope.cancel()

    def _wake(self) -> None:
        self._more.set()
        self._more = anyio.Event()

    async def _until(self, ready: Callable[[], bool]) -> bool:
        while not ready():
            if self._gone:
                return False
            await self._more.wait()
        return True

    async def read(self) -> tuple[str, dict[str, str], Any] | None:
        """Path, headers and JSON body of the next request; ``None`` once the client is gone."""
        if not await self._until(lambda: b"\r\n\r\n" in self._buffer):
            return None
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in lines)
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        length = int(headers.get("content-length", "0"))
        if not await self._until(lambda: len(self._buffer) >= length):
            return None
        body, self._buffer = self._buffer[:length], self._buffer[length:]
        return first.split(" ")[1], headers, json.loads(body) if body else None


class ScriptedProvider:
    """A model server for tests: an async context manager that plays a script and records requests.

    Hand ``provider.connect`` to a transport (or to a model agent's ``connect=``) and use any host name in the
    base URL; or serve real clients with ``async with provider.listening() as base_url``.

    Args:
        script: Replies in order, the last one repeated; a function from request to reply; or, for several
            hosts, a mapping from host name to one of these.
        connect_delay: Seconds that a connection takes to be made.

    Attributes:
        requests: Every request, in order of arrival.
        connections: Connections accepted so far.
        open_connections: Connections that neither side has closed.
        open_by_host: The same for each host.
        refuse: Connections that are still to be refused.
    """

    base_url: Final = "http://provider.test/v1"

    def __init__(self, script: Script | Mapping[str, Script], *, connect_delay: float = 0.0) -> None:
        self._script = script
        self._connect_delay = connect_delay
        self._group: anyio.abc.TaskGroup | None = None
        self._changed = anyio.Event()
        self.requests: list[ReceivedRequest] = []
        self.on_request: Callable[[ReceivedRequest], object] | None = None
        self.connections: int = 0
        self.open_connections: int = 0
        self.open_by_host: dict[str, int] = {}
        self.refuse: int = 0

    async def __aenter__(self) -> Self:
        self._group = anyio.create_task_group()
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        assert self._group is not None
        self._group.cancel_scope.cancel()
        if isinstance(error, Exception):
            # The group would wrap the caller's own error; it leaves as itself when the group does not see it.
            await self._group.__aexit__(None, None, None)  # noqa: ASYNC102 - this is the end of a group
            return None
        return await self._group.__aexit__(kind, error, trace)  # noqa: ASYNC102 - this is the end of a group

    async def connect(self, host: str = "provider.test", port: int = 80, tls: bool = False) -> anyio.abc.ByteStream:
        """Open a connection in memory.

        Raises:
            ConnectionRefusedError: ``refuse`` says so.
        """
        del port, tls
        await anyio.sleep(self._connect_delay)
        if self.refuse > 0:
            self.refuse -= 1
            raise ConnectionRefusedError(f"{host} refused the connection, as scripted")
        if self._group is None:
            raise RuntimeError("enter the ScriptedProvider with `async with` first")
        client, server = memory_connection()
        self._group.start_soon(self._serve_alone, server, host)
        return client

    @asynccontextmanager
    async def listening(self) -> AsyncGenerator[str]:
        """Serve on a free loopback port as well; gives the base URL."""
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        port = listener.extra(anyio.abc.SocketAttribute.local_port)  # noqa: S610  # not Django's

        async def serve(stream: anyio.abc.ByteStream) -> None:
            await self._serve(stream, "127.0.0.1")

        async with listener, anyio.create_task_group() as group:
            group.start_soon(listener.serve, serve)
            yield f"http://127.0.0.1:{port}/v1"
            group.cancel_scope.cancel()

    async def until(self, ready: Callable[[], bool]) -> None:
        """Wait until ``ready()`` is true; it is asked again after each request and each end of one."""
        while not ready():
            await self._changed.wait()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def _serve_alone(self, stream: anyio.abc.ByteStream, host: str) -> None:
        with task_scope():  # the user of this server may be cancelled natively
            await self._serve(stream, host)

    async def _serve(self, stream: anyio.abc.ByteStream, host: str) -> None:
        self.connections += 1
        self.open_connections += 1
        self.open_by_host[host] = self.open_by_host.get(host, 0) + 1
        number = self.connections
        connection = _Connection(stream)
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(connection.pump)
                while (received := await connection.read()) is not None:
                    if not await self._exchange(connection, host, number, received):
                        break
                group.cancel_scope.cancel()
        finally:
            self.open_connections -= 1
            self.open_by_host[host] -= 1
            with anyio.CancelScope(shield=True):
                await anyio.aclose_forcefully(stream)
            self._notify()

    async def _exchange(
        self, connection: _Connection, host: str, number: int, received: tuple[str, dict[str, str], Any]
    ) -> bool:
        path, headers, body = received
        same_host = sum(1 for request in self.requests if request.host == host)
        request = ReceivedRequest(same_host, host, path, headers, body, number)
        self.requests.append(request)
        request.overlap = sum(1 for other in self.requests if not other.closed.is_set())
        if self.on_request is not None:
            self.on_request(request)
        self._notify()
        exchange = Exchange(request, connection.stream)
        scope = connection.reply_scope = anyio.CancelScope()
        if connection._gone:
            scope.cancel()
        try:
            with scope:
                await self._pick(request)(exchange)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            scope.cancel()
        connection.reply_scope = None
        request.finished = not scope.cancel_called
        request.closed_by_client = scope.cancel_called and not exchange.complete
        request.closed.set()
        self._notify()
        return exchange.complete

    def _pick(self, request: ReceivedRequest) -> Reply:
        script: Any = self._script
        if isinstance(script, Mapping):
            script = cast("Mapping[str, Script]", script)[request.host]
        if callable(script):
            return cast("Reply", script(request))
        return cast("Reply", script[min(request.number, len(script) - 1)])
