"""A stored call as JSON Lines: one item of the conversation per line, as Micdrop's wire JSON."""

from __future__ import annotations

import codecs
import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from micdrop_agent import wire
from micdrop_agent.store.encode import encoded
from micdrop_agent.store.protocol import Change, StoreError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from micdrop_agent.messages import Item
    from micdrop_agent.store.protocol import ConversationStore

__all__ = ["export_jsonl", "import_jsonl"]


async def export_jsonl(store: ConversationStore, call_id: str, file: str | os.PathLike[str]) -> int:
    """Write a call to ``file``, completely or not at all; returns the number of its items.

    A new file can be read by its owner only.

    Raises:
        UnknownCallError: There is no such call.
        StoreError: The store cannot be read, or the file not written.
    """
    items = await store.load(call_id)
    await anyio.to_thread.run_sync(_write, items, Path(file))
    return len(items)


async def import_jsonl(store: ConversationStore, call_id: str, file: str | os.PathLike[str]) -> int:
    """Begin a call with the conversation in ``file``; returns the number of its items.

    Raises:
        StoreError: The call has items already, the file cannot be read, or a line of it is not
            an item (the message has its number); the store then has nothing of it.
        CallInUseError: A writer has that call open.
    """
    items = await anyio.to_thread.run_sync(_read, Path(file))
    log = await store.open_call(call_id)
    try:
        if log.items:
            raise StoreError(f"call {call_id!r} has {len(log.items)} items already; import under another id")
        if items:
            await log.apply([Change(log.number + 1, 0, 0, tuple(items))])
    finally:
        with anyio.CancelScope(shield=True):
            await log.aclose()
    return len(items)


def _write(items: Sequence[Item], file: Path) -> None:
    target = file.resolve()
    temporary: str | None = None
    try:
        descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        with open(descriptor, "w", encoding="utf-8") as opened:  # noqa: PTH123 - a descriptor is not a path
            opened.writelines(encoded(item) + "\n" for item in items)
            opened.flush()
            os.fsync(descriptor)
        Path(temporary).replace(target)
        temporary = None
    except OSError as error:
        raise StoreError(f"cannot write {str(file)!r}: {error.strerror}") from error
    finally:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)


def _read(file: Path) -> list[Item]:
    try:
        text = file.read_bytes().removeprefix(codecs.BOM_UTF8)  # an editor on Windows may have put it there
    except OSError as error:
        raise StoreError(f"cannot read {str(file)!r}: {error.strerror}") from error
    items: list[Item] = []
    for number, line in enumerate(text.split(b"\n"), 1):
        if line.strip():
            try:
                json.loads(line)  # alone: brackets around it must not join two half lines
                items += wire.loads(b"[" + line + b"]")
            except (wire.WireError, ValueError, RecursionError) as error:
                raise StoreError(f"line {number} of {str(file)!r} is not an item of a conversation: {error}") from error
    return items
