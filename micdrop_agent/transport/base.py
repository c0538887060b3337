"""The seam between a provider and the network: post a request, read the body of its response.

    provider ── post(path, headers, body) ──▶ Transport ──▶ Response ── receive(), receive(), … ──▶ bytes

No async generator anywhere: a response is read by hand and closed by whoever asked for it.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final, Protocol, Self, TypeAlias

import anyio
import anyio.lowlevel

from micdrop_agent.errors import ProviderError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from anyio.abc import ByteStream

__all__ = ["MAX_ERROR_BYTES", "ConnectFn", "ReadResponse", "Response", "Transport"]

ConnectFn: TypeAlias = "Callable[[str, int, bool], Awaitable[ByteStream]]"
"""Opens a connection: host, port, whether to speak TLS. Tests hand in streams in memory."""


MAX_ERROR_BYTES: Final = 64 * 1024
"""How much of an error's body is read: more than any provider's JSON, less than a hurtful page."""

_END_PATIENCE_S: Final = 0.002
"""Longest wait for the end of an error's body that is complete: mostly it comes with the last of its bytes."""

_READ_BYTES: Final = 64 * 1024
"""Most bytes that one read hands out."""

_DRAIN_TIMEOUT_S: Final = 0.25
_DRAIN_BYTES: Final = 64 * 1024


class Response(ABC):
    """A response whose head is there. Close it with ``aclose()``, also after an error.

    Attributes:
        status: HTTP status, 200 to 599.
        headers: Names in lower case; a repeated header's values are joined with ``", "``.
    """

    __slots__ = ("headers", "status")

    status: int
    headers: dict[str, str]

    @abstractmethod
    async def receive(self) -> bytes:
        """The next bytes of the body, decoded: what one network read brought, never empty.

        Raises:
            anyio.EndOfStream: The body is complete.
            ProviderError: The connection broke (``connection``), the body was cut (``truncated``), is
                too large, or cannot be decoded (``protocol``).
        """

    @abstractmethod
    async def aclose(self) -> None:
        """Give the connection back if the body was read to its end, else close it. Idempotent.

        Works inside a cancelled scope and takes ``CLOSE_TIMEOUT`` seconds at most.
        """

    @property
    def released(self) -> bool:
        """Whether the connection has been given back or closed: ``aclose()`` would do nothing."""
        return False

    def abort(self) -> None:  # noqa: B027 - a hint, which not every transport can follow
        """Synchronously show the server that nobody listens any more, where that is possible.

        ``aclose()`` is still needed. A response that was read to its end is left alone.
        """

    async def read(
        self,
        limit: int = MAX_ERROR_BYTES,
        *,
        within: float | None = None,
        until: Callable[[bytes], bool] | None = None,
    ) -> bytes:
        """The rest of the body, at most ``limit`` bytes of it (for the body of an error).

        What cannot be read any more is left out: an error whose body is cut, or does not end, is
        still that error.

        Args:
            limit: Most bytes.
            within: Most seconds; ``None`` means no limit.
            until: Whether what came is enough, so that the body's end is not waited for.
        """
        parts: list[bytes] = []
        size = 0
        with anyio.move_on_after(within):
            while size < limit:
                try:
                    part = await self.receive()
                except (anyio.EndOfStream, ProviderError):
                    break
                parts.append(part)
                size += len(part)
                if until is not None and until(b"".join(parts)):
                    await self._look_for_the_end()
                    break
        return b"".join(parts)[:limit]

    async def _look_for_the_end(self) -> None:
        """Take the body's end if it comes at once, so that the connection can be used again."""
        with anyio.move_on_after(_END_PATIENCE_S), contextlib.suppress(anyio.EndOfStream, ProviderError):
            await self.receive()

    def expect_end(self) -> None:  # noqa: B027 - a hint, which not every transport needs
        """The body is about to be drained beside other work: a request may wait a moment for this connection."""

    async def drain(self) -> bool:
        """Read what follows a stream's end mark, so that the connection can be used again.

        Mostly the body's end came along with the mark. Else it is waited for a short time (0.25 s), beside
        the answer: nobody but the next request needs the connection.

        Returns:
            Whether the body is at its end.
        """
        size = 0
        with anyio.move_on_after(_DRAIN_TIMEOUT_S):
            while size < _DRAIN_BYTES:
                try:
                    size += len(await self.receive())
                except anyio.EndOfStream:
                    return True
                except ProviderError:
                    return False
        return False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()


class ReadResponse(Response):
    """A response whose body somebody else has read already.

    Args:
        status: HTTP status.
        headers: Names in lower case.
        body: All of it, decoded.
    """

    __slots__ = ("_body",)

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self._body = memoryview(body)

    async def receive(self) -> bytes:
        """The next part of the body."""
        await anyio.lowlevel.checkpoint()
        part, self._body = bytes(self._body[:_READ_BYTES]), self._body[_READ_BYTES:]
        if not part:
            raise anyio.EndOfStream
        return part

    @property
    def released(self) -> bool:
        """Nothing is open."""
        return True

    async def aclose(self) -> None:
        """Nothing is open."""


class Transport(Protocol):
    """Where requests of one provider go. Belongs to one event loop; use it from there only."""

    async def post(
        self, path: str, headers: Mapping[str, str], body: bytes, while_waiting: Callable[[], None] | None = None
    ) -> Response:
        """Send a request and wait for the head of its response, whatever its status.

        Args:
            path: Below the base URL, for example ``/chat/completions``.
            headers: Further headers, names in lower case.
            body: The JSON body.
            while_waiting: Work for the time in which the server thinks. A transport may call it, more than once
                if the request is sent again, or leave it.

        Raises:
            ProviderError: No response came (``connection``, ``timeout``), or it is not HTTP (``protocol``).
        """
        ...

    async def prewarm(self) -> None:
        """Open a connection ahead of the next request, unless one is ready."""
        ...

    @property
    def needs_spare(self) -> bool:
        """Whether ``prewarm()`` would open a connection now."""
        ...

    async def aclose(self) -> None:
        """Close every connection that is ours. Idempotent."""
        ...
