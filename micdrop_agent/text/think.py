"""The thinking filter: what a model writes for itself, or for its server, is not spoken.

    chunk ──> feed ──> spoken text
                ├── thoughts between <think> and </think>, in any of their spellings: dropped
                ├── channels that are not for the user: dropped (a call in one may be passed on)
                └── tokens of the chat template (<|im_end|>, </s>, <|im_start|>assistant): dropped

Open models write their reasoning into the text itself, and servers with an incomplete template pass
on the tokens that end a turn. What follows such an end is the model talking to itself, so nothing
after it is spoken, unless nothing was spoken before it.

Models of the gpt-oss family write in channels, of which only the last is meant to be heard:
``<|channel|>analysis<|message|>…<|end|><|start|>assistant<|channel|>final<|message|>…``.

An end mark without a beginning is dropped alone: what stood before it has been spoken, since
holding back a complete answer on suspicion would cost every caller the first word. For models
whose template opens the thinking in the prompt (so that the text begins inside it), make the
filter with ``inside=True``; ``unopened`` says when that was needed.

Guarantees, each one pinned in tests/test_text_think.py:

1. The output is the same for every way of cutting the text.
2. A text without marks is spoken unchanged, and at once: at most the beginning of a mark waits.
"""

from __future__ import annotations

import json
import re
from typing import Final

from micdrop_agent.text.marks import MarkSet
from micdrop_agent.text.template_marks import TEMPLATE_MARKS, THOUGHT_MARKS

__all__ = ["THINK_MARKS", "ThinkFilter"]

THINK_MARKS: Final = MarkSet([*THOUGHT_MARKS, *TEMPLATE_MARKS])
_TEMPLATE_ONLY: Final = MarkSet(TEMPLATE_MARKS)

_UNHEARD: Final = ("analysis", "commentary")
"""Channels that are not for the user; the one after them is mostly called ``final``."""

_ASSISTANT: Final = frozenset({"assistant", "model", "ai", "bot"})
_ROLE: Final = re.compile(r"([a-z]*)(?=[^a-z])\n?", re.IGNORECASE | re.ASCII)
_RECIPIENT: Final = re.compile(r"\bto=(?:functions\.)?([\w-]+)", re.ASCII)


