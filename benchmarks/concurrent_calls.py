"""Many live answers in one process: what each costs, and whether the cost grows with their number.

So many agents, each with a connection of its own, answer at the same time: 6 chunks, 350 ms apart, so an
ideal answer takes 1.75 s. CPU and memory of each, first chunk p50 and p99, and the wall time of all.
Memory is what the process grew by from before the agents were made until every one of them had its first
chunk, so it holds the agent, its conversation, tasks, streams and sockets.

    python benchmarks/concurrent_calls.py --counts 1,10,100,1000,10000

Each count runs in a fresh process. Goals: 1,000 answers within 2.7 s and 40 KiB each; CPU per answer at
1,000 at most 1.5 times that at 10; 10,000 hold.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import time
from argparse import SUPPRESS
from typing import Any

import anyio
from _harness import LAST, Goals, Provider, Samples, arguments, many_files, messages, pin, quiet, resident, run, tell

from micdrop_agent import Agent, ChatAgent, Message, Timeouts

MODEL = "paced-6-350ms"
WANTED = "".join(f"w{number:04d} " for number in range(6))
SAID = [Message(each["role"], each["content"]) for each in messages(10)]  # type: ignore[arg-type]


class Crowd:
    """So many callers at once.

    Args:
        url: Base URL of the provider.
        count: How many.
    """

    def __init__(self, url: str, count: int) -> None:
        self.url = url
        self.count = count
        self.first: list[float] = []
        self.good = 0
        self.opened = 0
        self.ready = anyio.Event()
        self.go = anyio.Event()
        self.done = anyio.Event()
        self.began = 0
        self.memory_all = 0

    async def one(self) -> None:
        """One call with one answer."""
        # All begin in the same instant on one CPU: the last one connects when the first has long answered.
        clocks = Timeouts(connect=60, first_chunk=60, between_chunks=60, total=120)
        agent: Agent = ChatAgent(model=MODEL, api_key="bench", base_url=self.url, timeouts=clocks)
        async with agent:
            agent.conversation.replace(SAID[:-1])
            self.opened += 1
            if self.opened == self.count:
                self.ready.set()
            await self.go.wait()
            agent.add_user_message(LAST)
            text = ""
            async for chunk in agent.answer():
                if not text:
                    self.first.append((time.perf_counter_ns() - self.began) / 1e6)
                    if len(self.first) == self.count:
                        self.memory_all = resident()
                text += chunk
            self.good += text == WANTED
            self.opened -= 1
            if not self.opened:
                self.done.set()
            # As in a call server: the call goes on, and ends later.
            await self.done.wait()

    async def run(self) -> dict[str, float]:
        """All of them."""
        gc.collect()
        before = resident()
        async with anyio.create_task_group() as tasks:
            for _ in range(self.count):
                tasks.start_soon(self.one)
            await self.ready.wait()
            with quiet():
                cpu, self.began = time.process_time(), time.perf_counter_ns()
                self.go.set()
                await self.done.wait()
                wall, cpu = (time.perf_counter_ns() - self.began) / 1e9, time.process_time() - cpu
        first = sorted(self.first)
        return {
            "count": self.count,
            "good": self.good,
            "wall_s": round(wall, 3),
            "cpu_ms_each": round(cpu * 1000 / self.count, 3),
            "memory_kib_each": round((self.memory_all - before) / 1024 / self.count, 1),
            "first_p50_ms": round(first[len(first) // 2], 2),
            "first_p99_ms": round(first[min(len(first) - 1, int(len(first) * 0.99))], 2),
        }


async def warm_then(url: str, count: int) -> dict[str, float]:
    """One call first, which loads what is loaded late."""
    await Crowd(url, 1).run()
    return await Crowd(url, count).run()


def child(loop: str, url: str, count: int) -> None:
    """What the fresh process does."""
    many_files()
    pin()
    print(json.dumps(run(loop, warm_then, url, count)))


def measured(loop: str, url: str, count: int) -> dict[str, Any]:
    """One count, in a fresh process."""
    argv = [sys.executable, __file__, "--loop", loop, "--child", url, "--counts", str(count)]
    done = subprocess.run(argv, check=True, capture_output=True, text=True)
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def main() -> None:
    """Measure, and print one line."""
    parser = arguments(__doc__, rounds=1)
    parser.add_argument("--counts", default="1,10,100,1000", help="how many at once (1,10,100,1000)")
    parser.add_argument("--child", help=SUPPRESS)
    options = parser.parse_args()
    counts = [int(each) for each in options.counts.split(",")]
    if options.child:
        child(options.loop, options.child, counts[0])
        return
    samples = Samples()
    with Provider(cpu=pin()) as provider:
        for _ in range(options.rounds):
            for count in counts:
                told = measured(options.loop, provider.url, count)
                for name, value in told.items():
                    samples.add(name, str(count), value)
    goals = Goals()
    for count in counts:
        goals.at_most(f"answers of {count} that are wrong", count - samples.median("good", str(count)), 0)
    if "1000" in samples.rows["wall_s"]:
        goals.at_most("1,000: wall s", samples.median("wall_s", "1000"), 2.7)
        goals.at_most("1,000: KiB each", samples.median("memory_kib_each", "1000"), 40)
        if "10" in samples.rows["wall_s"]:
            goals.at_most("CPU each, 1,000 / 10", samples.ratio("cpu_ms_each", "1000", "10"), 1.5)
    tell("concurrent_calls", options.loop, samples, goals)


if __name__ == "__main__":
    main()
