"""The response of a user's HTTP client, read by hand.

The bodies of these clients are async generators inside of async generators. One that is left in the
middle is finished by the garbage collector, which on Trio is a warning and a connection that lives
too long. So the body is read by hand, and closing it goes through a read that is cancelled: then the
exception starts at the innermost generator and ends every one on its way out.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.lowlevel

from micdrop_agent.errors import ProviderError
from micdrop_agent.options import CLOSE_TIMEOUT
from micdrop_agent.transport.base import ReadResponse, Response
from micdrop_agent.transport.client_errors import map_error, read_headers
from micdrop_agent.transport.decoding import decoder_for
from micdrop_agent.transport.parser import MAX_RESPONSE_BYTES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from micdrop_agent.errors import FailureKind
    from micdrop_agent.transport.draining import Draining

__all__ = ["ClientResponse", "wrap_response"]

_MAX_BUFFERED_PARTS: Final = 100_000
"""More parts than a client can hold in its buffers after its connection was asked to stop."""

_DRAIN_TIMEOUT_S: Final = 0.05
"""Longest that the end of a body is waited for: an agent that is being left may wait for it too."""

_PARTS_A_TURN: Final = 16
"""Parts of a body that are taken before the event loop has a turn: a client hands out what it has without one."""


def wrap_response(response: Any, draining: Draining, max_response_bytes: int = MAX_RESPONSE_BYTES) -> Response:
    """A client's response as ours, whether its body is still to be read or was read by a mock, a hook or an auth flow."""
    if not getattr(response, "is_stream_consumed", False):
        return ClientResponse(response, draining, max_response_bytes)
    try:
        body: bytes = response.content
    except Exception as error:  # noqa: BLE001 - of one of two packages: consumed, and not kept
        body, cause = b"", type(error).__name__
        if response.status_code < 400:  # noqa: PLR2004 - of an error the status is enough
            raise ProviderError(
                f"a hook of the client has read the response and has not kept it ({cause}); "
                "let it call `await response.aread()`",
                kind="protocol",
            ) from None
    return ReadResponse(response.status_code, read_headers(response), body)


class ClientResponse(Response):
    """A streamed response of such a client.

    Args:
        response: ``httpx2.Response`` or ``httpx.Response``, its body not read.
        draining: Knows whether a response of the client is being read to its end.
        max_response_bytes: Largest body.

    Raises:
        ProviderError: The body has an encoding that cannot be read.
    """

    __slots__ = (
        "_begun",
        "_body",
        "_decoder",
        "_draining",
        "_ended",
        "_failure",
        "_left",
        "_limit",
        "_parts",
        "_response",
        "_whole",
    )

    def __init__(self, response: Any, draining: Draining, max_response_bytes: int = MAX_RESPONSE_BYTES) -> None:
        self.status = response.status_code
        self.headers = dict(response.headers.items())
        self._response = response
        self._draining = draining
        self._body: AsyncIterator[bytes] = response.aiter_raw()
        self._limit = self._left = max_response_bytes
        self._ended = self._whole = False
        self._parts = 0
        self._begun: anyio.Event | None = None
        self._failure: tuple[str, FailureKind] | None = None
        self._decoder = decoder_for({}, 0)
        try:
            self._decoder = decoder_for(self.headers, max_response_bytes)
        except ProviderError as error:
            # Raised by the first read: the response has to reach its owner, who closes it.
            self._failure = str(error), error.kind

    async def receive(self) -> bytes:
        """See ``Response.receive``."""
        if self._failure is not None:
            raise ProviderError(self._failure[0], kind=self._failure[1])
        try:
            while True:
                self._parts += 1
                if not self._parts % _PARTS_A_TURN:
                    await anyio.lowlevel.checkpoint()
                data = await self._next()
                if data:
                    return data
        except ProviderError as error:
            # Not the error itself: its traceback holds this response, and that would be a cycle.
            self._failure = str(error), error.kind
            raise

    async def _next(self) -> bytes:
        """The next part of the body, decoded; may be empty."""
        decoder = self._decoder
        if decoder is None:
            return await self._part()
        if not decoder.pending:
            decoder.feed(await self._part())
        return decoder.take()

    async def _part(self) -> bytes:
        """The next part of the body, as it came."""
        if self._ended:
            raise anyio.EndOfStream
        try:
            data = await anext(self._body)
        except StopAsyncIteration:
            self._ended = self._whole = True
            if self._decoder is not None and not self._decoder.complete:
                raise ProviderError("the compressed response was cut", kind="truncated") from None
            raise anyio.EndOfStream from None
        except Exception as error:
            self._ended = True
            raise map_error(error, in_body=True) from error
        except BaseException:
            # Cancelled: every generator has ended with it, and the connection is closed.
            self._ended = True
            self._failure = "the response was left in the middle", "connection"
            raise
        self._left -= len(data)
        if self._left < 0:
            raise ProviderError(f"the server sends more than {self._limit:,} bytes as its response", kind="protocol")
        return data

    def expect_end(self) -> None:
        """See ``Response.expect_end``."""
        self._begun = self._draining.begin()

    async def drain(self) -> bool:
        """See ``Response.drain``; an agent that is being left still gives a shared client its connection back."""
        with anyio.move_on_after(_DRAIN_TIMEOUT_S, shield=True):
            return await super().drain()
        return False

    @property
    def released(self) -> bool:
        """See ``Response.released``."""
        return self._whole

    async def aclose(self) -> None:
        """See ``Response.aclose``."""
        if self._begun is not None:
            self._draining.end(self._begun)
        if self._failure is None:
            self._failure = "the response was closed before its end was read", "connection"
        with anyio.move_on_after(CLOSE_TIMEOUT, shield=True):
            if not self._ended:
                self._ended = True
                await self._end_body()
            with suppress(Exception):  # Foreign clean-up; the connection is given up anyway.
                await self._response.aclose()

    async def _end_body(self) -> None:
        """End the generators from the inside: see the module's text."""
        with anyio.CancelScope() as scope:
            scope.cancel()
            # The response is given up, whatever its end is (StopAsyncIteration is an Exception too).
            with suppress(Exception):
                # What the client has in its buffers comes first, without a read.
                for _ in range(_MAX_BUFFERED_PARTS):
                    await anext(self._body)
