"""A connection to a cassette: it takes requests and gives the recorded bytes, each in its time."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import anyio
import anyio.abc
import anyio.lowlevel

from micdrop_agent.testing._disturbance import Disturbance
from micdrop_agent.testing._recorder import RequestReader
from micdrop_agent.testing._tape import UnrecordedRequestError

if TYPE_CHECKING:
    from collections.abc import Callable

    from micdrop_agent.testing._tape import Recording

__all__ = ["PlayedStream", "writes"]

_OWN: Final = frozenset({"transfer-encoding", "content-length", "connection"})


def writes(recording: Recording) -> list[tuple[float, bytes]]:
    """What the server writes, and when: the recorded response, framed again as HTTP.

    Pieces that came in one read from the network are one write.
    """
    if recording.status is None:
        return []
    chunked = dict(recording.headers).get("transfer-encoding", "").lower().endswith("chunked")
    found = [(recording.head_at, _head(recording, chunked=chunked))]
    found += [(at, _chunk(piece) if chunked else piece) for at, piece in recording.body]
    if chunked and recording.end == "complete":
        found.append((recording.end_at, b"0\r\n\r\n"))
    merged: list[tuple[float, bytes]] = []
    for at, data in found:
        if merged and merged[-1][0] == at:
            merged[-1] = at, merged[-1][1] + data
        else:
            merged.append((at, data))
    return merged


def _chunk(piece: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(piece), piece)


def _head(recording: Recording, *, chunked: bool) -> bytes:
    try:
        reason = HTTPStatus(recording.status or 0).phrase
    except ValueError:
        reason = "Unknown"
    lines = [f"HTTP/1.1 {recording.status} {reason}"]
    lines += [f"{name}: {value}" for name, value in recording.headers if name != "transfer-encoding"]
    if chunked:
        lines.append("transfer-encoding: chunked")
    return "\r\n".join((*lines, "", "")).encode("latin-1")


class PlayedStream(anyio.abc.ByteStream):
    """One connection to a cassette. No task belongs to it: time passes in ``receive``.

    Args:
        find: Gives the recording of a request, by its method, path, headers and body.
        speed: As for ``Cassette``.
    """

    def __init__(self, find: Callable[[str, str, dict[str, str], bytes], Recording], speed: float) -> None:
        self._find = find
        self._speed = speed
        self._requests = RequestReader(self._on_request)
        self._recording: Recording | None = None
        self._writes: list[tuple[float, bytes]] = []
        self._buffer = b""
        self._asked_at = 0.0
        self._over = False
        self._closed = False
        self._changed = anyio.Event()

    def _on_request(self, method: str, path: str, headers: dict[str, str], body: bytes) -> None:
        self._recording = self._find(method, path, headers, body)
        self._writes = writes(self._recording)
        self._asked_at = anyio.current_time()
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def send(self, item: bytes) -> None:
        """Take a request, or a part of one.

        Raises:
            UnrecordedRequestError: It is complete, and nothing answers it.
            anyio.BrokenResourceError: The server has closed the connection.
            anyio.ClosedResourceError: This end is closed.
        """
        await anyio.lowlevel.checkpoint()
        if self._closed:
            raise anyio.ClosedResourceError
        if self._over:
            raise anyio.BrokenResourceError
        self._requests.feed(bytes(item))

    async def receive(self, max_bytes: int = 65536) -> bytes:
        """The next bytes of the response, once it is time for them.

        Raises:
            anyio.EndOfStream: The server closed the connection.
            anyio.BrokenResourceError: The server reset it.
            anyio.ClosedResourceError: This end is closed.
            UnrecordedRequestError: The client hung up here when this was recorded, and now it does not.
        """
        await anyio.lowlevel.checkpoint()
        while not self._buffer:
            if self._closed:
                raise anyio.ClosedResourceError
            if self._over:
                raise anyio.EndOfStream
            await self._next()
        data, self._buffer = self._buffer[:max_bytes], self._buffer[max_bytes:]
        return data

    async def _next(self) -> None:
        """Wait for what comes next: bytes, the end of the connection, or a request."""
        if self._recording is None:
            await self._changed.wait()
            return
        at = self._writes[0][0] if self._writes else self._recording.end_at
        if not await self._wait_until(at):
            return
        if self._writes:
            self._buffer += self._writes.pop(0)[1]
        if not self._writes and self._recording.end == "complete":
            self._recording = None
        elif not self._writes and not self._buffer:
            self._end(self._recording)

    async def _wait_until(self, at: float) -> bool:
        """Wait for a moment of the recording; False if the connection was closed before."""
        if self._speed:
            pause = self._asked_at + at / self._speed - anyio.current_time()
            if pause > 0:
                with anyio.move_on_after(pause):
                    await self._changed.wait()
        return not self._closed

    def _end(self, recording: Recording) -> None:
        self._over = True
        if recording.end == "reset":
            raise anyio.BrokenResourceError
        if recording.end == "client left" and not Disturbance.happened:
            raise UnrecordedRequestError(
                f"the recording of {recording.request.method} {recording.request.path} ends after "
                f"{recording.end_at:g} s, where its client hung up, and this one wants more; record it again"
            )

    async def send_eof(self) -> None:
        """Say that nothing more will be sent."""
        await anyio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        """Close the connection at once; works in a cancelled scope too."""
        self._closed = True
        self._wake()
        await anyio.lowlevel.checkpoint()
