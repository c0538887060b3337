"""Stores a call: every change of its conversation is written while it happens, and survives a crash.

    async with SqliteStore("calls.db") as store, OpenaiAgent(...) as agent:
        await agent.attach(store, "call-42")     # loads what is there, then follows every change
        ...                                      # nothing here waits for the disk

    Conversation ── journal ──▶ CallRecorder ── one task, in order ──▶ ConversationStore (a worker thread)

Guarantees, each one pinned in tests/test_store_*.py:

1. A change is stored completely or not at all. What was stored before a crash (``kill -9``) is there
   afterwards, and the stored conversation is one that the call really had at some moment.
2. A second writer of a call is refused with ``CallInUseError``, whatever name the file has; a writer that
   died, failed or was cancelled refuses nobody.
3. ``attach()`` leaves a valid history: a tool call that a crash cut off gets an error as its result.
4. The call never waits for the store, and never ends because of it: a store that fails is logged and
   reported to ``on_error``, the changes are kept and tried again, in order, and none is written twice.
5. When the agent's block has been left, or ``await agent.flush()`` has returned, all is stored;
   if it is not, ``StoreError`` is raised there, with what is not stored in ``unsaved``.
6. Whatever a damaged file, a full disk or a file that cannot be written raises is a ``StoreError``.
"""

from __future__ import annotations

from micdrop_agent.store.history import repaired
from micdrop_agent.store.jsonl import export_jsonl, import_jsonl
from micdrop_agent.store.postgres import PostgresStore
from micdrop_agent.store.protocol import (
    CallInfo,
    CallInUseError,
    CallLog,
    CallMovedError,
    Change,
    ConversationStore,
    LeasedCallLog,
    StoreError,
    UnknownCallError,
)
from micdrop_agent.store.recorder import CallRecorder, attach
from micdrop_agent.store.redis import RedisStore
from micdrop_agent.store.sqlite import SqliteStore

__all__ = [
    "CallInUseError",
    "CallInfo",
    "CallLog",
    "CallMovedError",
    "CallRecorder",
    "Change",
    "ConversationStore",
    "LeasedCallLog",
    "PostgresStore",
    "RedisStore",
    "SqliteStore",
    "StoreError",
    "UnknownCallError",
    "attach",
    "export_jsonl",
    "import_jsonl",
    "repaired",
]
