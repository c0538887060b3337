"""langchain-openai: ``ChatOpenAI.astream()``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from _base import LAST, SYSTEM, Peer, turns
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_openai import ChatOpenAI

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


class Client(Peer):
    """One ``ChatOpenAI`` per model."""

    statement = "from langchain_openai import ChatOpenAI"

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.models: dict[str, Any] = {}
        self.said: dict[int, list[Any]] = {}
        for count in (10, 202):
            kinds: dict[str, Any] = {"user": HumanMessage, "assistant": AIMessage}
            self.said[count] = [SystemMessage(SYSTEM), *(kinds[role](text) for role, text in turns(count))]

    async def prepare(self, model: str) -> None:
        """The client of ``model``."""
        if model not in self.models:
            options: dict[str, Any] = {"base_url": self.url, "api_key": "bench", "max_retries": 0, "timeout": 60.0}
            self.models[model] = ChatOpenAI(model=model, stream_usage=True, **options)

    async def chunks(self, model: str, count: int) -> AsyncGenerator[str, None]:
        """One answer."""
        async for chunk in self.models[model].astream([*self.said[count], HumanMessage(LAST)]):
            if text := chunk.text:
                yield str(text)
