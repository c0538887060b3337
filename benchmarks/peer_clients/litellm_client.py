"""litellm: ``acompletion(stream=True)``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import litellm
from _base import Peer, messages

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

litellm.suppress_debug_info = True


class Client(Peer):
    """The module's own functions."""

    statement = "import litellm"

    async def chunks(self, model: str, count: int) -> AsyncGenerator[str, None]:
        """One answer."""
        options: dict[str, Any] = {"api_base": self.url, "api_key": "bench", "max_retries": 0, "timeout": 60.0}
        stream: Any = await litellm.acompletion(
            model=f"openai/{model}",
            messages=messages(count),
            stream=True,
            stream_options={"include_usage": True},
            **options,
        )
        async for part in stream:
            if part.choices and (text := part.choices[0].delta.content):
                yield text
