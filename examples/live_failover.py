"""Watch a failover happen, with no key: two model servers on this machine, the first of which fails as you choose.

    python examples/live_failover.py --first refuse     nobody listens on its port
    python examples/live_failover.py --first 500        it answers with an error
    python examples/live_failover.py --first 429        it asks for patience
    python examples/live_failover.py --first silent     it takes the request and says nothing
    python examples/live_failover.py --first cut        it breaks off in mid-sentence; the second one goes on

Everything is real but the words: sockets, HTTP, time-outs. ``--after restart`` and ``--after stop`` show the other
two ways to go on after a cut.
"""

from __future__ import annotations

import argparse
import logging
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import anyio
import anyio.abc

from micdrop_agent import AgentSwitched, ChatAgent, FallbackAgent, MicdropError, Retry
from micdrop_agent.testing import ScriptedProvider, fault, say

if TYPE_CHECKING:
    from micdrop_agent.testing import Reply

WAYS: dict[str, Reply | None] = {
    "ok": say("Our pool opens at seven ", "and closes at ten.", gap=0.2),
    "refuse": None,
    "500": fault("status", status=500),
    "429": fault("status", status=429, retry_after="20"),
    "silent": fault("stall_after_headers"),
    "cut": fault("cut_after_text", text=["Our pool opens ", "at seven "]),
}
SECOND = {
    "continue": say("and closes at ten.", gap=0.2),  # it sees what was said already
    "restart": say("The pool is open ", "from seven to ten.", gap=0.2),
    "stop": say("The pool is open ", "from seven to ten.", gap=0.2),
}


async def unused_address() -> str:
    """The URL of a port on which nobody listens."""
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        port = listener.extra(anyio.abc.SocketAttribute.local_port)  # noqa: S610 - not Django's extra()
        return f"http://127.0.0.1:{port}/v1"


async def serve(stack: AsyncExitStack, reply: Reply | None) -> str:
    """Start a server that always replies so; returns its URL."""
    if reply is None:
        return await unused_address()
    provider = await stack.enter_async_context(ScriptedProvider([reply]))
    return await stack.enter_async_context(provider.listening())


async def main(first: str, after: str) -> None:
    """Ask one question and show what happens, with times."""
    async with AsyncExitStack() as stack:
        urls = [await serve(stack, reply) for reply in (WAYS[first], SECOND[after if first == "cut" else "restart"])]
        agent = await stack.enter_async_context(
            FallbackAgent(
                factories=[
                    lambda: ChatAgent(base_url=urls[0], model="first", retry=Retry(max_retries=0)),
                    lambda: ChatAgent(base_url=urls[1], model="second"),
                ],
                names=["first", "second"],
                first_chunk_timeout=1.0,
                after_partial=after,  # type: ignore[arg-type]  # argparse checks it
            )
        )
        began = time.monotonic()

        def show(text: str) -> None:
            print(f"{(time.monotonic() - began) * 1000:6.0f} ms  {text}", flush=True)

        def switched(event: AgentSwitched) -> None:
            again = "; drop the audio that waits, it starts again" if event.restarted else ""
            show(f"[{event.from_} -> {event.to}: {event.reason}{again}]")

        agent.on(AgentSwitched, switched)
        agent.add_user_message("When is the pool open?")
        answer = agent.answer()
        try:
            async for chunk in answer:
                show(chunk)
        except MicdropError as error:
            show(f"[the answer failed: {error}]")
        print(f"stored: {agent.conversation[-1]}")
        for step in answer.result.trace:
            print(
                f"  {step.at * 1000:6.1f} ms  {step.kind}  {' '.join(f'{key}={value}' for key, value in step.detail.items())}"
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", choices=WAYS, default="cut", help="what the first server does")
    parser.add_argument("--after", choices=SECOND, default="continue", help="how to go on after a cut")
    parser.add_argument("--backend", choices=("asyncio", "trio"), default="asyncio")
    options = parser.parse_args()
    logging.getLogger("micdrop_agent").addHandler(logging.NullHandler())
    anyio.run(main, options.first, options.after, backend=options.backend)
