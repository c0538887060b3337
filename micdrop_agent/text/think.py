"""The thinking filter: what a model writes between ``<think>`` and ``</think>`` is not spoken.

Open models write their reasoning into the text itself. The marks are ``<think>``,
``<thinking>``, ``<thought>``, ``<reasoning>``, ``<seed:think>`` and ``[THINK]``, in any case of letters, anywhere
in the answer; any end mark ends the thinking, and an answer that ends inside it says nothing more.

Models of the gpt-oss family write in channels, of which only the last is meant to be heard:
``<|channel|>analysis<|message|>…<|end|><|start|>assistant<|channel|>final<|message|>…``. Servers that
do not know that pass it all on as text.

An end mark without a beginning is dropped alone: what stood before it has been spoken, since
holding back a whole answer on suspicion would cost every caller the first word. For models
whose template opens the thinking in the prompt (so that the text begins inside it), make the
filter with ``inside=True``.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["ThinkFilter"]

_NAMES: Final = ("think", "thinking", "thought", "reasoning", "seed:think")
_CHANNEL: Final = ("<|channel|>", "<|message|>", "<|start|>", "<|end|>", "<|return|>", "<|call|>", "<|constrain|>")
_MARK: Final = re.compile(
    rf"<(/?)(?:{'|'.join(_NAMES)})>|\[(/?)think\]|<\|(channel|message|start|end|return|call|constrain)\|>",
    re.IGNORECASE | re.ASCII,
)
_MARKS: Final = (*(f"<{end}{name}>" for name in _NAMES for end in ("", "/")), "[think]", "[/think]", *_CHANNEL)
_UNHEARD: Final = ("analysis", "commentary")
"""Channels that are not for the user; the one behind them is mostly called ``final``."""


class ThinkFilter:
    """Lets the spoken part of an answer through and drops the thinking.

    White space behind a block goes too where it would lead the answer or double a space; a
    text without marks is spoken unchanged.

    Args:
        inside: Whether the text begins inside the thinking.
    """

    def __init__(self, *, inside: bool = False) -> None:
        self._inside = inside
        self._held = ""
        self._header: str | None = None
        """What came of a channel's header, between its mark and that of its text."""
        self._lead: list[str] = []
        self._trim = False
        self._last = ""

    def feed(self, text: str) -> str:
        """Take the next chunk; return what may be spoken now (``""`` if nothing may)."""
        if not self._held and not self._inside and "<" not in text and "[" not in text:
            return self._say(text)
        text = self._held + text
        spoken: list[str] = []
        position = 0
        for match in _MARK.finditer(text):
            spoken.append(self._between(text[position : match.start()]))
            if match[3]:
                self._channel(match[3].lower())
            else:
                self._mark(closing="/" in match.group())
            position = match.end()
        cut = self._hold_from(text, position)
        self._held = text[cut:]
        spoken.append(self._between(text[position:cut]))
        return "".join(spoken)

    def finish(self) -> str:
        """End the answer; return the held text unless it ends inside the thinking."""
        released = "" if self._inside else self._say(self._held) + "".join(self._lead)
        self._held = ""
        self._lead.clear()
        return released

    @property
    def thinking(self) -> bool:
        """Whether the text fed so far ends inside the thinking."""
        return self._inside

    def _between(self, text: str) -> str:
        """Text between two marks."""
        if not self._inside:
            return self._say(text)
        if self._header is not None:
            self._header += text
        return ""

    def _channel(self, mark: str) -> None:
        if mark in {"channel", "start"}:
            self._header = ""
            self._mark(closing=False)
        elif mark == "message":
            header, self._header = self._header, None
            self._mark(closing=header is None or not header.lstrip().startswith(_UNHEARD))
        elif mark != "constrain":
            self._header = None
            self._mark(closing=True)

    def _mark(self, *, closing: bool) -> None:
        self._inside = not closing
        self._lead.clear()
        self._trim = not self._last or self._last.isspace()

    def _hold_from(self, text: str, position: int) -> int:
        # No mark has a bracket inside it, so only the last one can begin a mark.
        start = max(text.rfind("<", position), text.rfind("[", position))
        if start < 0:
            return len(text)
        beginning = text[start:].lower()
        return start if any(mark.startswith(beginning) for mark in _MARKS) else len(text)

    def _say(self, text: str) -> str:
        if self._trim:
            text = text.lstrip()
        if not text:
            return ""
        if not self._last:
            # White space that leads the answer waits: thinking behind it would make it odd.
            self._lead.append(text)
            if text.isspace() and not self._trim:
                return ""
            text = "".join(self._lead)
            self._lead.clear()
        self._trim = False
        self._last = text[-1]
        return text