class ThinkFilter:
    """Lets the spoken part of an answer through and drops the thinking and the template's tokens.

    White space after a block goes too where it would lead the answer or double a space.

    Args:
        inside: Whether the text begins inside the thinking.
        thoughts: Whether thinking is taken out; tokens of the chat template always are.
        pass_calls: Pass a tool call that stands in a channel on, as ``<tool_call>`` for the filter
            that comes next; it is dropped otherwise.
    """

    __slots__ = (
        "_arguments",
        "_call",
        "_header",
        "_held",
        "_html",
        "_inside",
        "_last",
        "_lead",
        "_marks",
        "_muted",
        "_pass_calls",
        "_role",
        "_said",
        "_trim",
        "unopened",
    )

    unopened: bool
    """Whether thinking ended that never began: the model needs ``inside=True``."""

    def __init__(self, *, inside: bool = False, thoughts: bool = True, pass_calls: bool = False) -> None:
        self.unopened = False
        self._marks = THINK_MARKS if thoughts else _TEMPLATE_ONLY
        self._inside = inside
        self._pass_calls = pass_calls
        self._muted = False
        self._held = ""
        self._header: str | None = None
        """What came of a channel's header, between its mark and that of its text."""
        self._role: str | None = None
        """What came of a turn's header, which ends at the first character that is not a letter."""
        self._call: str | None = None
        """Name of the tool that the text of this channel calls."""
        self._arguments: list[str] = []
        self._lead: list[str] = []
        self._trim = False
        self._last = ""
        self._said = False
        self._html = False
        """``<s>`` stood in the text: strike-through, not a token."""

    def begun_outside(self) -> ThinkFilter:
        """A filter like this one whose text does not begin inside the thinking."""
        return ThinkFilter(thoughts=self._marks is THINK_MARKS, pass_calls=self._pass_calls)

    def feed(self, text: str) -> str:
        """Take the next chunk; return what may be spoken now (``""`` if nothing may)."""
        # Every chunk of every answer comes here: nothing but these tests when nothing is odd.
        if "<" not in text and not self._held and "[" not in text and "◁" not in text and self._speaks():
            return self._say(text)
        if self._muted:
            return ""
        text = self._held + text
        spoken: list[str] = []
        position = 0
        for match in self._marks.pattern.finditer(text):
            spoken.append(self._between(text[position : match.start()]))
            spoken.append(self._mark(match.group()))
            position = match.end()
            if self._is_over():
                self._held = ""
                return "".join(spoken)
        cut = self._marks.hold_from(text, position)
        self._held = text[cut:]
        spoken.append(self._between(text[position:cut]))
        return "".join(spoken)

    def finish(self) -> str:
        """End the answer; return the held text unless it ends inside the thinking."""
        return "".join(self.finish_pieces())

    def finish_pieces(self) -> list[str]:
        """As ``finish``, with the white space that led the answer as it came: each chunk is one."""
        if self._muted:
            return []
        released = self._between(self._held) + self._end_call(complete=False)
        pieces = [released] if released else []
        if not self._inside and self._role is None:
            pieces += self._lead
        self._held = ""
        self._lead.clear()
        return pieces

    @property
    def thinking(self) -> bool:
        """Whether the text fed so far ends inside the thinking."""
        return self._inside

    def _is_over(self) -> bool:
        """Whether the model's turn has ended: a mark may have said so."""
        return self._muted

    def _speaks(self) -> bool:
        return not self._inside and not self._muted and self._role is None

    def _between(self, text: str) -> str:
        """Text between two marks."""
        if self._role is not None:
            text = self._read_role(text)
        if self._muted:
            return ""
        if not self._inside:
            return self._say(text)
        if self._header is not None:
            self._header += text
        elif self._call is not None:
            self._arguments.append(text)
        return ""

    def _mark(self, mark: str) -> str:
        """Act on one mark; return what it lets out."""
        folded = mark.lower()
        kind = THOUGHT_MARKS.get(folded) or TEMPLATE_MARKS[folded]
        if kind in {"html", "stop"} and (self._html or kind == "html") and folded in {"<s>", "</s>"}:
            return self._strike_through(mark)
        if kind == "stop":
            # Nothing said yet: the server began with it, or the model stopped and thought again.
            self._muted = self._said
            self._role = None
        elif kind == "role":
            self._role = ""
        elif kind in {"header", "constrain", "message", "end"}:
            return self._channel(kind)
        elif kind == "open":
            self._switch(inside=True)
        elif kind == "close":
            self.unopened = self.unopened or (not self._inside and self._said)
            self._switch(inside=False)
        else:
            self._trim_next()
        return ""

    def _strike_through(self, mark: str) -> str:
        if not self._said and not self._html:
            return ""  # the token that begins a text
        self._html = True
        return self._between(mark)

    def _channel(self, kind: str) -> str:
        if kind == "header":
            released = self._end_call(complete=False)
            self._header = ""
            self._switch(inside=True)
            return released
        if kind == "message":
            header, self._header = self._header, None
            recipient = _RECIPIENT.search(header or "")
            self._call = recipient[1] if recipient else None
            unheard = header is not None and (recipient or header.lstrip().startswith(_UNHEARD))
            self._switch(inside=bool(unheard))
        elif kind == "end":
            released = self._end_call(complete=True)
            self._header = None
            self._switch(inside=False)
            return released
        return ""

    def _end_call(self, *, complete: bool) -> str:
        """The call that the channel held, in the form that the next filter reads."""
        name, text = self._call, "".join(self._arguments)
        self._call = None
        self._arguments.clear()
        if name is None or not self._pass_calls:
            return ""
        try:
            arguments = json.loads(text or "{}")
        except (ValueError, RecursionError):
            arguments = None
        if arguments is None and complete:
            return ""
        # Cut, it is left open, so that the next filter warns of half a call.
        body = json.dumps({"name": name, "arguments": arguments}) if arguments is not None else ""
        self._said = True
        return f"<tool_call>{body}</tool_call>" if body else "<tool_call>"

    def _read_role(self, text: str) -> str:
        """Take the name of a turn's role; return what follows it."""
        header = ((self._role or "") + text).lstrip()
        match = _ROLE.match(header)
        if match is None:
            self._role = header
            return ""
        self._role = None
        self._muted = bool(match[1]) and match[1].lower() not in _ASSISTANT
        self._trim_next()
        return header[match.end() :]

    def _switch(self, *, inside: bool) -> None:
        self._inside = inside
        self._lead.clear()
        self._trim_next()

    def _trim_next(self) -> None:
        self._trim = not self._last or self._last.isspace()

    def _say(self, text: str) -> str:
        if self._trim:
            text = text.lstrip()
        if not text:
            return ""
        if not self._said:
            # White space that leads the answer waits: thinking after it would make it odd.
            self._lead.append(text)
            if text.isspace() and not self._trim:
                return ""
            text = "".join(self._lead)
            self._lead.clear()
            self._said = True
        self._trim = False
        self._last = text[-1]
        return text
