"""The extraction filter: cuts the value at the end of an answer out of what is spoken.

    chunk ──> feed ──> spoken text          found, value, warning
                └── white space, a code fence, a beginning of the tag: held back until decided

What is held back at any moment is the longest end of the text that may turn out to stand
right before the value (white space, then perhaps a fence, then a beginning of the value).
Everything else is released at once.

Guarantees, each one pinned in tests/test_text_extract.py:

1. The spoken text and the value are the same for every way of cutting the text.
2. Nothing of tag or value is spoken; a text without a value is spoken unchanged.
3. Each character is looked at a bounded number of times.

Source: Micdrop page "Extract Value from Answer" (docs/design.md, D6: values come without tags).
"""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any, Final, NoReturn

from micdrop_agent.options import ExtractTag
from micdrop_agent.text.braces import BraceScanner

if TYPE_CHECKING:
    from micdrop_agent.options import ExtractJson

__all__ = ["ExtractFilter", "extract_text"]

_OBJECT_START: Final = re.compile(r'\{\s*["}]')
_FENCE: Final = "```json"
_FENCE_MARK: Final = "```"


class ExtractFilter:
    """Lets the spoken part of an answer through and keeps its value.

    Feed it the chunks of one answer, then call ``finish`` once.

    Args:
        options: What the value looks like.
    """

    found: bool
    """Whether there is a value; final after ``finish``."""

    value: Any
    """The value: parsed JSON, or the trimmed text between the tags; ``None`` until found."""

    in_value: bool
    """Whether the text fed so far ends inside the value."""

    warning: str | None
    """Why a text that looked like a value gave none."""

    def __init__(self, options: ExtractJson | ExtractTag) -> None:
        self.found = False
        self.value = None
        self.in_value = False
        self.warning = None
        self._held: list[str] = []
        self._done = False
        self._start: _Start
        self._body: _JsonBody | _TagBody
        if isinstance(options, ExtractTag):
            self._start = _TagStart(options.start_tag)
            self._body = _TagBody(options.end_tag)
        else:
            self._start = _JsonStart()
            self._body = _JsonBody()

    def feed(self, text: str) -> str:
        """Take the next chunk; return what may be spoken now (``""`` if nothing may)."""
        if self.in_value:
            self._take(text)
            return ""
        if self._done or not text:
            return ""
        if not self._held:
            if not self._start.may_start_in(text) and not text[-1].isspace():
                return text
        elif text.isspace() and self._start.spaces_may_follow(self._held[-1]):
            # A long run of white space in small pieces must not be joined again for each of them.
            self._held.append(text)
            return ""
        return self._look(text)

    def finish(self) -> str:
        """End the answer; return the held text if it belongs to no value."""
        if self.in_value:
            self.in_value = False
            self._store(self._body.at_end())
        released = "".join(self._held)
        self._held.clear()
        self._done = True
        return released

    def _look(self, text: str) -> str:
        # One piece is the usual case; the join is then free.
        self._held.append(text)
        text = "".join(self._held)
        self._held.clear()
        start = self._start.find(text)
        if start is None:
            cut = self._start.hold_from(text)
            if cut < len(text):
                self._held.append(text[cut:])
            return text[:cut]
        self.in_value = True
        self._take(text[self._start.body_from(start) :])
        return text[: _before_value(text, start)]

    def _take(self, text: str) -> None:
        outcome = self._body.take(text)
        if outcome is not None:
            self.in_value = False
            self._done = True
            self._store(outcome)

    def _store(self, outcome: _Outcome) -> None:
        self.found, self.value, self.warning = outcome


def extract_text(text: str, options: ExtractJson | ExtractTag) -> tuple[str, bool, Any]:
    """Take a whole text apart: spoken text, whether there is a value, the value.

    The text comes back as it is when there is nothing that looks like a value.
    """
    extract = ExtractFilter(options)
    spoken = extract.feed(text)
    return spoken + extract.finish(), extract.found, extract.value


_Outcome = tuple[bool, Any, str | None]


def _before_value(text: str, start: int) -> int:
    """Where the white space and the code fence begin that stand right before ``start``."""
    end = len(text[:start].rstrip())
    for fence in (_FENCE, _FENCE_MARK):
        if text[max(0, end - len(fence)) : end].lower() == fence:
            return len(text[: end - len(fence)].rstrip())
    return end


