"""From ``answer()`` to the first chunk: our own machinery, and a whole turn over the wire.

*Machinery*: an agent whose provider has everything at once, beside a plain async generator. Only what
the library itself costs: conversation, task, scope, stream, fence. *Wire*: the same ten messages to the
loopback provider, beside a raw socket, bare httpx2 and the openai SDK, in the same rounds, warm: each takes
ten turns before the next one does. With ``--block 1`` each turn finds the processor's caches full of the
others' code, ours that of the SDK. Not measured: TLS, distance, a model's own time.

    python benchmarks/first_chunk.py --loop trio --rounds 1000 --api responses --messages 202

Goals: machinery at most 60 µs on asyncio and 90 µs on Trio, at most 8 µs for a chunk; over the wire at
most what httpx2 takes and at most 2.2 times the raw socket, p99 at most three times the median.
"""

from __future__ import annotations

import time
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import anyio.lowlevel
from _clients import KINDS, clients
from _harness import Goals, Provider, Samples, arguments, messages, pin, quiet, run, tell

from micdrop_agent import Agent, Turn

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from _clients import Client

PIECES = 200
MODEL = "paced-3-2ms"


class Instant(Agent):
    """Says ``pieces`` chunks at once."""

    pieces = 1

    async def generate_answer(self, turn: Turn) -> None:
        """Say everything without waiting for anything."""
        await turn.write("one ")
        for _ in range(self.pieces - 1):
            turn.write_nowait("more ")


async def plain(pieces: int) -> AsyncIterator[str]:
    """The least that could do the same: a generator in the consumer's own task."""
    await anyio.lowlevel.checkpoint()
    for _ in range(pieces):
        yield "one "


async def machinery(rounds: int) -> Samples:
    """Microseconds to the first chunk and, for a long answer, per chunk (CPU)."""
    samples = Samples()
    agent = Instant(system_prompt="You are a helpful voice assistant.")
    start = [agent.conversation[0]]
    async with agent:
        with quiet():
            for number in range(rounds + 100):
                agent.conversation.replace(start)
                agent.add_user_message("Hello!")
                agent.pieces = 1
                began = time.perf_counter_ns()
                answer = agent.answer()
                await answer.receive()
                took = (time.perf_counter_ns() - began) / 1000
                await answer.aclose()
                began, floor = time.perf_counter_ns(), 0.0
                async for _ in plain(1):
                    floor = (time.perf_counter_ns() - began) / 1000
                if number >= 100:
                    samples.add("machinery_us", "ours", took)
                    samples.add("machinery_us", "generator", floor)
                if number % 10 == 0:
                    await burst(agent, samples)
    return samples


async def burst(agent: Instant, samples: Samples) -> None:
    """CPU of a long answer, per chunk."""
    agent.pieces = PIECES
    began = time.process_time_ns()
    async for _ in agent.answer():
        pass
    samples.add("machinery_chunk_us", "ours", (time.process_time_ns() - began) / 1000 / PIECES)
    began = time.process_time_ns()
    async for _ in plain(PIECES):
        pass
    samples.add("machinery_chunk_us", "generator", (time.process_time_ns() - began) / 1000 / PIECES)


async def timed(stream: AsyncGenerator[str, None]) -> tuple[float, float, float]:
    """Microseconds to the first chunk: wall, CPU; and CPU of the whole turn."""
    cpu, began = time.process_time_ns(), time.perf_counter_ns()
    first = first_cpu = 0
    async with aclosing(stream) as chunks:
        async for _ in chunks:
            if not first:
                first, first_cpu = time.perf_counter_ns(), time.process_time_ns()
    return (first - began) / 1000, (first_cpu - cpu) / 1000, (time.process_time_ns() - cpu) / 1000


async def wire(
    url: str, api: str, count: int, rounds: int, names: tuple[str, ...] = tuple(KINDS), block: int = 1
) -> Samples:
    """Everybody in turn, ``block`` turns each, round by round."""
    samples = Samples()
    made: dict[str, Client] = await clients(url, api, count, MODEL, names=names)
    for client in made.values():
        for _ in range(20):
            await timed(client.chunks(MODEL))
    order = list(made)
    with quiet():
        for number in range(rounds):
            for name in order[number % len(order) :] + order[: number % len(order)]:
                for _ in range(block):
                    wall, first_cpu, cpu = await timed(made[name].chunks(MODEL))
                    samples.add("first_chunk_us", name, wall)
                    samples.add("first_chunk_cpu_us", name, first_cpu)
                    samples.add("turn_cpu_us", name, cpu)
    for client in made.values():
        await client.close()
    return samples


def wire_goals(samples: Samples, count: int) -> Goals:
    """Ratios, and what they should be."""
    goals = Goals()
    row = "first_chunk_us"
    goals.at_most("first chunk / httpx2", samples.ratio(row, "ours", "httpx2"), 1.0 if count < 100 else 1.1)
    if count < 100:
        goals.at_most("first chunk / raw socket", samples.ratio(row, "ours", "raw"), 2.2)
    goals.at_most("first chunk / openai SDK", samples.ratio(row, "ours", "openai"), 1 / 3)
    goals.at_most("p99 / p50", samples.percentile(row, "ours", 0.99) / samples.median(row, "ours"), 3.0)
    return goals


def main() -> None:
    """Measure, and print two lines."""
    parser = arguments(__doc__, rounds=300)
    parser.add_argument("--api", choices=["chat", "responses"], default="chat")
    parser.add_argument("--messages", type=int, default=10, help="messages in the conversation (10)")
    parser.add_argument("--block", type=int, default=10, help="turns that a client takes before the next one does (10)")
    parser.add_argument("--only", choices=["machinery", "wire"])
    options = parser.parse_args()
    cpu = pin()
    if options.only != "wire":
        samples = run(options.loop, machinery, options.rounds * 5)
        goals = Goals()
        goals.at_most("machinery us", samples.median("machinery_us", "ours"), 90 if options.loop == "trio" else 60)
        goals.at_most("machinery us per chunk", samples.median("machinery_chunk_us", "ours"), 8)
        tell("first_chunk.machinery", options.loop, samples, goals)
    if options.only != "machinery":
        with Provider(cpu=cpu) as provider:
            samples = run(
                options.loop,
                wire,
                provider.url,
                options.api,
                options.messages,
                max(1, options.rounds // options.block),
                tuple(KINDS),
                options.block,
            )
        more: dict[str, Any] = {"api": options.api, "messages": len(messages(options.messages))}
        if options.spread:
            more["spread"] = {name: samples.spread("first_chunk_us", name) for name in KINDS}
        tell("first_chunk.wire", options.loop, samples, wire_goals(samples, options.messages), **more)


if __name__ == "__main__":
    main()
