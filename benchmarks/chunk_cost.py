"""CPU per chunk: in a burst of 2,000, and when they come one by one.

The burst says what parsing, decoding and handing over cost; the paced answer (a chunk every millisecond)
adds what waking up costs, which is what a live call pays. Process CPU time, which a busy machine disturbs
least; over the wire to the loopback provider, beside bare httpx2 in the same rounds.

    python benchmarks/chunk_cost.py --api responses

Goal: in a burst at most what httpx2 with ``json.loads`` takes, and at most 16 µs.
"""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

from _clients import clients
from _harness import Goals, Provider, Samples, arguments, pin, quiet, run, tell
from first_chunk import timed

if TYPE_CHECKING:
    from _clients import Client

BURST = 2000
PACED = 100
WHO = ("raw", "httpx2", "ours")


async def measure(url: str, api: str, rounds: int) -> Samples:
    """Everybody in turn, round by round."""
    samples = Samples()
    burst, paced = f"burst-{BURST}", f"paced-{PACED}-1ms"
    made: dict[str, Client] = await clients(url, api, 10, burst, paced, names=WHO)
    for client in made.values():
        await timed(client.chunks(burst))
        await timed(client.chunks(paced))
    with quiet():
        for number in range(rounds):
            for name, client in made.items():
                samples.add("burst_us", name, (await timed(client.chunks(burst)))[2] / BURST)
                if number % 4 == 0:
                    _, first, whole = await timed(client.chunks(paced))
                    samples.add("paced_us", name, (whole - first) / (PACED - 1))
            gc.collect(0)
    for client in made.values():
        await client.close()
    return samples


def main() -> None:
    """Measure, and print one line."""
    parser = arguments(__doc__, rounds=40)
    parser.add_argument("--api", choices=["chat", "responses"], default="chat")
    options = parser.parse_args()
    with Provider(cpu=pin()) as provider:
        samples = run(options.loop, measure, provider.url, options.api, options.rounds)
    goals = Goals()
    goals.at_most("burst / httpx2", samples.paired("burst_us", "ours", "httpx2"), 1.0)
    goals.at_most("burst us", samples.median("burst_us", "ours"), 16)
    ratios = {row: round(samples.paired(row, "ours", "httpx2"), 3) for row in samples.rows}
    tell("chunk_cost", options.loop, samples, goals, api=options.api, ratios_to_httpx2=ratios)


if __name__ == "__main__":
    main()
