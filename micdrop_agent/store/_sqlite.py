"""``SqliteStore``: any number of calls in one SQLite file."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread

from micdrop_agent.options import check_flag
from micdrop_agent.store._database import Database
from micdrop_agent.store._protocol import check_call_id

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Self

    from micdrop_agent.messages import Item
    from micdrop_agent.store._protocol import CallInfo, Change

__all__ = ["SqliteStore"]

T = TypeVar("T")


class SqliteStore:
    """Keeps calls in a SQLite file (WAL), one transaction for each change.

    Use it with ``async with``; it is opened when it is first used. It belongs to one event loop;
    SQLite runs in a worker thread, one statement at a time. Several processes may use the same
    file at the same time, on one machine, each call having one writer.

    Args:
        path: The file; it is made if it is missing. Beside it stand SQLite's own ``-wal`` and
            ``-shm`` and our ``-lock``, which is empty and may stay. ``":memory:"`` for tests.
        fsync: Wait for the disk at each change (in the thread). ``False`` is several times faster
            and still safe against ``kill -9``; a power cut may then lose the last changes.
        create: Make the file if it is missing; ``False``: ``StoreError`` on first use.

    Raises:
        TypeError: An option has the wrong type; the message names it.
    """

    def __init__(self, path: str | os.PathLike[str], *, fsync: bool = True, create: bool = True) -> None:
        name: object = os.fspath(path)
        if not isinstance(name, str):
            raise TypeError(f"path must be a text or a path, not {path!r}")
        check_flag("fsync", fsync)
        check_flag("create", create)
        self._database = Database(name, fsync=fsync, create=create)
        self._lock = anyio.Lock()

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
            TypeError: ``call_id`` is no text.
            ValueError: ``call_id`` is empty or not printable.
        """
        check_call_id(call_id)
        taken: tuple[int, int, list[Item]] | None = None
        # Shielded: a call that was locked for somebody who is gone would stay locked.
        with anyio.CancelScope(shield=True):
            taken = await self._run(lambda: self._database.take(call_id))
        assert taken is not None
        return SqliteCall(self, *taken)

    async def load(self, call_id: str) -> list[Item]:
        """The conversation of a call as it is now, also while somebody writes it.

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
        """Forget a call.

        Raises:
            UnknownCallError: There is no such call.
            CallInUseError: Somebody writes it.
            StoreError: The file cannot be written.
        """
        await self._run(lambda: self._database.delete(call_id))

    async def _run(self, work: Callable[[], T]) -> T:
        # The default limiter, not one of our own: tests in virtual time know by it that a thread is busy.
        async with self._lock:
            return await anyio.to_thread.run_sync(work)


class SqliteCall:
    """A call that is open for writing; made by ``SqliteStore.open_call``.

    Args:
        store: Where it is.
        row: Its row in the table of calls.
        number: Number of its last stored change.
        items: Its conversation when it was opened.
    """

    def __init__(self, store: SqliteStore, row: int, number: int, items: list[Item]) -> None:
        self._store = store
        self._row: int | None = row
        self.number = number
        self.items: Sequence[Item] = items

    async def apply(self, changes: Sequence[Change]) -> None:
        """See ``CallLog.apply``.

        Raises:
            StoreError: Some could not be stored.
            RuntimeError: The call was closed.
        """
        row = self._row
        if row is None:
            raise RuntimeError("this call was closed; open it again to write it")
        await self._store._run(lambda: self._store._database.apply(row, changes))

    async def aclose(self) -> None:
        """See ``CallLog.aclose``."""
        row, self._row = self._row, None
        if row is None:
            await anyio.lowlevel.checkpoint()
            return
        with anyio.CancelScope(shield=True):
            await self._store._run(lambda: self._store._database.release(row))
