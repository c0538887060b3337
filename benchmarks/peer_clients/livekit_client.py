"""livekit-agents: the LLM of livekit-plugins-openai, without a session around it."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import httpx2
import openai as sdk
from _base import LAST, SYSTEM, Peer, turns
from livekit.agents import llm
from livekit.agents.types import APIConnectOptions
from livekit.plugins import openai

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


class Client(Peer):
    """One plugin per model, over one client whose pool has no limit (its own has 50)."""

    statement = "from livekit.agents import llm; from livekit.plugins import openai"

    def __init__(self, url: str) -> None:
        super().__init__(url)
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
        http = httpx2.AsyncClient(timeout=60.0, limits=limits)
        self.client = sdk.AsyncOpenAI(api_key="bench", base_url=url, max_retries=0, http_client=http)
        self.models: dict[str, Any] = {}
        self.said: dict[int, Any] = {}

    async def prepare(self, model: str) -> None:
        """The plugin of ``model``."""
        self.models.setdefault(model, openai.LLM(model=model, client=self.client))

    def context(self, count: int) -> Any:
        """The conversation, with the caller's last words new."""
        if count not in self.said:
            said = self.said[count] = llm.ChatContext.empty()
            said.add_message(role="system", content=SYSTEM)
            for role, text in turns(count):
                said.add_message(role=role, content=text)
        copy = self.said[count].copy()
        copy.add_message(role="user", content=LAST)
        return copy

    async def chunks(self, model: str, count: int) -> AsyncGenerator[str, None]:
        """One answer."""
        options = APIConnectOptions(max_retry=0, timeout=60.0)
        async with aclosing(self.models[model].chat(chat_ctx=self.context(count), conn_options=options)) as stream:
            async for chunk in stream:
                if chunk.delta and chunk.delta.content:
                    yield chunk.delta.content
