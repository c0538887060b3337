"""Text that is like a tool call without the marks of one: ``get_weather({…})``, ``{"name": …}``. No I/O."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

import attrs

from micdrop_agent.text.written import WrittenCall, call_in_object

if TYPE_CHECKING:
    from collections.abc import Iterator

    from micdrop_agent.text.braces import BraceScanner
    from micdrop_agent.text.written import Declared

__all__ = ["BLANKS", "TAIL", "TAIL_LENGTH", "Guess", "call_of", "joined", "start_pattern"]

BLANKS: Final = 16
"""Most blanks between a name and its bracket, or a brace and its first quote."""

TAIL: Final = re.compile(
    rf"(?:`{{1,2}}|```[a-z_]{{0,9}}\s{{0,{BLANKS}}}(?:\[\s{{0,{BLANKS}}})?(?:\{{\s{{0,{BLANKS}}})?"
    rf"|\[\s{{0,{BLANKS}}}(?:\{{\s{{0,{BLANKS}}})?|\{{\s{{0,{BLANKS}}})\Z",
    re.IGNORECASE,
)
"""The beginning of a fence, list or object at the end of a text."""

TAIL_LENGTH: Final = 3 * BLANKS + 16
"""Most characters that ``TAIL`` matches."""


@attrs.define(eq=False)
class Guess:
    """A text that is like a call; ``name`` is known once it is complete."""

    name: str | None
    scanner: BraceScanner
    fenced: bool
    pieces: list[str] = attrs.Factory(list[str])

    @property
    def text(self) -> str:
        """All of it that has come."""
        return "".join(self.pieces)


def start_pattern(names: list[str]) -> re.Pattern[str] | None:
    """Finds where a call of one of ``names`` may begin; ``None`` without names."""
    if not names:
        return None
    every = "|".join(map(re.escape, names))
    blanks = rf"\s{{0,{BLANKS}}}"
    return re.compile(
        rf"(?P<fence>```(?:json|python)?{blanks})?(?P<list>\[{blanks})?"
        rf'(?:(?<![\w-])(?P<name>{every}){blanks}[({{]|(?P<brace>\{{){blanks}")',
    )


def call_of(guess: Guess, declared: Declared) -> WrittenCall | None:
    """The call that a complete ``guess`` is, if it is one: an object of JSON has to be in it."""
    text = guess.text
    start = next(index for index, char in enumerate(text) if char in "({")
    inner = text[start:] if text[start] == "{" else text[start + 1 : -1]
    try:
        value: object = json.loads(inner, strict=False)
    except (ValueError, RecursionError):
        return None
    if guess.name is None:
        return call_in_object(value, declared)
    return WrittenCall(guess.name, inner.strip()) if isinstance(value, dict) else None


def joined(queue: list[str | Guess]) -> Iterator[str | Guess]:
    """The queue with texts that follow each other as one."""
    texts: list[str] = []
    for part in queue:
        if isinstance(part, str):
            texts.append(part)
            continue
        if texts:
            yield "".join(texts)
            texts.clear()
        yield part
    yield "".join(texts)
