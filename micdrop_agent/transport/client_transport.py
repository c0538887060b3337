"""Posting through a client that the user made: ``httpx2.AsyncClient``, or ``httpx.AsyncClient``.

Neither package is imported here: both clients have the same interface, and their errors are told
apart by the names of their classes.

The bodies of these clients are async generators inside of async generators. One that is left in the
middle is finished by the garbage collector, which on Trio is a warning and a connection that lives
too long. So the body is read by hand, and closing it goes through a read that is cancelled: then the
exception starts at the innermost generator and ends every one on its way out.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

import anyio

from micdrop_agent.errors import ProviderError
from micdrop_agent.transport.base import CLOSE_TIMEOUT_S, Response
from micdrop_agent.transport.client_home import check_home
from micdrop_agent.transport.decoding import decoder_for
from micdrop_agent.transport.parser import MAX_RESPONSE_BYTES
from micdrop_agent.transport.request_head import with_defaults
from micdrop_agent.transport.url import BaseUrl

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from micdrop_agent.errors import FailureKind

__all__ = ["ClientResponse", "ClientTransport"]

_MAX_STALE: Final = 3
"""Dead connections of a pool that a request may meet before that is a failure."""

_MAX_BUFFERED_PARTS: Final = 100_000
"""More parts than a client can hold in its buffers after its connection was asked to stop."""


class ClientTransport:
    """Posts through the user's client, which is never closed by us.

    Args:
        client: An ``httpx2.AsyncClient`` or ``httpx.AsyncClient``.
        base_url: ``http://`` or ``https://``, with an optional path and query.
        connect_timeout: Seconds until a connection stands. The client's other time-outs are
            switched off for our requests: the agent has clocks of its own.
        owned: Close the client in ``aclose()``.
        max_response_bytes: Largest response.

    Raises:
        ValueError: ``base_url`` is no such URL.
    """

    def __init__(
        self,
        client: Any,
        base_url: str,
        *,
        connect_timeout: float | None = 2.0,
        owned: bool = False,
        max_response_bytes: int = MAX_RESPONSE_BYTES,
    ) -> None:
        self._client = client
        self._url = BaseUrl.parse(base_url)
        self._connect_timeout = connect_timeout
        self._owned = owned
        self._max_response_bytes = max_response_bytes

    def __repr__(self) -> str:
        return f"ClientTransport({str(self._url)!r})"

    @property
    def needs_spare(self) -> bool:
        """Never: the client has a pool of its own."""
        return False

    async def prewarm(self) -> None:
        """Nothing: a request of ours only to open a connection would reach the user's hooks and logs."""

    async def post(
        self,
        path: str,
        headers: Mapping[str, str],
        body: bytes,
        meanwhile: Callable[[], None] | None = None,  # noqa: ARG002 - the client does not tell when that is
    ) -> Response:
        """See ``Transport.post``."""
        if not self._owned:
            check_home(self._client)
        url = self._url
        every = with_defaults(headers)
        if url.authorization is not None:
            every.setdefault("authorization", url.authorization)
        client = self._client
        target = f"{'https' if url.tls else 'http'}://{url.authority}{url.target(path)}"
        tries = 0
        while True:
            tries += 1
            watch = _Watch()
            try:
                request = client.build_request(
                    "POST",
                    target,
                    content=body,
                    headers=every,
                    timeout=(self._connect_timeout, None, None, None),
                    extensions={"trace": watch},
                )
                response = await client.send(request, stream=True)
            except Exception as error:  # of the user's client, whichever it is; named as ours
                failure = mapped(error, in_body=False)
                if failure.kind != "connection" or not watch.reused or tries > _MAX_STALE:
                    raise failure from error
                # The server had closed a connection of the pool while it was idle: no fault of this request.
            else:
                return ClientResponse(response, self._max_response_bytes)

    async def aclose(self) -> None:
        """Close the client if it is ours."""
        if self._owned:
            with anyio.move_on_after(CLOSE_TIMEOUT_S, shield=True):
                await self._client.aclose()


