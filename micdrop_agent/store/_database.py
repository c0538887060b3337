"""The SQLite file: its schema, and what is read and written. Blocking; runs in a worker thread.

calls(id, call_id, created, changed, number, writer)
items(call ─▶ calls.id, position, body)               body: one item as wire JSON
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from micdrop_agent import wire
from micdrop_agent.store._encode import encoded
from micdrop_agent.store._locks import CallLocks
from micdrop_agent.store._protocol import CallInfo, CallInUseError, StoreError, UnknownCallError

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from micdrop_agent.messages import Item
    from micdrop_agent.store._protocol import Change

__all__ = ["Database"]

APPLICATION: Final = 0x4D444341
"""``PRAGMA application_id``: "MDCA"; tells our files from others."""

VERSION: Final = 1
"""``PRAGMA user_version``: number of the schema. A later one adds a migration here."""

BUSY_TIMEOUT: Final = 2.0
"""Seconds that a transaction waits for one of another process."""

_SCHEMA: Final = f"""
CREATE TABLE calls (
    id INTEGER PRIMARY KEY,
    call_id TEXT NOT NULL UNIQUE,
    created REAL NOT NULL,
    changed REAL NOT NULL,
    number INTEGER NOT NULL DEFAULT 0,
    writer TEXT
);
CREATE TABLE items (
    id INTEGER PRIMARY KEY,
    call INTEGER NOT NULL REFERENCES calls (id),
    position INTEGER NOT NULL,
    body TEXT NOT NULL
);
CREATE INDEX items_of_call ON items (call, position);
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = {VERSION};
"""


class Database:
    """One connection to one file.

    Args:
        path: The file; ``:memory:`` for none.
        fsync: Wait for the disk at each commit. Without it a power cut may lose the last
            changes; a crash of the program never does.
        create: Make the file if it is missing.
    """

    def __init__(self, path: str, *, fsync: bool, create: bool) -> None:
        self.path = path
        self._fsync = fsync
        self._create = create
        self._opened: sqlite3.Connection | None = None
        self._locks = CallLocks(None if path == ":memory:" else path + "-lock")
        self._closed = False

    # -- calls

    def take(self, call_id: str) -> tuple[int, int, list[Item]]:
        """Lock a call: its row number, the number of its last change, its items."""
        with self._errors(f"call {call_id!r} cannot be opened"), self._transaction() as connection:
            now = time.time()
            connection.execute(
                "INSERT INTO calls (call_id, created, changed) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
                (call_id, now, now),
            )
            row: tuple[int, int, str | None] = connection.execute(
                "SELECT id, number, writer FROM calls WHERE call_id = ?", (call_id,)
            ).fetchone()
            call, number, writer = row
            if not self._locks.acquire(call):
                raise CallInUseError(call_id, writer)
            try:
                connection.execute("UPDATE calls SET writer = ? WHERE id = ?", (f"process {os.getpid()}", call))
                items = self._items(connection, call, call_id)
            except BaseException:
                self._locks.release(call)
                raise
        return call, number, items

    def release(self, call: int) -> None:
        """Let somebody else write the call."""
        try:
            if self._opened is not None:
                with self._errors("the call cannot be released"), self._transaction() as connection:
                    connection.execute("UPDATE calls SET writer = NULL WHERE id = ?", (call,))
        finally:
            self._locks.release(call)

    def apply(self, call: int, changes: Sequence[Change]) -> None:
        """Store ``changes``, each in a transaction of its own; those that are stored are ignored."""
        for change in changes:
            with self._errors("a change of the call cannot be stored"), self._transaction() as connection:
                _apply(connection, call, change)

    def read(self, call_id: str) -> list[Item]:
        """The items of a call, as they are now."""
        with self._errors(f"call {call_id!r} cannot be read"):
            connection = self._connection()
            row = connection.execute("SELECT id FROM calls WHERE call_id = ?", (call_id,)).fetchone()
            if row is None:
                raise UnknownCallError(call_id)
            return self._items(connection, row[0], call_id)

    def calls(self) -> list[CallInfo]:
        """All calls, the one that changed last at the end."""
        with self._errors("the calls cannot be listed"):
            rows = self._connection().execute(
                "SELECT call_id, (SELECT count(*) FROM items WHERE call = calls.id), created, changed"
                " FROM calls ORDER BY changed, id"
            )
            return [CallInfo(*row) for row in rows]

    def delete(self, call_id: str) -> None:
        """Forget a call that nobody writes."""
        with self._errors(f"call {call_id!r} cannot be deleted"), self._transaction() as connection:
            row = connection.execute("SELECT id, writer FROM calls WHERE call_id = ?", (call_id,)).fetchone()
            if row is None:
                raise UnknownCallError(call_id)
            if not self._locks.acquire(row[0]):
                raise CallInUseError(call_id, row[1])
            try:
                connection.execute("DELETE FROM items WHERE call = ?", (row[0],))
                connection.execute("DELETE FROM calls WHERE id = ?", (row[0],))
            finally:
                self._locks.release(row[0])

    def _items(self, connection: sqlite3.Connection, call: int, call_id: str) -> list[Item]:
        rows = connection.execute("SELECT body FROM items WHERE call = ? ORDER BY position, id", (call,))
        try:
            return wire.loads("[" + ",".join(row[0] for row in rows) + "]")
        except wire.WireError as error:
            raise StoreError(f"call {call_id!r} in {self.path} is damaged: {error}") from error

    # -- the connection

    def close(self) -> None:
        """Close the file; later calls raise ``StoreError``. Idempotent."""
        self._closed = True
        connection, self._opened = self._opened, None
        if connection is not None:
            connection.close()

    def _connection(self) -> sqlite3.Connection:
        if self._opened is None:
            if self._closed:
                raise StoreError(f"the store {self.path} was closed")
            if not self._create and self.path != ":memory:" and not Path(self.path).exists():
                raise StoreError(f"there is no store {self.path}")
            if self.path != ":memory:":
                # What callers said is nobody else's business; SQLite gives its side files the same mode.
                os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            # One thread at a time uses it, not always the same one; transactions are ours.
            connection = sqlite3.connect(self.path, timeout=BUSY_TIMEOUT, isolation_level=None, check_same_thread=False)
            try:
                self._prepare(connection)
            except BaseException:
                connection.close()
                raise
            self._opened = connection
        return self._opened

    def _prepare(self, connection: sqlite3.Connection) -> None:
        self._check(connection)
        _patiently(connection, "PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {'FULL' if self._fsync else 'NORMAL'}")
        connection.execute("BEGIN IMMEDIATE")
        try:
            if not self._check(connection):
                for statement in _SCHEMA.split(";"):
                    connection.execute(statement)
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise

    def _check(self, connection: sqlite3.Connection) -> bool:
        """Whether the schema is there; refuses a file that is something else."""
        version: int = connection.execute("PRAGMA user_version").fetchone()[0]
        application: int = connection.execute("PRAGMA application_id").fetchone()[0]
        tables: int = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if not tables and not application:
            return False
        if application != APPLICATION:
            raise StoreError(f"{self.path} is a database, but no store of calls; choose another file")
        if version > VERSION:
            raise StoreError(f"{self.path} was written by a newer version of micdrop_agent (schema {version})")
        return True

    @contextlib.contextmanager
    def _transaction(self) -> Generator[sqlite3.Connection]:
        connection = self._connection()
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    @contextlib.contextmanager
    def _errors(self, what: str) -> Generator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise StoreError(f"{what} ({self.path}): {error}") from error


def _apply(connection: sqlite3.Connection, call: int, change: Change) -> None:
    row = connection.execute("SELECT number FROM calls WHERE id = ?", (call,)).fetchone()
    if row is None:
        raise StoreError("the call was deleted while it was being kept")
    if change.number <= row[0]:
        return
    behind = change.index + change.gone
    if change.gone:
        connection.execute(
            "DELETE FROM items WHERE call = ? AND position >= ? AND position < ?", (call, change.index, behind)
        )
    moved = len(change.come) - change.gone
    if moved:
        connection.execute(
            "UPDATE items SET position = position + ? WHERE call = ? AND position >= ?", (moved, call, behind)
        )
    connection.executemany(
        "INSERT INTO items (call, position, body) VALUES (?, ?, ?)",
        [(call, change.index + offset, encoded(item)) for offset, item in enumerate(change.come)],
    )
    connection.execute("UPDATE calls SET number = ?, changed = ? WHERE id = ?", (change.number, time.time(), call))


def _patiently(connection: sqlite3.Connection, statement: str) -> None:
    """Run ``statement``; SQLite does not wait by itself when two processes switch a new file to WAL."""
    until = time.monotonic() + BUSY_TIMEOUT
    while True:
        try:
            connection.execute(statement)
        except sqlite3.OperationalError:
            if time.monotonic() > until:
                raise
            time.sleep(0.01)
        else:
            return
