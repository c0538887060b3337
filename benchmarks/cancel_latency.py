"""A barge-in: how long ``cancel()`` takes, when the consumer's loop has ended, when the server sees it.

An answer is stopped in the middle, while its consumer waits for the next chunk, from another task: by
``agent.cancel()``, and for bare httpx2 by cancelling the task that reads. The server's moment comes from
the loopback provider, on the same clock. Every chunk that comes after the cancel is counted.

In the row "ours, listened to" somebody listens to every kind of event: then ``cancel()`` makes and stores
the interrupted message and delivers its events before it returns.

    python benchmarks/cancel_latency.py --loop trio

Goals: ``cancel()`` below 50 µs, the consumer ended within 60 µs, the server sees it within 1.2 times what
httpx2 needs, and not one chunk afterwards.
"""

from __future__ import annotations

import time
from contextlib import aclosing
from typing import TYPE_CHECKING

import anyio
from _clients import Httpx2, Ours
from _harness import Goals, Provider, Samples, arguments, pin, quiet, run, tell

from micdrop_agent.events import EVENT_TYPES

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from _clients import Client

MODEL = "hold-5"


class Reader:
    """Reads an answer in a task of its own and notes what came when."""

    def __init__(self, stream: AsyncGenerator[str, None], expected: int) -> None:
        self.stream = stream
        self.reached = anyio.Event()
        self.expected = expected
        self.chunks = 0
        self.ended = 0

    async def run(self) -> None:
        """Read to the end."""
        try:
            async with aclosing(self.stream) as chunks:
                async for _ in chunks:
                    self.chunks += 1
                    if self.chunks == self.expected:
                        self.reached.set()
                # What the caller's loop does next could start here.
                self.ended = time.monotonic_ns()
        finally:
            self.ended = self.ended or time.monotonic_ns()


async def barge_in(
    stream: AsyncGenerator[str, None], cancel: Callable[[], None] | None, provider: Provider
) -> tuple[float, float, float, int]:
    """Microseconds until ``cancel`` returned, the loop ended, the server saw it; and chunks that came late."""
    reader = Reader(stream, 5)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(reader.run)
        await reader.reached.wait()
        await anyio.sleep(0.002)
        moment = time.monotonic_ns()
        if cancel is None:
            tasks.cancel_scope.cancel()
            returned = time.monotonic_ns()
        else:
            cancel()
            returned = time.monotonic_ns()
    await anyio.sleep(0.005)  # what is still to be closed is closed; the server notes when
    lost = provider.lost_after(moment) or moment + 1_000_000_000
    return (returned - moment) / 1000, (reader.ended - moment) / 1000, (lost - moment) / 1000, reader.chunks - 5


async def measure(provider: Provider, rounds: int) -> tuple[Samples, int]:
    """Everybody in turn, round by round."""
    samples, late = Samples(), 0
    httpx2 = Httpx2(provider.url, "chat", 10)
    ours, heard = Ours(provider.url, "chat", 10), Ours(provider.url, "chat", 10)
    for each in (ours, heard):
        await each.prepare(MODEL)
    for kind in EVENT_TYPES:
        heard.agents[MODEL].on(kind, lambda _event: None)
    rows: tuple[tuple[str, Client, Callable[[], None] | None], ...] = (
        ("httpx2", httpx2, None),
        ("ours", ours, ours.agents[MODEL].cancel),
        ("ours, listened to", heard, heard.agents[MODEL].cancel),
        ("ours, task cancelled", ours, None),
    )
    with quiet():
        for number in range(rounds + 20):
            for name, client, cancel in rows:
                returned, ended, seen, more = await barge_in(client.chunks(MODEL), cancel, provider)
                late += more
                if number >= 20:
                    samples.add("returned_us", name, returned)
                    samples.add("consumer_ended_us", name, ended)
                    samples.add("server_sees_us", name, seen)
                await anyio.sleep(0.01)  # the spare connection is there by then, as between two turns
    for client in (heard, ours, httpx2):  # their task groups are nested in this task
        await client.close()
    return samples, late


def main() -> None:
    """Measure, and print one line."""
    options = arguments(__doc__, rounds=150).parse_args()
    with Provider(cpu=pin()) as provider:
        samples, late = run(options.loop, measure, provider, options.rounds)
    goals = Goals()
    goals.at_most("cancel() us", samples.median("returned_us", "ours"), 50)
    goals.at_most("consumer ended us", samples.median("consumer_ended_us", "ours"), 60)
    goals.at_most("server sees it / httpx2", samples.ratio("server_sees_us", "ours", "httpx2"), 1.2)
    goals.at_most("late chunks", late, 0)
    tell("cancel_latency", options.loop, samples, goals)


if __name__ == "__main__":
    main()
