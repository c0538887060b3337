"""The first chunk after a barge-in, with the spare connection and without it, over TLS.

A barge-in costs the connection: HTTP/1.1 has no other way to stop an answer. The agent opens a spare one
in the background, while the caller speaks. Measured is the next answer, over TLS on loopback with a
certificate that was made for the run (trustme): with the spare, with the spare switched off, and on a
warm connection without any barge-in, the floor. Over a real network a handshake costs round trips too.

    python benchmarks/prewarm.py

Goal: with the spare at most 1.3 times the floor.
"""

from __future__ import annotations

import ssl
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
from _harness import LAST, Goals, Provider, Samples, arguments, messages, pin, quiet, run, tell

from micdrop_agent import ChatAgent
from micdrop_agent.transport.direct import DirectTransport

if TYPE_CHECKING:
    from micdrop_agent import Agent, Answer

TALK_S = 0.05
"""How long the caller speaks after the barge-in; really it is a second or more."""


def make(url: str, model: str, context: ssl.SSLContext) -> ChatAgent:
    """An agent that trusts the certificate of the run."""
    agent = ChatAgent(model=model, api_key="bench", base_url=url)
    # There is no public option for a certificate of one's own but the SSL_CERT_FILE of the system.
    agent._core.provider.transport = DirectTransport(url, tls_context=context)  # type: ignore[attr-defined]  # noqa: SLF001
    for each in messages(10)[1:-1]:
        agent.add_message(each["role"], each["content"])  # type: ignore[arg-type]
    return agent


async def first_chunk(agent: Agent) -> tuple[Answer, float]:
    """An answer that goes on, and the milliseconds to its first chunk."""
    agent.add_user_message(LAST)
    began = time.perf_counter_ns()
    answer = agent.answer()
    await answer.receive()
    return answer, (time.perf_counter_ns() - began) / 1e6


async def measure(url: str, context: ssl.SSLContext, rounds: int) -> Samples:
    """With spare, without, and warm, round by round."""
    samples = Samples()

    async def nothing() -> None: ...

    with_spare, without, warm = (make(url, "paced-3-30ms", context) for _ in range(3))
    switched_off: Any = without
    switched_off.prewarm = nothing
    start = list(warm.conversation)
    async with with_spare, without, warm:
        with quiet():
            for number in range(rounds + 5):
                for name, agent in (("spare", with_spare), ("no spare", without), ("no barge-in", warm)):
                    agent.conversation.replace(start)
                    answer, _ = await first_chunk(agent)
                    if agent is warm:
                        await answer.wait()
                    else:
                        agent.cancel()
                    await anyio.sleep(TALK_S)
                    answer, took = await first_chunk(agent)
                    await answer.wait()
                    if number >= 5:
                        samples.add("first_chunk_ms", name, took)
    return samples


def certificate(folder: str) -> tuple[str, ssl.SSLContext]:
    """A certificate for 127.0.0.1: the server's file, and a context that trusts it."""
    import trustme  # noqa: PLC0415 - only this benchmark has it

    authority = trustme.CA()
    path = Path(folder, "server.pem")
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(path))
    context = ssl.create_default_context()
    authority.configure_trust(context)  # pyright: ignore[reportUnknownMemberType] - trustme types it in part
    return str(path), context


def main() -> None:
    """Measure, and print one line."""
    options = arguments(__doc__, rounds=40).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path, context = certificate(folder)
        with Provider(cpu=pin(), certificate=path) as provider:
            samples = run(options.loop, measure, provider.url, context, options.rounds)
    row = "first_chunk_ms"
    goals = Goals()
    goals.at_most("with the spare / warm connection", samples.ratio(row, "spare", "no barge-in"), 1.3)
    saved = samples.median(row, "no spare") - samples.median(row, "spare")
    tell("prewarm", options.loop, samples, goals, saved_ms=round(saved, 2))


if __name__ == "__main__":
    main()
