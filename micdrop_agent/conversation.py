"""The conversation: one ordered list of items, read by everybody, changed by one owner.

Positions are found by identity, never by equality: the same words may be said twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, overload

from micdrop_agent.messages import Item, Message, ToolCall, ToolResult

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

__all__ = ["Conversation"]


class Conversation(Sequence[Item]):
    """The items of a call, in order; the first one is the system prompt.

    A read-only sequence for users (``conversation[-1]``, ``for item in conversation``);
    it changes through the agent that owns it. Compares equal to a list of equal items.

    Source: Micdrop page "Agent (LLM)", "Conversation Management".
    """

    __slots__ = ("_list", "_version")

    def __init__(self, items: Iterable[Item] = ()) -> None:
        self._list: list[Item] = list(items)
        self._version: int = 0

    @property
    def version(self) -> int:
        """Counts the changes; lets a provider keep what it made of an unchanged history."""
        return self._version

    @property
    def _items(self) -> list[Item]:
        return self._list

    @property
    def messages(self) -> list[Message]:
        """The messages alone, in order: no tool calls and no results."""
        return [item for item in self._items if isinstance(item, Message)]

    @property
    def results(self) -> list[ToolResult]:
        """The results of tool calls alone, in order."""
        return [item for item in self._items if isinstance(item, ToolResult)]

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> list[Item]: ...
    def __getitem__(self, index: int | slice) -> Item | list[Item]:
        return self._items[index]

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Item]:
        return iter(self._items)

    def __reversed__(self) -> Iterator[Item]:
        return reversed(self._items)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Conversation):
            return list(self) == list(other)
        if isinstance(other, list):
            return self._items == other
        return NotImplemented

    __hash__: ClassVar[None]  # type: ignore[assignment]  # mutable, compared by content

    def __repr__(self) -> str:
        return f"Conversation({self._items!r})"

    if not TYPE_CHECKING:  # type checkers find this mistake by themselves

        def __getattr__(self, name: str) -> Any:
            if name in {"append", "extend", "insert", "pop", "remove", "clear"}:
                raise AttributeError(
                    f"a conversation has no {name}(): it changes through its agent, by agent.add_user_message(text) or "
                    "agent.add_message(role, text); conversation.replace(items) puts others in the place of all"
                )
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def replace(self, items: Iterable[Item]) -> None:
        """Put ``items`` in the place of everything, for example to resume a call.

        No events are emitted. The list is copied.

        Raises:
            TypeError: An element is no ``Message``, ``ToolCall`` or ``ToolResult``.
            RuntimeError: An answer is running; cancel it first.
        """
        self._list = self._checked(items)
        self._version += 1

    @staticmethod
    def _checked(items: Iterable[Item]) -> list[Item]:
        new = list(items)
        for item in new:
            if not isinstance(item, Message | ToolCall | ToolResult):
                raise TypeError(f"a conversation holds messages and tool calls, not {item!r}")
        return new

    def index_of(self, item: Item) -> int | None:
        """Where ``item`` itself (not an equal one) stands; ``None`` if it does not."""
        # From the end: what is looked for was nearly always added a moment ago.
        for index in range(len(self._items) - 1, -1, -1):
            if self._items[index] is item:
                return index
        return None
