"""How much of the sent audio the caller has heard: the client reports nothing, so a clock tells. No I/O.

    sent(now, n)   n bytes were handed to the link
    played(now)    bytes that have come out of the speaker by now
    flush(now)     the caller speaks or has paused: the client drops what it has not played

The client starts to play when it has 100 ms of audio, or after 600 ms without more; from there
audio plays without a gap for as long as it comes in time. The way through the network is not known and
counts as nothing. Pinned in tests/test_call_playback.py.
"""

from __future__ import annotations

from typing import Final

from micdrop_agent.call._frames import BYTES_PER_SECOND

__all__ = ["Playback"]

START_BYTES: Final = BYTES_PER_SECOND // 10
"""Audio that the client collects before it plays: 100 ms."""

QUIET_S: Final = 0.6
"""Seconds after which it plays less than that."""


class Playback:
    """The loudspeaker of one call, as positions in the stream of all audio that was sent."""

    __slots__ = ("_arrived_at", "_end", "_pending", "_played", "_spans", "total")

    def __init__(self) -> None:
        self.total = 0
        """Bytes on their way to the caller's ear: those sent, less those the client dropped."""
        self._pending = 0
        """Bytes that the client still collects."""
        self._arrived_at = 0.0
        self._played = 0
        """Bytes before the first of ``_spans``."""
        self._spans: list[tuple[float, int]] = []
        """When a stretch of gapless audio begins, and how many bytes it has."""
        self._end = 0.0
        """When the last span is over."""

    def sent(self, now: float, count: int) -> None:
        """``count`` more bytes were handed to the link."""
        self._settle(now)
        self.total += count
        self._pending += count
        self._arrived_at = now
        if self._pending >= START_BYTES or (self._spans and now <= self._end):
            self._start(now)

    def played(self, now: float) -> int:
        """Position in the stream up to which the caller has heard it."""
        self._settle(now)
        return self._played + sum(_heard(span, now) for span in self._spans)

    def ends_at(self, now: float) -> float:
        """When everything that was sent will have been played."""
        self._settle(now)
        if not self._pending:
            return self._end
        return max(self._end, self._arrived_at + QUIET_S) + self._pending / BYTES_PER_SECOND

    def flush(self, now: float) -> int:
        """The client drops what it has not played; returns the position up to which it has."""
        self.total = self._played = self.played(now)
        self._pending = 0
        self._spans.clear()
        self._end = now
        return self.total

    def _settle(self, now: float) -> None:
        """Let a short rest play when its time has come, and forget the spans that are over."""
        if self._pending and now >= self._arrived_at + QUIET_S:
            self._start(self._arrived_at + QUIET_S)
        while self._spans and _heard(self._spans[0], now) == self._spans[0][1]:
            self._played += self._spans.pop(0)[1]

    def _start(self, at: float) -> None:
        count, self._pending = self._pending, 0
        if self._spans and at <= self._end:
            begin, before = self._spans[-1]
            self._spans[-1] = (begin, before + count)
        else:
            self._spans.append((max(at, self._end), count))
        begin, size = self._spans[-1]
        self._end = begin + size / BYTES_PER_SECOND


def _heard(span: tuple[float, int], now: float) -> int:
    """Bytes of ``span`` that have been played, whole samples."""
    begin, size = span
    # A thousandth of a sample is the rounding of the clock, not silence.
    samples = int((now - begin) * BYTES_PER_SECOND / 2 + 1e-3)
    return min(size, max(0, samples * 2))
