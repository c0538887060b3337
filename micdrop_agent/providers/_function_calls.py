"""The function calls of one response of the Responses API, told apart by output index; no I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from micdrop_agent.errors import ProviderError
from micdrop_agent.providers._assemble import MAX_ARGUMENT_CHARS, MAX_CALLS
from micdrop_agent.providers._json import encode_loosely, is_dict, is_list, normal_arguments
from micdrop_agent.providers.protocol import CallReady

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


class FunctionCalls:
    """Calls under way. Each comes out once, when its arguments are whole; ids differ.

    Args:
        new_id: Makes an id for a call that has none.
    """

    __slots__ = ("_calls", "_chars", "_ids", "_new_id")

    def __init__(self, new_id: Callable[[], str]) -> None:
        self._new_id = new_id
        self._calls: dict[int, _Call] = {}
        self._ids: set[str] = set()
        self._chars = 0

    @property
    def any_taken(self) -> bool:
        """Whether any call has come out."""
        return bool(self._ids)

    def begin(self, index: int, item: dict[str, Any]) -> None:
        """A call was announced."""
        self._learn(self._call(index), item)

    def add(self, index: int, piece: str) -> None:
        """A piece of arguments.

        Raises:
            ProviderError: There are far too many (kind ``protocol``).
        """
        self._count(piece)
        self._call(index).arguments.append(piece)

    def whole(self, index: int, item: dict[str, Any]) -> None:
        """The arguments are complete; ``item`` mostly repeats them."""
        call = self._call(index)
        self._learn(call, item)
        call.whole = True
        arguments: object = item.get("arguments")
        if is_dict(arguments) or is_list(arguments):
            arguments = encode_loosely(arguments)
        if isinstance(arguments, str) and arguments.strip():
            if not call.arguments:
                self._count(arguments)
            call.arguments = [arguments]

    def take(self, index: int) -> list[CallReady]:
        """The call with this index, unless it has come out."""
        call = self._calls[index]
        if call.out or not call.name:
            return []
        call.out = True
        call_id = call.call_id
        while not call_id or call_id in self._ids:
            call_id = self._new_id()
        self._ids.add(call_id)
        return [CallReady(call_id, call.name, normal_arguments("".join(call.arguments)))]

    def take_whole(self) -> list[CallReady]:
        """All calls whose arguments were complete and that have not come out."""
        return [ready for index, call in self._calls.items() if call.whole for ready in self.take(index)]

    def from_summary(self, index: int, item: dict[str, Any]) -> list[CallReady]:
        """A call in the summary at the end: it comes out unless it has."""
        call_id = _word(item.get("call_id")) or _word(item.get("id"))
        known = next((i for i, call in self._calls.items() if call_id and call.call_id == call_id), None)
        if known is None:
            # Under another number, or not streamed at all.
            known = index if index not in self._calls else max(self._calls) + 1
        self.whole(known, item)
        return self.take(known)

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
