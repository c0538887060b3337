"""Whether one dot, or one ellipsis, ends a sentence; given the piece before it and one whole word after it.

sentencex knows the abbreviations of many languages and has one vote. What it cannot know is decided here: a short
form that *may* stand last ends the sentence only where the next word is one that sentences begin with ("at 5 p.m.
The" but not "at 5 p.m. Monday"), and one that always has something after it never does ("Dr. Patel").
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from micdrop_agent.speech._marks import OPENERS, has_case, is_lower
from micdrop_agent.speech._words import (
    ARTICLES,
    GOES_ON,
    HOURS,
    LAST,
    MAY_LAST,
    MONTHS_FOLLOW,
    NEVER_LAST,
    NOT_AFTER_HOURS,
    NUMBERED,
    PARTICLES,
    STARTERS,
    UNITS,
    WORDS_TOO,
)

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Dots"]

_TOKEN: Final = re.compile(r"[^\s\u3000-\u303f]*$")
_ENDINGS: Final = "\"'\u201c\u201d\u2018\u2019«»‹›()[]{}.,;:!?…*_"
_SHORT: Final = re.compile(r"(?:[^\W\d_]\w{0,2}[\u0900-\u0dff]*\.-?)+[^\W\d_]\w{0,2}[\u0900-\u0dff]*")
"""Letters with dots between them: U.S, a.m, z.B, Ph.D; the last dot is the one that is asked about."""
_NUMBER: Final = re.compile(r"[\d.,:/-]*\d")
_BEFORE_WORD: Final = OPENERS + " \u00a0\u202f"
_ELLIPSES: Final = ("..", "…", "‥")
_REFUSES: Final = frozenset({"no"})
"""Written so it is the word; "No. 12" has a capital."""
_FIRST_PERSON: Final = frozenset({"i", "i'm", "i'd", "i'll", "i've"})
_SIGNS: Final = "€$£¥₹%°"
"""What ends an amount and no short form."""
_COMMON: Final = 4
"""Letters that a word has at least if it is not to be taken for a short form."""
_CONTEXT: Final = 240
"""Characters before the dot that sentencex sees; its work grows with them."""


class Dots:
    """Decides dots for one language.

    Args:
        language: The first part of a language tag, in small letters.
        segment: sentencex's function of this name.
    """

    def __init__(self, language: str, segment: Callable[[str, str], list[str]]) -> None:
        self._language = language
        self._segment = segment
        self._starters = STARTERS.get(language, frozenset())
        self._never_last = NEVER_LAST.get(language, frozenset())
        self._particles = PARTICLES - ARTICLES.get(language, frozenset())
        self._may_last = MAY_LAST.get(language, frozenset())

    def end_sentence(self, before: str, run: str, after: str) -> bool:
        """Whether the run of dots between ``before`` and the word ``after`` ends a sentence.

        Args:
            before: The piece up to the run.
            run: The dots, with the quotation marks and brackets that close right after them.
            after: The next word with what opens before it, and nothing else.
        """
        word = after.lstrip(_BEFORE_WORD)
        if word and is_lower(word[0]):
            return False
        if run.startswith(_ELLIPSES) or before.endswith(_ELLIPSES):
            return self._ends_at_ellipsis(word)
        token = _token(before)
        if run != ".":
            # Something closes behind the dot: "(see p. 3.)" and "'Go.'" are ends, "(approx.) Smith" is not.
            return token.casefold() not in self._never_last
        if after[:1] in {"¿", "¡"}:
            return True
        decided = self._by_token(token, before, word)
        return self._by_vote(before, word) if decided is None else decided

    def is_plain_end(self, before: str, word: str) -> bool:
        """Whether a short piece ends in a common word, and a sentence begins behind it: "Maybe. The"."""
        token, word = _token(before), word.lstrip(_BEFORE_WORD)
        plain = token.casefold()
        common = plain in self._starters or (len(token) >= _COMMON and token.isalpha())
        return (
            common
            and token not in self._may_last
            and plain not in self._never_last
            and (self._starts(word) or not has_case(word[:1]) or _plain(word) in self._never_last)
        )

    def _ends_at_ellipsis(self, word: str) -> bool:
        # Where nothing but the next word tells, a pause inside the sentence is the smaller fault.
        if not word or not word[0].isupper():
            return False
        if self._language == "de":
            return _plain(word) in self._starters  # its nouns have capitals too
        return not (self._language == "en" and _plain(word) in _FIRST_PERSON)

    def _by_token(self, token: str, before: str, word: str) -> bool | None:
        """What the word before the dot says; None if it is a word like any other."""
        plain = token.casefold()
        if _NUMBER.fullmatch(token):
            return self._ends_at_number(token, word)
        if plain in LAST or (plain in HOURS and _may_follow_hours(word)):
            return True
        single = len(_bases(token)) == 1 and token[:1].isalpha() and token[-1] not in _SIGNS
        if self._is_unit(token, single=single) and _NUMBER.fullmatch(_token(before[: -len(token)].rstrip())):
            return not word[:1].isdigit() and _plain(word) not in GOES_ON  # a unit behind its number: "um 9 h."
        if (plain in self._never_last or plain.rpartition("-")[2] in self._never_last) and token not in WORDS_TOO:
            return False
        if word[:1].isdigit() and token not in _REFUSES and self._takes_number(plain):
            return False
        if single:
            return self._starts(word) and (token.islower() or _plain(word) not in self._particles)
        doubled = len(token) == 2 and token.isupper() and token[0] == token[1]  # noqa: PLR2004 - UU, EE
        if token in self._may_last or _SHORT.fullmatch(token) or doubled:
            return self._starts(word)
        return None

    def _takes_number(self, plain: str) -> bool:
        """Whether a number behind this word belongs to it: few sentences begin with one, and many short forms have one."""
        unknown_short = len(plain) <= _COMMON and plain.isalpha() and plain not in self._starters
        return unknown_short or plain in NUMBERED or plain.endswith("str")

    def _is_unit(self, token: str, *, single: bool) -> bool:
        if self._language == "hi":
            return False  # its sentences end in a mark of their own
        return (single and not token.isupper()) or (token in UNITS and self._language != "de")

    def _ends_at_number(self, token: str, word: str) -> bool:
        ordinal = len(token) <= 2 and self._language in MONTHS_FOLLOW  # noqa: PLR2004 - 31 days, 21 centuries
        return not ordinal or (not word[:1].isdigit() and self._starts(word))

    def _starts(self, word: str) -> bool:
        """Whether sentences begin with ``word``."""
        plain = _plain(word)
        if len(plain) == 1 and word[1:2] == ".":
            return False  # an initial
        if plain in self._starters:
            return True
        return re.split("['\u2019-]", plain, maxsplit=1)[0] in self._starters

    def _by_vote(self, before: str, word: str) -> bool:
        near = before[-_CONTEXT:]
        text = f"{near}. {word}"  # without what opens: it counts quotation marks
        end = len(near) + 2
        position = 0
        for sentence in self._segment(self._language, text):
            position += len(sentence)
            if position >= end:
                break
        return position == end or self._starts(word)


def _token(text: str) -> str:
    """The last word of ``text`` without what opens before it."""
    found = _TOKEN.search(text[-64:])
    if not found:
        return ""
    token = found.group().lstrip(OPENERS)
    # French and Italian write "l'art. 5" as one word.
    return token[2:] if token[1:2] in {"'", "\u2019"} else token


def _may_follow_hours(word: str) -> bool:
    """Whether the word after "5 p.m." begins a sentence: a day or a time zone does not."""
    return word[:1].isupper() and _plain(word) not in NOT_AFTER_HOURS


def _plain(word: str) -> str:
    return word.strip(_ENDINGS).replace("\u2019", "'").casefold()


def _bases(token: str) -> str:
    """The letters of ``token`` without the marks that sit on them."""
    return "".join(char for char in token if char.isalnum())
