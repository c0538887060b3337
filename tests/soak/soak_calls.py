"""Random calls: agents of every kind, questions that go right or wrong, and callers who interrupt at any time."""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.lowlevel
import attrs
from soak_server import REPLIES

from micdrop_agent import (
    ChatAgent,
    FallbackAgent,
    HealthRegistry,
    Message,
    MistralAgent,
    OpenaiAgent,
    Retry,
    Timeouts,
    ToolCall,
    ToolResult,
    tool,
)

if TYPE_CHECKING:
    import random
    from collections import Counter
    from collections.abc import Awaitable, Callable

    from micdrop_agent import Agent, Answer

NOBODY: Final = "http://127.0.0.1:9/v1"
"""A server that refuses every connection."""

CLOCKS: Final = Timeouts(connect=2.0, first_chunk=0.2, between_chunks=0.2, total=20.0)


@tool
def quick() -> str:
    """Answer at once."""
    return "done"


@tool
async def slow() -> str:
    """Take a moment."""
    await anyio.sleep(0.03)
    return "done late"


@tool(thread=True)
def in_thread() -> str:
    """Take a moment in a thread."""
    time.sleep(0.005)
    return "done elsewhere"


@tool(on_cancel="finish")
async def finishing() -> str:
    """Take a moment, to the end."""
    await anyio.sleep(0.02)
    return "done all the same"


@tool
def raising() -> str:
    """Fail."""
    raise LookupError("the tool failed")


TOOLS: Final = (quick, slow, in_thread, finishing, raising)


