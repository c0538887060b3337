"""Content and transfer codings: gzip and deflate, in slices, every flush of the server delivered at once; no I/O.

    feed(bytes of one read) ──▶ take(), take(), … ──▶ slices of what they unpack to

We ask for ``identity`` (compression holds text back); some proxies compress all the same. 64 KiB may unpack
to 64 MiB, so nothing is unpacked before somebody asks for it.

Invariants, pinned in tests/test_transport_slices.py:

1. One ``take()`` gives at most ``SLICE_BYTES``, and looks at a bounded number of members.
2. The same bytes give the same body however they are cut.
"""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING, Final

from micdrop_agent.errors import ProviderError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["SLICE_BYTES", "Decoder", "decoder_for"]

SLICE_BYTES: Final = 64 * 1024
"""Most output of one ``take()``; about 0.1 ms of unpacking."""

_MEMBERS_A_SLICE: Final = 32
"""Most gzip members that one ``take()`` begins: an empty one has 20 bytes and costs 5 µs."""

_AUTO: Final = 32 + zlib.MAX_WBITS
"""gzip or zlib, told apart by the header."""

_RAW: Final = -zlib.MAX_WBITS
"""deflate without a header; what some servers mean by "deflate"."""

_COMPRESSED: Final = re.compile(r"\b(gzip|deflate|compress|br|zstd|dcb|dcz|lz4|xz|bzip2|snappy)\b")
"""Codings, alone or in a row, that we cannot undo."""

_OURS: Final = frozenset({"gzip", "x-gzip", "deflate"})

_HEADER_BYTES: Final = 2
"""Enough to tell the three formats apart."""


class Decoder:
    """Decompresses one body.

    Args:
        max_bytes: Most output in all; a small body may unpack to gigabytes.
    """

    __slots__ = ("_fresh", "_input", "_left", "_limit", "_stuck", "_unpacker")

    def __init__(self, max_bytes: int) -> None:
        self._unpacker = zlib.decompressobj(_AUTO)
        self._limit = self._left = max_bytes
        self._fresh = True
        self._input = b""
        self._stuck = False
        """What is left of the input is of no use before more comes."""

    def feed(self, data: bytes) -> None:
        """Take the bytes of one read."""
        self._input = self._input + data if self._input else data
        self._stuck = False

    @property
    def pending(self) -> bool:
        """Whether ``take()`` may have more to give."""
        return bool(self._input) and not self._stuck

    def take(self) -> bytes:
        """The next slice (may be empty, and more may follow).

        Raises:
            ProviderError: Not in this encoding, or too large (kind ``protocol``).
        """
        for _ in range(_MEMBERS_A_SLICE):
            data = self._input
            if not data:
                break
            if self._unpacker.eof:
                # A gzip body may have several members. What follows the last one is padding.
                if not data.startswith(b"\x1f"):
                    self._input = b""
                    break
                self._unpacker = zlib.decompressobj(_AUTO)
                self._fresh = True
            if self._fresh and len(data) < _HEADER_BYTES:
                self._stuck = True
                break
            part = self._unpack(data)
            self._input = self._unpacker.unused_data or self._unpacker.unconsumed_tail
            if part:
                self._left -= len(part)
                if self._left <= 0:
                    raise ProviderError(
                        f"the response unpacks to more than {self._limit:,} bytes; this is not a model response",
                        kind="protocol",
                    )
                return part
        return b""

    def _unpack(self, data: bytes) -> bytes:
        try:
            part = self._unpacker.decompress(data, SLICE_BYTES)
        except zlib.error:
            if not self._fresh:
                raise _broken() from None
            self._unpacker = zlib.decompressobj(_RAW)
            try:
                part = self._unpacker.decompress(data, SLICE_BYTES)
            except zlib.error:
                raise _broken() from None
        self._fresh = False
        return part

    @property
    def complete(self) -> bool:
        """Whether the encoding's own end was there; False means that the body was cut."""
        return self._unpacker.eof or (self._fresh and not self._input)


def _broken() -> ProviderError:
    return ProviderError("the response says it is compressed and is not, or is damaged", kind="protocol")


def decoder_for(headers: Mapping[str, str], max_bytes: int) -> Decoder | None:
    """The decoder that a response's ``content-encoding`` or ``transfer-encoding`` asks for, None if it has none.

    Raises:
        ProviderError: An encoding that we never offered (kind ``protocol``).
    """
    encoding = headers.get("content-encoding", "identity").strip().lower()
    transfer = _codings(headers.get("transfer-encoding", ""))
    if transfer and encoding in {"identity", ""}:
        encoding = ", ".join(transfer)
        if encoding not in _OURS:
            raise ProviderError(
                f"the server sends its response with the transfer coding {encoding[:40]!r}, which was not asked for",
                kind="protocol",
            )
    if encoding in _OURS:
        return Decoder(max_bytes)
    if not _COMPRESSED.search(encoding):
        # What is left says nothing about compression: servers write "utf-8" or "none" here.
        return None
    raise ProviderError(
        f"the server compressed its response with {encoding[:40]!r}, although only plain text was asked for",
        kind="protocol",
    )


def _codings(transfer_encoding: str) -> list[str]:
    """The transfer codings besides ``chunked``."""
    if transfer_encoding in {"", "chunked"}:
        return []
    names = (name.strip().lower() for name in transfer_encoding.split(","))
    return [name for name in names if name not in {"", "chunked", "identity"}]
