"""Wraps words at the edge of a terminal, although a word is shown before its end is known. No I/O."""

from __future__ import annotations

import unicodedata

__all__ = ["Wrap"]


class Wrap:
    """Shows each character at once, and takes a word back to the next line when it does not fit.

    Args:
        columns: Width of the terminal, in cells; the last one stays free.
    """

    def __init__(self, columns: int) -> None:
        self._columns = max(columns - 1, 1)
        self._column = 0
        self._word = ""
        self._word_width = 0

    def feed(self, text: str) -> str:
        """What to write for ``text``."""
        return "".join(map(self._show, text))

    def newline(self) -> None:
        """The cursor is at the beginning of a line again."""
        self._column = self._word_width = 0
        self._word = ""

    def _show(self, letter: str) -> str:
        if letter == "\n":
            self.newline()
            return letter
        width = _width(letter)
        broken = ""
        if self._column + width > self._columns:
            if letter == " ":  # it would be the end of the line: the break stands for it
                self.newline()
                return "\n"
            broken = self._break(takes_word=width == 1)  # a line may break before a wide letter
        self._column += width
        if letter == " " or width == 2:  # noqa: PLR2004 - cells of a wide letter; a line may break behind each
            self._word, self._word_width = "", 0
        else:
            self._word += letter
            self._word_width += width
        return broken + letter

    def _break(self, *, takes_word: bool) -> str:
        """Begin a new line, and take the word along unless it fills the line by itself."""
        word, width = self._word, self._word_width
        taken = takes_word and 0 < width < self._column
        self._column = width if taken else 0
        if not taken:
            self._word, self._word_width = "", 0
            return "\n"
        return "\b" * width + " " * width + "\n" + word


def _width(letter: str) -> int:
    """Cells that ``letter`` takes."""
    if unicodedata.combining(letter) or unicodedata.category(letter) in {"Cf", "Mn", "Me"}:
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1
