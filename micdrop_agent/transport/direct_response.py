"""The response of the direct transport: read by hand, its connection given back at the body's end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import anyio
import anyio.lowlevel

from micdrop_agent.errors import ProviderError
from micdrop_agent.transport.base import Response
from micdrop_agent.transport.connection import promised_keepalive

if TYPE_CHECKING:
    from micdrop_agent.errors import FailureKind
    from micdrop_agent.transport.connection import Connection
    from micdrop_agent.transport.direct import DirectTransport
    from micdrop_agent.transport.parser import ResponseParser

__all__ = ["DirectResponse", "read_more"]

_READ_BYTES: Final = 65_536


async def read_more(connection: Connection, parser: ResponseParser) -> bool:
    """One network read into the parser; whether the body is at its end.

    Raises:
        ProviderError: The connection broke, or what came is not a valid response.
    """
    try:
        data = await connection.stream.receive(_READ_BYTES)
    except anyio.EndOfStream:
        parser.end_of_connection()
    except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
        raise ProviderError("the connection to the server broke", kind="connection") from error
    else:
        parser.feed(data)
    return parser.complete


class DirectResponse(Response):
    """A response of ``DirectTransport``; its connection is free as soon as the body's end was read."""

    __slots__ = ("_begun", "_connection", "_failure", "_parser", "_transport")

    def __init__(self, transport: DirectTransport, connection: Connection, parser: ResponseParser) -> None:
        self.status = parser.status
        self.headers = parser.headers
        self._transport = transport
        self._connection: Connection | None = connection
        self._parser = parser
        self._begun: anyio.Event | None = None
        self._failure: tuple[str, FailureKind] | None = None
        if parser.complete:
            self._finish(connection)

    async def receive(self) -> bytes:
        """See ``Response.receive``."""
        if self._failure is not None:
            raise ProviderError(self._failure[0], kind=self._failure[1])
        parser = self._parser
        try:
            while not (data := parser.take()):
                if parser.pending:  # of a coded body, what was read unpacks to more than one slice
                    await anyio.lowlevel.checkpoint()
                elif parser.complete:
                    parser.check_end()
                    raise anyio.EndOfStream
                else:
                    connection = self._in_use()
                    if await read_more(connection, parser):
                        self._finish(connection)
        except ProviderError as error:
            # Not the error itself: its traceback holds this response, and that would be a cycle.
            self._failure = str(error), error.kind
            raise
        return data

    def _in_use(self) -> Connection:
        if self._connection is None:
            raise ProviderError("the response was closed before its end was read", kind="connection")
        return self._connection

    def _finish(self, connection: Connection) -> None:
        """The body is at its end: give the connection back, if it is good for more."""
        self._parser.detach()
        if self._parser.reusable:
            connection.keepalive = promised_keepalive(self.headers)
            if self._transport.take_back(connection):
                self._connection = None

    def expect_end(self) -> None:
        """See ``Response.expect_end``."""
        self._begun = self._transport.draining.begin()

    @property
    def released(self) -> bool:
        """See ``Response.released``."""
        return self._connection is None

    def abort(self) -> None:
        """See ``Response.abort``."""
        if self._connection is not None:
            self._connection.abort()

    async def aclose(self) -> None:
        """See ``Response.aclose``."""
        if self._begun is not None:
            self._transport.draining.end(self._begun)
        connection, self._connection = self._connection, None
        self._parser.detach()
        if connection is not None:
            await self._transport.discard(connection)
