"""How long the caller waits when the first model fails: error, silence, a cut, and a hedge.

A ``FallbackAgent`` over two agents of the loopback provider, opened with warm connections as at the start
of a call; a new one for each failure, because it would remember. Over the same connections in the same
rounds: an answer without a failure, the floor. After a cut the whole text is compared.

    python benchmarks/failover_latency.py

Goals: an error 500 costs at most 1.6 ms in all, silence at most 2.5 ms beyond the time-out, a cut at most
2 ms until the backup's first word and no word is lost or doubled; with ``hedge_after=0.05`` a primary that
stalls in 5 % of 400 answers has a p99 of at most 60 ms.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import anyio.lowlevel
from _clients import Home
from _harness import LAST, Goals, Provider, Samples, arguments, messages, pin, quiet, run, tell

from micdrop_agent import ChatAgent, FallbackAgent, HealthRegistry, Message

if TYPE_CHECKING:
    from collections.abc import Callable

TIMEOUT = 0.1
HEDGE = 0.05
BACKUP = "burst-10~B"
WANTED = "".join(f"B{number:04d} " for number in range(10))


def factory(url: str, model: str) -> Callable[[], ChatAgent]:
    """Makes a child."""
    return lambda: ChatAgent(model=model, api_key="bench", base_url=url)


async def ask(agent: FallbackAgent) -> tuple[float, float, str]:
    """Milliseconds to the first chunk, to the first chunk of the backup, and the text."""
    first = backup = 0
    text = ""
    began = time.perf_counter_ns()
    async with agent.answer() as answer:
        async for chunk in answer:
            first = first or time.perf_counter_ns()
            if not backup and "B" in chunk:
                backup = time.perf_counter_ns()
            text += chunk
    return (first - began) / 1e6, (backup - began) / 1e6, text


async def one(home: Home, url: str, primary: str, **options: Any) -> tuple[float, float, str]:
    """One answer of a new agent."""
    agent = FallbackAgent([factory(url, primary), factory(url, BACKUP)], prebuild=True, **options)
    for each in messages(10)[1:-1]:
        agent.add_message(each["role"], each["content"])  # type: ignore[arg-type]
    await home.open(agent)
    agent.add_user_message(LAST)
    told = await ask(agent)
    await home.close(agent)
    return told


async def measure(url: str, rounds: int, hedged: int) -> tuple[Samples, int]:
    """All kinds of failure in turn; returns also how many texts were wrong."""
    samples, wrong = Samples(), 0
    async with Home.entered() as home:
        with quiet():
            for number in range(rounds + 5):
                _, floor, _ = await one(home, url, "burst-10~B")
                _, error, text = await one(home, url, "fail-500", first_chunk_timeout=5.0)
                wrong += text != WANTED
                first, cut, text = await one(home, url, "cut-5~P")
                wrong += "".join(sorted(set(text.split()))) != "".join(sorted(text.split())) or "P0004" not in text
                _, silence, _ = await one(home, url, "silent", first_chunk_timeout=TIMEOUT)
                if number >= 5:
                    samples.add("no_failure_ms", "ours", floor)
                    samples.add("error_500_ms", "ours", error)
                    samples.add("cut_ms", "ours", cut - first)
                    samples.add("silence_beyond_ms", "ours", silence - TIMEOUT * 1000)
        await hedge(home, url, hedged, samples)
    return samples, wrong


async def hedge(home: Home, url: str, count: int, samples: Samples) -> None:
    """A primary that stalls now and then, with a hedge and with a time-out alone."""
    start = [Message(each["role"], each["content"]) for each in messages(10)[:-1]]  # type: ignore[arg-type]
    for name, options in (("hedge", {"hedge_after": HEDGE}), ("time-out", {"first_chunk_timeout": 0.5})):
        agent = FallbackAgent(
            [factory(url, "sometimes-20~A"), factory(url, BACKUP)],
            prebuild=True,
            prefer="first",
            # Silence counts as a failure; here it shall stay in, to be met again.
            health=HealthRegistry(failures=1_000_000),
            **options,  # type: ignore[arg-type]
        )
        await home.open(agent)
        for _ in range(count if name == "hedge" else count // 4):
            agent.conversation.replace([agent.conversation[0], *start[1:]])
            agent.add_user_message(LAST)
            samples.add(f"stalling_primary_{name}_ms", "ours", (await ask(agent))[0])
            await anyio.lowlevel.checkpoint()
        await home.close(agent)


def main() -> None:
    """Measure, and print one line."""
    parser = arguments(__doc__, rounds=30)
    parser.add_argument("--hedged", type=int, default=400, help="answers of the primary that stalls (400)")
    options = parser.parse_args()
    with Provider(cpu=pin()) as provider:
        samples, wrong = run(options.loop, measure, provider.url, options.rounds, options.hedged)
    goals = Goals()
    goals.at_most("error 500, ms", samples.median("error_500_ms", "ours"), 1.6)
    goals.at_most("silence, ms beyond the time-out", samples.median("silence_beyond_ms", "ours"), 2.5)
    goals.at_most("cut, ms", samples.median("cut_ms", "ours"), 2.0)
    goals.at_most("texts that are wrong", wrong, 0)
    hedge_row = "stalling_primary_hedge_ms"
    goals.at_most("hedge, p99 ms", samples.percentile(hedge_row, "ours", 0.99), 60)
    more: dict[str, Any] = {}
    if options.spread:
        more["spread"] = {row: samples.spread(row, "ours") for row in samples.rows}
    tell("failover_latency", options.loop, samples, goals, **more)


if __name__ == "__main__":
    main()
