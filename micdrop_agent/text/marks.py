"""Literal marks in a text that comes in pieces: found complete, or begun at the end of a piece.

Marks are compared without regard to ASCII case. Every filter that looks for marks holds back the
same thing: the shortest end of the text that may still become one of them.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["MarkSet"]


class MarkSet:
    """A fixed set of literal marks.

    Args:
        marks: The marks; none is the beginning of another one.
    """

    def __init__(self, marks: Iterable[str]) -> None:
        every = sorted({mark.lower() for mark in marks}, key=len, reverse=True)
        self._every = every
        self.longest = len(every[0]) if every else 0
        self._firsts = tuple(sorted({mark[0] for mark in every}))
        self._beginnings = frozenset(mark[:end] for mark in every for end in range(1, len(mark)))

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Finds the marks; made when the first text asks for it, since it takes milliseconds."""
        return re.compile("|".join(map(re.escape, self._every)), re.IGNORECASE | re.ASCII)

    def hold_from(self, text: str, position: int = 0) -> int:
        """Index from which the end of ``text`` may be the beginning of a mark; its length if none.

        Args:
            text: What came so far.
            position: Nothing before this index is looked at.
        """
        end = len(text)
        start = max(position, end - self.longest + 1)
        tail = text[start:].lower()
        if len(tail) != end - start:  # a letter whose small form is longer; it is part of no mark
            return end
        for offset, char in enumerate(tail):
            if char in self._firsts and tail[offset:] in self._beginnings:
                return start + offset
        return end
