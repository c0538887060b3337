"""openai-agents: ``Runner.run_streamed()``, tracing off (its exporter calls the real API)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import openai
from _base import SYSTEM, Peer, messages
from agents import Agent, OpenAIChatCompletionsModel, RunConfig, Runner, set_tracing_disabled

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

set_tracing_disabled(True)


class Client(Peer):
    """One agent per model over one SDK client."""

    statement = "from agents import Agent, Runner, OpenAIChatCompletionsModel"

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.client = openai.AsyncOpenAI(api_key="bench", base_url=url, max_retries=0, timeout=60.0)
        self.agents: dict[str, Any] = {}

    async def prepare(self, model: str) -> None:
        """The agent of ``model``."""
        if model not in self.agents:
            asked = OpenAIChatCompletionsModel(model=model, openai_client=self.client)
            self.agents[model] = Agent(name="bench", instructions=SYSTEM, model=asked)

    async def chunks(self, model: str, count: int) -> AsyncGenerator[str, None]:
        """One answer; a consumer that leaves early cancels the run."""
        said: Any = messages(count)[1:]
        result = Runner.run_streamed(self.agents[model], said, run_config=RunConfig(tracing_disabled=True))
        whole = False
        try:
            async for event in result.stream_events():
                if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                    yield event.data.delta
            whole = True
        finally:
            if not whole:
                result.cancel()
