"""A call that one of many workers owns for a limited time; the same for every server that workers share.

    CallRecorder ─▶ LeasedCall.apply ─▶ one atomic step of the server: is it still mine? then store, and extend
                └─▶ LeasedCall.hold  ─▶ the same without changes, each third of the lease

Invariants, pinned in tests/test_store_redis.py and tests/test_store_postgres.py:

1. Two owners never write: each opening gets a higher fence, and the server compares it.
2. A writer that was paused for longer than its lease writes nothing more, also if nobody took the call.
3. A server that is away, or has lost the last changes or everything, ends no call: it gets the call again.
"""

from __future__ import annotations

import os
import socket
import uuid
from typing import TYPE_CHECKING, Final, Protocol

import anyio
import anyio.lowlevel
import attrs

from micdrop_agent import wire
from micdrop_agent.store.encode import encoded
from micdrop_agent.store.protocol import CallMovedError, StoreError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from micdrop_agent.messages import Item
    from micdrop_agent.store.protocol import Change

__all__ = ["BEHIND", "MOVED", "LeasedCall", "Owner", "Server", "items_of", "writer_name"]

MOVED: Final = -1
"""Answer of a server: another writer has the call."""

BEHIND: Final = -2
"""Answer of a server that lost changes which it once had: it has nothing of the call, or an older state."""

RELEASE_TIMEOUT: Final = 1.0
"""Seconds that giving a call back may take; after that it is free when the lease ends."""


@attrs.frozen
class Owner:
    """Who may write a call.

    Args:
        call_id: The call.
        fence: The number of this opening; a later one has a higher number.
        writer: Its name, different each time.
        previous: The name of the writer before; by it a server that went back in time is told from a call that moved.
    """

    call_id: str
    fence: int
    writer: str
    previous: str


class Server(Protocol):
    """What a ``LeasedCall`` asks of the server; each is one atomic step, and ``StoreError`` if it fails."""

    lease: float

    async def apply(self, owner: Owner, changes: Sequence[tuple[Change, Sequence[str]]]) -> int:
        """Store changes that are not stored yet, and extend the lease; ``MOVED``, ``BEHIND``, or at least 0."""
        ...

    async def renew(self, owner: Owner, number: int) -> int:
        """Extend the lease of a call whose last change is ``number``; likewise."""
        ...

    async def restore(self, owner: Owner, number: int, bodies: Sequence[str]) -> int:
        """Store the complete call on a server that is behind; likewise."""
        ...

    async def release(self, owner: Owner) -> None:
        """End the lease, if it is still this owner's."""
        ...


class LeasedCall:
    """A call that is open for writing.

    Args:
        server: Where it is.
        owner: Who has opened it.
        number: Number of the last stored change.
        bodies: The items as they are stored.
    """

    def __init__(self, server: Server, owner: Owner, number: int, bodies: list[str]) -> None:
        self._server = server
        self._owner = owner
        self._bodies = bodies
        """What the server has, to give it again to one that lost it."""
        self._stored = number
        self._waiting: dict[int, list[str]] = {}
        """The items of changes that the server has not taken yet: they are given again and again."""
        self._awake: float | None = None
        """When ``hold()`` last ran: a process that was paused notices by it."""
        self._closed = False
        self.number = number
        self.items: Sequence[Item] = items_of(owner.call_id, bodies)

    async def apply(self, changes: Sequence[Change]) -> None:
        """See ``CallLog.apply``.

        Raises:
            CallMovedError: Another worker took the call over, or this one was paused for too long.
            StoreError: The server cannot be reached, or has no room.
            RuntimeError: The call was closed.
        """
        if self._closed:
            raise RuntimeError("this call was closed; open it again to write it")
        self._check_awake()
        new = [(change, self._encoded(change)) for change in changes]
        if self._mine(await self._server.apply(self._owner, new)) == BEHIND:
            await self._restore()
            self._mine(await self._server.apply(self._owner, new))
        for change, bodies in new:
            if change.number > self._stored:
                self._bodies[change.index : change.index + change.gone] = bodies
                self._stored = change.number
            self._waiting.pop(change.number, None)

    async def hold(self) -> None:
        """Extend the lease again and again; see ``LeasedCallLog.hold``.

        Raises:
            CallMovedError: Another worker took the call over, or this one was paused for too long.
        """
        pause = self._server.lease / 3
        while not self._closed:
            self._check_awake()
            self._awake = anyio.current_time()
            # A server that is away is waited for: the lease is lost to another worker only.
            with anyio.move_on_after(pause):
                try:
                    if self._mine(await self._server.renew(self._owner, self._stored)) == BEHIND:
                        await self._restore()
                except CallMovedError:
                    raise
                except StoreError:
                    pass  # reported when there is something to store
            self._check_awake()
            self._awake = anyio.current_time()
            await anyio.sleep(pause)

    async def aclose(self) -> None:
        """See ``CallLog.aclose``.

        Raises:
            StoreError: The server cannot be reached; the call is free when the lease ends.
        """
        if self._closed:
            await anyio.lowlevel.checkpoint()
            return
        self._closed = True
        # Bounded: a server that hangs must not hold whoever leaves; the lease ends by itself.
        with anyio.move_on_after(RELEASE_TIMEOUT, shield=True) as limit:
            await self._server.release(self._owner)
        if limit.cancelled_caught:
            raise StoreError(f"call {self._owner.call_id!r} could not be given back; it is free when the lease ends")

    def _encoded(self, change: Change) -> list[str]:
        bodies = self._waiting.get(change.number)
        if bodies is None:
            bodies = self._waiting[change.number] = [encoded(item) for item in change.come]
        return bodies

    def _check_awake(self) -> None:
        # Invariant 2: the clock goes on while a process is stopped, and nothing of it ran since then.
        if self._awake is not None and anyio.current_time() - self._awake > self._server.lease:
            raise CallMovedError(self._owner.call_id, "this process was paused for longer than its lease")

    def _mine(self, outcome: int) -> int:
        if outcome == MOVED:
            raise CallMovedError(self._owner.call_id)
        return outcome

    async def _restore(self) -> None:
        # A change that was under way when the server lost it is given again by whoever called.
        self._mine(await self._server.restore(self._owner, self._stored, self._bodies))


def items_of(call_id: str, bodies: Sequence[str]) -> list[Item]:
    """The items that are stored as ``bodies``."""
    try:
        return wire.loads("[" + ",".join(bodies) + "]")
    except (wire.WireError, RecursionError) as error:
        raise StoreError(f"call {call_id!r} is damaged: {error}") from error


def writer_name() -> str:
    """A name for one opening of a call, by which people find the process."""
    return f"{socket.gethostname()} process {os.getpid()}, {uuid.uuid4().hex[:12]}"
