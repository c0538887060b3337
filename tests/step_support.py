"""A provider of scripted events, and a model agent that uses it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import attrs

from micdrop_agent import Message, ProviderError, Retry, ToolCall
from micdrop_agent.model.agent import ModelAgent
from micdrop_agent.model.protocol import CallReady, Finish, Request
from micdrop_agent.testing import run_virtual
from micdrop_agent.tools import tool

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from micdrop_agent import Agent
    from micdrop_agent.model.protocol import ProviderEvent
    from micdrop_agent.testing import Backend

Act = Any
"""A list is one network read, a number is a wait in seconds, an error is raised, ``"hang"`` never ends."""

STOP = [Finish("stop", "stop")]
CALLS = [Finish("tool_calls", "tool_calls")]
ONCE = Retry(max_retries=1, first_wait=1, jitter=0)
NEVER = Retry(max_retries=0)


def down(kind: Any = "server", **facts: Any) -> ProviderError:
    return ProviderError("down", kind=kind, **facts)


def call(name: str = "look", call_id: str = "1", arguments: str = "{}") -> CallReady:
    return CallReady(call_id, name, arguments)


@attrs.define(eq=False)
class Stream:
    acts: list[Act]
    closed: int = 0

    async def receive(self) -> list[ProviderEvent] | None:
        await anyio.lowlevel.checkpoint()
        while self.acts:
            act = self.acts.pop(0)
            if isinstance(act, Exception):
                raise act
            if act == "hang":
                await anyio.sleep_forever()
            if isinstance(act, list):
                return list(act)
            assert not isinstance(act, str)
            await anyio.sleep(act)
        return None

    async def aclose(self) -> None:
        self.closed += 1


class Provider:
    """Plays one script per request; the last one again and again. An error or a wait may come first."""

    name = "scripted"

    def __init__(self, *scripts: Sequence[Act]) -> None:
        self.scripts = scripts
        self.requests: list[tuple[float, tuple[Any, ...], tuple[str, ...], str | None]] = []
        self.streams: list[Stream] = []
        self.warm = self.closed = 0
        self.warming: Exception | None = None

    async def open(self, request: Request) -> Stream:
        script = list(self.scripts[min(len(self.requests), len(self.scripts) - 1)])
        names = tuple(tool.name for tool in request.tools)
        self.requests.append((anyio.current_time(), tuple(request.items), names, request.continue_from))
        await anyio.lowlevel.checkpoint()
        while script and not isinstance(script[0], list):
            if isinstance(script[0], Exception):
                raise script[0]
            if script[0] == "hang":
                await anyio.sleep_forever()
            await anyio.sleep(script.pop(0))
        self.streams.append(Stream(script))
        return self.streams[-1]

    async def prewarm(self) -> None:
        self.warm += 1
        if self.warming is not None:
            raise self.warming

    async def aclose(self) -> None:
        assert all(stream.closed for stream in self.streams)
        self.closed += 1

    @property
    def times(self) -> list[float]:
        return [request[0] for request in self.requests]


class Model(ModelAgent):
    def __init__(self, *scripts: Sequence[Act], **options: Any) -> None:
        super().__init__(**options)
        self.served = Provider(*scripts)

    def make_provider(self) -> Provider:
        return self.served


def said(agent: Agent) -> list[tuple[Any, ...]]:
    """The conversation after the system prompt, in short."""
    short: list[tuple[Any, ...]] = []
    for item in agent.conversation[1:]:
        if isinstance(item, Message):
            short.append((item.role, item.content, *([] if item.metadata is None else [item.metadata])))
        else:
            short.append((item.role, item.tool_name if isinstance(item, ToolCall) else item.output))
    return short


def with_model(
    backend: Backend,
    scripts: Sequence[Sequence[Act]],
    check: Callable[[Model], Awaitable[None]],
    **options: Any,
) -> None:
    """Run ``check`` with an open agent that was asked something; afterwards nothing is open any more."""

    async def main() -> None:
        async with Model(*scripts, **options) as agent:
            agent.add_user_message("hi")
            await check(agent)
        provider = agent.served
        assert provider.closed == (1 if provider.requests or provider.warm else 0)
        assert all(stream.closed == 1 for stream in provider.streams)

    run_virtual(backend, main)


async def chunks_of(agent: Agent) -> list[str]:
    return [chunk async for chunk in agent.answer()]


@tool
async def look() -> str:
    """Look around for a second."""
    await anyio.sleep(1)
    return "a cat"


@tool
def fast() -> int:
    return 7


@tool(skip_answer=True)
def mute() -> None: ...
