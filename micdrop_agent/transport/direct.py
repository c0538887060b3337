"""A small HTTP/1.1 client for one agent: a live connection, a spare one, no pool.

    post ──▶ the idle connection that waited longest, or a new one ──▶ send ──▶ head ──▶ DirectResponse
                      ▲                                                                    │ body at its end
                      └──────────────────────────── idle (two at most) ◀───────────────────┘

An agent has at most one live answer, so nothing is searched, queued or locked. A third connection is
opened when two answers overlap for a moment.

Invariants, pinned in tests/test_http_direct.py and tests/test_http_cancel.py:

1. A cancellation at any await closes the connection that was in use; nothing else is affected.
2. A connection is used again only if its last request was sent completely, and the response to it was read to the
   end and nothing followed it.
3. A kept connection that turns out dead before the first byte of a response, or expired, costs one retry on
   a new connection, at once; a new connection is never retried.
4. After ``aclose()`` no connection is open.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.lowlevel

from micdrop_agent._event_loop import running_loop
from micdrop_agent.errors import ProviderError
from micdrop_agent.transport.connection import connect_direct, open_connection
from micdrop_agent.transport.direct_response import DirectResponse, read_more
from micdrop_agent.transport.direct_send import SENT_FIRST_BYTES, response_refuses, send_request, send_while_reading
from micdrop_agent.transport.draining import Draining
from micdrop_agent.transport.parser import MAX_HEAD_BYTES, MAX_RESPONSE_BYTES, ResponseParser
from micdrop_agent.transport.request_head import RequestBytes, RequestHead
from micdrop_agent.transport.url import BaseUrl

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping

    from anyio.abc import ByteStream

    from micdrop_agent.transport.base import ConnectFn, Response
    from micdrop_agent.transport.connection import Connection

__all__ = ["DirectTransport"]

_MAX_IDLE: Final = 2

EXPIRED: Final = 408
"""Status with which proxies close an idle connection (HAProxy); on a new one it is the server's answer."""