class _Watch:
    """Told by a client what it does for a request: was a connection opened, or one of the pool used again?"""

    __slots__ = ("_connected", "_sent")

    def __init__(self) -> None:
        self._connected = self._sent = False

    async def __call__(self, event: str, _: object) -> None:
        """Take the name of a step that begins or ends."""
        if event.startswith("connection.connect"):
            self._connected = True
        elif event.endswith(".send_request_headers.started"):
            self._sent = True

    @property
    def reused(self) -> bool:
        """Whether the request went out on a connection that stood before."""
        return self._sent and not self._connected


class ClientResponse(Response):
    """A streamed response of such a client.

    Args:
        response: ``httpx2.Response`` or ``httpx.Response``, its body not read.
        max_response_bytes: Largest body.

    Raises:
        ProviderError: The body has an encoding that cannot be read.
    """

    __slots__ = ("_body", "_decoder", "_ended", "_failure", "_left", "_limit", "_response")

    def __init__(self, response: Any, max_response_bytes: int = MAX_RESPONSE_BYTES) -> None:
        self.status = response.status_code
        self.headers = dict(response.headers.items())
        self._response = response
        self._body: AsyncIterator[bytes] = response.aiter_raw()
        self._limit = self._left = max_response_bytes
        self._ended = False
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
                data = await self._next()
                if data:
                    return data
        except ProviderError as error:
            # Not the error itself: its traceback holds this response, and that would be a cycle.
            self._failure = str(error), error.kind
            raise

    async def _next(self) -> bytes:
        if self._ended:
            raise anyio.EndOfStream
        try:
            data = await anext(self._body)
        except StopAsyncIteration:
            self._ended = True
            if self._decoder is not None and not self._decoder.complete:
                raise ProviderError("the compressed response was cut", kind="truncated") from None
            raise anyio.EndOfStream from None
        except Exception as error:
            self._ended = True
            raise mapped(error, in_body=True) from error
        except BaseException:
            # Cancelled: every generator has ended with it, and the connection is closed.
            self._ended = True
            self._failure = "the response was left in the middle", "connection"
            raise
        self._left -= len(data)
        if self._left < 0:
            raise ProviderError(f"the server sends more than {self._limit:,} bytes as its response", kind="protocol")
        return data if self._decoder is None else self._decoder.feed(data)

    async def aclose(self) -> None:
        """See ``Response.aclose``."""
        if self._failure is None:
            self._failure = "the response was closed before its end was read", "connection"
        with anyio.move_on_after(CLOSE_TIMEOUT_S, shield=True):
            if not self._ended:
                self._ended = True
                await self._end_body()
            with contextlib.suppress(Exception):  # Foreign clean-up; the connection is given up anyway.
                await self._response.aclose()

    async def _end_body(self) -> None:
        """End the generators from the inside: see the module's text."""
        with anyio.CancelScope() as scope:
            scope.cancel()
            # The response is given up, whatever its end is (StopAsyncIteration is an Exception too).
            with contextlib.suppress(Exception):
                # What the client has in its buffers comes first, without a read.
                for _ in range(_MAX_BUFFERED_PARTS):
                    await anext(self._body)


def mapped(error: Exception, *, in_body: bool) -> ProviderError:
    """The error of a client as ours, told apart by class names: those of both packages are the same."""
    names = {cls.__name__ for cls in type(error).__mro__}
    kind: FailureKind | None = None
    if names & {"TimeoutException", "TimeoutError"}:
        kind = "timeout"
    elif "RemoteProtocolError" in names:
        kind = "truncated" if in_body else "connection"
    elif names & {"TransportError", "OSError", "StreamError"}:
        kind = "connection"
    elif names & {"RequestError", "HTTPError", "InvalidURL"}:
        kind = "protocol"
    if kind is None:
        # A closed client, a broken hook: a bug on this side, not a failure of the server.
        raise error
    return ProviderError(f"the HTTP client failed: {type(error).__name__}: {_told(error)}", kind=kind)


def _told(error: BaseException) -> str:
    """What an error says, or what its cause says: on Trio the clients' own errors are mostly without words."""
    while not str(error):
        # The clients raise theirs from within the handler, some without `from`.
        inner = error.__cause__ or error.__context__
        if inner is None:
            break
        error = inner
    return str(error) or "no reason given"
