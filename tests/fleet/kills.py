"""Two workers behind HAProxy, and kill -9 at random instants of calls with tools, answers and barge-ins.

    python tests/fleet/kills.py --kills 50

Each caller behaves as the original browser client: when its connection is gone it comes back after a second. At each loss the
store is read before it does, and compared with what the caller heard. It must hold: every call goes on, each history is
valid and has what was heard up to the last frame, no tool ran twice, no two owners wrote (from Redis' own log).
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import json
import os
import random
import re
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE.parents[1] / "examples" / "fleet"))

from client import Caller  # noqa: E402 - from the folder of the example
from monitor import Monitor  # noqa: E402 - from this folder
from run import SERVERS, Fleet  # noqa: E402 - as above

from micdrop_agent import Message, ToolCall, ToolResult  # noqa: E402
from micdrop_agent.store import RedisStore  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Sequence

    from micdrop_agent.messages import Item

LATE_WORDS = 2
"""Words, of 100 ms each, that the store may be behind what left for the caller: the last frame, and one look (100 ms)."""


@attrs.define
class Turn:
    """What the caller said, and the words that were heard after it."""

    user: str
    words: list[str] = attrs.field(factory=list)


def heard_turns(heard: Sequence[str]) -> list[Turn]:
    """The turns as the caller knows them."""
    turns = [Turn("")]
    for line in heard:
        if line.startswith(">"):
            turns.append(Turn(line[2:]))
        else:
            turns[-1].words += line[2:].split()
    return turns


def stored_turns(items: Sequence[Item]) -> list[Turn]:
    """The turns as the store has them."""
    turns = [Turn("")]
    for item in items:
        if isinstance(item, Message) and item.role == "user":
            turns.append(Turn(item.content))
        elif isinstance(item, Message) and item.role == "assistant":
            turns[-1].words += item.content.split()
    return turns


@attrs.define
class Report:
    """What was seen."""

    faults: list[str] = attrs.field(factory=list)
    losses: int = 0
    cut_inside: int = 0
    """Losses while an answer was being heard."""
    behind: collections.Counter[int] = attrs.field(factory=collections.Counter[int])
    """For those: words that the caller had heard and the store had not (-1: one on its way to the caller)."""
    barge_ins: int = 0
    back_after: list[float] = attrs.field(factory=list)


def compare(report: Report, name: str, heard: list[Turn], stored: list[Turn]) -> None:
    """Compare what a caller heard with what is stored at the moment when the connection is gone."""
    # What was on its way to the caller, or from it to the store, when the worker died: at most the last turn.
    if len(stored) == len(heard) + 1 and len(stored[-1].words) <= 1:
        stored = stored[:-1]
    elif len(heard) == len(stored) + 1 and not heard[-1].words:
        heard = heard[:-1]
    if [turn.user for turn in heard] != [turn.user for turn in stored]:
        report.faults.append(f"{name}: heard {[t.user for t in heard]}, stored {[t.user for t in stored]}")
        return
    for ear, kept in zip(heard[:-1], stored[:-1], strict=True):
        # Cut by a barge-in, where the server's clock tells how much of the last 100 ms was played.
        if not is_near(ear.words, kept.words, 4):
            report.faults.append(f"{name}: of {ear.user!r} heard {ear.words}, stored {kept.words}")
    ear, kept = heard[-1], stored[-1]
    behind = len(ear.words) - len(kept.words)
    if not is_near(ear.words, kept.words, LATE_WORDS):
        report.faults.append(f"{name}: last heard {ear.words}, stored {kept.words}")
    if ear.words and not ear.words[-1].endswith("-11"):
        report.cut_inside += 1
        report.behind[behind] += 1


def is_near(heard: list[str], stored: list[str], late: int) -> bool:
    """Whether one is the beginning of the other, with at most so many words, or one on its way, between them."""
    short = min(len(heard), len(stored))
    return heard[:short] == stored[:short] and -1 <= len(heard) - len(stored) <= late


def check_history(report: Report, name: str, items: Sequence[Item]) -> None:
    """Every tool call has its result right after it."""
    for index, item in enumerate(items):
        if isinstance(item, ToolCall):
            following = items[index + 1] if index + 1 < len(items) else None
            if not isinstance(following, ToolResult) or following.tool_call_id != item.tool_call_id:
                report.faults.append(f"{name}: call {item.tool_call_id} is followed by {following!r}")
    calls = [item.tool_call_id for item in items if isinstance(item, ToolCall)]
    if len(calls) != len(set(calls)):
        report.faults.append(f"{name}: a call is stored twice: {calls}")


class Driver:
    """Talks in one call until it is told to stop."""

    numbers = iter(range(1, 1_000_000))

    def __init__(self, fleet: Fleet, name: str, store: RedisStore, report: Report, chance: random.Random) -> None:
        self.name = name
        self.caller = Caller(f"ws://127.0.0.1:{fleet.port}/call/{name}", on_lost=self._lost)
        self.over = False
        self._store = store
        self._report = report
        self._chance = chance

    async def _lost(self, caller: Caller) -> None:
        self._report.losses += 1
        items = await self._store.load(self.name)
        compare(self._report, self.name, heard_turns(caller.heard), stored_turns(items))
        # From here on it knows what the call is now, as a page would that asks the server.
        asyncio.get_running_loop().create_task(self._back(time.monotonic()))
        caller.heard[:] = [
            line
            for turn in stored_turns(items)
            for line in ([f"> {turn.user}"] if turn.user else []) + [f"< {word}" for word in turn.words]
        ]

    async def _back(self, since: float) -> None:
        await self.caller.connected()
        self._report.back_after.append(time.monotonic() - since)

    async def talk(self) -> None:
        """Say one thing after the other; interrupt some answers."""
        while not self.over:
            await self.caller.connected()
            if not await self.caller.say(f"order {next(self.numbers)}"):
                continue
            if not await self.caller.answered():
                continue
            if self._chance.random() < 0.4:
                await asyncio.sleep(self._chance.uniform(0.1, 1.5))
                self._report.barge_ins += 1
            else:
                await self._silence()

    async def _silence(self) -> None:
        before = -1
        while len(self.caller.heard) != before:
            before = len(self.caller.heard)
            await asyncio.sleep(0.6)

    async def last_order(self) -> bool:
        """Whether the call still takes an order, a while after all that happened."""
        number = next(self.numbers)
        for _ in range(20):
            await self.caller.connected()
            if await self.caller.say(f"order {number}") and await self.caller.answered():
                await self._silence()
                if f"< {number}-11 " in self.caller.heard:
                    return True
        return False


async def run(kills: int, calls: int, seed: int, server: str) -> tuple[Report, dict[str, Any]]:
    """Run it all."""
    began, chance, report = time.monotonic(), random.Random(seed), Report()
    folder = Path(os.environ.get("TMPDIR", "/tmp"))
    journal = folder / f"orders-{os.getpid()}.txt"
    journal.write_text("")
    with Fleet(2, environment={"FLEET_ORDERS": str(journal), "FLEET_LEASE": "3"}, server=server) as fleet:
        monitor = Monitor(fleet.redis_port)
        async with asyncio.TaskGroup() as tasks, RedisStore(fleet.redis_url) as store:
            watching = tasks.create_task(monitor.run())
            drivers = [Driver(fleet, f"call{n}", store, report, chance) for n in range(calls)]
            talking = [tasks.create_task(driver.talk()) for driver in drivers]
            callers = [tasks.create_task(driver.caller.run()) for driver in drivers]
            await asyncio.sleep(3)
            for _ in range(kills):
                await kill_one(fleet, drivers, chance)
            await asyncio.sleep(3)
            for driver in drivers:
                driver.over = True
            await asyncio.wait(talking)
            for driver in drivers:
                if not await driver.last_order():
                    report.faults.append(f"{driver.name} did not go on: {driver.caller.heard[-20:]}")
            for driver in drivers:
                await driver.caller.hang_up()
            await asyncio.wait(callers)
            await asyncio.sleep(0.5)
            for driver in drivers:
                check_history(report, driver.name, await store.load(driver.name))
            watching.cancel()
        logs = "".join(fleet.log(f"worker{n}") for n in range(2))
    report.faults += monitor.faults()
    orders = collections.Counter(line.split()[0] for line in journal.read_text().splitlines())
    report.faults += [f"order {number} was placed {times} times" for number, times in orders.items() if times > 1]
    report.faults += re.findall(r"^Traceback.*", logs, re.MULTILINE)
    facts = {
        "server": server,
        "kills": kills,
        "seconds": round(time.monotonic() - began),
        "connections_lost": report.losses,
        "lost_inside_an_answer": report.cut_inside,
        "words_behind": dict(sorted(report.behind.items())),
        "barge_ins": report.barge_ins,
        "orders": len(orders),
        "owners": monitor.owners,
        "writes": monitor.writes,
        "back_after_s": round(max(report.back_after, default=0.0), 2),
        "faults": len(report.faults),
    }
    return report, facts


async def kill_one(fleet: Fleet, drivers: list[Driver], chance: random.Random) -> None:
    """``kill -9`` the worker of one of the callers, in the middle of whatever it does."""
    driver = chance.choice(drivers)
    await driver.caller.connected()
    await asyncio.sleep(chance.uniform(0.2, 2.0))
    writer = fleet.ask(f"GET micdrop:{{{driver.name}}}:owner")
    for worker in fleet.workers:
        if f"process {worker.pid}," in writer:
            worker.send_signal(signal.SIGKILL)
            return
    await kill_one(fleet, drivers, chance)  # it is dead already


def main() -> None:
    """Print one JSON line, and each fault."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--calls", type=int, default=6)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--server", choices=SERVERS, default="uvicorn")
    options = parser.parse_args()
    report, facts = asyncio.run(run(options.kills, options.calls, options.seed, options.server))
    print(json.dumps({"seed": options.seed, **facts}))
    for fault in report.faults:
        print("FAULT", fault)
    sys.exit(bool(report.faults))


if __name__ == "__main__":
    main()
