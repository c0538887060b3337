"""Which asterisks and underscores are emphasis, decided as they come: nobody waits for the end of a bold sentence.

What opens is dropped when a word follows it, what closes when one stands before it; a mark between two words or
two numbers is a mark (``2 * 3``, ``snake_case``, ``2*3``).
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final, Literal

from micdrop_agent.speech._marks import is_unspaced

__all__ = ["LONGEST_RUN", "Emphasis", "dunder"]

LONGEST_RUN: Final = 64
"""A run of marks that is longer is cut there."""

_DUNDER: Final = re.compile(r"__([A-Za-z][A-Za-z0-9]*(?:_[A-Za-z0-9]+)*)__(?![A-Za-z0-9_])")
_DUNDER_PART: Final = re.compile(r"__[A-Za-z0-9_]*")
_LONGEST_DUNDER: Final = 40
_NAMES: Final = frozenset(
    [
        "init",
        "new",
        "del",
        "main",
        "name",
        "file",
        "doc",
        "all",
        "dict",
        "class",
        "slots",
        "str",
        "repr",
        "call",
        "enter",
        "exit",
        "aenter",
        "aexit",
        "iter",
        "next",
        "aiter",
        "anext",
        "len",
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "hash",
        "bool",
        "int",
        "float",
        "bytes",
        "format",
        "add",
        "sub",
        "mul",
        "truediv",
        "floordiv",
        "mod",
        "pow",
        "and",
        "or",
        "xor",
        "neg",
        "pos",
        "abs",
        "invert",
        "contains",
        "getitem",
        "setitem",
        "delitem",
        "getattr",
        "setattr",
        "delattr",
        "getattribute",
        "get",
        "set",
        "delete",
        "path",
        "version",
        "author",
        "module",
        "qualname",
        "annotations",
        "builtins",
        "import",
        "package",
        "spec",
        "loader",
        "cached",
        "debug",
        "future",
        "await",
        "index",
        "reversed",
        "missing",
        "prepare",
        "mro",
        "bases",
        "subclasses",
        "weakref",
        "post",
        "dir",
        "copy",
        "deepcopy",
        "reduce",
        "matmul",
        "radd",
        "rsub",
        "rmul",
        "iadd",
        "isub",
        "imul",
    ]
)

Role = Literal["open", "close", "drop", "text"]


class Emphasis:
    """The marks that are open in the paragraph."""

    def __init__(self) -> None:
        self._open: dict[str, int] = {}

    def reset(self) -> None:
        """A paragraph ends, and all emphasis in it."""
        self._open.clear()

    def role(self, mark: str, size: int, before: str, after: str) -> Role:
        """What a run of ``size`` marks does between two characters (``""`` at an end of the text)."""
        if mark == "~":
            return "drop" if size == 2 and (before.strip() or after.strip()) else "text"  # noqa: PLR2004 - ~~struck~~
        opens, closes = _flanks(before, after), _flanks(after, before)
        inside = before.isalnum() and after.isalnum()
        if inside:
            return self._inside_word(mark, size, before, after)
        if mark == "_":
            opens, closes = opens and not before.isalnum(), closes and not after.isalnum()
        if closes and self._open.get(mark):
            self._close(mark, size)
            return "close"
        if opens:
            self._open[mark] = self._open.get(mark, 0) + size
            return "open"
        return "close" if closes and mark == "*" and size > 1 else "text"

    def _inside_word(self, mark: str, size: int, before: str, after: str) -> Role:
        unspaced = is_unspaced(before) or is_unspaced(after)
        if (mark == "_" and not (unspaced and size > 1)) or (before.isdigit() and after.isdigit()):
            return "text"
        if self._open.get(mark):
            self._close(mark, size)
            return "close"
        if unspaced:
            self._open[mark] = size
            return "open"
        return "text"

    def _close(self, mark: str, size: int) -> None:
        self._open[mark] = max(0, self._open[mark] - size)


def _flanks(near: str, far: str) -> bool:
    """CommonMark's rule: whether a run that ``near`` stands before clings to ``far``."""
    if not far or far.isspace():
        return False
    return not _is_punctuation(far) or not near or near.isspace() or _is_punctuation(near)


def _is_punctuation(char: str) -> bool:
    return unicodedata.category(char)[0] in "PS"


def dunder(text: str, *, final: bool) -> int | None:
    """The size of a name such as ``__init__`` at the beginning of the text; 0 if none, None if that is open."""
    part = _DUNDER_PART.match(text, 0, _LONGEST_DUNDER)
    if part is None:
        return 0
    if part.end() == len(text) and len(text) < _LONGEST_DUNDER and not final:
        return None
    found = _DUNDER.match(text, 0, _LONGEST_DUNDER)
    if found is None:
        return 0
    called = text[found.end() : found.end() + 1] == "("
    return found.end() if called or "_" in found[1] or found[1] in _NAMES else 0
