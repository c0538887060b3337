"""How many calls a worker carries: CPU of a worker, of Redis and of HAProxy, for each call that is going on.

``examples/fleet`` with one worker; callers that always speak or listen (a real caller is silent half of the time). Their
words go out ten times a second, as the audio of a voice does, and the store is told what was heard as often. CPU time hardly depends on
what else the machine does, so that is measured; the number of calls is what one CPU would carry, all of it used.

    python benchmarks/fleet_capacity.py --calls 20 --seconds 20

``haproxy`` and ``valkey-server`` or ``redis-server`` must be installed. The models and voices are stand-ins: a speech
service in the same process costs far more than all of this.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples" / "fleet"))

from client import Caller
from run import Fleet


def cpu_seconds(pid: int) -> float:
    """CPU time of a process, and of its children that live."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    own = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return own + sum(cpu_seconds(int(child)) for child in children)


def resident_mib(pid: int) -> float:
    """Memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


async def talk(caller: Caller, number: int) -> None:
    """One order after the other."""
    while True:
        await caller.connected()
        number += 1
        if await caller.say(f"order {number}") and await caller.answered():
            before = -1
            while len(caller.heard) != before:
                before = len(caller.heard)
                await asyncio.sleep(0.3)


async def measure(fleet: Fleet, calls: int, seconds: float) -> dict[str, object]:
    """Let them all talk, and look at the processes at the beginning and at the end."""
    assert fleet.redis is not None
    assert fleet.haproxy is not None
    pids = {"worker": fleet.workers[0].pid, "redis": fleet.redis.pid, "haproxy": fleet.haproxy.pid}
    empty = resident_mib(pids["worker"])
    callers = [Caller(f"ws://127.0.0.1:{fleet.port}/call/c{n}") for n in range(calls)]
    running = [asyncio.ensure_future(caller.run()) for caller in callers]
    talking = [asyncio.ensure_future(talk(caller, 1000 * n)) for n, caller in enumerate(callers)]
    await asyncio.sleep(5)
    before, commands, began = {name: cpu_seconds(pid) for name, pid in pids.items()}, handled(fleet), time.monotonic()
    await asyncio.sleep(seconds)
    took = time.monotonic() - began
    used = {name: (cpu_seconds(pid) - before[name]) / took / calls for name, pid in pids.items()}
    scripts = (handled(fleet) - commands) / took / calls
    memory = (resident_mib(pids["worker"]) - empty) / calls
    for task in talking:
        task.cancel()
    for caller in callers:
        await caller.hang_up()
    await asyncio.wait([*running, *talking])
    return {
        "calls": calls,
        "cpu_ms_per_call_second": {name: round(share * 1000, 2) for name, share in used.items()},
        "calls_per_cpu": {name: round(1 / share) if share else None for name, share in used.items()},
        "scripts_per_call_second": round(scripts, 1),
        "worker_mib_per_call": round(memory, 2),
    }


def handled(fleet: Fleet) -> int:
    """Scripts that Redis has run."""
    lines = fleet.ask("INFO commandstats").splitlines()
    return sum(int(line.partition("calls=")[2].partition(",")[0]) for line in lines if "_evalsha:" in line)


def main() -> None:
    """Measure, and print one line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=20)
    options = parser.parse_args()
    with Fleet(1) as fleet:
        print(
            json.dumps({"benchmark": "fleet_capacity", **asyncio.run(measure(fleet, options.calls, options.seconds))})
        )


if __name__ == "__main__":
    main()
