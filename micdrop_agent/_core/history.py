"""The conversation as its agent has it: the one place where it changes.

    Ledger, Core ── append / insert / put / delete ──▶ History ──▶ whoever follows it (a store)

Users hold it as a ``Conversation``, which can only be read and replaced.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from micdrop_agent.conversation import Conversation
from micdrop_agent.events import UserMessageCancelled
from micdrop_agent.messages import Message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import TypeAlias

    from micdrop_agent.messages import Item

    Follower: TypeAlias = Callable[[int, int, tuple[Item, ...]], None]

__all__ = ["History", "PromptOverlay"]


_SETTLING: Final = threading.RLock()
"""Held while a deferred change is made; one for all, because it takes microseconds and is almost never waited for."""


class History(Conversation):
    """The conversation of one agent.

    Args:
        items: What it holds at first.
        may_replace: Called before everything in it is replaced, to refuse that.

    Attributes:
        mark: Where the words that are being spoken belong if they are cut off; moves with what is before it.
    """

    __slots__ = ("_deferred", "_follower", "_may_replace", "_settling", "_watcher", "mark")

    def __init__(self, items: Iterable[Item] = (), may_replace: Callable[[], None] | None = None) -> None:
        super().__init__(items)
        self._may_replace = may_replace
        self._deferred: Callable[[], object] | None = None
        """A change that is made before anybody sees the conversation."""
        self._settling = False
        """That change is being made, perhaps by a reader in another thread."""
        self._follower: Follower | None = None
        self._watcher: Callable[[], None] | None = None
        self.mark = 0

    @property
    def version(self) -> int:
        """Counts the changes; lets a provider keep what it made of an unchanged history."""
        self.settle()
        return self._version

    @property
    def _items(self) -> list[Item]:
        if self._deferred is not None or self._settling:
            self.settle()
        return self._list

    def replace(self, items: Iterable[Item]) -> None:
        """As that of every conversation, but not while an answer runs."""
        new = self._checked(items)
        if self._may_replace is not None:
            self._may_replace()
        gone, self._list = len(self._items), new
        self._changed(0, gone, *new)

    def follow(self, follower: Follower | None) -> None:
        """Call ``follower`` with every change, in order: where, how many items went, which came."""
        self._follower = follower

    def watch(self, watcher: Callable[[], None] | None) -> None:
        """Have ``watcher`` called after each change: a guess, which every change discards."""
        self._watcher = watcher

    def change(self, index: int, gone: int, come: tuple[Item, ...]) -> None:
        """Make a change after one that follows was reported."""
        self._items[index : index + gone] = come
        self._changed(index, gone, *come)

    def fold(self, index: int, gone: int, item: Item) -> None:
        """Put ``item`` in the place of ``gone`` items from ``index`` on."""
        self.mark -= max(0, min(self.mark, index + gone) - index - 1)
        self.change(index, gone, (item,))

    @property
    def followed(self) -> bool:
        """Whether changes are reported as they are made."""
        return self._follower is not None

    def defer(self, change: Callable[[], object]) -> None:
        """Have ``change`` made before anybody reads or changes the conversation, or by ``settle()``."""
        self.settle()
        self._deferred = change

    def settle(self) -> None:
        """Make the change that is deferred, if there is one.

        A reader in another thread may come first. Nobody sees or changes the list until the change is made, or a
        message would be lost, or stand behind what interrupted it (invariant 2).
        """
        if self._deferred is None and not self._settling:
            return
        with _SETTLING:
            if self._deferred is None:
                return  # made by now, or being made by this very thread
            self._settling = True  # before it is taken: others look at both without the lock
            deferred, self._deferred = self._deferred, None
            try:
                deferred()
            finally:
                self._settling = False

    def push_before(self, index: int, item: Item) -> None:
        """Put ``item`` before the one at ``index``."""
        self.mark += index < self.mark
        self._items.insert(index, item)
        self._changed(index, 0, item)

    def push(self, item: Item) -> int:
        """Put ``item`` at the end; returns where that is."""
        self._items.append(item)
        index = len(self._items) - 1
        self._changed(index, 0, item)
        return index

    def put(self, index: int, item: Item) -> None:
        """Exchange the item at ``index``."""
        self._items[index] = item
        self._changed(index, 1, item)

    def delete(self, index: int) -> None:
        """Take out the item at ``index``."""
        self.mark -= index < self.mark
        del self._items[index]
        self._changed(index, 1)

    def _changed(self, index: int, gone: int, *come: Item) -> None:
        self._version += 1
        if self._follower is not None:
            self._follower(index, gone, come)
        if self._watcher is not None:
            self._watcher()


class PromptOverlay(Conversation):
    """A conversation as a child of a ``FallbackAgent`` reads it: live, under its own system prompt.

    The prompt in the conversation itself is that of the child that answered last. It is exchanged when another
    one has its first effect, and that one must know its own prompt before.
    """

    def __init__(self, conversation: Conversation, prompt: Message) -> None:
        self._whole = conversation
        self._prompt = prompt

    @property
    def _items(self) -> list[Item]:
        items = list(self._whole)
        return [self._prompt, *items[1:]] if items and items[0].role == "system" else items

    @property
    def version(self) -> int:
        """As that of the complete conversation."""
        return self._whole.version

    def replace(self, items: Iterable[Item]) -> None:
        """As that of the complete conversation."""
        self._whole.replace(items)


def take_last_user_message(conversation: History) -> UserMessageCancelled:
    """Take the last user message out, wherever it stands; returns the event that says so."""
    for index in range(len(conversation) - 1, -1, -1):
        item = conversation[index]
        if isinstance(item, Message) and item.role == "user":
            conversation.delete(index)
            return UserMessageCancelled(item, index)
    return UserMessageCancelled(None)
