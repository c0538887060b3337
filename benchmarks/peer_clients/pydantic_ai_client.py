"""pydantic-ai-slim: ``Agent.run_stream()`` and ``stream_text(delta=True)``, its grouping of chunks off."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import openai
from _base import LAST, SYSTEM, Peer, turns
from pydantic_ai import Agent
from pydantic_ai.messages import ModelRequest, ModelResponse, SystemPromptPart, TextPart, UserPromptPart
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


class Client(Peer):
    """One agent per model over one SDK client."""

    statement = "from pydantic_ai import Agent; from pydantic_ai.models.openai import OpenAIChatModel"

    def __init__(self, url: str) -> None:
        super().__init__(url)
        client = openai.AsyncOpenAI(api_key="bench", base_url=url, max_retries=0, timeout=60.0)
        self.provider = OpenAIProvider(openai_client=client)
        self.agents: dict[str, Any] = {}
        self.said = {count: self.history(count) for count in (10, 202)}

    @staticmethod
    def history(count: int) -> list[Any]:
        """The conversation before the last words."""
        said: list[Any] = [ModelRequest(parts=[SystemPromptPart(content=SYSTEM)])]
        for role, text in turns(count):
            if role == "user":
                said.append(ModelRequest(parts=[UserPromptPart(content=text)]))
            else:
                said.append(ModelResponse(parts=[TextPart(content=text)]))
        return said

    async def prepare(self, model: str) -> None:
        """The agent of ``model``."""
        if model not in self.agents:
            self.agents[model] = Agent(OpenAIChatModel(model, provider=self.provider))

    async def chunks(self, model: str, count: int) -> AsyncGenerator[str, None]:
        """One answer."""
        async with self.agents[model].run_stream(LAST, message_history=self.said[count]) as result:
            async for text in result.stream_text(delta=True, debounce_by=None):
                yield text