@attrs.define(eq=False)
class Caller:
    """Whoever calls: how each call goes is drawn from ``dice``.

    Args:
        base_url: The server.
        dice: Where chance comes from.
        tally: Counts calls, answers by status, and what callers did.
    """

    base_url: str
    dice: random.Random
    tally: Counter[str]

    async def call(self) -> None:
        """One whole call: an agent, some turns, the end; sometimes the host itself is cancelled."""
        self.tally["calls"] += 1
        agent = self._agent()
        with anyio.CancelScope() as hung_up:
            if self.dice.random() < 0.1:
                self.tally["host cancelled"] += 1
                hung_up.deadline = anyio.current_time() + self.dice.random() * 0.2
            async with agent:
                for _ in range(self.dice.randrange(1, 7)):
                    agent.add_user_message(self.dice.choice(QUESTIONS))
                    await self._turn(agent)
        _check(agent)

    def _agent(self) -> Agent:
        kind = self.dice.choice(["chat", "openai", "mistral", "fallback", "fallback", "hedged"])
        if kind in {"chat", "openai", "mistral"}:
            return self._single(kind, self.base_url)
        names = [self.dice.choice(["chat", "openai", "mistral"]) for _ in range(self.dice.randrange(1, 4))]
        urls = [self.base_url if self.dice.random() < 0.8 else NOBODY for _ in names]
        return FallbackAgent(
            [functools.partial(self._single, name, url) for name, url in zip(names, urls, strict=True)],
            names=[f"{number} {name}" for number, name in enumerate(names)],
            hedge_after=0.02 if kind == "hedged" else None,
            health=HealthRegistry(hedge_budget=1.0),
            after_partial=self.dice.choice(["continue", "restart", "stop"]),
            first_chunk_timeout=0.3,
        )

    def _single(self, kind: str, url: str) -> Agent:
        options: dict[str, Any] = {
            "model": "soak",
            "api_key": "key",
            "base_url": url,
            "system_prompt": "You answer the telephone.",
            "tools": list(TOOLS),
            "timeouts": CLOCKS,
            "retry": Retry(max_retries=1, first_wait=0.01),
            "parallel_tools": self.dice.random() < 0.5,
            "buffer_size": self.dice.choice([None, None, 0, 3]),
        }
        kinds: dict[str, Callable[..., Agent]] = {"chat": ChatAgent, "openai": OpenaiAgent, "mistral": MistralAgent}
        return kinds[kind](**options)

    # -- one turn

    async def _turn(self, agent: Agent) -> None:
        name, how = self.dice.choice(WAYS)
        self.tally[name] += 1
        answer = agent.answer()
        await how(self, agent, answer)
        if answer.status != "running":
            self.tally[f"answers {answer.status}"] += 1
        self.tally["answers"] += 1

    async def _read(self, answer: Answer, most: int | None = None) -> list[str]:
        """The chunks of ``answer``, ``most`` of them; its failure is part of the game."""
        chunks: list[str] = []
        try:
            while most is None or len(chunks) < most:
                chunks.append(await answer.receive())
        except anyio.EndOfStream:
            pass
        except Exception:
            if answer.status != "failed":
                raise
        return chunks

    async def listen(self, agent: Agent, answer: Answer) -> None:
        """Read to the end; the server may be silent, so a caller has no patience without end."""
        del agent
        await self._read(answer)

    async def barge_in(self, agent: Agent, answer: Answer) -> None:
        """Speak into the answer after some chunks."""
        chunks: list[str] = []
        with anyio.move_on_after(0.1):
            chunks = await self._read(answer, self.dice.randrange(1, 6))
        agent.cancel()
        rest = await self._read(answer)
        assert not rest, f"{rest} came after cancel()"
        assert len("".join(chunks)) <= len(answer.text)

    async def barge_in_later(self, agent: Agent, answer: Answer) -> None:
        """Speak into the answer after some time, from another task than the one that reads."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._read, answer)
            await anyio.sleep(self.dice.random() * 0.08)
            agent.cancel()

    async def hear_half(self, agent: Agent, answer: Answer) -> None:
        """Tell how much was really heard."""
        await self.barge_in_later(agent, answer)
        agent.cancel(heard=len(answer.text) // 2)

    async def supersede(self, agent: Agent, answer: Answer) -> None:
        """Ask again before the answer is there, several times at once."""
        for _ in range(self.dice.randrange(1, 4)):
            for _ in range(self.dice.randrange(6)):
                await anyio.lowlevel.checkpoint()
            answer = agent.answer()
        await self._read(answer)

    async def leave(self, agent: Agent, answer: Answer) -> None:
        """Leave the loop early; the next turn cancels what is left."""
        del agent
        with anyio.move_on_after(0.05):
            await self._read(answer, 1)

    async def never_read(self, agent: Agent, answer: Answer) -> None:
        """Nobody reads it."""
        del agent
        with anyio.move_on_after(self.dice.random() * 0.1):
            await answer.wait()

    async def close_answer(self, agent: Agent, answer: Answer) -> None:
        """Leave the answer's own block."""
        del agent
        async with answer:
            with anyio.move_on_after(0.05):
                await self._read(answer, 2)

    async def reader_cancelled(self, agent: Agent, answer: Answer) -> None:
        """Readers time out, the answer goes on, another one reads the rest."""
        del agent
        for _ in range(5):
            with anyio.move_on_after(0.005):
                await self._read(answer, 1)
            if answer.status != "running":
                break
        await self._read(answer)

    async def native(self, agent: Agent, answer: Answer) -> None:
        """On asyncio the reading task is cancelled by hand, twice; on Trio its scope is."""
        import asyncio

        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            with anyio.move_on_after(0.02):
                await self._read(answer)
        else:
            task = loop.create_task(self._read(answer))
            await anyio.sleep(self.dice.random() * 0.05)
            task.cancel()
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled():
                task.exception()
        agent.cancel()


WAYS: Final[tuple[tuple[str, Callable[[Caller, Agent, Answer], Awaitable[None]]], ...]] = tuple(
    (way.__name__, way)
    for way in (
        Caller.listen,
        Caller.barge_in,
        Caller.barge_in,
        Caller.barge_in_later,
        Caller.barge_in_later,
        Caller.hear_half,
        Caller.supersede,
        Caller.leave,
        Caller.never_read,
        Caller.close_answer,
        Caller.reader_cancelled,
        Caller.native,
    )
)
"""What a caller may do with an answer, by name; the likely ones more than once."""

QUESTIONS: Final = (*["say"] * 6, *["slowly"] * 6, *REPLIES)
"""Mostly the server works."""


def _check(agent: Agent) -> None:
    """After a call every tool call has its result right after it, and no message is blank."""
    items = list(agent.conversation)
    for index, item in enumerate(items):
        if isinstance(item, ToolCall):
            following = items[index + 1] if index + 1 < len(items) else None
            paired = isinstance(following, ToolResult) and following.tool_call_id == item.tool_call_id
            assert paired, f"{item.tool_name} has no result in {items}"
        elif isinstance(item, Message) and index:
            assert item.content.strip(), f"a blank message in {items}"
