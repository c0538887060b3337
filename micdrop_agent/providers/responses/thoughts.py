"""What a model thinks: beside its text, or at its beginning; no I/O.

    delta.reasoning… ──▶ ThoughtLog ──▶ Attachments, next to the calls that the thoughts led to
    delta.content    ──▶ GuessedThoughts ──▶ the text after the first closing tag
    reasoning items, phases of messages (Responses API) ──▶ ReplayedItems ──▶ Attachments

Neither is ever spoken, with one exception: a text that was taken for thoughts, and in which none ended, was the
answer. The server had taken the thoughts out itself. It is said late, but it is not lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from micdrop_agent.providers.json_text import as_dict, as_list
from micdrop_agent.providers.requests.responses_dialect import PHASE, REASONING
from micdrop_agent.text import ThinkFilter

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from micdrop_agent.model.protocol import CallReady
    from micdrop_agent.providers.attachments import Attachments

__all__ = ["GuessedThoughts", "ReplayedItems", "ThoughtLog"]


class ThoughtLog:
    """Thoughts that come in members of their own, as their server names and cuts them.

    Args:
        names: The members.
    """

    __slots__ = ("_names", "_pieces")

    def __init__(self, names: Iterable[str]) -> None:
        self._names = tuple(names)
        self._pieces: dict[str, list[Any]] = {}

    def add(self, delta: Mapping[str, Any]) -> bool:
        """Keep the thoughts of ``delta``; returns whether these are the first."""
        first = not self._pieces
        for name in self._names:
            if piece := delta.get(name):
                self._pieces.setdefault(name, []).append(piece)
        return first and bool(self._pieces)

    def members(self) -> dict[str, object]:
        """Each member as one value of its kind."""
        return {name: _joined(pieces) for name, pieces in self._pieces.items()}


class GuessedThoughts(ThinkFilter):
    """The filter for a text that should begin inside its thoughts, which only its end can show."""

    __slots__ = ("_ended", "_text")

    def __init__(self, *, pass_calls: bool = False) -> None:
        super().__init__(inside=True, pass_calls=pass_calls)
        self._text: list[str] = []
        self._ended = False

    def feed(self, text: str) -> str:
        """Take the next chunk; what may be spoken of it."""
        if not self._ended:
            self._text.append(text)
        spoken = super().feed(text)
        self._ended = self._ended or bool(spoken)
        return spoken

    @property
    def unended(self) -> str:
        """The text so far, if no thought has ended in it."""
        return "" if self._ended else "".join(self._text)


class ReplayedItems:
    """What one response of the Responses API brought that its server wants back.

    Args:
        attachments: Where it is kept; ``None`` keeps nothing.
    """

    __slots__ = ("_attachments", "_reasoning", "_response")

    def __init__(self, attachments: Attachments | None) -> None:
        self._attachments = attachments
        self._response = 0 if attachments is None else attachments.next_response()
        self._reasoning: dict[str, dict[str, Any] | None] = {}
        """Encrypted thoughts by their ids; ``None`` once they went with a call."""

    def reasoning(self, item: dict[str, Any]) -> None:
        """Only what is encrypted can go back to a server that stores nothing; ids alone are unknown to it."""
        if item.get("encrypted_content"):
            self._reasoning.setdefault(str(item.get("id") or item["encrypted_content"]), item)

    def message(self, item: dict[str, Any]) -> None:
        """A message keeps its phase."""
        if self._attachments is not None and item.get("phase"):
            for part in as_list(item.get("content")):
                text = as_dict(part).get("text")
                self._attachments.keep_words(text if isinstance(text, str) else "", {PHASE: item["phase"]})

    def calls(self, calls: Iterable[CallReady]) -> None:
        """A call takes along the thoughts before it."""
        if self._attachments is None:
            return
        for call in calls:
            thoughts = [item for item in self._reasoning.values() if item is not None]
            self._attachments.keep(call, self._response, {REASONING: thoughts} if thoughts else {})
            self._reasoning = dict.fromkeys(self._reasoning)


def _joined(pieces: list[Any]) -> object:
    if all(isinstance(piece, str) for piece in pieces):
        return "".join(pieces)
    return [part for piece in pieces for part in as_list(piece)]