def _partial_fence(text: str) -> int:
    """Where the longest beginning of a fence at the end of ``text`` starts."""
    tail = text[-len(_FENCE) :].lower()
    for length in range(len(tail), 0, -1):
        if tail.endswith(_FENCE[:length]):
            return len(text) - length
    return len(text)


class _Start:
    """How a value begins; the fence and the white space before it are the same for all."""

    def may_start_in(self, text: str) -> bool:
        """Whether a value, or what stands right before it, may begin in ``text`` (fast)."""
        raise NotImplementedError

    def find(self, text: str) -> int | None:
        """Index of the first value in ``text``."""
        raise NotImplementedError

    def body_from(self, start: int) -> int:
        """Index at which the body of the value found at ``start`` begins."""
        raise NotImplementedError

    def partial(self, text: str) -> list[int]:
        """Each index from which the end of ``text`` may be the beginning of a value."""
        raise NotImplementedError

    def spaces_may_follow(self, held: str) -> bool:
        """Whether white space after the held text keeps it held."""
        return held[-1].isspace()

    def hold_from(self, text: str) -> int:
        """Index from which ``text`` is held back."""
        least = _before_value(text, len(text))
        fence = _partial_fence(text)
        if fence < len(text):
            least = min(least, len(text[:fence].rstrip()))
        for start in self.partial(text):
            least = min(least, _before_value(text, start))
        return least


class _JsonStart(_Start):
    def may_start_in(self, text: str) -> bool:
        return "{" in text or "`" in text

    def find(self, text: str) -> int | None:
        match = _OBJECT_START.search(text)
        return None if match is None else match.start()

    def body_from(self, start: int) -> int:
        return start

    def partial(self, text: str) -> list[int]:
        before = text.rstrip()
        return [len(before) - 1] if before.endswith("{") else []


class _TagStart(_Start):
    def __init__(self, tag: str) -> None:
        self._tag = tag
        self._first = tag[0]
        # A tag that begins with white space continues a held run of it: no shortcut then.
        self._blank = any(char.isspace() for char in tag)

    def may_start_in(self, text: str) -> bool:
        return self._first in text or "`" in text

    def find(self, text: str) -> int | None:
        start = text.find(self._tag)
        return None if start < 0 else start

    def body_from(self, start: int) -> int:
        return start + len(self._tag)

    def partial(self, text: str) -> list[int]:
        longest = min(len(self._tag) - 1, len(text))
        return [len(text) - n for n in range(1, longest + 1) if text.endswith(self._tag[:n])]

    def spaces_may_follow(self, held: str) -> bool:
        return not self._blank and super().spaces_may_follow(held)


class _JsonBody:
    """The first balanced object; what follows it is dropped."""

    def __init__(self) -> None:
        self._scanner = BraceScanner("{")
        self._pieces: list[str] = []

    def take(self, text: str) -> _Outcome | None:
        end = self._scanner.end_in(text)
        self._pieces.append(text[:end])
        return None if end is None else self._parsed()

    def at_end(self) -> _Outcome:
        return False, None, "the JSON value at the end of the answer is not complete; it was dropped"

    def _parsed(self) -> _Outcome:
        text = "".join(self._pieces)
        self._pieces.clear()
        try:
            value = json.loads(text, parse_constant=_refuse, parse_float=_finite)
        except (ValueError, RecursionError) as error:
            # The value itself stays out of the message: it often holds personal details.
            return False, None, f"the value at the end of the answer is not JSON ({_why(error)}); it was dropped"
        return True, value, None


class _TagBody:
    """Everything up to the first end tag, or to the end of the text."""

    def __init__(self, tag: str) -> None:
        self._tag = tag
        self._pieces: list[str] = []
        self._tail = ""

    def take(self, text: str) -> _Outcome | None:
        window = self._tail + text
        end = window.find(self._tag)
        if end >= 0:
            self._pieces.append(window[:end])
            return True, "".join(self._pieces).strip(), None
        # Only as much is looked at again as may be the beginning of the end tag.
        cut = max(0, len(window) - len(self._tag) + 1)
        self._pieces.append(window[:cut])
        self._tail = window[cut:]
        return None

    def at_end(self) -> _Outcome:
        return True, ("".join(self._pieces) + self._tail).strip(), None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError("a number is too large")
    return number


def _why(error: Exception) -> str:
    return error.msg if isinstance(error, json.JSONDecodeError) else "nested too deep or out of range"
