"""Text filters without I/O: what of a model's text is spoken, and when.

Each takes the text of one answer or response in pieces (``feed``) and an end (``finish``), and
gives the same output for every way of cutting it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from micdrop_agent._late import late_names

if TYPE_CHECKING:
    from micdrop_agent.text.extract import ExtractFilter, extract_text
    from micdrop_agent.text.narration import NarrationFilter
    from micdrop_agent.text.think import ThinkFilter
    from micdrop_agent.text.written import WrittenCall

__all__ = [
    "ExtractFilter",
    "NarrationFilter",
    "TextFilter",
    "ThinkFilter",
    "WrittenCall",
    "extract_text",
]


class TextFilter(Protocol):
    """What all filters of this package do."""

    def feed(self, text: str) -> str:
        """Take the next chunk; return what may be spoken now (``""`` if nothing may)."""
        ...

    def finish(self) -> str:
        """End the text; return what is released at its end."""
        ...


# Each compiles patterns that most programs never use.
__getattr__ = late_names(
    __name__,
    {
        "ExtractFilter": ".extract",
        "NarrationFilter": ".narration",
        "ThinkFilter": ".think",
        "WrittenCall": ".written",
        "extract_text": ".extract",
    },
)
