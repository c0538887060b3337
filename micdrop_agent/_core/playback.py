"""How much of an answer a caller heard, when the host reports it as a count or as words. No I/O.

A speech service reports what it said, not what it was given: ``$42.50`` comes back as "forty two
dollars and fifty cents". So the words are followed in both texts, and where they part, the next
words that agree are looked for.

    received:  Your total is  $42.50,                         due March  3rd.
    heard:     Your total is  forty two dollars and …          due March  third
               └─ equal ────┘ └─ parted ─────────────────────┘ └ anchor ─┘
"""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Final

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["heard_length", "heard_since"]

_FAR: Final = 24
"""Words, in each text, in which the next equal ones are looked for; a spoken number has about a dozen."""

_LEFT_OUT: Final = 4
"""Words of an answer that a speech service may leave out without saying anything in their place."""

_TELLING: Final = 4
"""Letters from which one equal word is enough; shorter ones are equal by chance."""

_JOINERS: Final = "'\u2019"
"""Marks inside of words."""


def heard_length(heard: int | str | None, received: str) -> int:
    """Number of characters of ``received`` that were heard.

    A text need not match to the letter. White space, case, marks and the encoding of letters and
    digits are ignored. Where the words themselves differ (numbers, abbreviations), the count goes
    on at the next words that agree; it never ends before the last words that did.

    Raises:
        TypeError: ``heard`` is neither a number, a string nor ``None``.
        ValueError: ``heard`` is negative.
    """
    if heard is None:
        return len(received)
    if isinstance(heard, str):
        return len(heard) if received.startswith(heard) else _loose_prefix(heard, received)
    if isinstance(heard, bool) or not isinstance(heard, int):
        raise TypeError(f"heard must be a number of characters or a string, not {heard!r}")
    if heard < 0:
        raise ValueError(f"heard must be at least 0 characters, not {heard}")
    return min(heard, len(received))


def heard_since(start: int, heard: int | str | None, received: str) -> int:
    """As ``heard_length``, when everything before ``start`` was taken back and said again.

    A text may be all of it, or only what was said since: the one of which more is found.
    """
    whole = heard_length(heard, received)
    if not start or not isinstance(heard, str):
        return whole
    since = heard_length(heard, received[start:])
    return whole if whole > since else start + since


def _loose_prefix(heard: str, received: str) -> int:
    said = [character for character in heard.casefold() if not character.isspace()]
    length, matched = _matching(said, received, _folded)
    if matched == len(said):
        return length
    words = [letter for character in heard for letter in _letters(character)]
    length, matched = _matching(words, received, _letters)
    if matched == len(words):
        return _with_marks(heard, received, length)
    # More was heard than was received: then all of it was.
    if not any(map(_letters, received[length:])):
        return len(received)
    return _followed(_Words(heard), _Words(received), received)


class _Words:
    """A text as its letters, and where its words begin among them."""

    def __init__(self, text: str) -> None:
        from micdrop_agent.text.joining.joint import is_unspaced

        self.letters: list[str] = []
        self.ends: list[int] = []
        """For each letter, how much of the text it and those before it take."""
        self.starts: list[int] = []
        """For each word, the index of its first letter."""
        inside = False
        for position, character in enumerate(text):
            letters = _letters(character)
            if not letters:
                inside = inside and (character in _JOINERS or unicodedata.category(character)[0] == "M")
                continue
            alone = is_unspaced(character)
            if alone or not inside:
                self.starts.append(len(self.letters))
            inside = not alone
            # A character of several letters was heard with the last of them.
            self.ends += [self.ends[-1] if self.ends else 0] * (len(letters) - 1) + [position + 1]
            self.letters += letters
        self.numbers: dict[int, int] = {start: number for number, start in enumerate(self.starts)}

    def word(self, number: int) -> str:
        """The letters of one word; ``""`` after the last one."""
        if number >= len(self.starts):
            return ""
        end = self.starts[number + 1] if number + 1 < len(self.starts) else len(self.letters)
        return "".join(self.letters[self.starts[number] : end])


@attrs.frozen
class _Place:
    """A word of each text."""

    heard: int
    received: int


