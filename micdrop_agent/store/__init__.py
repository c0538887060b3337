"""Keeping a call: every change of its conversation is stored while it happens, and survives a crash.

    async with SqliteStore("calls.db") as store, OpenaiAgent(...) as agent:
        await agent.attach(store, "call-42")     # loads what is there, then follows every change
        ...                                      # nothing here waits for the disk

    Conversation ── journal ──▶ KeptCall ── one task, in order ──▶ ConversationStore (a worker thread)

Guarantees, each one pinned in tests/test_store_*.py:

1. A change is one transaction. What was stored before a crash (``kill -9``) is there afterwards, and
   the stored conversation is one that the call really had at some moment.
2. Two writers of one call are refused with ``CallInUseError``; a writer that died refuses nobody.
3. ``attach()`` leaves a valid history: a tool call that a crash cut off gets an error as its result.
4. The call never waits for the store, and never ends because of it: a store that fails is logged and
   told to ``on_error``, the changes are kept and tried again, in order, and none is written twice.
5. When the agent's block has been left, or ``await agent.flush()`` has returned, all is stored;
   if it is not, ``StoreError`` is raised there.
"""

from __future__ import annotations

from micdrop_agent.store._jsonl import export_jsonl, import_jsonl
from micdrop_agent.store._keeper import KeptCall, attach
from micdrop_agent.store._protocol import (
    CallInfo,
    CallInUseError,
    CallLog,
    Change,
    ConversationStore,
    StoreError,
    UnknownCallError,
)
from micdrop_agent.store._repair import repaired
from micdrop_agent.store._sqlite import SqliteStore

__all__ = [
    "CallInUseError",
    "CallInfo",
    "CallLog",
    "Change",
    "ConversationStore",
    "KeptCall",
    "SqliteStore",
    "StoreError",
    "UnknownCallError",
    "attach",
    "export_jsonl",
    "import_jsonl",
    "repaired",
]
