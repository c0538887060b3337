"""Looking ahead in a text that is not complete, never further than a decision needs."""

from __future__ import annotations

from micdrop_agent.speech._marks import CLOSERS, EITHER, OPENERS, TERMINATORS, WINDOW

__all__ = ["Look", "NotYetError"]


class NotYetError(Exception):
    """The text so far does not decide."""


class Look:
    """Looks ahead in the text, and remembers how far: a decision depends on that much and no more."""

    def __init__(self, text: str, *, final: bool) -> None:
        self._text = text
        self._final = final
        self.seen = 0

    def char(self, position: int) -> str:
        """The character at ``position``; empty behind the end of the text."""
        self.seen = max(self.seen, position + 1)
        if position < len(self._text):
            return self._text[position]
        if not self._final:
            raise NotYetError
        return ""

    def run_end(self, start: int, *, french: bool) -> int:
        """Where the marks that begin at ``start`` end, with what closes right after them."""
        position = start + 1
        while position < start + WINDOW // 4:
            char = self.char(position)
            if french and char and char in " \u00a0\u202f" and self.char(position + 1) == "»":
                position += 2
            elif not char or not self._belongs(char, position):
                break
            else:
                position += 1
        return position

    def _belongs(self, char: str, position: int) -> bool:
        if char in TERMINATORS or char in CLOSERS:
            return True
        # These open in one language and close in another; what a letter follows opens.
        return char in EITHER and not self.char(position + 1).isalnum()

    def space_end(self, start: int) -> int:
        """Where the white space that begins at ``start`` ends."""
        position = start
        while position < start + WINDOW // 4 and self.char(position).isspace():
            position += 1
        return position

    def first_letter(self, start: int) -> str:
        """The first letter, digit or sign at or behind ``start`` that does not open something."""
        for position in range(start, start + WINDOW // 4):
            char = self.char(position)
            if not char or not (char in OPENERS or char.isspace()):
                return char
        return ""

    def word(self, start: int) -> str:
        """The whole next word at ``start``, with what opens before it; a lone dash is not a word."""
        position = start
        found = False
        while position < start + WINDOW // 2:
            char = self.char(position)
            if not char or (char.isspace() and found):
                break
            found = found or char.isalnum()
            position += 1
        return self._text[start:position]

    def phrase(self, start: int, most: int) -> str:
        """The next characters up to a mark, ``most`` of them."""
        position = start
        while position < start + most and self.char(position).isalnum():
            position += 1
        return self._text[start:position]