def _followed(heard: _Words, received: _Words, text: str) -> int:
    """How much of ``received`` was heard, word by word and over the places where the texts differ."""
    place: _Place | None = _Place(0, 0)
    end = 0
    while place is not None:
        equal = _equal_letters(heard, received, place)
        in_heard = heard.starts[place.heard] + equal
        in_received = received.starts[place.received] + equal
        if in_heard == len(heard.letters):
            return received.ends[in_received - 1] if equal else end
        if in_received == len(received.letters):
            return len(text)
        parted = _last_common_start(heard, received, place, equal)
        if parted.received > place.received:
            end = received.ends[received.starts[parted.received] - 1]
        place = _anchor(heard, received, parted)
        if place is None and _ends_with_number(received, parted):
            closing = text[received.ends[-1] :].split(maxsplit=1)
            return received.ends[-1] + (len(closing[0]) if closing and not text[received.ends[-1]].isspace() else 0)
    return end


def _equal_letters(heard: _Words, received: _Words, place: _Place) -> int:
    start, other = heard.starts[place.heard], received.starts[place.received]
    most = min(len(heard.letters) - start, len(received.letters) - other)
    for count in range(most):
        if heard.letters[start + count] != received.letters[other + count]:
            return count
    return most


def _last_common_start(heard: _Words, received: _Words, place: _Place, equal: int) -> _Place:
    """The last place within ``equal`` letters at which a word begins in both texts."""
    offset = heard.starts[place.heard] - received.starts[place.received]
    last = place
    limit = received.starts[place.received] + equal
    number = place.received
    while number < len(received.starts) and received.starts[number] <= limit:
        other = heard.numbers.get(received.starts[number] + offset)
        if other is not None:
            last = _Place(other, number)
        number += 1
    return last


def _anchor(heard: _Words, received: _Words, parted: _Place) -> _Place | None:
    """The nearest place after ``parted`` where the two texts agree again."""
    ahead: dict[str, list[int]] = {}
    for step in range(_FAR):
        word = heard.word(parted.heard + step)
        if word:
            ahead.setdefault(word, []).append(step)
    best: tuple[int, _Place] | None = None
    for skipped in range(_FAR):
        for said in ahead.get(received.word(parted.received + skipped), ()):
            place = _Place(parted.heard + said, parted.received + skipped)
            near = best is None or said + skipped < best[0]
            if near and said + skipped and _is_anchor(heard, received, place, said, skipped):
                best = said + skipped, place
    return None if best is None else best[1]


def _is_anchor(heard: _Words, received: _Words, place: _Place, said: int, skipped: int) -> bool:
    """Whether an equal word is more than chance."""
    word, after = heard.word(place.heard), heard.word(place.heard + 1)
    run = bool(after) and received.word(place.received + 1).startswith(after)
    if said == 0:
        return run and skipped <= _LEFT_OUT
    return run or not after or len(word) >= _TELLING or skipped <= said


def _ends_with_number(received: _Words, parted: _Place) -> bool:
    """Whether nothing but one number is left, which is never said as it is written."""
    last = received.word(parted.received)
    return parted.received == len(received.starts) - 1 and any(map(str.isdigit, last))


def _matching(said: list[str], received: str, read: Callable[[str], list[str]]) -> tuple[int, int]:
    """How many characters of ``received`` stand for the beginning of ``said``, and how long that beginning is."""
    matched = length = 0
    for position, character in enumerate(received):
        if matched == len(said):
            break
        compared = read(character)
        if said[matched : matched + len(compared)] != compared:
            break
        if compared:
            matched += len(compared)
            length = position + 1
    return length, matched


def _folded(character: str) -> list[str]:
    return [] if character.isspace() else list(character.casefold())


def _letters(character: str) -> list[str]:
    plain = unicodedata.normalize("NFKD", character).casefold()
    return [_digit(letter) for letter in unicodedata.normalize("NFKD", plain) if letter.isalnum()]


def _digit(letter: str) -> str:
    """A digit of any script as that of ours; another letter as it is."""
    return letter if letter.isascii() else str(unicodedata.decimal(letter, letter))


def _with_marks(heard: str, received: str, length: int) -> int:
    """``length``, and the marks behind it that ``heard`` ends with, and what belongs to its last letter."""
    while length < len(received) and unicodedata.category(received[length])[0] == "M":
        length += 1
    end = len(heard)
    while end and not _letters(heard[end - 1]):
        end -= 1
    for mark in heard[end:].split():
        if not received.startswith(mark, length):
            break
        length += len(mark)
    return length
