"""Server-sent events, as the servers of language models really send them; no I/O.

    bytes of one network read ──▶ SseReader.feed() ──▶ the events that they complete

An event is its ``data`` as ``bytes``. Event names are dropped: every server that we know repeats
them inside the data, or never sends them. What means a failure is kept, as a pair:

* ``(b"error", payload)``: the event was named ``error``, or came in a field ``error:`` in place of
  ``data:`` (llama.cpp), with or without data.
* ``(b"", line)``: a line that is not a field and looks like a JSON object; servers that break in the
  middle of a stream write their error like that. JSON in place of a whole stream reads the same.

Two events that only one line end separates are told apart where the data of the first is complete JSON.

Invariants, pinned in tests/test_sse.py:

1. The same bytes give the same events however they are cut: within CRLF, in a code point, anywhere.
2. Nothing but ``ProviderError`` (kind ``protocol``) is raised, for any bytes.
3. A line or an event that never ends costs time in proportion to its length, and memory up to the limit.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from micdrop_agent.errors import ProviderError
from micdrop_agent.providers.json_text import decode

__all__ = ["MAX_EVENT_BYTES", "SseEvent", "SseReader"]

SseEvent: TypeAlias = bytes | tuple[bytes, bytes]

MAX_EVENT_BYTES: Final = 1024 * 1024
"""Longest line and event. The closing event of the Responses API repeats the prompt, the tools and
the whole answer, and so reaches some hundred kilobytes. Parsing one of this length takes 5 ms."""

_BOM: Final = b"\xef\xbb\xbf"


class SseReader:
    """Turns the bytes of one response body into events.

    Args:
        max_event_bytes: Longest line, and most data of one event.
    """

    __slots__ = (
        "_after_cr",
        "_data",
        "_is_error",
        "_max_bytes",
        "_more",
        "_more_bytes",
        "_start",
        "_tail",
        "_tail_bytes",
        "_too_long",
    )

    def __init__(self, *, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max_bytes = max_event_bytes
        self._start: bytes | None = b""
        """What came so far of a byte order mark; None once the body has begun."""
        self._after_cr = False
        """The last byte was a CR that has ended a line; an LF now belongs to it."""
        self._tail: list[bytes] = []
        """The pieces of an unfinished line: joined once, so that a long line is not quadratic."""
        self._tail_bytes = 0
        self._data: bytes | None = None
        """First data line of the unfinished event."""
        self._more: list[bytes] = []
        """Its further data lines (rare)."""
        self._more_bytes = 0
        self._is_error = False
        self._too_long = ""
        """What was too long: then nothing more is read."""

    def feed(self, data: bytes) -> list[SseEvent]:
        """Take the bytes of one read.

        Returns:
            The events that are complete now, in order.

        Raises:
            ProviderError: A line or an event is too long (kind ``protocol``). It is raised by the
                call after the one that returned the last good events, so that these are not lost.
        """
        if self._too_long:
            raise self._refusal()
        if self._start is not None:
            data = self._skip_bom(data)
        if self._after_cr or b"\r" in data:
            data = self._plain_line_ends(data)
        lines = data.split(b"\n")
        rest = lines.pop()
        if not lines:
            self._hold(rest)
            return []
        if self._tail:
            self._tail.append(lines[0])
            lines[0] = b"".join(self._tail)
            self._tail.clear()
            self._tail_bytes = 0
        # Only the first line can be longer than what was just fed.
        if len(data) > self._max_bytes or len(lines[0]) > self._max_bytes:
            return self._read_up_to_the_long_line(lines, rest)
        events = self._read(lines)
        if rest and not self._too_long:
            self._hold(rest)
        return events

    def finish(self) -> list[SseEvent]:
        """The body is at its end: what came of a last event without its blank line.

        Raises:
            ProviderError: As in ``feed``.
        """
        if self._too_long:
            raise self._refusal()
        # A body of one or two bytes that could have become a byte order mark.
        last = [(self._start or b"") + b"".join(self._tail), b""]
        self._tail.clear()
        self._tail_bytes = 0
        self._start = None
        events = self._read(last)
        if self._too_long:
            raise self._refusal()
        return events

    def _skip_bom(self, data: bytes) -> bytes:
        data = (self._start or b"") + data
        if len(data) < len(_BOM) and _BOM.startswith(data):
            self._start = data
            return b""
        self._start = None
        return data.removeprefix(_BOM)

    def _plain_line_ends(self, data: bytes) -> bytes:
        """CRLF and CR become LF; a CRLF may be cut by the end of ``data``."""
        if self._after_cr and data:
            self._after_cr = False
            data = data.removeprefix(b"\n")
        if b"\r" in data:
            self._after_cr = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        return data

    def _hold(self, piece: bytes) -> None:
        if piece:
            self._tail.append(piece)
            self._tail_bytes += len(piece)
            if self._tail_bytes > self._max_bytes:
                self._fail("a line")

    def _read_up_to_the_long_line(self, lines: list[bytes], rest: bytes) -> list[SseEvent]:
        good = next((i for i, line in enumerate(lines) if len(line) > self._max_bytes), len(lines))
        events = self._read(lines[:good])
        if not self._too_long:
            if good < len(lines):
                self._fail("a line")
            else:
                self._hold(rest)
        return events

    def _fail(self, what: str) -> None:
        self._tail.clear()
        self._too_long = what

    def _refusal(self) -> ProviderError:
        return ProviderError(
            f"the server's event stream has {self._too_long} of more than {self._max_bytes:,} bytes;"
            " this is not a model response",
            kind="protocol",
        )

    def _read(self, lines: list[bytes]) -> list[SseEvent]:
        """The events that ``lines`` complete. The two branches at the top are nearly all traffic."""
        events: list[SseEvent] = []
        first = self._data
        for line in lines:
            if not line:
                if first is not None or self._is_error:
                    self._data = first
                    self._complete(events) if self._more or self._is_error or not first else events.append(first)
                    first = None
            elif first is None and line.startswith(b"data: "):
                first = line[6:]
            elif not line.startswith((b"event: r", b":")):
                # (Names that begin with "r" are those of the Responses API, one per event.)
                self._data = first
                self._field(line, events)
                first = self._data
                if self._too_long:
                    break
        self._data = first
        return events

    def _field(self, line: bytes, events: list[SseEvent]) -> None:
        """Any line but a blank one, a comment, or the first data line in its usual form."""
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            if self._stands_alone(value):
                # The blank line between two events is missing.
                self._complete(events)
                self._data = None
            self._add_data(value)
        elif name == b"event":
            self._is_error = value == b"error"
        elif name == b"error":
            self._is_error = True
            self._add_data(value)
        elif line.startswith(b"{"):
            events.append((b"", line))

    def _stands_alone(self, value: bytes) -> bool:
        """Whether what came so far is an event of its own, although no blank line separates it from ``value``.

        Some servers put one line end between two events. JSON that is spread over lines never looks
        like this: a complete value, and then the beginning of another.
        """
        first = self._data
        if first is None or self._more or not first.endswith(b"}") or not value.startswith((b"{", b"[DONE]")):
            return False
        try:
            decode(first)
        except ValueError:
            return False
        return True

    def _add_data(self, value: bytes) -> None:
        if self._data is None:
            self._data = value
            return
        self._more.append(value)
        self._more_bytes += len(value) + 1
        if len(self._data) + self._more_bytes > self._max_bytes:
            self._fail("an event")

    def _complete(self, events: list[SseEvent]) -> None:
        """Dispatch an event that has several lines, no data, or says that it is an error."""
        payload = b"\n".join((self._data or b"", *self._more))
        self._more.clear()
        self._more_bytes = 0
        if self._is_error:
            events.append((b"error", payload))
        elif payload:  # A data field with nothing in it is a keep-alive.
            events.append(payload)
        self._is_error = False
