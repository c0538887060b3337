"""A regression gate for CI: ratios only, with margins that noise does not trip, in less than a minute.

    python benchmarks/gate.py              # exit status 1 when something has become much slower
    python benchmarks/gate.py --slow 3     # the same with the library slowed down on purpose: it must fail

Each value is a ratio of CPU times from one process and the same rounds: to bare httpx2, to a fixed piece of
Python work, to the import of AnyIO. A limit is about one and a half times what was measured when it was
set, so it catches a doubled cost and not a busy neighbour. What fails is measured a second time, alone,
before it counts. How fast the library is, the other files here tell.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, Final

import anyio
import chunk_cost
import first_chunk
import import_time
import long_conversation
from _harness import HERE, Provider, Samples, pin, quiet, run, with_byte_code

from micdrop_agent import Agent, Turn
from micdrop_agent._core.answer import Answer

if TYPE_CHECKING:
    from collections.abc import Callable

LIMITS: Final[dict[str, float]] = {
    "first chunk: CPU / httpx2": 0.7,
    "first chunk, Responses API: CPU / httpx2": 0.7,
    "2,000 chunks: CPU / httpx2": 0.75,
    "2,000 chunks, Responses API: CPU / httpx2": 0.9,
    "answer() to first chunk / a fixed piece of work": 4.0,
    "answer() to first chunk / a fixed piece of work, Trio": 5.5,
    "cancel() / a fixed piece of work": 0.7,
    "a turn after 1,000 messages / after 10": 2.0,
    "import: CPU / import anyio": 5.0,
    "modules that must not be loaded": 0.0,
}


def work() -> int:
    """A fixed piece of Python: calls, attributes, dicts, texts, as any library's code is made of."""

    class Thing:
        __slots__ = ("name", "number")

        def __init__(self, number: int) -> None:
            self.number = number
            self.name = f"thing {number}"

    total = 0
    for number in range(20):
        thing = Thing(number)
        found = {"name": thing.name, "number": thing.number}
        total += len(found["name"]) + isinstance(thing, Thing)  # type: ignore[arg-type]
    return total


class Held(Agent):
    """Says five words and then nothing."""

    async def generate_answer(self, turn: Turn) -> None:
        """Say them and wait for the barge-in."""
        for _ in range(5):
            turn.write_nowait("word ")
        await turn.drain()
        await anyio.sleep_forever()


async def barge_in(rounds: int) -> float:
    """Median CPU of ``cancel()`` in units of ``work()``."""
    ratios: list[float] = []
    async with Held() as agent:
        start = [agent.conversation[0]]
        with quiet():
            for _ in range(rounds):
                agent.conversation.replace(start)
                agent.add_user_message("Hello!")
                answer = agent.answer()
                for _ in range(5):
                    await answer.receive()
                began = time.perf_counter_ns()
                work()
                middle = time.perf_counter_ns()
                agent.cancel()
                ratios.append((time.perf_counter_ns() - middle) / (middle - began))
                await answer.aclose()
    return statistics.median(ratios)


async def beginning(rounds: int) -> float:
    """Median time from ``answer()`` to the first chunk in units of ``work()``."""
    ratios: list[float] = []
    async with first_chunk.Instant() as agent:
        start = [agent.conversation[0]]
        with quiet():
            for _ in range(rounds):
                agent.conversation.replace(start)
                agent.add_user_message("Hello!")
                began = time.perf_counter_ns()
                work()
                middle = time.perf_counter_ns()
                answer = agent.answer()
                await answer.receive()
                ratios.append((time.perf_counter_ns() - middle) / (middle - began))
                await answer.aclose()
    return statistics.median(ratios)


def importing(rounds: int = 7) -> float:
    """CPU of the import to that of AnyIO's, beyond an empty interpreter; the least of several."""
    took: dict[str, list[float]] = {"pass": [], "import anyio": [], "import micdrop_agent": []}
    for _ in range(rounds):
        for statement, each in took.items():
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([sys.executable, "-c", statement], cwd=HERE.parent, env=with_byte_code(), check=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            each.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    empty, floor, ours = (min(each) for each in took.values())
    return (ours - empty) / (floor - empty)


def measures(url: str) -> dict[str, Callable[[], float]]:
    """How each value is measured."""

    def first(api: str) -> float:
        samples: Samples = run("asyncio", first_chunk.wire, url, api, 10, 60, ("httpx2", "ours"))
        return samples.paired("first_chunk_cpu_us", "ours", "httpx2")

    def chunks(api: str) -> float:
        samples: Samples = run("asyncio", chunk_cost.measure, url, api, 9)
        return samples.paired("burst_us", "ours", "httpx2")

    def growth() -> float:
        samples: Samples = run("asyncio", long_conversation.measure, url, "chat", 10)
        return samples.median("messages_1000_us", "ours, 0 tools") / samples.median("messages_10_us", "ours, 0 tools")

    measured: tuple[Callable[[], float], ...] = (
        lambda: first("chat"),
        lambda: first("responses"),
        lambda: chunks("chat"),
        lambda: chunks("responses"),
        lambda: run("asyncio", beginning, 400),
        lambda: run("trio", beginning, 400),
        lambda: run("asyncio", barge_in, 400),
        growth,
        importing,
        lambda: len(import_time.loaded()),
    )
    return dict(zip(LIMITS, measured, strict=True))


def slow_down(times: float) -> None:
    """Make the library's chunks and barge-ins cost more, to see that the gate notices."""

    def slower(owner: Any, name: str, share: float) -> None:
        usual = getattr(owner, name)

        def slow(*args: Any, **options: Any) -> Any:
            for _ in range(int(times * share)):
                work()
            return usual(*args, **options)

        setattr(owner, name, slow)

    slower(Turn, "write_nowait", 1)
    slower(Answer, "_stop", 2)
    slower(Agent, "answer", 2)


def main() -> None:
    """Measure, say what is too slow, and leave with 1 if something is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slow", type=float, default=0.0, help="slow the library down by so much")
    options = parser.parse_args()
    if options.slow:
        slow_down(options.slow)
    began = time.perf_counter()
    values: dict[str, float] = {}
    with Provider(cpu=pin()) as provider:
        for name, measure in measures(provider.url).items():
            values[name] = measure()
            if values[name] > LIMITS[name]:
                values[name] = min(values[name], measure())
            mark = "ok  " if values[name] <= LIMITS[name] else "SLOW"
            print(f"{mark} {values[name]:6.2f} of at most {LIMITS[name]:.2f}: {name}", file=sys.stderr)
    failed = [name for name, value in values.items() if value > LIMITS[name]]
    rounded = {name: round(value, 3) for name, value in values.items()}
    print(
        json.dumps(
            {"benchmark": "gate", "s": round(time.perf_counter() - began, 1), "values": rounded, "failed": failed}
        )
    )
    raise SystemExit(bool(failed))


if __name__ == "__main__":
    main()
