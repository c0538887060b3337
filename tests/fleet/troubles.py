"""What does not kill a worker: it stands still for longer than its lease; Redis is restarted, stands still, and is full.

    python tests/fleet/troubles.py

1. A worker is stopped (SIGSTOP) beyond its lease; the caller comes back to the other one, or nobody does. When it goes on
   (SIGCONT) it writes nothing more and closes its call with 1001.
2. A worker is terminated (SIGTERM) in the middle of an answer: the answer is heard to its end, and the call goes on elsewhere.
3. Redis is restarted without its data, stopped for 5 s, filled to its memory limit. No call ends, every order is taken, and
   afterwards the store has the whole call.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE.parents[1] / "examples" / "fleet"))

from client import Caller  # noqa: E402 - from the folder of the example
from kills import heard_turns, stored_turns  # noqa: E402 - from this folder
from monitor import Monitor  # noqa: E402 - from this folder
from run import Fleet  # noqa: E402 - as above

from micdrop_agent import Message  # noqa: E402
from micdrop_agent.store import RedisStore  # noqa: E402

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

LEASE = 2.0


async def until(condition: Callable[[], bool], seconds: float = 15) -> None:
    """Wait for ``condition``."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - a caller has no event for what these tests ask
            await asyncio.sleep(0.02)


async def order(caller: Caller, number: int) -> None:
    """Place an order, and hear the end of the answer."""
    await caller.connected()
    if not await caller.say(f"order {number}") or not await caller.answered():
        raise AssertionError(f"order {number}: the connection has gone")
    await until(lambda: any(line.startswith(f"< {number}-11") for line in caller.heard))
    await asyncio.sleep(0.5)  # the last word has been heard to its end


async def stopped_worker(*, taken: bool) -> str:
    """A worker that stands still for longer than its lease."""
    name = "taken" if taken else "alone"
    with Fleet(2, environment={"FLEET_LEASE": str(LEASE)}) as fleet:
        url, monitor = f"ws://127.0.0.1:{fleet.port}/call/{name}", Monitor(fleet.redis_port)
        async with asyncio.TaskGroup() as tasks, RedisStore(fleet.redis_url) as store:
            watching = tasks.create_task(monitor.run())
            first, second = Caller(url), Caller(url)
            running = tasks.create_task(first.run())
            await order(first, 1)
            await first.say("order 2")  # it stands still in the middle of an answer
            await until(lambda: any("Let" in line for line in first.heard[-3:]))
            worker = owner_of(fleet, name)
            worker.send_signal(signal.SIGSTOP)
            await asyncio.sleep(LEASE + 1.5)
            if taken:
                running_second = tasks.create_task(second.run())
                await order(second, 3)
            else:
                running_second = None
            before, writes = await store.load(name), monitor.writes
            worker.send_signal(signal.SIGCONT)
            await until(lambda: bool(first.closes))
            assert first.closes == [1001], first.closes
            if taken:
                first._done = True  # two pages of one caller would take the call from each other for ever
                await asyncio.sleep(1.5)
                assert await store.load(name) == before, "the worker that had lost the call wrote it"
                await order(second, 4)
                await second.hang_up()
            else:
                await asyncio.sleep(0.3)
                assert await store.load(name) == before, "the worker wrote after it had lost its lease"
                assert monitor.writes == writes
                await order(first, 4)
                await first.hang_up()
            await asyncio.wait([task for task in (running, running_second) if task is not None])
            watching.cancel()
        assert not monitor.faults(), monitor.faults()
        return f"stopped worker, {name}: closed with 1001, wrote nothing more"


def owner_of(fleet: Fleet, name: str) -> subprocess.Popen[bytes]:
    """The worker that has the call, from the name that it gave in the store."""
    owner = fleet.ask(f"GET micdrop:{{{name}}}:owner")
    return next(worker for worker in fleet.workers if f"process {worker.pid}," in owner)


async def terminated_worker() -> str:
    """SIGTERM in the middle of an answer, as in a deployment."""
    with Fleet(2, environment={"FLEET_LEASE": str(LEASE)}) as fleet:
        caller = Caller(f"ws://127.0.0.1:{fleet.port}/call/moved")
        running = asyncio.create_task(caller.run())
        await order(caller, 1)
        await caller.say("order 2")
        await until(lambda: any("Let" in line for line in caller.heard[-3:]))
        owner_of(fleet, "moved").send_signal(signal.SIGTERM)
        await until(lambda: bool(caller.closes))
        assert caller.closes == [1001], caller.closes
        assert caller.heard[-1].strip() == "< 2-11", caller.heard[-3:]
        before = [turn.user for turn in heard_turns(caller.heard)]
        await order(caller, 3)
        async with RedisStore(fleet.redis_url) as store:
            stored = stored_turns(await store.load("moved"))
        assert [turn.user for turn in stored] == [*before, "order 3"]
        await caller.hang_up()
        await running
        return "terminated worker: the answer was heard to its end, closed with 1001, went on elsewhere"


async def redis_trouble(trouble: str) -> str:
    """Redis is away, or full, while calls go on."""
    with Fleet(2, environment={"FLEET_LEASE": str(LEASE)}) as fleet:
        callers = [Caller(f"ws://127.0.0.1:{fleet.port}/call/c{n}") for n in range(4)]
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(caller.run()) for caller in callers]
            await asyncio.gather(*(order(caller, 10 + n) for n, caller in enumerate(callers)))
            loop = asyncio.get_running_loop()
            meddling = loop.run_in_executor(None, meddle, fleet, trouble)
            for round_ in range(2, 5):
                await asyncio.gather(*(order(caller, round_ * 10 + n) for n, caller in enumerate(callers)))
            await meddling
            await asyncio.gather(*(order(caller, 50 + n) for n, caller in enumerate(callers)))
            await asyncio.sleep(6)  # a store that was away is tried again after a while
            async with RedisStore(fleet.redis_url) as store:
                for n, caller in enumerate(callers):
                    assert not caller.closes, f"{trouble}: a call ended: {caller.closes}"
                    stored = await store.load(f"c{n}")
                    said = [turn.user for turn in stored_turns(stored)]
                    assert said == [turn.user for turn in heard_turns(caller.heard)], (trouble, said)
                    assert isinstance(stored[-1], Message)
            slowest = max(max(caller.first_audio) for caller in callers)
            for caller in callers:
                await caller.hang_up()
            await asyncio.wait(running)
        return f"Redis {trouble}: no call ended, all orders taken and stored; slowest first audio {slowest:.2f} s"


def meddle(fleet: Fleet, trouble: str) -> None:
    """In a thread: do it to Redis."""
    assert fleet.redis is not None
    if trouble == "restarted":
        fleet.redis.kill()
        fleet.redis.wait()
        fleet.start_redis()
    elif trouble == "stopped for 5 s":
        fleet.redis.send_signal(signal.SIGSTOP)
        try:
            signal.sigtimedwait([], 5)
        finally:
            fleet.redis.send_signal(signal.SIGCONT)
    else:
        assert fleet.ask("CONFIG SET maxmemory 1").startswith("+OK")
        signal.sigtimedwait([], 5)
        assert fleet.ask("CONFIG SET maxmemory 0").startswith("+OK")


async def main() -> None:
    """All of it, one JSON line each."""
    print(json.dumps(await terminated_worker()), flush=True)
    for taken in (True, False):
        print(json.dumps(await stopped_worker(taken=taken)), flush=True)
    for trouble in ("restarted", "stopped for 5 s", "full"):
        print(json.dumps(await redis_trouble(trouble)), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
