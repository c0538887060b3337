"""What a server wants back with the calls that it made; no I/O.

    stream ──▶ CallReady.extra ──▶ Echo.keep() … Echo.of_call(), Echo.of_message() ──▶ the next requests

Gemini signs its calls (``extra_content``) and refuses them without the signature; DeepSeek and Moonshot
refuse a call without the thinking that led to it (``reasoning_content``), and so do models behind
OpenRouter (``reasoning_details``). None of it is part of the conversation: it is nobody's business but
that of the server that wrote it, and another one may refuse it. So each agent remembers what its own
server attached. Servers ask for it within the turn at least; what was dropped, or is of an earlier
process, is left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs

from micdrop_agent.providers.json_text import encode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from micdrop_agent.messages import ToolCall
    from micdrop_agent.model.protocol import CallReady

__all__ = ["OF_CALL", "OF_MESSAGE", "Echo"]

OF_CALL: Final = ("extra_content",)
"""Members of a call that are sent back in it."""

OF_MESSAGE: Final = ("reasoning_content", "reasoning_details")
"""Members of a response that are sent back in the message that holds its calls."""

_MAX_CALLS: Final = 256
"""Calls that are remembered: more than the turns of any server's memory, a few megabytes at worst."""

_MAX_BYTES: Final = 256 * 1024
"""Longest that a member may be. A model that thought more than that in one response is rare."""

_Key: TypeAlias = tuple[str, str, str]


@attrs.frozen(eq=False)
class _Kept:
    response: int
    members: Mapping[str, bytes]


class Echo:
    """What the server of one agent attached to its calls."""

    __slots__ = ("_calls", "_responses")

    def __init__(self) -> None:
        self._calls: dict[_Key, _Kept] = {}
        """By id, name and arguments: some servers use an id again in every response."""
        self._responses = 0

    def next_response(self) -> int:
        """A number for a response that begins."""
        self._responses += 1
        return self._responses

    def keep(self, call: CallReady, response: int, thoughts: Mapping[str, Any]) -> None:
        """Remember what came with a call of a response.

        A call that nothing came with is remembered if it is not the first of its response: a server
        that signs calls signs the first, and wants the others next to it.
        """
        members = {name: data for name, value in (*call.extra.items(), *thoughts.items()) if (data := _encoded(value))}
        last = next(reversed(self._calls.values()), None)
        if members or (last is not None and last.response == response):
            key = (call.id, call.name, call.arguments)
            self._calls.pop(key, None)  # the order is that of the calls
            self._calls[key] = _Kept(response, members)
            if len(self._calls) > _MAX_CALLS:
                del self._calls[next(iter(self._calls))]

    def of_call(self, call: ToolCall) -> bytes:
        """Members for a call, each with a comma before it; mostly none."""
        return self._members([call], OF_CALL)

    def of_message(self, calls: Iterable[ToolCall]) -> bytes:
        """Members for the message that holds ``calls``, each with a comma before it."""
        return self._members(calls, OF_MESSAGE)

    def together(self, first: ToolCall, second: ToolCall) -> bool:
        """Whether two calls came in one response, and have to go back in one message."""
        one, other = self._kept(first), self._kept(second)
        return one is not None and other is not None and one.response == other.response

    def _kept(self, call: ToolCall) -> _Kept | None:
        return self._calls.get((call.tool_call_id, call.tool_name, call.parameters)) if self._calls else None

    def _members(self, calls: Iterable[ToolCall], names: tuple[str, ...]) -> bytes:
        found: dict[str, bytes] = {}
        for call in calls:
            kept = self._kept(call)
            if kept is not None:
                found |= {name: kept.members[name] for name in names if name in kept.members}
        return b"".join(b',"%b":%b' % (name.encode(), value) for name, value in found.items())


def _encoded(value: object) -> bytes:
    """``value`` as JSON; nothing if it has none (NaN in it), or far too much."""
    try:
        data = encode(value)
    except (TypeError, ValueError, RecursionError):
        return b""
    return data if len(data) <= _MAX_BYTES else b""
