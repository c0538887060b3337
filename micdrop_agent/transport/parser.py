"""HTTP/1.1 responses from bytes; no I/O.

    bytes of one network read ──▶ ResponseParser.feed() ──▶ status, headers, take() ──▶ body bytes

llhttp (through httptools) reads the grammar; this adds what it leaves to its user: interim
responses, bodies that end with the connection, content encodings and limits.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

import httptools

from micdrop_agent.errors import ProviderError
from micdrop_agent.transport.decoding import decoder_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from micdrop_agent.transport.decoding import Decoder

__all__ = ["MAX_HEAD_BYTES", "MAX_RESPONSE_BYTES", "ResponseParser"]

MAX_HEAD_BYTES: Final = 64 * 1024
"""Longest head, interim responses included; servers themselves refuse heads beyond 8 to 32 KiB."""

MAX_HEADERS: Final = 512
"""Most header lines; servers themselves refuse more than 100."""

MAX_RESPONSE_BYTES: Final = 64 * 1024 * 1024
"""Largest response on the wire, and unpacked. One token in an event of 300 bytes makes 200,000 tokens."""


class ResponseParser:
    """Reads one response.

    Attributes:
        status: HTTP status; 0 until the head is complete.
        headers: Names in lower case.
        head_complete: The head (of the final response) is there.
        complete: The body is at its end.
        started: At least one byte came.
    """

    __slots__ = (
        "_decoder",
        "_excess",
        "_header_lines",
        "_keep_alive",
        "_max_head_bytes",
        "_max_response_bytes",
        "_parser",
        "_received",
        "_until_close",
        "complete",
        "head_complete",
        "headers",
        "on_body",
        "pieces",
        "status",
    )

    def __init__(self, *, max_head_bytes: int = MAX_HEAD_BYTES, max_response_bytes: int = MAX_RESPONSE_BYTES) -> None:
        self._max_head_bytes = max_head_bytes
        self._max_response_bytes = max_response_bytes
        self._received = 0
        self._until_close = False
        self._excess = False
        self._keep_alive = False
        self._header_lines = 0
        self._decoder: Decoder | None = None
        self.status = 0
        self.headers: dict[str, str] = {}
        self.head_complete = False
        self.complete = False
        self.pieces: list[bytes] = []
        # The parser calls this once per HTTP chunk: no Python frame in between.
        self.on_body: Callable[[bytes], None] = self.pieces.append
        self._parser: Any = None

    def begin(self) -> Any:
        """Get ready for the first bytes; ``feed()`` does it if nobody did it while there was time."""
        self._parser = httptools.HttpResponseParser(self)
        # Small servers do these; the grammar's other liberties stay off.
        self._parser.set_dangerous_leniencies(
            lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True, lenient_chunked_length=True
        )
        return self._parser

    @property
    def started(self) -> bool:
        """Whether any byte of the response came."""
        return self._received > 0

    def feed(self, data: bytes) -> None:
        """Take the bytes of one read.

        Raises:
            ProviderError: No HTTP (``connection``), or beyond a limit (``protocol``).
        """
        self._received += len(data)
        if self._received > self._max_response_bytes:
            raise _too_large("its response", self._max_response_bytes)
        had_head = self.head_complete
        parser = self._parser or self.begin()
        try:
            parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            raise ProviderError("the server wants to leave HTTP (status 101)", kind="connection") from None
        except httptools.HttpParserError as error:
            # What follows a complete response is not looked at; the connection is not used again.
            if not self.complete:
                raise _not_http(data, error) from None
            self._excess = True
        if not had_head:
            self._check_head()

    def _check_head(self) -> None:
        if self._header_lines > MAX_HEADERS:
            raise ProviderError(f"the server sends more than {MAX_HEADERS} headers", kind="protocol")
        if self.head_complete:
            self._decoder = decoder_for(self.headers, self._max_response_bytes)
        elif self._received > self._max_head_bytes:
            raise _too_large("the head of its response", self._max_head_bytes)

    def take(self) -> bytes:
        """The body bytes that are here, decoded, and forget them; of a coded body the next slice.

        Raises:
            ProviderError: The encoding is damaged or unpacks to too much (``protocol``).
        """
        pieces, decoder = self.pieces, self._decoder
        data = b""
        if pieces:
            data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            pieces.clear()
        if decoder is None:
            return data
        decoder.feed(data)
        return decoder.take()

    @property
    def pending(self) -> bool:
        """Whether ``take()`` has more to give, of what came already."""
        return self._decoder is not None and self._decoder.pending

    def check_end(self) -> None:
        """The body is complete and was taken: was nothing missing?

        Raises:
            ProviderError: The compressed stream inside is cut (``truncated``).
        """
        if self._decoder is not None and not self._decoder.complete:
            raise _truncated()

    def end_of_connection(self) -> None:
        """The server closed the connection.

        Raises:
            ProviderError: It did so before the head (``connection``) or within the body (``truncated``).
        """
        if not self.head_complete:
            raise ProviderError("the server closed the connection without a response", kind="connection")
        if not self._until_close and not self.complete:
            raise _truncated()
        self.complete = True

    @property
    def reusable(self) -> bool:
        """Whether another request may follow on the same connection."""
        return self._keep_alive and not self._excess

    def detach(self) -> None:
        """Nothing more will be fed: let go of the parser, which holds this object too.

        Without it every response would be a cycle that waits for the garbage collector.
        """
        self._parser = None

    # What httptools calls. Its own name for each is the interface.

    def on_message_begin(self) -> None:
        """Bytes of a second response: nobody asked for one."""
        if self.complete:
            self._excess = True

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header, or a trailer (ignored)."""
        if self.head_complete:
            return
        self._header_lines += 1
        if self._header_lines > MAX_HEADERS:
            return  # refused as soon as this read is done: the parser reports no error of ours as itself
        key = sys.intern(name.decode("latin-1").lower())  # a thousand responses share the names of their headers
        text = value.decode("latin-1")
        known = self.headers.get(key)
        self.headers[key] = text if known is None else f"{known}, {text}"

    def on_headers_complete(self) -> None:
        """The end of a head; that of an interim response (1xx) is forgotten."""
        if self.complete:
            return
        status: int = self._parser.get_status_code()
        if status < 200:  # noqa: PLR2004 - 1xx
            self.headers = {}
            return
        self.status = status
        headers = self.headers
        chunked = headers.get("transfer-encoding", "").lower().rstrip().endswith("chunked")
        self._until_close = not chunked and "content-length" not in headers
        # Two lengths: the chunks count (RFC 9112, 6.3), and what follows is not to be trusted.
        self._excess = chunked and "content-length" in headers
        self.head_complete = True

    def on_message_complete(self) -> None:
        """The end of a body, or of an interim response."""
        if self.head_complete and not self.complete:
            self.complete = True
            # Asked here, because the parser forgets it right after this call.
            self._keep_alive = self._parser.should_keep_alive()
            # The parser goes on appending to the old list; what follows the end is not the body.
            self.pieces = self.pieces.copy()


_TLS_ALERT: Final = b"\x15\x03"


def _not_http(data: bytes, error: Exception) -> ProviderError:
    if data.startswith(_TLS_ALERT):
        return ProviderError("the server speaks TLS: base_url has to begin with https://", kind="protocol")
    return ProviderError(f"the server does not speak HTTP/1.1: {error}", kind="connection")


def _truncated() -> ProviderError:
    return ProviderError("the connection was closed in the middle of the response", kind="truncated")


def _too_large(what: str, limit: int) -> ProviderError:
    return ProviderError(f"the server sends more than {limit:,} bytes as {what}", kind="protocol")
