"""What a guess saves, and what a wrong one costs: the first word after the transcript has become final.

The provider takes 300 ms to its first word, and the transcript becomes final 400 ms after its last partial. The
rows take turns: no guess (the answer is asked for when the transcript is final), a right guess, and a wrong one, which
is discarded while its response is arriving. The moment at which the server sees that comes from the
loopback provider, on the same clock.

    python benchmarks/speculation.py --loop trio

Goals: the first word within 5 ms of ``adopt()``; behind a wrong guess within 1.05 times what it takes without one;
the server sees a wrong guess end within 5 ms.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import anyio
from _clients import Ours
from _harness import LAST, Goals, Provider, Samples, arguments, pin, quiet, run, tell

if TYPE_CHECKING:
    from micdrop_agent import Agent, Answer

MODEL = "late-6-300ms"
FINAL_AFTER = 0.4
"""Seconds from the last partial transcript to the final one."""


SEEN_BY = 0.05
"""Seconds after which the server is asked when it has lost the wrong guess: the first word is far from there."""


async def heard_after(answer: Answer, moment: int) -> float:
    """Milliseconds from ``moment`` to the first word; the rest is not read."""
    await answer.receive()
    taken = time.monotonic_ns() - moment
    answer.cancel()
    return taken / 1e6


def asked(agent: Agent) -> Answer:
    """An answer as without guesses."""
    agent.add_user_message(LAST)
    return agent.answer()


async def turn(agent: Agent, guessed: str | None, provider: Provider) -> tuple[float, float | None]:
    """Milliseconds to the first word after the final transcript, and until a wrong guess was seen to end."""
    guess = None if guessed is None else agent.speculate(guessed)
    await anyio.sleep(FINAL_AFTER)
    moment = time.monotonic_ns()
    answer = None if guess is None else guess.adopt(LAST)
    if answer is not None:
        return await heard_after(answer, moment), None
    answer = asked(agent)
    await anyio.sleep(SEEN_BY)
    lost = None if guess is None else provider.lost_after(moment)
    first = await heard_after(answer, moment)
    return first, None if lost is None else (lost - moment) / 1e6


async def measure(provider: Provider, rounds: int) -> Samples:
    """Everybody in turn, round by round."""
    samples = Samples()
    ours = Ours(provider.url, "chat", 10)
    await ours.prepare(MODEL)
    agent = ours.agents[MODEL]
    rows = (("no guess", None), ("right guess", LAST.lower()), ("wrong guess", "Friday at two"))
    with quiet():
        for number in range(rounds + 2):
            for name, guessed in rows:
                agent.conversation.replace(ours.said[:-1])
                first, seen = await turn(agent, guessed, provider)
                if number >= 2:
                    samples.add("first_word_ms", name, first)
                    if seen is not None:
                        samples.add("server_sees_ms", name, seen)
                await anyio.sleep(0.02)  # the spare connection is there by then, as between two turns
    await ours.close()
    return samples


def main() -> None:
    """Measure, and print one line."""
    options = arguments(__doc__, rounds=15).parse_args()
    with Provider(cpu=pin()) as provider:
        samples = run(options.loop, measure, provider, options.rounds)
    goals = Goals()
    goals.at_most("right guess: first word ms", samples.median("first_word_ms", "right guess"), 5)
    goals.at_most("wrong guess / no guess", samples.ratio("first_word_ms", "wrong guess", "no guess"), 1.05)
    goals.at_most("wrong guess: server sees ms", samples.median("server_sees_ms", "wrong guess"), 5)
    tell("speculation", options.loop, samples, goals)


if __name__ == "__main__":
    main()
