"""Our row in a side-by-side benchmark whose workers load one adapter class per framework.

``A`` asks a Chat Completions server, ``Responses`` the Responses API; the loop is the worker's. An
agent is a conversation, so it is kept open between answers, as a call server keeps it between turns,
and each answer starts from the same ten messages and a new last one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import anyio
from _base import SYSTEM, Adapter, Call, history, last_user

from micdrop_agent import FallbackAgent, Message, Timeouts
from micdrop_agent.providers.chat import ChatAgent
from micdrop_agent.providers.openai import OpenaiAgent

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from anyio.abc import TaskGroup, TaskStatus

    from micdrop_agent import Agent

HISTORY = [Message(turn["role"], turn["content"]) for turn in history()]


class A(Adapter):
    """``ChatAgent`` and, for failovers, a ``FallbackAgent`` over two of them."""

    api = "chat"
    packages = ("micdrop-agent", "anyio", "httptools", "trio")
    cold_import = "import micdrop_agent; micdrop_agent.ChatAgent"
    cancel_modes = ("native", "task")
    failover_note = "FallbackAgent([primary, backup], first_chunk_timeout=T, prebuild=True); a new one per call"
    agent_class: ClassVar[type[ChatAgent | OpenaiAgent]] = ChatAgent

    async def setup(self, base_url: str) -> None:
        """Remember where the server is; the agents live in tasks of their own."""
        self.base_url = base_url
        self.agents: dict[str, Agent] = {}
        self.pool: list[Agent] = []
        self.fallback: Agent | None = None
        self.leave: dict[int, anyio.Event] = {}
        self.left = anyio.Event()
        self.tasks: TaskGroup = anyio.create_task_group()
        await self.tasks.__aenter__()

    def make(self, model: str) -> Agent:
        """An agent of this API that asks for ``model``."""
        # As in the other rows: 60 s. With 1,000 calls begun in one instant the last one connects late.
        clocks = Timeouts(connect=60, first_chunk=60, between_chunks=60, total=60)
        return self.agent_class(
            model=model, api_key="sk-bench", base_url=self.base_url, system_prompt=SYSTEM, timeouts=clocks
        )

    async def open(self, agent: Agent) -> Agent:
        """Open ``agent`` in a task of its own, as a call server does."""
        await self.tasks.start(self.hold, agent)
        return agent

    async def hold(self, agent: Agent, *, task_status: TaskStatus[None]) -> None:
        """Keep ``agent`` open until it is told to leave."""
        leave = self.leave[id(agent)] = anyio.Event()
        async with agent:
            task_status.started()
            await leave.wait()
        del self.leave[id(agent)]
        self.left.set()

    async def prepare(self, model: str) -> None:
        """Open the agent of ``model``."""
        if model not in self.agents:
            self.agents[model] = await self.open(self.make(model))

    def call(self, model: str, call_id: str) -> Call:
        """One answer of an agent."""
        return self.run(self.pool.pop() if self.pool else self.agents[model], call_id)

    def run(self, agent: Agent, call_id: str) -> Call:
        """Ask ``agent`` with the conversation of every row."""

        async def chunks() -> AsyncGenerator[str, None]:
            agent.conversation.replace([agent.conversation[0], *HISTORY])
            agent.add_user_message(last_user(call_id))
            answer = agent.answer()
            try:
                async for chunk in answer:
                    yield chunk
            finally:
                answer.cancel()  # a consumer that was cancelled itself leaves nothing behind

        async def cancel() -> None:
            agent.cancel()

        return Call(chunks(), cancel)

    async def prepare_many(self, n: int, model: str) -> None:
        """One agent per conversation."""
        self.pool = [await self.open(self.make(model)) for _ in range(n)]

    async def prepare_failover(self, primary: str, backup: str, timeout: float) -> None:  # noqa: ASYNC109 - the harness's name
        """A new call, whose agent does not know yet that the primary is bad."""
        if self.fallback is not None:
            self.left = anyio.Event()
            self.leave[id(self.fallback)].set()
            await self.left.wait()  # the end of the call before is no part of this one
        self.fallback = await self.open(
            FallbackAgent(
                [lambda: self.make(primary), lambda: self.make(backup)],
                first_chunk_timeout=timeout,
                prebuild=True,
            )
        )

    def failover(self, primary: str, backup: str, timeout: float, call_id: str) -> Call:
        """One answer of the ``FallbackAgent``."""
        del primary, backup, timeout
        assert self.fallback is not None
        return self.run(self.fallback, call_id)

    async def close(self) -> None:
        """Leave every agent."""
        for leave in tuple(self.leave.values()):
            leave.set()
        exc_info: tuple[Any, Any, Any] = (None, None, None)
        await self.tasks.__aexit__(*exc_info)


class Responses(A):
    """The same over ``OpenaiAgent``."""

    api = "responses"
    cold_import = "import micdrop_agent; micdrop_agent.OpenaiAgent"
    agent_class = OpenaiAgent
