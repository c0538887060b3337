"""The LLM half of a real-time voice call, on structured concurrency (asyncio and Trio).

    async with OpenaiAgent(model="gpt-4o", system_prompt="You are a voice assistant.") as agent:
        agent.add_user_message("Hello!")
        async for chunk in agent.answer():
            await speak(chunk)

The agents that talk to a server are loaded when they are first used, so that importing this
package costs no HTTP client.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from micdrop_agent._core.agent import Agent
from micdrop_agent._core.answer import Answer
from micdrop_agent._core.event_hub import signal_of
from micdrop_agent._core.guess import Guess
from micdrop_agent._core.turn import Turn
from micdrop_agent.conversation import Conversation
from micdrop_agent.errors import (
    AllAgentsFailedError,
    Attempt,
    MaxStepsError,
    MicdropError,
    ProviderError,
    ToolError,
    ToolInputError,
)
from micdrop_agent.events import (
    AgentSwitched,
    AnswerFailed,
    AnswerFinished,
    AnswerSkipped,
    ConversationSummarized,
    EndCallRequested,
    Event,
    MessageAdded,
    MessageCorrected,
    RoleChanged,
    ToolCalled,
    ToolFinishedLate,
    UserMessageCancelled,
)
from micdrop_agent.messages import Item, Message, ToolCall, ToolResult
from micdrop_agent.options import ExtractJson, ExtractTag, Retry, Timeouts, TurnContext
from micdrop_agent.result import AnswerResult, TraceEvent
from micdrop_agent.tools import Deps, Tool, tool

if TYPE_CHECKING:
    from micdrop_agent.fallback.agent import FallbackAgent
    from micdrop_agent.fallback.health import HealthChanged, HealthRegistry
    from micdrop_agent.images import Image
    from micdrop_agent.model.agent import ModelAgent
    from micdrop_agent.model.options import Summarize
    from micdrop_agent.providers.anthropic import AnthropicAgent
    from micdrop_agent.providers.chat import ChatAgent
    from micdrop_agent.providers.echo import EchoAgent, MockAgent
    from micdrop_agent.providers.gemini import GeminiAgent
    from micdrop_agent.providers.local import LocalAgent
    from micdrop_agent.providers.mistral import MistralAgent
    from micdrop_agent.providers.openai import OpenaiAgent
    from micdrop_agent.store import CallInUseError, CallMovedError, ConversationStore, SqliteStore, StoreError
    from micdrop_agent.tracing.page import render_trace

__version__: Final = "0.1.0.dev0"

__all__ = [
    "Agent",
    "AgentSwitched",
    "AllAgentsFailedError",
    "Answer",
    "AnswerFailed",
    "AnswerFinished",
    "AnswerResult",
    "AnswerSkipped",
    "AnthropicAgent",
    "Attempt",
    "CallInUseError",
    "CallMovedError",
    "ChatAgent",
    "Conversation",
    "ConversationStore",
    "ConversationSummarized",
    "Deps",
    "EchoAgent",
    "EndCallRequested",
    "Event",
    "ExtractJson",
    "ExtractTag",
    "FallbackAgent",
    "GeminiAgent",
    "Guess",
    "HealthChanged",
    "HealthRegistry",
    "Image",
    "Item",
    "LocalAgent",
    "MaxStepsError",
    "Message",
    "MessageAdded",
    "MessageCorrected",
    "MicdropError",
    "MistralAgent",
    "MockAgent",
    "ModelAgent",
    "OpenaiAgent",
    "ProviderError",
    "Retry",
    "RoleChanged",
    "SqliteStore",
    "StoreError",
    "Summarize",
    "Timeouts",
    "Tool",
    "ToolCall",
    "ToolCalled",
    "ToolError",
    "ToolFinishedLate",
    "ToolInputError",
    "ToolResult",
    "TraceEvent",
    "Turn",
    "TurnContext",
    "UserMessageCancelled",
    "render_trace",
    "signal_of",
    "tool",
]

_LATE: Final = {
    "Image": "micdrop_agent.images",
    "CallInUseError": "micdrop_agent.store",
    "CallMovedError": "micdrop_agent.store",
    "ConversationStore": "micdrop_agent.store",
    "FallbackAgent": "micdrop_agent.fallback",
    "HealthChanged": "micdrop_agent.fallback",
    "HealthRegistry": "micdrop_agent.fallback",
    "MockAgent": "micdrop_agent.providers.echo",
    "ModelAgent": "micdrop_agent.model.agent",
    "SqliteStore": "micdrop_agent.store",
    "StoreError": "micdrop_agent.store",
    "Summarize": "micdrop_agent.model.options",
    "render_trace": "micdrop_agent.tracing",
}


def __getattr__(name: str) -> Any:
    """Load an agent that needs more than the core when it is first asked for (PEP 562)."""
    module = _LATE.get(name)
    if module is None and name in __all__:
        kinds = import_module("micdrop_agent.providers.kinds").KINDS
        module = next((kind.module for kind in kinds.values() if kind.agent == name), None)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
