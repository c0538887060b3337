"""The marks between which models put their tool calls, and what has come since such a mark. No I/O."""

from __future__ import annotations

import re
from typing import Final

import attrs

from micdrop_agent.text.marks import MarkSet

__all__ = ["BLOCKS", "CALL_MARKS", "Block"]

_ELEMENTS: Final = (
    "tool_call",
    "tool_calls",
    "toolcall",
    "function_call",
    "function_calls",
    "tool_use",
    "minimax:tool_call",
    "seed:tool_call",
    "antml:function_calls",
    "longcat_tool_call",
    "\uff5cdsml\uff5cfunction_calls",
    "\uff5cdsml\uff5ctool_calls",
)
BLOCKS: Final[dict[str, str]] = {
    **{f"<{name}>": f"</{name}>" for name in _ELEMENTS},
    **{f"<{name} ": f"</{name}>" for name in _ELEMENTS},
    "<function=": "</function>",
    "<invoke name=": "</invoke>",
    "<|tool_calls_section_begin|>": "<|tool_calls_section_end|>",
    "<|tool_call_begin|>": "<|tool_call_end|>",
    "<\uff5ctool\u2581calls\u2581begin\uff5c>": "<\uff5ctool\u2581calls\u2581end\uff5c>",
    "<\uff5ctool\u2581call\u2581begin\uff5c>": "<\uff5ctool\u2581call\u2581end\uff5c>",
    "<|tool_calls_begin|>": "<|tool_calls_end|>",
    "<|tool_call>": "<tool_call|>",  # Gemma 4
    "<|action_start|>": "<|action_end|>",
    "<|start_action|>": "<|end_action|>",
    "<|python_start|>": "<|python_end|>",
    "<|tools_prefix|>": "<|tools_suffix|>",
    "[tool_call]": "[/tool_call]",
    "[tool_request]": "[end_tool_request]",
    "```tool_code": "```",
    "```tool_call": "```",
    # These are mostly sent without an end: what follows the call decides.
    "<|tool_call|>": "<|/tool_call|>",
    "<|python_tag|>": "<|/python_tag|>",
    "<tools>": "</tools>",
    "[tool_calls]": "[/tool_calls]",
}
"""What begins a block, and what ends it, in small letters."""

CALL_MARKS: Final = MarkSet([*BLOCKS, *(frozenset(BLOCKS.values()) - {"```"})])
"""Beginnings, and ends too: one whose beginning never came is not spoken either."""

_OF_A_CALL: Final = re.compile(r'[{(<"\[]')
_PROSE: Final = 80
"""Characters after a mark without anything that a call has: then it was no mark."""

MAX_CHARS: Final = 250_000
"""Characters of one block that are kept, as many as are read of a call's arguments."""


@attrs.define(eq=False)
class Block:
    """What came since the mark ``opener``."""

    opener: str
    closer: str
    length: int = 0
    certain: bool = False
    """Something came that prose has not, or not there."""
    pieces: list[str] = attrs.Factory(list[str])
    tail: str = ""
    """The last of it, as much as may be the beginning of ``closer``."""

    @property
    def body(self) -> str:
        """Everything after the mark."""
        return "".join(self.pieces)

    @property
    def text(self) -> str:
        """The same with its mark, which may name the tool."""
        return self.opener + self.body

    def end_in(self, text: str) -> int | None:
        """Take ``text``; the index at which the block ends in it, ``None`` if it goes on."""
        window = self.tail + text.lower()
        found = window.find(self.closer)
        before = len(self.tail)
        if found >= 0 and len(window) == before + len(text):
            end = found + len(self.closer) - before
            self._keep(text[:end])
            body = self.body
            self.pieces = [body[: len(body) - len(self.closer)]]
            return end
        self.tail = window[-len(self.closer) + 1 :]
        self._keep(text)
        return None

    def _keep(self, text: str) -> None:
        self.length += len(text)
        if self.length <= MAX_CHARS:
            self.pieces.append(text)
        self.certain = self.certain or _OF_A_CALL.search(text) is not None

    @property
    def is_prose(self) -> bool:
        """Whether so much came without anything of a call that the mark was none."""
        return not self.certain and self.length >= _PROSE
