"""The marks that may end a sentence, and where the run of them ends; nothing about words.

Then she asked: "Are you sure?!"  He was not.
││└┬┘└┬┘
terminators┘ │ closers, then white space that belongs to the piece before it
"""

from __future__ import annotations

import re
from typing import Final

__all__ = [
    "CLAUSE",
    "CLOSERS",
    "EITHER",
    "HARD",
    "MARK",
    "OPENERS",
    "TERMINATORS",
    "WINDOW",
    "has_blank_line",
    "has_case",
    "is_lower",
    "is_unspaced",
    "letters",
    "splits_character",
]

WINDOW: Final = 72
"""Characters after a mark that may be looked at before it is decided, whatever they are."""

HARD: Final = "。！？｡．।॥۔؟"
"""Marks that end a sentence by themselves: no word has them, no number, no address."""

TERMINATORS: Final = ".!?…‥" + HARD
CLOSERS: Final = "\u201d\u2019)]}」』）】》〉〕"
EITHER: Final = "\"'\u201c\u2018«»‹›"
"""Quotation marks that close right after a mark, unless a letter follows them."""

OPENERS: Final = "\"'\u201c\u201e\u201a\u2018«»‹›([{「『（【《〈〔¿¡*_-\u2013\u2014"
"""What may stand before the first letter of a sentence."""

MARK: Final = re.compile(f"[{re.escape(TERMINATORS)}\n]")
CLAUSE: Final = re.compile("[,;:，、；：،؛\u2013\u2014]")

_UNSPACED: Final = re.compile(r"[\u3000-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff00-\uff9f]")
_BLANK_LINE: Final = re.compile(r"\n[^\S\n]*\n")
_LETTER: Final = re.compile(r"[^\W_]")


def is_unspaced(char: str) -> bool:
    """Whether ``char`` belongs to Chinese or Japanese, where no space stands between sentences."""
    return char > "\u2fff" and _UNSPACED.match(char) is not None


def is_lower(char: str) -> bool:
    """Whether ``char`` is a small letter of a script that has capitals."""
    return char.islower() and char.upper() != char


def has_case(char: str) -> bool:
    """Whether ``char`` is a letter of a script that has capitals, or no letter at all."""
    return not char.isalpha() or char.upper() != char or char.lower() != char


def letters(text: str) -> int:
    """How many letters and digits ``text`` has."""
    return len(_LETTER.findall(text))


def has_blank_line(space: str) -> bool:
    """Whether white space between two words ends a paragraph."""
    return _BLANK_LINE.search(space) is not None


def splits_character(text: str, cut: int) -> bool:
    """Whether cutting at ``cut`` would part a letter from the marks that sit on it, or an emoji from its parts."""
    if not 0 < cut < len(text):
        return False
    import unicodedata

    after = text[cut]
    joined = after in "\u200d\ufe0f\ufe0e" or text[cut - 1] == "\u200d" or "\U0001f3fb" <= after <= "\U0001f3ff"
    return joined or unicodedata.category(after)[0] == "M"
