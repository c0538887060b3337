"""The conversation: one ordered list of items, read by everybody, changed by one owner.

Positions are found by identity, never by equality: the same words may be said twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, overload

from micdrop_agent.messages import Item, Message, ToolCall, ToolResult

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["Conversation", "Headed"]


class Conversation(Sequence[Item]):
    """The items of a call, in order; the first one is the system prompt.

    A read-only sequence for users (``conversation[-1]``, ``for item in conversation``);
    it changes through the agent that owns it. Compares equal to a list of equal items.

    Source: Micdrop page "Agent (LLM)", "Conversation Management".
    """

    __slots__ = ("_journal", "_list", "_mark", "_may_replace", "_owed", "_version")

    def __init__(self, items: Iterable[Item] = ()) -> None:
        self._list: list[Item] = list(items)
        self._owed: Callable[[], object] | None = None
        """A change that is made before anybody sees the conversation."""
        self._may_replace: Callable[[], None] | None = None
        self._journal: Callable[[int, int, tuple[Item, ...]], None] | None = None
        """Told of every change, in order: at which place, how many items went, which came."""
        self._mark = 0
        """Where the words that are being spoken belong if they are cut off; moves with what is before it."""
        self._version = 0

    @property
    def version(self) -> int:
        """Counts the changes; lets a provider keep what it made of an unchanged history."""
        self._settle()
        return self._version

    @property
    def _items(self) -> list[Item]:
        if self._owed is not None:
            self._settle()
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
            return self._items == other._items
        if isinstance(other, list):
            return self._items == other
        return NotImplemented

    __hash__: ClassVar[None]  # type: ignore[assignment]  # mutable, compared by content

    def __repr__(self) -> str:
        return f"Conversation({self._items!r})"

    def replace(self, items: Iterable[Item]) -> None:
        """Put ``items`` in the place of everything, for example to resume a call.

        No events are emitted. The list is copied.

        Raises:
            TypeError: An element is no ``Message``, ``ToolCall`` or ``ToolResult``.
            RuntimeError: An answer is running; cancel it first.
        """
        new = list(items)
        for item in new:
            if not isinstance(item, Message | ToolCall | ToolResult):
                raise TypeError(f"a conversation holds messages and tool calls, not {item!r}")
        if self._may_replace is not None:
            self._may_replace()
        gone, self._list = len(self._items), new
        self._changed(0, gone, *new)

    def index_of(self, item: Item) -> int | None:
        """Where ``item`` itself (not an equal one) stands; ``None`` if it does not."""
        # From the end: what is looked for was nearly always added a moment ago.
        for index in range(len(self._items) - 1, -1, -1):
            if self._items[index] is item:
                return index
        return None

    # What follows is for the owner, the agent's own machinery.

    def _owe(self, change: Callable[[], object]) -> None:
        """Have ``change`` made before anybody reads or changes the conversation, or by ``_settle()``."""
        self._settle()
        self._owed = change

    def _settle(self) -> None:
        """Make the change that is owed, if there is one."""
        owed, self._owed = self._owed, None
        if owed is not None:
            owed()

    @property
    def _unfollowed(self) -> bool:
        """Whether nobody is told of changes as they are made."""
        return self._journal is None

    def _insert(self, index: int, item: Item) -> None:
        self._mark += index < self._mark
        self._items.insert(index, item)
        self._changed(index, 0, item)

    def _append(self, item: Item) -> int:
        self._items.append(item)
        index = len(self._items) - 1
        self._changed(index, 0, item)
        return index

    def _put(self, index: int, item: Item) -> None:
        self._items[index] = item
        self._changed(index, 1, item)

    def _delete(self, index: int) -> None:
        self._mark -= index < self._mark
        del self._items[index]
        self._changed(index, 1)

    def _changed(self, index: int, gone: int, *come: Item) -> None:
        self._version += 1
        if self._journal is not None:
            self._journal(index, gone, come)


class Headed(Conversation):
    """A conversation as a child of a ``FallbackAgent`` reads it: live, under its own system prompt.

    The prompt in the conversation itself is that of the child that answered last. It is exchanged when another
    one has its first effect, and that one must know its own prompt before.
    """

    def __init__(self, conversation: Conversation, head: Message) -> None:
        self._whole = conversation
        self._head = head

    @property
    def _items(self) -> list[Item]:
        items = self._whole._items
        return [self._head, *items[1:]] if items and items[0].role == "system" else items

    @property
    def version(self) -> int:
        """As that of the whole conversation."""
        return self._whole.version

    def replace(self, items: Iterable[Item]) -> None:
        """As that of the whole conversation."""
        self._whole.replace(items)
