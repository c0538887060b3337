"""Makes a conversation one that providers accept, in a copy: calls and results paired, blanks left out.

    items ──▶ repair() ──▶ Message | CallGroup, in the order of the request

A live call leaves odd histories: a call whose result never came, a result that came late, words between
the two, text without a word. Providers answer 400 to each of them, and then to every later request.

Invariants, pinned in tests/test_provider_requests.py:

1. Every call of the items comes out once, with exactly one output; a result without a call goes.
2. A result belongs to the nearest call before it that has its id and no result yet.
3. No other item is lost, and texts keep their order.
4. The first ``closed`` items come out as the first ``closed_entries`` entries, whatever follows them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias, cast

import attrs

from micdrop_agent.messages import Message, ToolCall, ToolResult, is_blank
from micdrop_agent.pairs import pair_calls
from micdrop_agent.providers.json_text import arguments_object, normal_arguments

if TYPE_CHECKING:
    from collections.abc import Sequence

    from micdrop_agent.messages import Item

__all__ = ["CallGroup", "Entry", "PairedCall", "Repaired", "repair"]

_CANCELLED: Final = '{"error":"cancelled","note":"The call was interrupted; it may or may not have taken effect."}'
_UNREADABLE: Final = '{"error":"the arguments were not valid JSON, so the tool did not run"}'


@attrs.frozen
class PairedCall:
    """A call with its output; both are JSON texts, the arguments always of an object."""

    call: ToolCall
    arguments: str
    output: str


@attrs.frozen
class CallGroup:
    """Calls that the model made in one response, and what it said between them."""

    calls: tuple[PairedCall, ...]
    texts: tuple[Message, ...] = ()


Entry: TypeAlias = Message | CallGroup


@attrs.define
class Repaired:
    """What became of the items.

    Attributes:
        entries: The conversation as it can be sent.
        closed: How many items, from the first, no later item can change any more.
        closed_entries: The entries that these became.
    """

    entries: list[Entry] = attrs.field(factory=list[Entry])
    closed: int = 0
    closed_entries: int = 0


def repair(items: Sequence[Item]) -> Repaired:
    """Pair, group and order ``items``; they are not changed."""
    if all(type(item) is Message for item in items):  # as in most turns: there is nothing to pair
        return _only_said(cast("Sequence[Message]", items))
    return _Repair(items).run()


def _only_said(messages: Sequence[Message]) -> Repaired:
    done = Repaired()
    for index, message in enumerate(messages):
        if is_blank(message.content):
            continue
        if message.role == "user":
            done.closed, done.closed_entries = index, len(done.entries)
        done.entries.append(message)
    return done


class _Repair:
    def __init__(self, items: Sequence[Item]) -> None:
        self._items = items
        self._result_of = pair_calls(items)
        """Index of a call to index of its result."""
        self._call_of = {result: call for call, result in self._result_of.items()}
        self._out = Repaired()
        # The group that is open: its calls, the texts between them, what waits for its results.
        self._calls: list[int] = []
        self._waiting: set[int] = set()
        self._texts: list[Message] = []
        self._behind: list[Message] = []
        self._orphans = 0
        """Calls whose result may still come, as far as these items tell."""
        self._last_result = -1
        """Where the last late result stands; nothing before it is closed."""

    def run(self) -> Repaired:
        for index, item in enumerate(self._items):
            if isinstance(item, ToolCall):
                self._call(index)
            elif isinstance(item, ToolResult):
                self._result(index)
            elif not is_blank(item.content):
                self._message(index, item)
        self._flush()
        return self._out

    def _call(self, index: int) -> None:
        if self._calls and self._behind:
            if any(message.role != "assistant" for message in self._behind):
                self._flush()  # somebody else spoke: this call is of a later response
            else:
                self._texts += self._behind
                self._behind = []
        self._calls.append(index)
        if index in self._result_of:
            self._waiting.add(index)
        else:
            self._orphans += 1

    def _result(self, index: int) -> None:
        self._waiting.discard(self._call_of.get(index, -1))
        if self._calls and not self._waiting:
            self._flush()

    def _message(self, index: int, message: Message) -> None:
        if self._waiting:
            # Said between a call and its result (by a tool, or by the caller): it goes after the result.
            self._behind.append(message)
            return
        self._flush()
        if message.role == "user" and not self._orphans and index > self._last_result:
            self._out.closed = index
            self._out.closed_entries = len(self._out.entries)
        self._out.entries.append(message)

    def _flush(self) -> None:
        if self._calls:
            calls = tuple(self._paired(index) for index in self._calls)
            self._out.entries.append(CallGroup(calls, tuple(self._texts)))
        self._out.entries += self._behind
        self._calls, self._texts, self._behind = [], [], []
        # A group that was left for a later call may have results that are still to come.
        self._last_result = max(self._last_result, *self._waiting_results())
        self._waiting.clear()

    def _waiting_results(self) -> list[int]:
        return [self._result_of[index] for index in self._waiting] or [-1]

    def _paired(self, index: int) -> PairedCall:
        call = self._items[index]
        assert isinstance(call, ToolCall)
        arguments = normal_arguments(call.parameters)
        readable = arguments_object(arguments) is not None
        result = self._result_of.get(index)
        output = _CANCELLED if readable else _UNREADABLE
        if result is not None:
            found = self._items[result]
            assert isinstance(found, ToolResult)
            output = found.output or "null"
        return PairedCall(call, arguments if readable else "{}", output)
