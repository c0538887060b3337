"""``SqliteStore``: any number of calls in one SQLite file."""

from __future__ import annotations

import contextlib
import os
import weakref
from collections import deque
from typing import TYPE_CHECKING, TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread
import attrs

from micdrop_agent.options import check_flag
from micdrop_agent.store.database import Database
from micdrop_agent.store.protocol import check_call_id
from micdrop_agent.store.rows import Write

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Self

    from micdrop_agent.messages import Item
    from micdrop_agent.store.protocol import CallInfo, Change
    from micdrop_agent.store.rows import OpenCall

__all__ = ["SqliteStore"]

T = TypeVar("T")


@attrs.define(eq=False)
class Lane:
    """What one event loop has under way: one thread at a time, and the changes that wait for it."""

    lock: anyio.Lock = attrs.field(factory=anyio.Lock)
    waiting: deque[Write] = attrs.field(factory=deque[Write])


class Taking:
    """The attempt to open a call, in a thread; whoever comes last of two that end it gives the lock back.

    Args:
        database: Where the call is.
        call_id: The call.
    """

    def __init__(self, database: Database, call_id: str) -> None:
        self._database = database
        self._call_id = call_id
        self._given_up = False
        self.call: OpenCall | None = None

    def run(self) -> None:
        """Open the call; in a worker thread."""
        self._database.take(self._call_id, self._keep)

    def _keep(self, call: OpenCall) -> None:
        self.call = call
        if self._given_up:
            call.lock.release()

    def give_up(self) -> None:
        """The caller is gone; in its event loop."""
        self._given_up = True
        if self.call is not None:
            self.call.lock.release()


class SqliteStore:
    """Stores calls in a SQLite file (WAL); changes that come together share a transaction.

    Use it with ``async with``; it is opened when it is first used. SQLite runs in a worker thread.
    Several event loops and several processes of one machine may use the same file at the same time,
    each call having one writer. A file that cannot be written can still be read.

    Args:
        path: The file; it is created if it is missing. Beside it are SQLite's own ``-wal`` and ``-shm``,
            and our folder ``-locks`` with one empty file for each open call. ``":memory:"`` for tests.
        fsync: Wait for the disk at each transaction (in the thread). ``False`` is several times faster
            and still safe against ``kill -9``; a power cut may then lose the last changes.
        create: Create the file if it is missing; ``False``: ``StoreError`` on first use.

    Raises:
        TypeError: An option has the wrong type; the message names it.
    """

    def __init__(self, path: str | os.PathLike[str], *, fsync: bool = True, create: bool = True) -> None:
        name: object = os.fspath(path)
        if not isinstance(name, str):
            raise TypeError(f"path must be a string or a path, not {path!r}")
        check_flag("fsync", fsync)
        check_flag("create", create)
        self._database = Database(name, fsync=fsync, create=create)
        self._lanes: weakref.WeakKeyDictionary[object, Lane] = weakref.WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"SqliteStore({self._database.path!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the file. Leave the agents first: what they have still to store is lost otherwise."""
        with anyio.CancelScope(shield=True):
            await self._run(self._database.close)

    async def open_call(self, call_id: str) -> SqliteCall:
        """See ``ConversationStore.open_call``; ``agent.attach()`` does it for you.

        Raises:
            CallInUseError: It is open already, here or in another process.
            StoreError: The file cannot be opened or read, or is something else.
            TypeError: ``call_id`` is not a string.
            ValueError: ``call_id`` is empty or not printable.
        """
        check_call_id(call_id)
        taking = Taking(self._database, call_id)
        try:
            # Shielded: a call that was locked for a caller that is gone would stay locked.
            with anyio.CancelScope(shield=True):
                await self._run(taking.run)
        except BaseException:
            taking.give_up()  # a native cancellation of asyncio is not stopped by a shield
            raise
        assert taking.call is not None
        return SqliteCall(self, taking.call)

    async def load(self, call_id: str) -> list[Item]:
        """The conversation of a call as it is now, also while a writer has it open.

        Raises:
            UnknownCallError: There is no such call.
            StoreError: The file cannot be opened or read, or is something else.
        """
        return await self._run(lambda: self._database.read(call_id))

    async def calls(self) -> list[CallInfo]:
        """All calls, the one that changed last at the end.

        Raises:
            StoreError: The file cannot be opened or read, or is something else.
        """
        return await self._run(self._database.calls)

    async def delete(self, call_id: str) -> None:
        """Delete a call.

        Raises:
            UnknownCallError: There is no such call.
            CallInUseError: A writer has it open.
            StoreError: The file cannot be written.
        """
        await self._run(lambda: self._database.delete(call_id))

    async def apply(self, call: OpenCall, changes: Sequence[Change]) -> None:
        """Store changes of a call that is open; for ``SqliteCall``."""
        lane, write = self._lane(), Write(call, changes)
        lane.waiting.append(write)
        try:
            async with lane.lock:
                # Whoever is first stores what waits, for all: a transaction for each call would make the last
                # of many callers wait for all the others. What waits is taken in the thread, so a cancellation
                # before it starts loses nothing; one that left the thread (a native one of asyncio) is the
                # reason to come again, which waits for that thread.
                while not write.done:
                    await anyio.to_thread.run_sync(self._database.write, lane.waiting)
        except BaseException:
            with contextlib.suppress(ValueError):  # cancelled while it waited: given again if it matters
                lane.waiting.remove(write)
            raise
        if write.error is not None:
            raise write.error

    async def release(self, call: OpenCall) -> None:
        """Let another writer open a call; for ``SqliteCall``."""
        try:
            with anyio.CancelScope(shield=True):
                await self._run(call.lock.release)
        finally:
            call.lock.release()  # also when a native cancellation came before the thread

    def _lane(self) -> Lane:
        loop = anyio.lowlevel.current_token().native_token
        lane = self._lanes.get(loop)
        if lane is None:
            lane = self._lanes[loop] = Lane()
        return lane

    async def _run(self, work: Callable[[], T]) -> T:
        # The default limiter, not one of our own: tests in virtual time know by it that a thread is busy.
        async with self._lane().lock:
            return await anyio.to_thread.run_sync(work)


class SqliteCall:
    """A call that is open for writing; made by ``SqliteStore.open_call``.

    Args:
        store: Where it is.
        call: What the database knows of it.
    """

    def __init__(self, store: SqliteStore, call: OpenCall) -> None:
        self._store = store
        self._call: OpenCall | None = call
        self.number = call.number
        self.items: Sequence[Item] = call.items

    async def apply(self, changes: Sequence[Change]) -> None:
        """See ``CallLog.apply``.

        Raises:
            StoreError: Some could not be stored.
            RuntimeError: The call was closed.
        """
        if self._call is None:
            raise RuntimeError("this call was closed; open it again to write it")
        await self._store.apply(self._call, changes)

    async def aclose(self) -> None:
        """See ``CallLog.aclose``."""
        call, self._call = self._call, None
        if call is None:
            await anyio.lowlevel.checkpoint()
            return
        await self._store.release(call)
