"""Writes down what goes over a connection: the requests that were sent and the responses, with their times.

    client ──▶ RecordedStream ──▶ the real connection
                    └──▶ httptools ──▶ Recording, Recording, …

It stands above TLS, so it sees the bytes as they were before encryption.
"""

from __future__ import annotations

import re
import time
import zlib
from typing import TYPE_CHECKING, Any, Final, cast

import anyio
import anyio.abc
import httptools

from micdrop_agent.testing._loop import time_stands_still
from micdrop_agent.testing._tape import CassetteError, Recording

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from micdrop_agent.testing._tape import End

__all__ = ["RecordedStream", "RequestReader"]

_FRAMING: Final = frozenset({"content-encoding", "transfer-encoding"})
_PACKED: Final = {"gzip": 31, "x-gzip": 31, "deflate": 15}
"""Content encodings that are unpacked, and what zlib calls them: a secret must not hide in them."""

_END_MARK: Final = re.compile(
    rb"^data: ?\[DONE\]|\"response\.(?:completed|incomplete|failed)\"|\"message_stop\"|\"stop_reason\": ?\"\w|\"finish_?[rR]eason\": ?\"\w",
    re.MULTILINE,
)
"""The end of a streamed answer: the protocol's, which comes before that of HTTP."""

_FAILURES: Final = (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError)


def _feed(parser: Any, data: bytes) -> None:
    """Let httptools read ``data``; what our own callbacks raise comes out as it is.

    Raises:
        CassetteError: It is not plain HTTP.
    """
    try:
        parser.feed_data(data)
    except httptools.HttpParserCallbackError as error:
        if error.__context__ is not None:
            raise error.__context__ from None
        raise
    except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
        raise CassetteError(f"only HTTP/1.1 can be recorded, and this is something else: {error}") from error


class RequestReader:
    """Reads requests from the bytes that a client sends.

    Args:
        on_request: Called with method, path, headers and body of each complete request.
    """

    def __init__(self, on_request: Callable[[str, str, dict[str, str], bytes], object]) -> None:
        self._on_request = on_request
        self._path, self._body = b"", b""
        self._headers: dict[str, str] = {}
        self._parser = httptools.HttpRequestParser(self)

    def feed(self, data: bytes) -> None:
        """Read some bytes."""
        _feed(self._parser, data)

    def on_message_begin(self) -> None:
        """A request begins."""
        self._path, self._body, self._headers = b"", b"", {}

    def on_url(self, url: bytes) -> None:
        """A part of its path."""
        self._path += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        """A part of its body."""
        self._body += body

    def on_message_complete(self) -> None:
        """The request is there."""
        method = self._parser.get_method().decode("ascii")
        self._on_request(method, self._path.decode("latin-1"), self._headers, self._body)


class _ResponseReader:
    """Reads one response into a recording."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.complete = False
        self._now = 0.0
        self._piece = b""
        self._unpack: Any = None
        self._parser = httptools.HttpResponseParser(self)

    def feed(self, data: bytes, now: float) -> None:
        """Read what one read from the network brought."""
        self._now, self._piece = now, b""
        _feed(self._parser, data)
        if self._piece:
            self.recording.body.append((now, self._piece))

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        self.recording.headers.append((name.decode("latin-1").lower(), value.decode("latin-1")))

    def on_headers_complete(self) -> None:
        """The head is there."""
        status = self._parser.get_status_code()
        if status < 200:  # noqa: PLR2004 - 100 Continue and its like: the real head follows
            self.recording.headers.clear()
            return
        self.recording.status, self.recording.head_at = status, self._now
        encoding = dict(self.recording.headers).get("content-encoding", "identity").lower()
        if encoding in _PACKED:
            self._unpack = zlib.decompressobj(wbits=_PACKED[encoding])
            self.recording.headers[:] = [
                pair for pair in self.recording.headers if pair[0] not in {"content-encoding", "content-length"}
            ]
        elif encoding != "identity":
            raise CassetteError(
                f"the response is packed as {encoding}, in which secrets cannot be found; "
                "send `accept-encoding: identity` or gzip while recording"
            )

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        self._piece += self._unpack.decompress(body) if self._unpack is not None else body

    def on_message_complete(self) -> None:
        """The response is complete, as far as its own head says so."""
        if self.recording.status is not None:
            self.complete = True


class RecordedStream(anyio.abc.ByteStream):
    """A connection that is written down.

    Args:
        stream: The real one.
        begin: Called with the parts of a request and gives the recording to fill.
        done: Called when a recording has come to its end, whatever ended it.
    """

    def __init__(
        self,
        stream: anyio.abc.ByteStream,
        begin: Callable[[str, str, dict[str, str], bytes], Recording],
        done: Callable[[], None],
    ) -> None:
        self._stream = stream
        self._begin = begin
        self._done = done
        self._requests = RequestReader(self._on_request)
        self._response: _ResponseReader | None = None
        self._sent_at = 0.0
        # Over a socket real time passes; a stream in memory lives in the time of its loop.
        self._real = stream.extra(anyio.abc.SocketAttribute.raw_socket, None) is not None  # noqa: S610 - AnyIO's, not Django's
        self._now = time.perf_counter if self._real else anyio.current_time

    @property
    def extra_attributes(self) -> Mapping[Any, Callable[[], Any]]:
        """Those of the connection itself."""
        attributes: Mapping[Any, Callable[[], Any]] = cast("Any", self._stream).extra_attributes
        return attributes

    def _waiting(self) -> AbstractContextManager[None]:
        return time_stands_still(self._real)

    async def send(self, item: bytes) -> None:
        """Send, and read the request along."""
        with self._waiting():
            await self._stream.send(item)
        self._requests.feed(bytes(item))

    async def receive(self, max_bytes: int = 65536) -> bytes:
        """Receive, and take down what came and when."""
        try:
            with self._waiting():
                data = await self._stream.receive(max_bytes)
        except anyio.EndOfStream:
            self._end("closed")
            raise
        except _FAILURES:
            self._end("reset")
            raise
        if self._response is not None:
            self._response.feed(bytes(data), self._now() - self._sent_at)
            if self._response.complete:
                self._end("complete")
        return data

    async def send_eof(self) -> None:
        """Say that nothing more will be sent."""
        await self._stream.send_eof()

    async def aclose(self) -> None:
        """Close the connection; a response that is not complete was left by the client."""
        self._end("client left")
        await self._stream.aclose()

    def _on_request(self, method: str, path: str, headers: dict[str, str], body: bytes) -> None:
        self._end("client left")
        self._sent_at = self._now()
        self._response = _ResponseReader(self._begin(method, path, headers, body))

    def _end(self, how: End) -> None:
        if self._response is None:
            return
        recording, self._response = self._response.recording, None
        if how == "client left" and _END_MARK.search(b"".join(piece for _, piece in recording.body)):
            how = "complete"  # nobody waits for what follows the mark
        recording.end, recording.end_at = how, self._now() - self._sent_at
        recording.headers[:] = [pair for pair in recording.headers if pair[0] != "content-encoding"]
        self._done()
