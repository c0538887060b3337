"""What a line may begin with. Each function answers ``None`` while more of the line is needed."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

__all__ = ["LONGEST_LINE", "Fence", "Lead", "fence", "is_separator", "lead", "rule", "table"]

LONGEST_LINE: Final = 2000
_LONGEST_INFO: Final = 200

_HEADING: Final = re.compile(r"#{1,6}[ \t]+")
_BULLET: Final = re.compile(r"[-*+•‣▪●○◦][ \t]+(?:\[[ xX]\][ \t]+)?")
_BULLET_PART: Final = re.compile(r"[-*+•‣▪●○◦](?:[ \t]+(?:\[(?:[ xX](?:\](?:[ \t]+)?)?)?)?)?\Z")
_QUOTE: Final = re.compile(r">[ \t]?")
_DEFINITION: Final = re.compile(r"\[([^\]\n]{1,80})\]:[ \t]+")
_DEFINITION_PART: Final = re.compile(r"\[[^\]\n]{0,80}(?:\](?::[ \t]*)?)?\Z")
_ROW: Final = r"--+:?(?:[ \t]*\|[ \t]*:?--+:?)+(?:[ \t]*\|)?"
"""The line under the head of a table without bars at its sides; what such a table says is said."""
_ROW_PART: Final = r"--+:?(?:[ \t]*\|[ \t]*:?-*:?)*"
_RULE: Final = re.compile(rf"(?:([-*_])(?:[ \t]*\1){{2,}}|=+|{_ROW})[ \t]*(?:\n|$)")
_RULE_PART: Final = re.compile(rf"(?:([-*_])(?:[ \t]*\1)*|=+|{_ROW_PART})[ \t]*\Z")
_SEPARATOR: Final = re.compile(r"[ \t]*\|?(?:[ \t]*:?-+:?[ \t]*\|)*[ \t]*:?-*:?[ \t]*\Z")


class Fence(NamedTuple):
    """The line that opens a block of code."""

    size: int
    mark: str


class Lead(NamedTuple):
    """What a line begins with that is not said."""

    size: int
    whole_line: bool = False
    """Whether the rest of the line is not said either."""


def fence(text: str, *, final: bool) -> Fence | bool | None:
    """Whether a line that begins with three backticks or tildes opens a block of code."""
    mark = text[0]
    if mark not in "`~":
        return False
    count = len(text) - len(text.lstrip(mark))
    if count == len(text) and not final and count < _LONGEST_INFO:
        return None
    if count < 3:  # noqa: PLR2004 - as CommonMark has it
        return False
    end = text.find("\n", 0, _LONGEST_INFO)
    info = text[count:end] if end >= 0 else text[count:_LONGEST_INFO]
    if mark == "`" and "`" in info:
        return False
    if end < 0 and not final and len(text) < _LONGEST_INFO:
        return None
    return Fence(end + 1 if end >= 0 else min(len(text), _LONGEST_INFO), mark * count)


def lead(text: str, *, final: bool) -> Lead | bool | None:
    """A heading's, list's, quotation's or definition's mark at the beginning of a line."""
    char = text[0]
    if char == "#":
        return _lead(text, _HEADING, open_=text.strip("#") == "" and len(text) <= 6, final=final)  # noqa: PLR2004
    if char == ">":
        return _lead(text, _QUOTE, open_=False, final=final)
    if char == "[":
        return _definition(text, final=final)
    return _lead(text, _BULLET, open_=_BULLET_PART.match(text) is not None, final=final)


def _lead(text: str, pattern: re.Pattern[str], *, open_: bool, final: bool) -> Lead | bool | None:
    found = pattern.match(text, 0, _LONGEST_INFO)
    if not final and (open_ or (found and found.end() == len(text) < _LONGEST_INFO)):
        return None
    return Lead(found.end()) if found else False


def _definition(text: str, *, final: bool) -> Lead | bool | None:
    found = _DEFINITION.match(text, 0, _LONGEST_INFO)
    if found and not (found.end() == len(text) < _LONGEST_INFO and not final):
        return Lead(found.end(), whole_line=not found[1].startswith("^"))
    return None if not final and _DEFINITION_PART.match(text) and len(text) < _LONGEST_INFO else False


def rule(text: str, *, final: bool) -> Lead | bool | None:
    """A line that is nothing but a rule, or the line under a heading or under the head of a table."""
    end = text.find("\n", 0, _LONGEST_INFO)
    line = text[: end + 1] if end >= 0 else text[:_LONGEST_INFO]
    if end >= 0 or final:
        found = _RULE.fullmatch(line)
        return Lead(len(line)) if found else False
    return None if len(text) < _LONGEST_INFO and _RULE_PART.match(line) else False


def table(text: str, *, final: bool) -> bool | None:
    """Whether a line that begins with a bar is the head of a table: its second line says so."""
    end = text.find("\n", 0, LONGEST_LINE)
    if end < 0:
        return False if final or len(text) >= LONGEST_LINE else None
    second_end = text.find("\n", end + 1, end + LONGEST_LINE)
    second = text[end + 1 : second_end] if second_end >= 0 else text[end + 1 : end + LONGEST_LINE]
    if second.strip(" \t|:-"):
        return False
    if second_end < 0 and not final and len(text) < end + LONGEST_LINE:
        return None
    return is_separator(second)


def is_separator(line: str) -> bool:
    """Whether ``line`` is the one between the head of a table and its rows."""
    return "-" in line and "|" in line and _SEPARATOR.match(line) is not None
