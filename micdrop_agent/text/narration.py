"""The narration filter: a tool call that the model also writes out as text is not spoken.

Some models put ``get_weather({"city": "Oslo"})``, or the call as a JSON object, into the text
of the response that carries the real call. Such a text is held back until the response ends:
if the call came, it is dropped, else it is spoken. The marks around it (a code fence, or what a
model's template puts there, such as ``<tool_call>``) share its fate. Ordinary words are spoken at
once; only what follows a written-out call waits with it, so that the order of the text stays.

Without tools the filter does nothing at all.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final, cast

import attrs

from micdrop_agent.text.braces import BraceScanner

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

__all__ = ["NarrationFilter"]

_BLANKS: Final = 16
"""Most blanks between a name and its bracket, or a brace and its first quote."""

_MARKS: Final = (
    "<tool_call>",
    "<|tool_call|>",
    "<function_call>",
    "<|python_tag|>",
    "<tools>",
    "[TOOL_CALLS]",
    "```json",
    "```tool_code",
    "```tool_call",
    "```python",
    "```",
)
"""What stands before a written-out call, the longer ones first."""

_BEGIN_MARKS: Final = ("<", "[", "`")

_CLOSING: Final = re.compile(
    r"\s*[\],]?\s*(?:</tool_call>|<\|/tool_call\|>|</function_call>|</function>|</tools>|```)?", re.ASCII
)
"""What stands behind one."""

_NAME_MEMBER: Final = re.compile(r'"name"\s*:\s*"([^"\\]*)"')


@attrs.define(eq=False)
class _WrittenCall:
    """A text that looks like a call; ``name`` is known once it is whole."""

    name: str | None
    scanner: BraceScanner
    marked: bool
    pieces: list[str] = attrs.Factory(list[str])

    @property
    def text(self) -> str:
        return "".join(self.pieces)


class NarrationFilter:
    """Lets the words of one response through and holds back written-out tool calls.

    Args:
        tool_names: Names of the tools that the model was offered.
    """

    def __init__(self, tool_names: Iterable[str]) -> None:
        self._names = frozenset(tool_names)
        self._longest = max(map(len, self._names), default=0)
        # Looked up for the last word of every chunk, so made once.
        self._beginnings = frozenset(name[:end] for name in self._names for end in range(1, len(name) + 1))
        names = "|".join(re.escape(name) for name in sorted(self._names, key=len, reverse=True))
        marks = "|".join(map(re.escape, _MARKS))
        self._start = re.compile(
            rf"(?P<mark>(?:{marks})\s{{0,{_BLANKS}}}(?:\[\s{{0,{_BLANKS}}})?|<function=(?P<tag>{names})>\s{{0,{_BLANKS}}}(?=\{{))?"
            rf'(?:(?<![\w-])(?P<name>{names})\s{{0,{_BLANKS}}}[({{]|(?P<brace>\{{)(?(tag)|\s{{0,{_BLANKS}}}"))'
        )
        self._marks = (*_MARKS, *(f"<function={name}>" for name in self._names))
        self._held = ""
        self._before = ""
        self._last = ""
        self._call: _WrittenCall | None = None
        self._queue: list[str | _WrittenCall] = []

    def feed(self, text: str) -> str:
        """Take the next chunk; return what may be spoken now (``""`` if nothing may)."""
        if not self._names or not text:
            return text
        if self._held or self._call or self._queue or "{" in text or "(" in text:
            return self._look(text)
        # Asked of every chunk, hence not in a function of its own.
        cut = self._hold_from(text) if "<" in text or "[" in text or "`" in text else self._hold_word(text)
        self._held = text[cut:]
        return self._say(text[:cut])

    def finish(self, *, called: Collection[str] = ()) -> str:
        """End the response; return the held text without the calls that really came.

        Args:
            called: Names of the tools that were called in this response.
        """
        released = "" if self._call is None else self._end_call(self._call, whole=False)
        if not self._queue:
            released, self._held = released + self._held, ""
            return released
        self._queue.append(self._held)
        spoken: list[str] = []
        last, dropped, marked = self._last, False, False
        for part in _joined(self._queue):
            text = part if isinstance(part, str) else part.text
            if isinstance(part, _WrittenCall) and part.name in called:
                dropped, marked = True, marked or part.marked
                continue
            if dropped and marked and isinstance(part, str):
                text = text[_CLOSING.match(text).end() :]  # type: ignore[union-attr]  # it matches nothing too
            if dropped and (not last or last.isspace()):
                # Where the call stood, the white space before and behind it would add up.
                text = text.lstrip()
            if text:
                dropped, marked, last = False, False, text[-1]
                spoken.append(text)
        self._held = ""
        self._queue.clear()
        return "".join(spoken)

    def _look(self, text: str) -> str:
        text = self._held + text
        self._held = ""
        spoken: list[str] = []
        while text:
            if self._call is not None:
                end = self._call.scanner.end_in(text)
                self._call.pieces.append(text[:end])
                text = "" if end is None else text[end:]
                if end is not None:
                    spoken.append(self._end_call(self._call, whole=True))
                continue
            # The character before decides whether a name begins here or goes on.
            match = self._start.search(self._before + text, len(self._before))
            if match is None:
                cut = self._hold_from(text)
                self._held = text[cut:]
                spoken.append(self._say(text[:cut]))
                break
            start = match.start() - len(self._before)
            bracket = (match.end() - 1 if match["name"] else match.start("brace")) - len(self._before)
            spoken.append(self._say(text[:start]))
            name, marked = match["name"] or match["tag"], match["mark"] is not None
            self._call = _WrittenCall(name, BraceScanner(text[bracket]), marked, [text[start:bracket]])
            text = text[bracket:]
        return "".join(spoken)

    def _say(self, text: str) -> str:
        if not text:
            return ""
        self._before = text[-1]
        if not self._queue:
            return text
        self._queue.append(text)
        return ""

    def _end_call(self, call: _WrittenCall, *, whole: bool) -> str:
        self._call = None
        if call.name is None:
            call.name = _called_name(call.text) if whole else _first_name(call.text)
        if call.name not in self._names:
            # An object that calls nothing of ours is text like any other.
            return self._say(call.text)
        if not self._queue:
            # From here on everything waits; ``finish`` needs the end of what was spoken before.
            self._last = self._before
        self._before = call.pieces[-1][-1:]
        self._queue.append(call)
        return ""

    def _hold_from(self, text: str) -> int:
        """Index from which the end of ``text`` may be the beginning of a written-out call."""
        cut = self._hold_word(text)
        return self._hold_mark(text, cut) if any(begin in text for begin in _BEGIN_MARKS) else cut

    def _hold_mark(self, text: str, cut: int) -> int:
        """The same with a mark before it, or with a part of one at the end."""
        before = text[:cut].rstrip()
        if cut - len(before) <= _BLANKS:
            opened = before[:-1].rstrip() if before.endswith("[") else before
            for mark in self._marks if len(before) - len(opened) <= _BLANKS + 1 else ():
                if opened.endswith(mark):
                    return len(opened) - len(mark)
        last = max(text.rfind(begin) for begin in _BEGIN_MARKS)
        # A fence has three signs, of which the last alone could begin one too.
        first = len(text[: last + 1].rstrip("`")) if text[last] == "`" else last
        starts = (start for start in range(first, last + 1) if any(m.startswith(text[start:]) for m in self._marks))
        return min(cut, next(starts, cut))

    def _hold_word(self, text: str) -> int:
        end = len(text.rstrip())
        if len(text) - end > _BLANKS or end == 0:
            return len(text)
        if text[end - 1] == "{":
            return end - 1
        start = end
        while start > 0 and end - start <= self._longest and _in_name(text[start - 1]):
            start -= 1
        if start == end or (start == 0 and self._before and _in_name(self._before)):
            return len(text)
        word = text[start:end]
        if end < len(text):
            return start if word in self._names else len(text)
        return start if word in self._beginnings else len(text)


def _joined(queue: list[str | _WrittenCall]) -> Iterator[str | _WrittenCall]:
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


def _in_name(char: str) -> bool:
    return char.isalnum() or char in "_-"


def _called_name(text: str) -> str | None:
    """The tool that a JSON object calls: its ``name``, or that of its ``function``."""
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError):
        return _first_name(text)
    members = cast("dict[str, Any]", value)
    function: Any = members.get("function")
    name: Any = cast("dict[str, Any]", function).get("name") if isinstance(function, dict) else members.get("name")
    return name if isinstance(name, str) else None


def _first_name(text: str) -> str | None:
    match = _NAME_MEMBER.search(text)
    return match[1] if match else None
