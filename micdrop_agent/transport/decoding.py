"""Content encodings: gzip and deflate, every flush of the server delivered at once.

We ask for ``identity`` (compression holds text back); some proxies compress all the same.
"""

from __future__ import annotations

import re
import zlib
from typing import Final

from micdrop_agent.errors import ProviderError

__all__ = ["Decoder", "decoder_for"]

_AUTO: Final = 32 + zlib.MAX_WBITS
"""gzip or zlib, told apart by the header."""

_RAW: Final = -zlib.MAX_WBITS
"""deflate without a header; what some servers mean by "deflate"."""

_COMPRESSED: Final = re.compile(r"\b(gzip|deflate|compress|br|zstd|dcb|dcz|lz4|xz|bzip2|snappy)\b")
"""Codings, alone or in a row, that we cannot undo."""

_HEADER_BYTES: Final = 2
"""Enough to tell the three formats apart."""


class Decoder:
    """Decompresses one body.

    Args:
        max_bytes: Most output in all; a small body may unpack to gigabytes.
    """

    __slots__ = ("_fresh", "_held", "_left", "_limit", "_unpacker")

    def __init__(self, max_bytes: int) -> None:
        self._unpacker = zlib.decompressobj(_AUTO)
        self._limit = self._left = max_bytes
        self._fresh = True
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """What ``data`` unpacks to (may be empty).

        Raises:
            ProviderError: Not in this encoding, or too large (kind ``protocol``).
        """
        parts: list[bytes] = []
        if self._held:
            data, self._held = self._held + data, b""
        while data:
            if self._unpacker.eof:
                # A gzip body may have several members. What follows the last one is padding.
                if not data.startswith(b"\x1f"):
                    break
                self._unpacker = zlib.decompressobj(_AUTO)
                self._fresh = True
            if self._fresh and len(data) < _HEADER_BYTES:
                self._held = data
                break
            part = self._unpack(data)
            parts.append(part)
            self._left -= len(part)
            if self._left <= 0:
                raise ProviderError(
                    f"the response unpacks to more than {self._limit:,} bytes; this is no answer of a model",
                    kind="protocol",
                )
            data = self._unpacker.unused_data or self._unpacker.unconsumed_tail
        return b"".join(parts)

    def _unpack(self, data: bytes) -> bytes:
        try:
            part = self._unpacker.decompress(data, self._left)
        except zlib.error:
            if not self._fresh:
                raise _broken() from None
            self._unpacker = zlib.decompressobj(_RAW)
            try:
                part = self._unpacker.decompress(data, self._left)
            except zlib.error:
                raise _broken() from None
        self._fresh = False
        return part

    @property
    def complete(self) -> bool:
        """Whether the encoding's own end was there; False means that the body was cut."""
        return self._unpacker.eof or (self._fresh and not self._held)


def _broken() -> ProviderError:
    return ProviderError("the response says it is compressed and is not, or is damaged", kind="protocol")


def decoder_for(headers: dict[str, str], max_bytes: int) -> Decoder | None:
    """The decoder that a response's ``content-encoding`` asks for, None if it has none.

    Raises:
        ProviderError: An encoding that we never offered (kind ``protocol``).
    """
    encoding = headers.get("content-encoding", "identity").strip().lower()
    if encoding in {"gzip", "x-gzip", "deflate"}:
        return Decoder(max_bytes)
    if not _COMPRESSED.search(encoding):
        # What is left says nothing about compression: servers write "utf-8" or "none" here.
        return None
    raise ProviderError(
        f"the server compressed its response with {encoding[:40]!r}, although only plain text was asked for",
        kind="protocol",
    )
