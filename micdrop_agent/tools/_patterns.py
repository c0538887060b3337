"""The regular expressions of JSON Schema, which are those of JavaScript, as Python reads them. No I/O."""

from __future__ import annotations

import functools
import re
import sys
import unicodedata
from itertools import groupby
from typing import Final

__all__ = ["compiled", "pattern_problem"]

_PROPERTY: Final = re.compile(r"\\([pP])\{(?:General_Category=|gc=)?(\w+)\}")
_LONG_NAMES: Final = {
    "Letter": "L",
    "Uppercase_Letter": "Lu",
    "Lowercase_Letter": "Ll",
    "Mark": "M",
    "Number": "N",
    "Decimal_Number": "Nd",
    "Punctuation": "P",
    "Symbol": "S",
    "Separator": "Z",
}
_CATEGORIES: Final = frozenset("CLMNPSZ")
_NAMED: Final = re.compile(r"\(\?<(?=[A-Za-z_])")
_BACK: Final = re.compile(r"\\k<(\w+)>")


def pattern_problem(pattern: object) -> str | None:
    """Why ``pattern`` cannot be checked, and what to do; ``None`` if it can."""
    if not isinstance(pattern, str):
        return f"a pattern is a string, not {pattern!r}"
    try:
        compiled(pattern)
    except (re.error, ValueError, RecursionError, OverflowError) as error:
        return f"the pattern {pattern!r} cannot be read ({error}); leave it out and check the value in the function"
    return None


@functools.lru_cache(maxsize=256)
def compiled(pattern: str) -> re.Pattern[str]:
    """``pattern`` for Python.

    Raises:
        ValueError: It has something that Python cannot express.
    """
    python = _BACK.sub(r"(?P=\1)", _NAMED.sub("(?P<", _with_categories(pattern)))
    return re.compile(python)


def _with_categories(pattern: str) -> str:
    r"""``\p{L}`` as the letters that it means, in a class or as one."""
    pieces: list[str] = []
    position = 0
    for match in _PROPERTY.finditer(pattern):
        before = pattern[position : match.start()]
        pieces.append(before)
        body = _members(_LONG_NAMES.get(match[2], match[2]))
        if _inside_class(pattern[: match.start()]):
            if match[1] == "P":
                raise ValueError(f"{match[0]} within a class")
            pieces.append(body)
        else:
            pieces.append(f"[{'^' if match[1] == 'P' else ''}{body}]")
        position = match.end()
    return "".join((*pieces, pattern[position:]))


def _inside_class(text: str) -> bool:
    bare = re.sub(r"\\.", "", text, flags=re.DOTALL)
    return bare.rfind("[") > bare.rfind("]")


@functools.cache
def _members(category: str) -> str:
    if category[:1] not in _CATEGORIES:
        raise ValueError(f"the Unicode property {category} is not known here")
    numbers = (number for number in range(sys.maxunicode + 1) if unicodedata.category(chr(number)).startswith(category))
    ranges: list[str] = []
    for _, group in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        run = [number for _, number in group]
        ranges.append(f"\\U{run[0]:08x}-\\U{run[-1]:08x}")
    return "".join(ranges)
