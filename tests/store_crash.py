"""The victim of tests/test_store_crash.py: keeps a call until it is killed, and tells what it stores.

Run as ``python store_crash.py DATABASE``. For each line on stdin it forks a process that goes on with
the call; that process prints a line of JSON before and after each transaction.
"""

from __future__ import annotations

import json
import os
import random
import sys
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel

from micdrop_agent import SqliteStore, tool, wire
from micdrop_agent.store import repaired
from micdrop_agent.testing import Call, ScriptedAgent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from micdrop_agent.store import CallLog, Change
    from micdrop_agent.testing import Act


def tell(**facts: Any) -> None:
    os.write(1, json.dumps(facts).encode() + b"\n")


class Told:
    """A store that prints what it is about to write and what it has written."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store

    async def open_call(self, call_id: str) -> Told:
        self._log: CallLog = await self._store.open_call(call_id)
        self.items, self.number = self._log.items, self._log.number
        return self

    async def load(self, call_id: str) -> Sequence[Any]:
        return await self._store.load(call_id)

    async def apply(self, changes: Sequence[Change]) -> None:
        for change in changes:
            tell(will=change.number, index=change.index, gone=change.gone, come=wire.dump(change.come))
            await self._log.apply([change])
            tell(wrote=change.number)

    async def aclose(self) -> None:
        await self._log.aclose()


@tool
async def look(where: str) -> str:
    """Look."""
    await anyio.lowlevel.checkpoint()
    return f"nothing at the {where}"


async def turns(path: str, seed: int) -> None:
    chance = random.Random(seed)
    script: list[Act] = ["Let me see. ", Call("look", {"where": "sofa"})]
    script += [[Call("look", {"where": place}) for place in "ab"], "No."]
    async with SqliteStore(path, fsync=False) as store, ScriptedAgent(script, tools=[look]) as agent:
        kept = await agent.attach(Told(store), "call")
        assert list(agent.conversation) == repaired(agent.conversation)
        tell(resumed=kept.resumed)
        for number in range(1_000_000):
            agent.add_user_message(f"Where is the cat? {seed} {number}")
            answer = agent.answer()
            if chance.random() < 0.3:
                await answer.receive()
                await anyio.lowlevel.checkpoint()
                agent.add_user_message("Stop!")
                agent.cancel()
            else:
                await answer.wait()
            if chance.random() < 0.1:
                agent.cancel_last_user_message()
            if chance.random() < 0.5:
                await agent.flush()


def main() -> None:
    for seed, _ in enumerate(sys.stdin.buffer):
        child = os.fork()
        if child == 0:
            anyio.run(turns, sys.argv[1], seed, backend="asyncio" if seed % 2 else "trio")
            os._exit(1)
        tell(pid=child)
        _, status = os.waitpid(child, 0)
        tell(dead=os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main()
