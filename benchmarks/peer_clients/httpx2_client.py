"""Bare httpx2 and ``json.loads``: what an application without a library would write."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import httpx2
from _base import Peer, messages

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


class Client(Peer):
    """One ``AsyncClient`` for all."""

    statement = "import httpx2"

    def __init__(self, url: str) -> None:
        super().__init__(url)
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
        self.client = httpx2.AsyncClient(headers={"authorization": "Bearer bench"}, timeout=60.0, limits=limits)

    async def chunks(self, model: str, count: int) -> AsyncGenerator[str, None]:
        """One answer."""
        body = {"model": model, "messages": messages(count), "stream": True, "stream_options": {"include_usage": True}}
        async with self.client.stream("POST", f"{self.url}/chat/completions", json=body) as response:
            response.raise_for_status()
            async for line in response.aiter_lines():
                if not line.startswith("data: {"):
                    continue
                choices = json.loads(line[6:])["choices"]
                if choices and (text := choices[0]["delta"].get("content")):
                    yield text
