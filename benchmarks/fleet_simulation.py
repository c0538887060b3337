"""A fleet that nobody has at hand: 1,000 workers, 1,000,000 calls an hour, a provider that dies, a restart.

Virtual time, on one core. Real are ``SharedHealth`` and ``Drain``, one of each for every worker. Modelled are the
calls (turns of 8 seconds, 3 minutes in all), the clients (who come back a second after 1001 or a refusal), the
balancer (two workers drawn, the one with fewer calls), the provider, and the bus: a command takes 0.4 ms and more,
and each subscriber gets a message 5 µs after the one before it.

    python benchmarks/fleet_simulation.py                        # 1, 10, 100 and 1,000 workers
    python benchmarks/fleet_simulation.py --workers 1000 --seed 2

The story: the workers have been there for two minutes, with few turns; then calls come, and a second later the
provider refuses every request. 5 seconds later it serves again, and 30 seconds after that a tenth of the workers is told
to stop. The result goes to stdout as one JSON line: counts, seconds, and messages a second on the bus.
"""

from __future__ import annotations

import argparse
import gc
import heapq
import json
import logging
import random
import time
from contextlib import ExitStack
from typing import Any, Final

import anyio

from micdrop_agent import ProviderError
from micdrop_agent.call import CallRefusedError, Drain
from micdrop_agent.fallback import MemoryBus, SharedHealth
from micdrop_agent.testing import run_virtual

CALLS_AN_HOUR: Final = 1000
"""Of one worker; 1,000 workers have a million."""

CALL_S: Final = 180.0
TURN_S: Final = 8.0
BUSY: Final = 0.7
"""Share of its time that a call is inside a turn."""
REFUSED_AFTER: Final = 0.02
FIRST_CHUNK: Final = 0.3
CLIENT_RETURNS: Final = 1.0
GRACE: Final = 25.0
TURNS_A_SECOND: Final = CALLS_AN_HOUR / 3600 * CALL_S / TURN_S
"""Of one worker."""
CALLS_COME, DIES, RETURNS, RESTART, END = 129.0, 130.0, 135.0, 165.0, 180.0
PROVIDER: Final = "provider"


class ModelledBus(MemoryBus):
    """A bus with the delays of a server in the same region.

    Args:
        dice: Where chance comes from.
    """

    GROUP: Final = 50
    PER_SUBSCRIBER: Final = 5e-6

    def __init__(self, dice: random.Random) -> None:
        super().__init__()
        self._dice = dice

    async def _hand_out(self, listeners: Any, news: dict[str, Any]) -> None:
        for begin in range(0, len(listeners), self.GROUP):
            group = listeners[begin : begin + self.GROUP]
            await anyio.sleep(len(group) * self.PER_SUBSCRIBER)
            await super()._hand_out(group, news)

    async def _reach(self) -> None:
        self.delay = 0.0004 + self._dice.expovariate(1 / 0.0003)
        await super()._reach()


