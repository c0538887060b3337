"""Where in the original text each spoken character came from.

    original   **Ask** [us](https://a.example) 😀 now
    spoken       Ask    us                        now

A place in the spoken text lies behind the mark that closes what was said and before the one that opens what
was not: who heard "Ask" heard ``**Ask**``.
"""

from __future__ import annotations

from bisect import bisect_left

__all__ = ["SpokenMap"]


class SpokenMap:
    """Grows with the text; one entry for each stretch without a mark."""

    def __init__(self) -> None:
        self.spoken = 0
        """Characters spoken so far."""
        self.original = 0
        """Characters of the original text that are settled."""
        self._spoken_end: list[int] = []
        self._start: list[int] = []
        self._end: list[int] = []
        self._verbatim: list[bool] = []
        self._open = False
        """Whether the last entry may still grow."""

    def say(self, count: int) -> None:
        """The next ``count`` characters are spoken as they are."""
        if not count:
            return
        self.spoken += count
        if self._open:
            self.original += count
            self._spoken_end[-1] = self.spoken
            self._end[-1] = self.original
        else:
            self._append(count, verbatim=True)

    def replace(self, original: int, spoken: int) -> None:
        """The next ``original`` characters are spoken as ``spoken`` others, which count as heard only together."""
        if not spoken:
            self.drop(original, back=False)
            return
        self.spoken += spoken
        self._append(original, verbatim=False)

    def drop(self, count: int, *, back: bool) -> None:
        """The next ``count`` characters are not spoken; with ``back`` they belong to what was said before them."""
        if not count:
            return
        attached = back and bool(self._end) and self._end[-1] == self.original
        self.original += count
        self._open = False
        if attached:
            self._end[-1] = self.original

    def at(self, spoken: int) -> int:
        """How much of the original text the first ``spoken`` characters stand for."""
        if spoken <= 0 or not self._end:
            return 0
        if spoken >= self.spoken:
            return self._end[-1]
        entry = bisect_left(self._spoken_end, spoken)
        if spoken == self._spoken_end[entry]:
            return self._end[entry]
        before = self._spoken_end[entry - 1] if entry else 0
        return self._start[entry] + (spoken - before if self._verbatim[entry] else 0)

    def _append(self, original: int, *, verbatim: bool) -> None:
        self._start.append(self.original)
        self.original += original
        self._spoken_end.append(self.spoken)
        self._end.append(self.original)
        self._verbatim.append(verbatim)
        self._open = verbatim
