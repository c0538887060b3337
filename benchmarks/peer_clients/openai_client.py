"""The official openai SDK with ``stream=True``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import openai
from _base import Peer, messages

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


class Client(Peer):
    """One ``AsyncOpenAI`` for all."""

    statement = "import openai; openai.AsyncOpenAI(api_key='bench').chat.completions"

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.client = openai.AsyncOpenAI(api_key="bench", base_url=url, max_retries=0, timeout=60.0)

    async def chunks(self, model: str, count: int) -> AsyncGenerator[str, None]:
        """One answer."""
        body: dict[str, Any] = {"messages": messages(count), "stream_options": {"include_usage": True}}
        async with await self.client.chat.completions.create(model=model, stream=True, **body) as parts:
            async for part in parts:
                if part.choices and (text := part.choices[0].delta.content):
                    yield text
