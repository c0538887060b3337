"""The first chunk when 1, 10 or 200 chunks come in one network read.

A model server that batches, or a network that stalled, hands over many chunks at once. Who first takes
all of them apart and only then lets the consumer run makes the caller wait for words that nobody needs
yet. Over the wire to the loopback provider, beside a raw socket and bare httpx2, in the same rounds.

    python benchmarks/burst.py --loop uvloop

Goal: the first of 200 within 0.6 ms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from _clients import clients
from _harness import Goals, Provider, Samples, arguments, pin, quiet, run, tell
from first_chunk import timed

if TYPE_CHECKING:
    from _clients import Client

SIZES = (1, 10, 200)
WHO = ("raw", "httpx2", "ours")


async def measure(url: str, api: str, rounds: int) -> Samples:
    """Everybody in turn, round by round."""
    samples = Samples()
    models = [f"burst-{size}" for size in SIZES]
    made: dict[str, Client] = await clients(url, api, 10, *models, names=WHO)
    for client in made.values():
        for model in models * 10:
            await timed(client.chunks(model))
    with quiet():
        for _ in range(rounds):
            for size, model in zip(SIZES, models, strict=True):
                for name, client in made.items():
                    samples.add(f"first_of_{size}_us", name, (await timed(client.chunks(model)))[0])
    for client in made.values():
        await client.close()
    return samples


def main() -> None:
    """Measure, and print one line."""
    parser = arguments(__doc__, rounds=200)
    parser.add_argument("--api", choices=["chat", "responses"], default="chat")
    options = parser.parse_args()
    with Provider(cpu=pin()) as provider:
        samples = run(options.loop, measure, provider.url, options.api, options.rounds)
    goals = Goals()
    goals.at_most("first of 200, ms", samples.median("first_of_200_us", "ours") / 1000, 0.6)
    ratios = {row: round(samples.ratio(row, "ours", "httpx2"), 3) for row in samples.rows}
    tell("burst", options.loop, samples, goals, api=options.api, ratios_to_httpx2=ratios)


if __name__ == "__main__":
    main()
