"""Finds the end of a bracketed text that comes in pieces: JSON objects and written-out calls."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["BraceScanner"]

_IN_STRING: Final = re.compile(r'["\\]')
_OUTSIDE: Final = {"{": re.compile(r'["{}]'), "(": re.compile(r'["()]')}
_CLOSER: Final = {"{": "}", "(": ")"}


class BraceScanner:
    """Counts one kind of bracket and keeps JSON strings and their escapes out of the count.

    Each character is looked at once, however the text was cut.

    Args:
        opener: ``"{"`` or ``"("``; the first one that is fed opens the text.
    """

    def __init__(self, opener: str) -> None:
        self._opener = opener
        self._closer = _CLOSER[opener]
        self._outside = _OUTSIDE[opener]
        self._depth = 0
        self._in_string = False
        self._escaped = False

    def end_in(self, piece: str) -> int | None:
        """Index right after the closing bracket in ``piece``; ``None`` if it is not there yet."""
        position = 0
        if self._escaped and piece:
            self._escaped = False
            position = 1
        while position < len(piece):
            pattern = _IN_STRING if self._in_string else self._outside
            match = pattern.search(piece, position)
            if match is None:
                return None
            position = match.end()
            if self._in_string:
                position = self._inside(match.group(), position, len(piece))
            elif self._count(match.group()):
                return position
        return None

    def _inside(self, char: str, position: int, length: int) -> int:
        if char == '"':
            self._in_string = False
            return position
        # A backslash: the character behind it is passed over, now or with the next piece.
        self._escaped = position == length
        return position + 1

    def _count(self, char: str) -> bool:
        if char == '"':
            self._in_string = True
        elif char == self._opener:
            self._depth += 1
        else:
            self._depth -= 1
        return self._depth == 0 and char == self._closer
