"""Opens the SQLite file of a store: makes it, checks that it is one, and reads it where it cannot be written."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import tempfile
import time
import urllib.parse
from pathlib import Path
from typing import TYPE_CHECKING, Final

from micdrop_agent.store.protocol import StoreError

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["BUSY_TIMEOUT", "MEMORY", "code_of", "connect", "connect_to_read", "is_busy"]

MEMORY: Final = ":memory:"

APPLICATION: Final = 0x4D444341
"""``PRAGMA application_id``: "MDCA"; distinguishes our files from others."""

VERSION: Final = 1
"""``PRAGMA user_version``: number of the schema. A later one adds a migration here."""

BUSY_TIMEOUT: Final = 5.0
"""Seconds that a transaction waits for one of another process."""

SCHEMA: Final = f"""
CREATE TABLE calls (
    id INTEGER PRIMARY KEY,
    call_id TEXT NOT NULL UNIQUE,
    created REAL NOT NULL,
    changed REAL NOT NULL,
    number INTEGER NOT NULL DEFAULT 0,
    size INTEGER NOT NULL DEFAULT 0,
    writer TEXT
);
CREATE TABLE items (
    id INTEGER PRIMARY KEY,
    call INTEGER NOT NULL REFERENCES calls (id),
    position INTEGER NOT NULL,
    body TEXT NOT NULL,
    checksum INTEGER NOT NULL
);
CREATE INDEX items_of_call ON items (call, position);
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = {VERSION};
"""


def connect(path: str, *, fsync: bool) -> sqlite3.Connection:
    """A connection that reads and writes; a missing file is created.

    Raises:
        StoreError: The file is something else.
        sqlite3.Error: It cannot be opened.
        OSError: It cannot be created.
    """
    if path != MEMORY:
        # What callers said is for the owner only; SQLite gives its side files the same mode. An existing
        # file is not opened here: closing it again would drop the locks of SQLite in this process.
        with contextlib.suppress(FileExistsError):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o600))
    # One thread at a time uses it, not always the same one; transactions are ours.
    connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT, isolation_level=None, check_same_thread=False)
    try:
        _prepare(connection, path, fsync=fsync)
    except BaseException:
        connection.close()
        raise
    return connection


@contextlib.contextmanager
def connect_to_read(path: str) -> Generator[sqlite3.Connection]:
    """A connection to a file, or in a folder, that cannot be written; for one read.

    Raises:
        StoreError: The file is something else.
        sqlite3.Error: It cannot be read.
        OSError: Its copy cannot be made.
    """
    # Without write access SQLite cannot make its index of the write-ahead log. Without a log it can be
    # assured that nothing will change; with one but no index it reads a copy.
    log = Path(path + "-wal")
    if log.exists() and log.stat().st_size:
        connection = _read_only(path, "mode=ro") if Path(path + "-shm").exists() else _copy(path)
    else:
        connection = _read_only(path, "immutable=1")
    try:
        check(connection, path)
        yield connection
    finally:
        connection.close()


def _read_only(path: str, how: str) -> sqlite3.Connection:
    name = f"file:{urllib.parse.quote(path)}?{how}"
    return sqlite3.connect(name, uri=True, timeout=BUSY_TIMEOUT, isolation_level=None, check_same_thread=False)


def _copy(path: str) -> sqlite3.Connection:
    memory = sqlite3.connect(MEMORY, isolation_level=None, check_same_thread=False)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "copy.db")
        shutil.copyfile(path, copy)
        shutil.copyfile(path + "-wal", f"{copy}-wal")
        with contextlib.closing(sqlite3.connect(copy)) as source:
            source.backup(memory)
    return memory


def _prepare(connection: sqlite3.Connection, path: str, *, fsync: bool) -> None:
    exists = check(connection, path)
    _wait_for_wal(connection)
    connection.execute(f"PRAGMA synchronous = {'FULL' if fsync else 'NORMAL'}")
    if exists:
        return  # opening writes nothing: a full disk does not keep a call from being read
    connection.execute("BEGIN IMMEDIATE")
    try:
        if not check(connection, path):  # another process may have been faster
            for statement in SCHEMA.split(";"):
                connection.execute(statement)
        connection.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):  # the connection is closed anyway
            connection.execute("ROLLBACK")
        raise


def check(connection: sqlite3.Connection, path: str) -> bool:
    """Whether the schema is there; refuses a file that is something else."""
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    application: int = connection.execute("PRAGMA application_id").fetchone()[0]
    tables: int = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if not tables and not application:
        return False
    if application != APPLICATION:
        raise StoreError(f"{path} is a database, but not a store of calls; choose another file")
    if version > VERSION:
        raise StoreError(f"{path} was written by a newer version of micdrop_agent (schema {version})")
    return True


def _wait_for_wal(connection: sqlite3.Connection) -> None:
    """Switch to the write-ahead log; SQLite itself does not wait when two processes switch a new file."""
    until = time.monotonic() + BUSY_TIMEOUT
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() > until:
                raise
            time.sleep(0.01)
        else:
            return


def code_of(error: Exception) -> int:
    """The primary code of an error of SQLite; 0 for others, also for those of Python's module."""
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF


def is_busy(error: Exception) -> bool:
    """Whether another connection was in the way for too long."""
    return code_of(error) in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
