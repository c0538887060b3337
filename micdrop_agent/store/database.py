"""What is read from and written to the SQLite file of a store. Blocking; runs in a worker thread.

    calls(id, call_id, created, changed, number, size, writer)
    items(call ─▶ calls.id, position, body, checksum)        body: one item as wire JSON

Invariants, pinned in tests/test_store_sqlite.py and tests/test_store_faults.py:

1. Changes of any number of calls share one transaction; each call gets all of its changes or none.
2. Whatever fails, the lock of the call, the transaction and the connection are given back.
3. Only the writer that opened a call last writes it: its name is compared in the same transaction.
4. What is read is what was written, or ``StoreError``: checksums, positions and the number of items.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from micdrop_agent import wire
from micdrop_agent.store.connect import MEMORY, code_of, connect, connect_to_read, is_busy
from micdrop_agent.store.locks import CallLocks, real_path
from micdrop_agent.store.protocol import CallInfo, CallInUseError, StoreError, UnknownCallError
from micdrop_agent.store.rows import OpenCall, checksum, encode, write_changes

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable, Generator, Sequence

    from micdrop_agent.messages import Item
    from micdrop_agent.store.locks import CallLock
    from micdrop_agent.store.rows import Encoded, Write

__all__ = ["Database"]

REOPEN: Final = frozenset(
    {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_NOTADB}
)
"""Errors after which the file is opened again: what the connection knows of it may be wrong."""


class Database:
    """One connection to one file, used by one thread at a time.

    Args:
        path: The file; ``:memory:`` for none.
        fsync: Wait for the disk at each commit. Without it a power cut may lose the last
            changes; a crash of the program never does.
        create: Create the file if it is missing.
    """

    def __init__(self, path: str, *, fsync: bool, create: bool) -> None:
        self.path = path
        self._fsync = fsync
        self._create = create
        self._opened: sqlite3.Connection | None = None
        self._locks: CallLocks | None = None
        self._closed = False
        # Tasks of one event loop wait for each other there; this is for threads of several loops.
        self._guard = threading.Lock()

    # -- calls

    def take(self, call_id: str, keep: Callable[[OpenCall], None]) -> None:
        """Lock a call, create it if it does not exist, and hand it to ``keep`` before anyone else has a turn."""
        with self._using(f"call {call_id!r} cannot be opened"):
            connection = self._connection()
            lock = self._lock(connection, call_id)
            try:
                writer = f"process {os.getpid()}, {uuid.uuid4().hex[:12]}"
                with self._transaction(connection):
                    now = time.time()
                    connection.execute(
                        "INSERT INTO calls (call_id, created, changed) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
                        (call_id, now, now),
                    )
                    connection.execute("UPDATE calls SET writer = ? WHERE call_id = ?", (writer, call_id))
                    row, number = connection.execute(
                        "SELECT id, number FROM calls WHERE call_id = ?", (call_id,)
                    ).fetchone()
                    items = self._items(connection, call_id)
                keep(OpenCall(call_id, row, writer, lock, number, items))
            except BaseException:
                lock.release()
                raise

    def write(self, waiting: deque[Write]) -> None:
        """Store the changes of all calls that wait, in one transaction; the outcome is in each ``Write``.

        A call that may not be written harms no other one. What does not fit on the disk together is stored
        as far as it does, change by change.
        """
        writes: list[Write] = []
        try:
            with self._using("changes cannot be stored"):
                while waiting:
                    with contextlib.suppress(IndexError):  # the last one was just cancelled
                        writes.append(waiting.popleft())
                rows = [(write, encode(write)) for write in writes]
                connection = self._connection()
                try:
                    self._write(connection, rows)
                except sqlite3.Error as error:
                    if is_busy(error) or sum(len(changes) for _, changes in rows) <= 1:
                        raise
                    self._write_singly(rows)
        except Exception as error:  # noqa: BLE001 - foreign code; each writer raises it in its own task
            for write in writes:
                write.error = write.error or error
        finally:
            for write in writes:
                write.done = True

    def _write(self, connection: sqlite3.Connection, rows: Sequence[tuple[Write, Encoded]]) -> None:
        with self._transaction(connection):
            for write, changes in rows:
                write_changes(connection, write, changes)

    def _write_singly(self, rows: Sequence[tuple[Write, Encoded]]) -> None:
        for write, changes in rows:
            try:
                for change in changes:
                    self._write(self._connection(), [(write, [change])])
            except sqlite3.Error as error:
                write.error = StoreError(f"changes cannot be stored ({self.path}): {error}")
                write.error.__cause__ = error

    def read(self, call_id: str) -> list[Item]:
        """The items of a call, as they are now."""
        with self._using(f"call {call_id!r} cannot be read"), self._reading() as connection:
            return self._items(connection, call_id)

    def calls(self) -> list[CallInfo]:
        """All calls, the one that changed last at the end."""
        with self._using("the calls cannot be listed"), self._reading() as connection:
            rows = connection.execute("SELECT call_id, size, created, changed FROM calls ORDER BY changed, id")
            return [_call_info(row) for row in rows]

    def delete(self, call_id: str) -> None:
        """Delete a call that no writer has open."""
        with self._using(f"call {call_id!r} cannot be deleted"):
            connection = self._connection()
            row = connection.execute("SELECT id FROM calls WHERE call_id = ?", (call_id,)).fetchone()
            if row is None:
                raise UnknownCallError(call_id)
            lock = self._lock(connection, call_id)
            try:
                with self._transaction(connection):
                    connection.execute("DELETE FROM items WHERE call = ?", row)
                    connection.execute("DELETE FROM calls WHERE id = ?", row)
            finally:
                lock.release()

    def _lock(self, connection: sqlite3.Connection, call_id: str) -> CallLock:
        assert self._locks is not None
        lock = self._locks.acquire(call_id)
        if lock is None:
            row = connection.execute("SELECT writer FROM calls WHERE call_id = ?", (call_id,)).fetchone()
            raise CallInUseError(call_id, None if row is None or row[0] is None else str(row[0]))
        return lock

    def _items(self, connection: sqlite3.Connection, call_id: str) -> list[Item]:
        # One statement is one snapshot: another process may commit between two of them.
        rows: list[Any] = connection.execute(
            "SELECT calls.size, position, body, checksum FROM calls LEFT JOIN items ON items.call = calls.id"
            " WHERE call_id = ? ORDER BY position",
            (call_id,),
        ).fetchall()
        if not rows:
            raise UnknownCallError(call_id)
        stored = [row[1:] for row in rows if row[1:] != (None, None, None)]
        damaged = f"call {call_id!r} in {self.path} is damaged"
        try:
            items = wire.loads("[" + ",".join(body for _, body, _ in stored) + "]")
        except (wire.WireError, RecursionError, TypeError) as error:
            raise StoreError(f"{damaged}: {error}") from error
        expected = [(index, body, checksum(body)) for index, (_, body, _) in enumerate(stored)]
        if rows[0][0] != len(stored) or expected != stored:
            raise StoreError(f"{damaged}: items are missing or were changed")
        return items

    # -- the connection

    def close(self) -> None:
        """Close the file; later calls raise ``StoreError``. Idempotent."""
        with self._guard:
            self._closed = True
            self._drop()

    def _drop(self) -> None:
        connection, self._opened = self._opened, None
        if connection is not None:
            connection.close()

    def _connection(self) -> sqlite3.Connection:
        if self._opened is None:
            if self._closed:
                raise StoreError(f"the store {self.path} was closed")
            memory = self.path == MEMORY
            if not (self._create or memory or Path(self.path).exists()):
                raise StoreError(f"there is no store {self.path}")
            path = self.path if memory else real_path(self.path)
            self._opened = connect(path, fsync=self._fsync)
            if self._locks is None:
                self._locks = CallLocks(None if memory else path)
        return self._opened

    @contextlib.contextmanager
    def _reading(self) -> Generator[sqlite3.Connection]:
        """The connection; where the file cannot be opened for writing, one that only reads."""
        try:
            connection = self._connection()
        except (sqlite3.OperationalError, PermissionError):
            path = os.path.realpath(self.path)
            if not Path(path).exists():
                raise
            with connect_to_read(path) as read_only:
                yield read_only
        else:
            yield connection

    @contextlib.contextmanager
    def _transaction(self, connection: sqlite3.Connection) -> Generator[None]:
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            connection.execute("COMMIT")
        except BaseException:
            try:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
            except sqlite3.Error:
                # A connection that cannot leave its transaction would refuse every later one.
                if self.path != MEMORY:
                    self._drop()
            raise

    @contextlib.contextmanager
    def _using(self, what: str) -> Generator[None]:
        """One thread at a time; whatever a damaged file or a full disk raises becomes ``StoreError``."""
        with self._guard:
            try:
                yield
            except StoreError:
                raise
            except (sqlite3.Error, OSError, ValueError, TypeError, OverflowError, MemoryError) as error:
                if code_of(error) in REOPEN and self.path != MEMORY:
                    self._drop()
                raise StoreError(f"{what} ({self.path}): {error}", retryable=is_busy(error)) from error


def _call_info(row: tuple[Any, ...]) -> CallInfo:
    if [type(value) for value in row] != [str, int, float, float]:
        raise StoreError("the list of calls is damaged")
    return CallInfo(*row)
