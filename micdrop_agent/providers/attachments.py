"""What a server attached to its calls and words, and wants back with them; no I/O.

    stream ──▶ Attachments.keep() … of_call(), of_calls(), of_words() ──▶ the next requests

Gemini signs its calls (``extra_content``) and refuses them without the signature; DeepSeek and Moonshot
refuse a call without the thinking that led to it (``reasoning_content``), and so do models behind
OpenRouter (``reasoning_details``); Claude and OpenAI's reasoning models want their signed or encrypted
thoughts in front of the call. None of it is part of the conversation: it concerns only the server that wrote
it, and another one may refuse it. So each agent remembers what its own server attached. Servers ask for it
within the turn at least; what was dropped, or comes from an earlier process, is left out.

Invariant, pinned in tests/test_provider_echo.py: what is sent back is byte for byte the JSON value that came,
to the server that sent it, and to no other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import attrs

from micdrop_agent.providers.json_text import encode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from micdrop_agent.messages import ToolCall
    from micdrop_agent.model.protocol import CallReady

__all__ = ["Attachments"]

_MAX_CALLS: Final = 256
"""Calls, and stretches of words, that are remembered: more than the turns of any server's memory."""

_MAX_BYTES: Final = 256 * 1024
"""Longest that a member may be. A model that thought more than that in one response is rare."""

_LONG_ID: Final = 40
"""Characters of an id that every server takes."""

_NOTHING: Final[frozenset[str]] = frozenset()

_K = TypeVar("_K")
_V = TypeVar("_V")
_Key: TypeAlias = tuple[str, str, str]


@attrs.frozen(eq=False)
class _Kept:
    response: int
    members: Mapping[str, bytes]


class Attachments:
    """What the server of one agent attached to its calls and words."""

    __slots__ = ("_calls", "_long_ids", "_responses", "_told", "_words")

    def __init__(self) -> None:
        self._calls: dict[_Key, _Kept] = {}
        """By id, name and arguments: some servers use an id again in every response."""
        self._words: dict[str, Mapping[str, bytes]] = {}
        self._long_ids: dict[str, None] = {}
        self._responses = 0
        self._told: frozenset[str] = _NOTHING

    def next_response(self) -> int:
        """A number for a response that begins."""
        self._responses += 1
        return self._responses

    def first_time(self, what: str) -> bool:
        """Whether ``what`` was not reported for this agent yet."""
        first = what not in self._told
        self._told |= {what}
        return first

    def keep(self, call: CallReady, response: int, thoughts: Mapping[str, Any], *, grouped: bool = False) -> None:
        """Remember what came with a call of a response.

        A call that nothing came with is remembered if it is not the first of its response: a server
        that signs calls signs the first, and wants the others next to it.

        Args:
            call: The call.
            response: Number of the response.
            thoughts: Members of the response that belong to its calls.
            grouped: Remember it in any case: this API wants the calls of a response in one message.
        """
        if len(call.id) > _LONG_ID:
            _remember(self._long_ids, call.id, None)
        members = _members({**call.extra, **thoughts})
        last = next(reversed(self._calls.values()), None)
        if grouped or members or (last is not None and last.response == response):
            _remember(self._calls, (call.id, call.name, call.arguments), _Kept(response, members))

    def keep_words(self, words: str, members: Mapping[str, Any]) -> None:
        """Remember what came with a stretch of text of the model."""
        if words and (encoded := _members(members)):
            _remember(self._words, words, encoded)

    def of_call(self, call: ToolCall, names: Iterable[str]) -> dict[str, bytes]:
        """Those of the members ``names`` that came with a call."""
        return self.of_calls((call,), names)

    def of_calls(self, calls: Iterable[ToolCall], names: Iterable[str]) -> dict[str, bytes]:
        """Those of the members ``names`` that came with any of ``calls``; the last one counts."""
        found: dict[str, bytes] = {}
        for call in calls:
            kept = self._kept(call)
            if kept is not None:
                found |= {name: kept.members[name] for name in names if name in kept.members}
        return found

    def of_words(self, words: str) -> Mapping[str, bytes]:
        """What came with a stretch of text."""
        return self._words.get(words, {}) if self._words else {}

    def made(self, call_id: str) -> bool:
        """Whether a long id is one that this server made: it takes it back."""
        return call_id in self._long_ids

    def together(self, first: ToolCall, second: ToolCall) -> bool:
        """Whether two calls came in one response, and have to go back in one message."""
        one, other = self._kept(first), self._kept(second)
        return one is not None and other is not None and one.response == other.response

    def _kept(self, call: ToolCall) -> _Kept | None:
        return self._calls.get((call.tool_call_id, call.tool_name, call.parameters)) if self._calls else None


def _remember(kept: dict[_K, _V], key: _K, value: _V) -> None:
    """Put ``value`` last; the oldest goes when there are too many."""
    kept.pop(key, None)
    kept[key] = value
    if len(kept) > _MAX_CALLS:
        del kept[next(iter(kept))]


def _members(values: Mapping[str, Any]) -> dict[str, bytes]:
    """``values`` as JSON, without what has none (NaN in it) and what is far too much."""
    found: dict[str, bytes] = {}
    for name, value in values.items():
        try:
            data = encode(value)
        except (TypeError, ValueError, RecursionError):
            continue
        if len(data) <= _MAX_BYTES:
            found[name] = data
    return found
