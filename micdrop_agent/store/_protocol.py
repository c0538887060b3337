"""What a call and the place where it is kept say to each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import attrs

from micdrop_agent.errors import MicdropError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from micdrop_agent.messages import Item

__all__ = [
    "CallInUseError",
    "CallInfo",
    "CallLog",
    "Change",
    "ConversationStore",
    "StoreError",
    "UnknownCallError",
    "check_call_id",
]


class StoreError(MicdropError):
    """A store could not be read or written."""


class CallInUseError(StoreError):
    """Somebody else is keeping that call: another agent, or another process.

    Attributes:
        call_id: The call.
        writer: Who has it, as far as that is known; for people.
    """

    def __init__(self, call_id: str, writer: str | None) -> None:
        by = "" if writer is None else f" by {writer}"
        super().__init__(f"call {call_id!r} is being kept{by}; a call has one writer at a time")
        self.call_id = call_id
        self.writer = writer


class UnknownCallError(StoreError):
    """There is no such call in the store.

    Attributes:
        call_id: The call.
    """

    def __init__(self, call_id: str) -> None:
        super().__init__(f"there is no call {call_id!r} in the store")
        self.call_id = call_id


@attrs.frozen
class Change:
    """One change of a conversation: some items went, others came in their place.

    Args:
        number: 1 for the first change of a call, then without a gap. A store ignores a number that
            it has already, because a change is sent again when it is not known to have arrived.
        index: Where it happened.
        gone: How many items went, from ``index`` on.
        come: The items that stand there now.
    """

    number: int
    index: int
    gone: int
    come: tuple[Item, ...]


@attrs.frozen
class CallInfo:
    """What is known of a stored call.

    Args:
        call_id: The call.
        items: How many items its conversation has.
        created: When it was first stored, in seconds since 1970.
        changed: When it changed last, likewise.
    """

    call_id: str
    items: int
    created: float
    changed: float


class CallLog(Protocol):
    """A call that is open for writing, by one writer."""

    @property
    def items(self) -> Sequence[Item]:
        """The conversation as it was when the call was opened."""
        ...

    @property
    def number(self) -> int:
        """Number of the last change that was stored by then; 0 for a new call."""
        ...

    async def apply(self, changes: Sequence[Change]) -> None:
        """Store ``changes``, in order, each whole or not at all.

        Raises:
            Exception: Some could not be stored. All of them are given again later.
        """
        ...

    async def aclose(self) -> None:
        """Let somebody else write the call. Idempotent."""
        ...


class ConversationStore(Protocol):
    """A place where conversations are kept; ``SqliteStore`` is one, write others for your database."""

    async def open_call(self, call_id: str) -> CallLog:
        """Open a call for writing; a new one is begun.

        Raises:
            CallInUseError: It is open already, here or in another process.
            StoreError: It cannot be read.
        """
        ...

    async def load(self, call_id: str) -> Sequence[Item]:
        """The conversation of a call as it is now, also while somebody writes it.

        Raises:
            UnknownCallError: There is no such call.
            StoreError: It cannot be read.
        """
        ...


def check_call_id(call_id: object) -> None:
    """Refuse what cannot be the id of a call."""
    if not isinstance(call_id, str):
        raise TypeError(f"call_id must be a text, not {call_id!r}")
    if not call_id or not call_id.isprintable():
        raise ValueError(f"call_id must be a printable text and not empty, not {call_id!r}")