class Worker:
    """One process: its health, its drain, and the turns of its calls."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.health = SharedHealth(fleet.bus, failures=fleet.failures, chance=fleet.dice.random)
        self.drain = Drain(grace=GRACE, capacity=max(20, CALLS_AN_HOUR // 10), max_lag=None)
        self.health.on_change(self._changed)

    def _changed(self, change: Any) -> None:
        self.fleet.changes.append((anyio.current_time(), change.state))

    async def live(self) -> None:
        """Open what a worker has; calls come later."""
        async with self.health:
            self.fleet.tasks.start_soon(self.turns)
            await self.fleet.calls_come.wait()
            async with self.drain:
                await anyio.sleep_forever()

    async def turns(self) -> None:
        """The turns of all its calls: each asks the provider, if that is in use here."""
        fleet, health = self.fleet, self.health
        while True:
            await anyio.sleep(fleet.dice.expovariate(TURNS_A_SECOND * fleet.pace))
            if health.state(PROVIDER) == "open":
                continue  # the other provider answers
            health.started(PROVIDER)
            fleet.asked.append(anyio.current_time())
            fleet.tasks.start_soon(self._ask)

    async def _ask(self) -> None:
        if self.fleet.dead:
            await anyio.sleep(REFUSED_AFTER)
            self.health.failed(PROVIDER, ProviderError("refused", kind="connection"))
        else:
            first_chunk = self.fleet.dice.uniform(0.5, 1.5) * FIRST_CHUNK
            await anyio.sleep(first_chunk)
            self.health.succeeded(PROVIDER, first_chunk)


class Client:
    """One caller; comes back after 1001 and after a refusal until the call is over."""

    def __init__(self, fleet: Fleet, until: float) -> None:
        self.fleet = fleet
        self.until = until
        self.seat = ExitStack()
        self.told_at: float | None = None

    def connect(self) -> None:
        """Let the balancer choose a worker."""
        fleet = self.fleet
        worker = min(fleet.dice.choices(fleet.workers, k=2), key=lambda one: one.drain.calls)
        try:
            self.seat.enter_context(worker.drain.seat(leave=self._told, cut=self._cut))
        except CallRefusedError:
            fleet.at(CLIENT_RETURNS, self.connect)

    def hang_up(self) -> None:
        """The call is over."""
        self.seat.close()
        self.until = 0.0

    def _told(self) -> None:
        """The drain asks to leave with the turn."""
        self.told_at = anyio.current_time()
        dice = self.fleet.dice
        left = dice.uniform(0, TURN_S) if dice.random() < BUSY else 0.0
        self.fleet.at(left, self._moves)

    def _moves(self) -> None:
        if not self.until or self.told_at is None:
            return
        self.fleet.waits.append(anyio.current_time() - self.told_at)
        self.told_at = None
        self.seat.close()
        self.fleet.at(CLIENT_RETURNS, self.connect)

    def _cut(self) -> None:
        self.fleet.cut += 1
        self._moves()


class Fleet:
    """All of it."""

    def __init__(self, size: int, seed: int, failures: int) -> None:
        self.size = size
        self.failures = failures
        self.dice = random.Random(seed)
        self.bus = ModelledBus(self.dice)
        self.dead = False
        # While nothing is measured but the bus: a few answers between two reports of a worker are enough for that.
        self.quiet = min(1.0, 4 / TURNS_A_SECOND / max(1, size / 10))
        self.pace = self.quiet
        self.asked: list[float] = []
        self.changes: list[tuple[float, str]] = []
        self.waits: list[float] = []
        self.cut = 0
        self.workers: list[Worker] = []
        self.calls_come = anyio.Event()
        self.told: dict[str, Any] = {"workers": size}
        self.tasks: Any = None
        self._queue: list[tuple[float, int, Any]] = []
        self._number = 0

    def at(self, seconds: float, what: Any) -> None:
        """Do something later."""
        self._number += 1
        heapq.heappush(self._queue, (anyio.current_time() + seconds, self._number, what))

    async def _events(self) -> None:
        while True:
            # A hundredth of a second is exact enough for what people do.
            await anyio.sleep(0.01)
            while self._queue and self._queue[0][0] <= anyio.current_time():
                heapq.heappop(self._queue)[2]()

    def _arrive(self) -> None:
        self._call(self.dice.expovariate(1 / CALL_S))
        self.at(self.dice.expovariate(self.size * CALLS_AN_HOUR / 3600), self._arrive)

    def _call(self, seconds: float) -> None:
        client = Client(self, anyio.current_time() + seconds)
        client.connect()
        self.at(seconds, client.hang_up)

    async def run(self) -> dict[str, Any]:
        """Live through the story."""
        async with anyio.create_task_group() as self.tasks:
            for _ in range(self.size):
                worker = Worker(self)
                self.workers.append(worker)
                self.tasks.start_soon(worker.live)
            await self._reports_settle()
            self.calls_come.set()
            await anyio.sleep(0.1)
            for _ in range(round(self.size * CALLS_AN_HOUR / 3600 * CALL_S)):
                self._call(self.dice.expovariate(1 / CALL_S))
            self._arrive()
            self.tasks.start_soon(self._events)
            await self._provider_dies()
            await self._workers_stop()
            self.tasks.cancel_scope.cancel()
        return self.told

    async def _reports_settle(self) -> None:
        await anyio.sleep_until(2)
        self.told["bus_commands_in_first_2_s"] = self.bus.sent
        await anyio.sleep_until(CALLS_COME / 2)
        sent, received = self.bus.sent, self.bus.received
        await anyio.sleep_until(CALLS_COME)
        self.told["bus_commands_per_s"] = round((self.bus.sent - sent) / (CALLS_COME / 2), 1)
        self.told["bus_deliveries_per_s"] = round((self.bus.received - received) / (CALLS_COME / 2), 1)

    async def _provider_dies(self) -> None:
        self.pace = 1.0
        await anyio.sleep_until(DIES)
        before = (self.bus.sent, self.bus.received)
        self.dead = True
        self.asked.clear()
        self.changes.clear()
        await anyio.sleep_until(RETURNS)
        self.dead = False
        opened = sorted(at for at, state in self.changes if state == "open")[: self.size]
        self.told |= {
            "first_opened_ms": round((opened[0] - DIES) * 1000, 1),
            "all_know_after_ms": round((opened[-1] - opened[0]) * 1000, 2) if len(opened) == self.size else None,
            "asked_before": sum(at <= opened[0] for at in self.asked),
            "asked_after_opened": sum(opened[0] < at <= opened[-1] for at in self.asked),
            "tries_while_dead": sum(at > opened[-1] for at in self.asked),
            "bus_commands_in_5_s": self.bus.sent - before[0],
            "bus_deliveries_in_5_s": self.bus.received - before[1],
        }
        while self._in_use() < self.size and anyio.current_time() < RESTART:  # noqa: ASYNC110 - no event says so
            await anyio.sleep(0.25)
        self.pace = self.quiet
        await anyio.sleep_until(RESTART)
        closed = [at for at, state in self.changes if state == "closed" and at > RETURNS]
        self.told["in_use_again_s"] = round(closed[0] - RETURNS, 2) if closed else None
        self.told["all_use_it_after_ms"] = round((closed[-1] - closed[0]) * 1000, 2) if closed else None

    def _in_use(self) -> int:
        return sum(state == "closed" and at > RETURNS for at, state in self.changes)

    async def _workers_stop(self) -> None:
        stopping = self.workers[: self.size // 10]
        if not stopping:
            return
        calls, refused = sum(one.drain.calls for one in stopping), sum(one.drain.refused for one in self.workers)
        for worker in stopping:
            worker.drain.start()
        for worker in stopping:
            await worker.drain.wait()
        empty = anyio.current_time() - RESTART
        await anyio.sleep_until(END)
        waits = sorted(self.waits)
        self.told |= {
            "stopped": len(stopping),
            "calls_moved": len(waits),
            "calls_there": calls,
            "calls_cut_inside_a_turn": self.cut,
            "all_empty_after_s": round(empty, 2),
            "moved_after_s_p50": round(waits[len(waits) // 2], 2),
            "refused_connections": sum(one.drain.refused for one in self.workers) - refused,
            "fullest_worker": max(one.drain.calls for one in self.workers),
        }


def main() -> None:
    """Run the story for each size of the fleet."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--workers", default="1,10,100,1000", help="sizes of the fleet")
    parser.add_argument("--failures", type=int, default=3, help="in a row, after which a worker opens its circuit")
    parser.add_argument("--seed", type=int, default=1, help="of all that is chance")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    gc.set_threshold(
        500_000, 100, 100
    )  # a million objects live; looking through them again and again takes half the time
    rows: list[dict[str, Any]] = []
    for size in map(int, options.workers.split(",")):
        began = time.process_time()
        row = run_virtual("asyncio", Fleet(size, options.seed, options.failures).run, max_steps=10_000_000)
        rows.append({**row, "cpu_s": round(time.process_time() - began, 1)})
    print(json.dumps({"rows": rows, "seed": options.seed, "calls_an_hour_per_worker": CALLS_AN_HOUR}))


if __name__ == "__main__":
    main()
