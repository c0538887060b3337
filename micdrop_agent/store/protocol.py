"""The interface between an agent and the place where its call is stored, and the errors of both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

import attrs

from micdrop_agent.errors import MicdropError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from micdrop_agent.messages import Item

__all__ = [
    "CallInUseError",
    "CallInfo",
    "CallLog",
    "CallMovedError",
    "Change",
    "ConversationStore",
    "LeasedCallLog",
    "StoreError",
    "UnknownCallError",
    "check_call_id",
]


class StoreError(MicdropError):
    """A store could not be read or written.

    Attributes:
        retryable: The same request may work a moment later, for example because the store was busy
            or out of reach.
        unsaved: Changes that are not stored; set where ``flush()`` or the end of the agent's block
            raises it.
    """

    def __init__(self, message: str, *, retryable: bool = False) -> None:
        super().__init__(message)
        self.retryable = retryable
        self.unsaved: tuple[Change, ...] = ()


class CallInUseError(StoreError):
    """Another writer has this call open: another agent, or another process.

    Attributes:
        call_id: The call.
        writer: Who has it, as far as that is known; for people.
    """

    def __init__(self, call_id: str, writer: str | None) -> None:
        by = "" if writer is None else f" ({writer})"
        super().__init__(f"another writer{by} has call {call_id!r} open; a call has one writer at a time")
        self.call_id = call_id
        self.writer = writer


class CallMovedError(StoreError):
    """Another writer took this call over; this one can no longer write it.

    Attributes:
        call_id: The call.
    """

    def __init__(self, call_id: str, reason: str = "another writer took it over") -> None:
        super().__init__(f"call {call_id!r} can no longer be written here: {reason}")
        self.call_id = call_id


class UnknownCallError(StoreError):
    """The store has no such call.

    Attributes:
        call_id: The call.
    """

    def __init__(self, call_id: str) -> None:
        super().__init__(f"there is no call {call_id!r} in the store")
        self.call_id = call_id


@attrs.frozen
class Change:
    """One change of a conversation: some items were removed, others inserted in their place.

    Args:
        number: 1 for the first change of a call, then without a gap. A store ignores a number that
            it has already, because a change is sent again when it is not known to have arrived.
        index: Where it happened.
        gone: How many items were removed, from ``index`` on.
        come: The items that were inserted at ``index``.
    """

    number: int
    index: int
    gone: int
    come: tuple[Item, ...]


@attrs.frozen
class CallInfo:
    """One line of a list of stored calls.

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
        """Store ``changes``, in order, each completely or not at all.

        Raises:
            CallMovedError: Another writer took the call over. Nothing is given again.
            Exception: Some could not be stored. All of them are given again later.
        """
        ...

    async def aclose(self) -> None:
        """Let another writer open the call. Idempotent."""
        ...


@runtime_checkable
class LeasedCallLog(CallLog, Protocol):
    """A call that is owned for a limited time, which has to be extended: for stores across machines."""

    async def hold(self) -> None:
        """Keep the call for this writer; runs beside the agent until it is cancelled.

        Raises:
            CallMovedError: The call is lost to another writer.
        """
        ...


class ConversationStore(Protocol):
    """A place where conversations are stored; ``SqliteStore`` is one, write others for your database."""

    async def open_call(self, call_id: str) -> CallLog:
        """Open a call for writing; a call that does not exist is created.

        Raises:
            CallInUseError: It is open already, here or in another process.
            StoreError: It cannot be read.
        """
        ...

    async def load(self, call_id: str) -> Sequence[Item]:
        """The conversation of a call as it is now, also while a writer has it open.

        Raises:
            UnknownCallError: There is no such call.
            StoreError: It cannot be read.
        """
        ...


def check_call_id(call_id: object) -> None:
    """Refuse what cannot be the id of a call."""
    if not isinstance(call_id, str):
        raise TypeError(f"call_id must be a string, not {call_id!r}")
    if not call_id or not call_id.isprintable():
        raise ValueError(f"call_id must be printable and not empty, not {call_id!r}")
