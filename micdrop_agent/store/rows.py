"""The changes of a call as rows of its SQLite file."""

from __future__ import annotations

import time
import zlib
from typing import TYPE_CHECKING, TypeAlias

import attrs

from micdrop_agent.store.encode import encoded
from micdrop_agent.store.protocol import CallMovedError, StoreError

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from micdrop_agent.messages import Item
    from micdrop_agent.store.locks import CallLock
    from micdrop_agent.store.protocol import Change

    Encoded: TypeAlias = Sequence[tuple[Change, list[str]]]

__all__ = ["OpenCall", "Write", "checksum", "encode", "write_changes"]


@attrs.define(eq=False)
class OpenCall:
    """A call that this process may write.

    Args:
        call_id: The call.
        row: Its row in the table of calls.
        writer: The name under which it was opened, different each time.
        lock: Its lock.
        number: Number of its last change when it was opened.
        items: Its conversation then.
    """

    call_id: str
    row: int
    writer: str
    lock: CallLock
    number: int
    items: list[Item]


@attrs.define(eq=False)
class Write:
    """Changes of one call that wait for a transaction, and what became of them."""

    call: OpenCall
    changes: Sequence[Change]
    done: bool = False
    error: Exception | None = None


def checksum(body: object) -> int:
    """What is stored beside an item to find out later that it changed; -1 for what cannot be one."""
    return zlib.crc32(body.encode("utf-8", "surrogatepass")) if isinstance(body, str) else -1


def encode(write: Write) -> Encoded:
    """The changes with their items as text; up to the first one that cannot be encoded."""
    done: list[tuple[Change, list[str]]] = []
    try:
        for change in write.changes:
            done.append((change, [encoded(item) for item in change.come]))  # noqa: PERF401 - stops at the first error
    except Exception as error:  # noqa: BLE001 - an object of the host's; the changes before it are stored
        write.error = error
    return done


def write_changes(connection: sqlite3.Connection, write: Write, changes: Encoded) -> None:
    """Store the changes of one call, inside a transaction; sets ``write.error`` if it may not be written."""
    call = write.call
    row = connection.execute("SELECT number, size, writer FROM calls WHERE id = ?", (call.row,)).fetchone()
    if row is None:
        write.error = StoreError(f"call {call.call_id!r} was deleted while it was open")
        return
    number, size, writer = row
    if writer != call.writer:
        write.error = CallMovedError(call.call_id)
        return
    for change, bodies in changes:
        if change.number <= number:
            continue
        _apply(connection, call.row, change, bodies)
        number, size = change.number, size + len(bodies) - change.gone
    connection.execute(
        "UPDATE calls SET number = ?, size = ?, changed = ? WHERE id = ?", (number, size, time.time(), call.row)
    )


def _apply(connection: sqlite3.Connection, call: int, change: Change, bodies: list[str]) -> None:
    behind = change.index + change.gone
    if change.gone:
        connection.execute(
            "DELETE FROM items WHERE call = ? AND position >= ? AND position < ?", (call, change.index, behind)
        )
    moved = len(bodies) - change.gone
    if moved:
        connection.execute(
            "UPDATE items SET position = position + ? WHERE call = ? AND position >= ?", (moved, call, behind)
        )
    connection.executemany(
        "INSERT INTO items (call, position, body, checksum) VALUES (?, ?, ?, ?)",
        [(call, change.index + offset, body, checksum(body)) for offset, body in enumerate(bodies)],
    )
