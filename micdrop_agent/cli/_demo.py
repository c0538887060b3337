"""``micdrop-agent demo failover``: two model servers on this machine, the first of which fails.

first server (fault) ◀── ChatAgent ◀─┐
                                     ├─ FallbackAgent ──▶ what is heard, with times
second server (well) ◀── ChatAgent ◀─┘
"""

from __future__ import annotations

import functools
import sys
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

import anyio
import anyio.abc

from micdrop_agent.cli._faults import FAULTS, PIECES, spoken
from micdrop_agent.cli._screen import Paint, one_line
from micdrop_agent.errors import MicdropError
from micdrop_agent.events import AgentSwitched
from micdrop_agent.fallback.agent import FallbackAgent
from micdrop_agent.messages import Message
from micdrop_agent.providers.chat import ChatAgent
from micdrop_agent.testing import ScriptedProvider, parts

if TYPE_CHECKING:
    from micdrop_agent._core.answer import Answer
    from micdrop_agent.cli._options import DemoArguments
    from micdrop_agent.result import TraceEvent
    from micdrop_agent.testing import ReceivedRequest, Reply
    from micdrop_agent.testing._provider import Script

__all__ = ["failover"]

QUESTION: Final = "When is the pool open?"
WHOLE: Final = "".join(PIECES)
PROMPT: Final = "You answer the phone of a hotel. Be brief."


async def failover(options: DemoArguments) -> int:
    """Ask one question and show what happens; returns the exit code.

    Raises:
        MicdropError: The answer failed, or its text was not heard completely and once.
    """
    paint = Paint(sys.stdout)
    print(f"first server:   {FAULTS[options.fault].words}")
    repeats = "; going on, it repeats two words, which are not said again" if FAULTS[options.fault].midway else ""
    print(f"second server:  is well{repeats}")
    print(f"\ncaller:         {QUESTION}", flush=True)
    async with AsyncExitStack() as stack:
        fault = FAULTS[options.fault].parts
        first = await _unused_address() if fault is None else await _serve(stack, [parts(fault)])
        second = await _serve(stack, _second)
        agent = await stack.enter_async_context(
            FallbackAgent(
                factories=[
                    functools.partial(ChatAgent, base_url=first, model="demo", system_prompt=PROMPT),
                    functools.partial(ChatAgent, base_url=second, model="demo", system_prompt=PROMPT),
                ],
                names=["first", "second"],
                first_chunk_timeout=options.timeout,
            )
        )
        await _watch(agent, options, paint)
    return 0


async def _watch(agent: FallbackAgent, options: DemoArguments, paint: Paint) -> None:
    from micdrop_agent.cli._traces import Traces

    traces = None if options.trace is None else Traces(agent, options.trace)
    if traces is not None:
        await traces.save()  # a file that cannot be written shows before the call
    began = time.monotonic()

    def show(text: str) -> None:
        print(f"{paint.dim(f'{(time.monotonic() - began) * 1000:6.0f} ms')}  {text}", flush=True)

    def switched(event: AgentSwitched) -> None:
        show(paint.yellow(f"        switch from {event.from_} to {event.to}: {one_line(str(event.reason))}"))

    agent.on(AgentSwitched, switched)
    agent.add_user_message(QUESTION)
    answer = agent.answer()
    heard = ""
    try:
        async for chunk in answer:
            heard += chunk
            show(f"{agent.active_name:<6}  {paint.green(chunk)}")
    finally:
        if traces is not None:
            with anyio.CancelScope(shield=True):
                await traces.save()
    show("        end of the answer")
    _sum_up(agent, answer, heard, paint)
    if traces is not None:
        print(f"\n{traces.written}")


def _sum_up(agent: FallbackAgent, answer: Answer, heard: str, paint: Paint) -> None:
    print(f"\nheard:          {heard}")
    stored = [item.content for item in agent.conversation if isinstance(item, Message) and item.role == "assistant"]
    if heard != WHOLE or stored != [heard]:
        raise MicdropError(f"the answer should have been {WHOLE!r}, heard and stored once; stored is {stored!r}")
    print("stored:         the same, as one message; nothing was lost or said twice")
    print("\ninside the answer:")
    for event in answer.result.trace:
        print(paint.dim(f"{event.at * 1000:9.1f} ms  {event.kind:<15} {_details(event)}"))


def _details(event: TraceEvent) -> str:
    return one_line("  ".join(f"{name}={value}" for name, value in event.detail.items() if value is not None))


# -- servers


def _second(request: ReceivedRequest) -> Reply:
    """The whole answer; or, when some of it was said, how a model goes on: it repeats a little."""
    body: dict[str, list[dict[str, str]]] = request.body
    begun = any(message["role"] == "assistant" for message in body["messages"])
    return parts(spoken(*(PIECES[1:] if begun else PIECES)))


async def _serve(stack: AsyncExitStack, script: Script) -> str:
    """Start a server; returns its URL."""
    provider = await stack.enter_async_context(ScriptedProvider(script))
    return await stack.enter_async_context(provider.listening())


async def _unused_address() -> str:
    """The URL of a port on which nobody listens."""
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        port = listener.extra(anyio.abc.SocketAttribute.local_port)  # noqa: S610 - not Django's extra()
        return f"http://127.0.0.1:{port}/v1"