class DirectTransport:
    """Posts to one server over connections of its own.

    Args:
        base_url: ``http://`` or ``https://``, with an optional path, query and credentials.
        connect: Opens connections in place of TCP and TLS; for tests.
        connect_timeout: Seconds until a connection stands, TLS included; ``None`` means no limit.
        keepalive: Seconds for which an idle connection may be used again.
        tls_context: In place of the one with the system's trusted certificates.
        max_head_bytes: Longest head of a response.
        max_response_bytes: Largest response.

    Raises:
        ValueError: ``base_url`` is not such a URL.
    """

    __slots__ = (
        "_closed",
        "_connect",
        "_connect_timeout",
        "_head",
        "_idle",
        "_keepalive",
        "_live",
        "_loop",
        "_max_head_bytes",
        "_max_response_bytes",
        "_now",
        "_tls_context",
        "_url",
        "_warming",
        "draining",
    )

    def __init__(
        self,
        base_url: str,
        *,
        connect: ConnectFn | None = None,
        connect_timeout: float | None = 2.0,
        keepalive: float = 60.0,
        tls_context: ssl.SSLContext | None = None,
        max_head_bytes: int = MAX_HEAD_BYTES,
        max_response_bytes: int = MAX_RESPONSE_BYTES,
    ) -> None:
        self._url = BaseUrl.parse(base_url)
        self._head = RequestHead(self._url)
        self._connect = self._connect_directly if connect is None else connect
        self._connect_timeout = connect_timeout
        self._keepalive = keepalive
        self._tls_context = tls_context
        self._max_head_bytes = max_head_bytes
        self._max_response_bytes = max_response_bytes
        self._idle: list[Connection] = []  # two at most
        self._live: list[Connection] = []
        self._warming: anyio.Event | None = None
        """Set once the connection that is being opened ahead is there, or failed."""
        self.draining = Draining()
        self._closed = False
        self._loop: object = None
        self._now: Callable[[], float] = anyio.current_time

    def __repr__(self) -> str:
        return f"DirectTransport({str(self._url)!r})"

    @property
    def needs_spare(self) -> bool:
        """Whether no idle connection is ready for the next request, nor on its way."""
        if self._warming is not None or self._closed:
            return False
        now = self._now()
        return not any(self._is_fresh(connection, now) for connection in self._idle)

    async def prewarm(self) -> None:
        """Open a connection ahead of the next request, unless one is ready or being opened.

        Raises:
            ProviderError: The server cannot be reached (``connection``, ``timeout``).
        """
        self._check_usable()
        if not self.needs_spare:
            return
        self._warming = anyio.Event()
        try:
            await self._close_stale()
            connection = await self._open()
            if not self._take_in(connection):
                await connection.aclose()
        finally:
            self._warming.set()
            self._warming = None

    async def post(
        self, path: str, headers: Mapping[str, str], body: bytes, while_waiting: Callable[[], None] | None = None
    ) -> Response:
        """Send a request and wait for the head of its response; see ``Transport.post``."""
        self._check_usable()
        request = RequestBytes(self._head.make(path, headers, len(body)) + body)
        connection = await self._take_idle()
        if connection is None and self.draining.active:
            await self.draining.wait_a_moment()
            connection = await self._take_idle()
        if connection is None and self._warming is not None:
            # Its handshake began earlier than one that we would begin now.
            await self._warming.wait()
            connection = await self._take_idle()
        if connection is not None:
            parser = self._new_parser()
            try:
                response = await self._exchange(connection, parser, request, while_waiting)
            except ProviderError:
                if parser.started or self._closed:
                    raise
                # The server had closed the connection while it was idle: no fault of this request.
            else:
                if response.status != EXPIRED:
                    return response
                # So a proxy says, to whatever comes next, that the idle connection has expired.
                await response.aclose()
        return await self._exchange(await self._open(), self._new_parser(), request, while_waiting)

    async def aclose(self) -> None:
        """Close every connection, also those of live responses. Idempotent."""
        self._closed = True
        every = [*self._idle, *self._live]
        self._idle.clear()
        self._live.clear()
        async with AsyncExitStack() as closing:  # each of them, also if one is interrupted
            for connection in every:
                closing.push_async_callback(connection.aclose)

    def _check_usable(self) -> None:
        if self._closed:
            raise RuntimeError(f"{self!r} is closed; it lives as long as its agent's `async with` block")
        # AnyIO's token and clock cost a dozen calls each, and are asked for at every request.
        loop: Any = running_loop() or anyio.lowlevel.current_token()
        if self._loop is None:
            self._loop = loop
            self._now = getattr(loop, "time", anyio.current_time)
        elif self._loop != loop:
            raise RuntimeError(
                f"{self!r} was used in another event loop before; open a new agent in each asyncio.run or trio.run"
            )

    def _new_parser(self) -> ResponseParser:
        return ResponseParser(max_head_bytes=self._max_head_bytes, max_response_bytes=self._max_response_bytes)

    async def _connect_directly(self, host: str, port: int, tls: bool) -> ByteStream:
        return await connect_direct(host, port, tls, self._tls_context)

    async def _open(self) -> Connection:
        url = self._url
        connection = await open_connection(self._connect, url.host, url.port, tls=url.tls, within=self._connect_timeout)
        if self._closed:
            await connection.aclose()
            raise ProviderError("the transport was closed while it was connecting", kind="connection")
        return connection

    def _is_fresh(self, connection: Connection, now: float) -> bool:
        idle = now - connection.idle_since
        return idle <= self._keepalive and idle <= connection.keepalive and not connection.looks_dead()

    async def _close_stale(self) -> None:
        now = self._now()
        stale = [connection for connection in self._idle if not self._is_fresh(connection, now)]
        for connection in stale:
            self._idle.remove(connection)
        for connection in stale:
            await connection.aclose()

    async def _take_idle(self) -> Connection | None:
        """An idle connection that may be used again.

        The one that waited longest comes first, so that turns keep the spare one alive too.
        """
        while self._idle:
            connection = self._idle.pop(0)
            if self._is_fresh(connection, self._now()):
                return connection
            await connection.aclose()
        return None

    def _take_in(self, connection: Connection) -> bool:
        """Keep a connection for the next request; False if it has to be closed."""
        if self._closed or connection.broken or len(self._idle) >= _MAX_IDLE:
            return False
        connection.idle_since = self._now()
        self._idle.append(connection)
        return True

    async def _exchange(
        self, connection: Connection, parser: ResponseParser, request: bytes, while_waiting: Callable[[], None] | None
    ) -> DirectResponse:
        """Send the request and read until the head of the response is there."""
        self._live.append(connection)
        try:
            if len(request) > SENT_FIRST_BYTES:
                await send_while_reading(connection, parser, request)
            else:
                await send_request(connection, request)
            if not parser.started:
                parser.begin()
            if while_waiting is not None:
                while_waiting()
            while not parser.head_complete:
                await read_more(connection, parser)
        except BaseException:
            parser.detach()
            await self.discard(connection)  # noqa: ASYNC102 - it shields and bounds itself
            raise
        if len(request) > SENT_FIRST_BYTES and response_refuses(parser):
            connection.broken = True  # the server may not have read what both systems took
        return DirectResponse(self, connection, parser)

    def take_back(self, connection: Connection) -> bool:
        """A response was read to its end: keep its connection, or say that it has to be closed."""
        if not self._take_in(connection):
            return False
        self._forget(connection)
        return True

    async def discard(self, connection: Connection) -> None:
        """Close a connection; shielded, bounded."""
        self._forget(connection)
        await connection.aclose()

    def _forget(self, connection: Connection) -> None:
        if connection in self._live:
            self._live.remove(connection)
