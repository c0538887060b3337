"""The function calls of one response of the Responses API; no I/O.

A call is found by the id of its item, or by its output index where there is no id: servers that
translate another API often give the same index (mostly 0) to every item of a response.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from micdrop_agent.errors import ProviderError
from micdrop_agent.model.protocol import CallReady
from micdrop_agent.providers.json_text import (
    arguments_object,
    encode_loosely,
    is_dict,
    is_list,
    normal_arguments,
    normal_name,
    whole_letters,
)
from micdrop_agent.providers.responses.call_assembler import MAX_ARGUMENT_CHARS, MAX_CALLS

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["FunctionCalls"]


class _Call:
    __slots__ = ("arguments", "call_id", "name", "out", "whole")

    def __init__(self) -> None:
        self.call_id = ""
        self.name = ""
        self.arguments: list[str] = []
        self.whole = False
        self.out = False

    def may_be(self, item: dict[str, Any]) -> bool:
        """Whether an item with the same index and other ids is this call: some servers make up new ones for its end."""
        if self.out or self.name not in {"", item.get("name")}:
            return False
        said, told = "".join(self.arguments), item.get("arguments")
        return not self.name or (bool(told) and said in {"", told})

    @property
    def readable(self) -> bool:
        """Whether the arguments are complete, as far as one can see."""
        return self.whole or bool(arguments_object("".join(self.arguments)))


class FunctionCalls:
    """Calls under way. Each comes out once, when its arguments are complete; ids differ.

    Args:
        new_id: Makes an id for a call that has none.
    """

    __slots__ = ("_at", "_calls", "_chars", "_ids", "_named", "_new_id")

    def __init__(self, new_id: Callable[[], str]) -> None:
        self._new_id = new_id
        self._calls: dict[int, _Call] = {}
        """By their numbers, which are the output indexes where these differ."""
        self._at: dict[int, int] = {}
        """Output index to the number of the call that came last with it."""
        self._named: dict[str, int] = {}
        """Id of an item, or of a call, to the number of the call."""
        self._ids: set[str] = set()
        self._chars = 0

    @property
    def any_taken(self) -> bool:
        """Whether any call has come out."""
        return bool(self._ids)

    def begin(self, index: int, item: dict[str, Any]) -> None:
        """A call was announced."""
        number = self._number(index, item)
        self._learn(self._call(number), item)

    def add(self, index: int, event: dict[str, Any], piece: str) -> None:
        """A piece of arguments.

        Raises:
            ProviderError: There are far too many (kind ``protocol``).
        """
        self._count(piece)
        self._call(self._number(index, event, new=False)).arguments.append(piece)

    def whole(self, index: int, item: dict[str, Any], *, new: bool = False) -> int:
        """The arguments are complete; ``item`` mostly repeats them.

        Args:
            index: Output index.
            item: The call, or the event that has its arguments.
            new: ``item`` is the call itself: then an id that nobody knows is another call's.

        Returns:
            The number of the call, for ``take``.
        """
        number = self._number(index, item, new=new)
        self._complete(number, item)
        return number

    def _complete(self, number: int, item: dict[str, Any]) -> None:
        call = self._call(number)
        self._learn(call, item)
        call.whole = True
        arguments: object = item.get("arguments")
        if is_dict(arguments) or is_list(arguments):
            arguments = encode_loosely(arguments)
        if isinstance(arguments, str) and arguments.strip():
            if not call.arguments:
                self._count(arguments)
            call.arguments = [arguments]

    def take(self, number: int) -> list[CallReady]:
        """The call with this number, unless it has come out."""
        call = self._calls[number]
        if call.out or not call.name:
            return []
        call.out = True
        call_id = call.call_id
        while not call_id or call_id in self._ids:
            call_id = self._new_id()
        self._ids.add(call_id)
        return [CallReady(call_id, normal_name(call.name), normal_arguments(whole_letters("".join(call.arguments))))]

    def take_whole(self) -> list[CallReady]:
        """All calls that have not come out, and whose arguments are complete: they were said to be, or can be read."""
        return [ready for number, call in self._calls.items() if call.readable for ready in self.take(number)]

    def from_summary(self, index: int, item: dict[str, Any]) -> list[CallReady]:
        """A call in the summary at the end: it comes out unless it has."""
        call_id = _word(item.get("call_id")) or _word(item.get("id"))
        known = next((i for i, call in self._calls.items() if call_id and call.call_id == call_id), None)
        if known is None:
            # Under another number, or not streamed at all.
            known = index if index not in self._calls else max(self._calls) + 1
        self._complete(known, item)
        return self.take(known)

    def _number(self, index: int, item: dict[str, Any], *, new: bool = True) -> int:
        """Which call an event or an item is about.

        Args:
            index: Output index that came with it.
            item: The event or the item.
            new: An unknown id at an index that is taken is another call's; else it is one that the
                server made up for this event.
        """
        names = [word for word in (_word(item.get(name)) for name in ("item_id", "id", "call_id")) if word]
        number = next((self._named[name] for name in names if name in self._named), None)
        if number is None:
            number = self._at.get(index, index)
            if new and number in self._calls and not self._calls[number].may_be(item):
                number = max(self._calls) + 1
            self._at[index] = number
        for name in names:
            self._named.setdefault(name, number)
        return number

    def _call(self, index: int) -> _Call:
        call = self._calls.get(index)
        if call is None:
            if len(self._calls) >= MAX_CALLS:
                raise ProviderError(f"the model called more than {MAX_CALLS} tools in one response", kind="protocol")
            call = self._calls[index] = _Call()
        return call

    @staticmethod
    def _learn(call: _Call, item: dict[str, Any]) -> None:
        call.call_id = call.call_id or _word(item.get("call_id")) or _word(item.get("id"))
        call.name = call.name or _word(item.get("name"))

    def _count(self, text: str) -> None:
        self._chars += len(text)
        if self._chars > MAX_ARGUMENT_CHARS:
            raise ProviderError(
                f"the model wrote more than {MAX_ARGUMENT_CHARS:,} characters of tool arguments in one response",
                kind="protocol",
            )


def _word(value: object) -> str:
    return value if isinstance(value, str) else ""
