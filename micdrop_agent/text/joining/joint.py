"""What belongs between two texts that two models wrote: a space, or nothing.

The first text broke off anywhere, even inside a word; the second goes on, often without the
space that belongs there. Marks, digits and scripts decide most cases. Between two letters it is
a guess, since nobody knows the words of every language: a space, unless the parts look like
pieces of one word.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

__all__ = ["is_known", "is_unspaced", "is_word", "needs_space", "without_said_marks"]

_ENDERS: Final = ".,;:!?…"
_OPENERS: Final = "([{\u201c\u2018«„¿¡$£€#@"
"""Marks that a space stands before; with the left quotation marks."""

_GLUE: Final = _OPENERS + "_/\\-\u2013\u2014"
"""Marks that nothing stands behind; with both dashes."""

_APOSTROPHES: Final = "'\u2019"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_UNSPACED: Final = re.compile(
    # Kana, CJK ideographs and their marks, full-width forms; Thai, Lao, Burmese, Khmer. Not Hangul.
    r"[\u3000-\u303f\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff00-\uff9f"
    r"\U00020000-\U0003134f\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]"
)

_WHOLE: Final = _words(
    # English, French, Spanish, German: short words, after or before which a space belongs.
    """
    a i an the and or but if so as at by for from in into of off on to up out with no not now yes is are was
    were be been am do does did has have had can could will would may might must shall should he she it its we
    us you your they them their his her him my me our who what when where why how this that these those there
    here then than all any one two six ten few new old big day man men way get got let see say use go too yet
    own per via ago far low top end set put run try ask buy pay car bus sky sun sea air box key map bed job lot
    bad red hot ice oil age art act add aim eat fly far fun gas ill law lay leg lie log mix net nor oh ok owe
    pen pet pot raw row sad sit six son tax tea tie tip war wet win won mr mrs ms dr st vs pm
    le la les un une des du de et ou où en au aux ce ces cet que qui ne pas se sa son ses il elle on nous vous
    je tu est sont par pour sur dans avec mais si plus très
    el los las uno una unos y o del al con por su sus lo se es son está que como más muy ya mi tu
    der die das den dem des ein eine einen und oder ist sind mit von vom zu zum zur im am auf für nicht er sie
    es wir ihr ich du hat war wie was wer so bei bis nur noch aus um an
    """
)
_SUFFIXES: Final = _words(
    """
    ing ings ed er ers est tion tions sion ation ations ment ments ness ly ity ities ous ful ible ical ally ism
    ist ists ize izes ized ise ised ance ence ive ary ory ure ture ies ied es ian ians
    """
)
_VOWELS: Final = frozenset("aeiouyæœø")
_ONSETS: Final = _words(
    """
    bl br ch cl cr dr dw fj fl fr gh gl gn gr kl kn kr ll ph pf pl pr ps qu rh sc sh sk sl sm sn sp sq st sv sw
    th tr ts tw vl vr wh wr zh zw
    """
)
_SHORT: Final = 3
"""Letters of a left part that is rather a piece than a word, when it is not a well-known word."""


def is_word(char: str) -> bool:
    """Whether ``char`` is part of a word: letter, digit, or a mark that sits on a letter."""
    return char.isalnum() or char == "_" or (char > "\x7f" and unicodedata.category(char)[0] == "M")


def is_unspaced(char: str) -> bool:
    """Whether ``char`` is of a script that writes no space between words."""
    return char > "\x7f" and _UNSPACED.match(char) is not None


def without_said_marks(said: str, text: str) -> str:
    """``text`` without the marks at its beginning that already stand at the end of ``said``."""
    marks = _marks_at_end(said)
    position = 0
    for mark in marks:
        here = position + len(text[position:]) - len(text[position:].lstrip())
        if here == len(text) or text[here] != mark:
            break
        position = here + 1
    if position == 0 and marks and marks[-1] in _ENDERS:
        # "Hello!" and then ". How": the sentence has its end already.
        bare = text.lstrip()
        if bare[:1] and bare[0] in _ENDERS and not bare.startswith(("...", "…")):
            return bare[1:]
    return text[position:]


def _marks_at_end(text: str) -> str:
    start = len(text)
    while start > 0 and not is_word(text[start - 1]):
        start -= 1
    return "".join(text[start:].split())


def needs_space(left: str, right: str) -> bool:
    """Whether a space belongs between two non-empty texts that touch without white space."""
    before, after = left[-1], right[0]
    if is_unspaced(before) or is_unspaced(after):
        return False
    if not is_word(after):
        return _space_before_mark(left, after)
    if not is_word(before):
        return _space_behind_mark(left, right)
    return not _inside_word(_last_word(left), _first_word(right))


def _space_before_mark(left: str, mark: str) -> bool:
    if left[-1] in _GLUE:
        return False
    if mark == '"':
        return left.count('"') % 2 == 0
    return mark in _OPENERS or mark in "&+=" or unicodedata.category(mark) == "So"


def _space_behind_mark(left: str, right: str) -> bool:
    mark = left[-1]
    if mark in _GLUE:
        return False
    if mark == '"':
        return left.count('"') % 2 == 0
    if mark in _APOSTROPHES:
        short = 2
        return min(len(_last_word(left[:-1])), len(_first_word(right))) > short
    # 3.14, 1,000 and 9:30 were cut behind their mark.
    return not (mark in ".,:" and right[0].isdigit() and left[-2:-1].isdigit())


def is_known(word: str) -> bool:
    """Whether ``word`` is one of the short words that are complete as they stand."""
    return word.casefold() in _WHOLE


def _inside_word(left: str, right: str) -> bool:
    """Whether two non-empty parts are rather pieces of one word than two words."""
    if left[-1].isdigit():
        return right[0].isdigit() or right.casefold() in {"st", "nd", "rd", "th"}
    if right[0].isdigit() or left.lower() == left.upper():
        # Of scripts without capitals (Arabic, Hebrew, Hindi, Korean) we know no pieces.
        return False
    if is_known(left):
        return False
    if right[0].isupper():
        return left.isupper() and right.isupper()
    return _looks_cut(left, right)


def _looks_cut(left: str, right: str) -> bool:
    plain, rest = _plain(left), _plain(right)
    if plain.isascii() and not _VOWELS.intersection(plain) and not left.isupper():
        return True
    if is_known(rest) or is_known(right) or left[0].isupper():
        return False
    return len(plain) <= _SHORT or rest in _SUFFIXES or _cannot_begin(rest)


def _cannot_begin(word: str) -> bool:
    """Whether no word begins like this: two consonants that never stand first."""
    onset = word[:2]
    return len(word) > 1 and onset.isascii() and not _VOWELS.intersection(onset) and onset not in _ONSETS


def _plain(word: str) -> str:
    """``word`` in small letters without accents."""
    letters = unicodedata.normalize("NFD", word.casefold())
    return "".join(char for char in letters if char.isalnum())


def _last_word(text: str) -> str:
    start = len(text)
    while start > 0 and is_word(text[start - 1]):
        start -= 1
    return text[start:]


def _first_word(text: str) -> str:
    end = 0
    while end < len(text) and is_word(text[end]):
        end += 1
    return text[:end]
