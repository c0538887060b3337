"""``ChatAgent``: one agent per conversation, kept open between its turns."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from _base import LAST, SYSTEM, Peer, turns

from micdrop_agent import ChatAgent, Message, Timeouts

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


class Client(Peer):
    """Keeps agents open in tasks of their own, as a call server does."""

    statement = "from micdrop_agent import ChatAgent"

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.agents: dict[str, ChatAgent] = {}
        self.free: list[ChatAgent] = []
        self.tasks: set[asyncio.Task[None]] = set()
        self.said = {count: [Message(role, text) for role, text in turns(count)] for count in (10, 202)}  # type: ignore[arg-type]

    async def opened(self, model: str) -> ChatAgent:
        """An agent that stays open until the process ends."""
        # As for all: time-outs of 60 s. With 1,000 calls begun in one instant the last one connects late.
        clocks = Timeouts(connect=60, first_chunk=60, between_chunks=60, total=60)
        agent = ChatAgent(model=model, api_key="bench", base_url=self.url, system_prompt=SYSTEM, timeouts=clocks)
        ready = asyncio.Event()

        async def hold() -> None:
            async with agent:
                ready.set()
                await asyncio.Event().wait()

        self.tasks.add(asyncio.create_task(hold()))
        await ready.wait()
        return agent

    async def prepare(self, model: str) -> None:
        """Open the agent of ``model``."""
        if model not in self.agents:
            self.agents[model] = await self.opened(model)

    async def crowd(self, model: str, many: int) -> None:
        """One agent for each call."""
        self.free = [await self.opened(model) for _ in range(many)]

    async def chunks(self, model: str, count: int) -> AsyncGenerator[str, None]:
        """One answer."""
        agent = self.free.pop() if self.free else self.agents[model]
        agent.conversation.replace([agent.conversation[0], *self.said[count]])
        agent.add_user_message(LAST)
        answer = agent.answer()
        try:
            async for chunk in answer:
                yield chunk
        finally:
            answer.cancel()  # a consumer that was cancelled itself leaves nothing behind
