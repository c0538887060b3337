"""Two agents without a model: one repeats the caller, one counts; for trying things out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from micdrop_agent._core.agent import Agent
from micdrop_agent.messages import Message
from micdrop_agent.options import check_seconds

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from micdrop_agent._core.options import AgentKeywords
    from micdrop_agent._core.turn import Turn

__all__ = ["EchoAgent", "MockAgent"]


class EchoAgent(Agent):
    """Says back what the caller said.

    Args:
        delay: Seconds before it speaks.
        options: The options of ``Agent``.

    Source: Micdrop page "Agent (LLM)", "Simple Echo Agent Example".
    """

    def __init__(self, *, delay: float = 0.1, **options: Unpack[AgentKeywords]) -> None:
        check_seconds("delay", delay)
        super().__init__(**options)
        self.delay = delay

    async def generate_answer(self, turn: Turn) -> None:
        """Write the last user message, in quotation marks; nothing if there is none."""
        heard = next(
            (item.content for item in reversed(turn.conversation) if isinstance(item, Message) and item.role == "user"),
            None,
        )
        if heard is not None:
            await anyio.sleep(self.delay)
            await turn.write(f'You said: "{heard}"')


class MockAgent(Agent):
    """Says a numbered text: ``Assistant Message 0``, then 1, 2 and so on.

    Source: Micdrop ``MockAgent``; unlike it, this one writes first and stores at the end, as
    every real agent does.
    """

    def __init__(self, **options: Unpack[AgentKeywords]) -> None:
        super().__init__(**options)
        self.answers: int = 0

    async def generate_answer(self, turn: Turn) -> None:
        """Write the next numbered message."""
        text = f"Assistant Message {self.answers}"
        self.answers += 1
        await turn.write(text)
