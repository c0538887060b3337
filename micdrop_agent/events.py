"""What an agent reports: one frozen class for each kind of event.

State first, event second: when a listener runs, the change that an event reports has been made.
``agent.on(MessageAdded, listener)`` and ``agent.events()`` deliver them; see ``_core.event_hub``.

Source: Micdrop page "Agent (LLM)", section Events.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

import attrs

from micdrop_agent.errors import AllAgentsFailedError, ProviderError

if TYPE_CHECKING:
    from micdrop_agent.errors import FailureKind
    from micdrop_agent.messages import Item, Message, ToolCall, ToolResult
    from micdrop_agent.result import AnswerResult

__all__ = [
    "EVENT_TYPES",
    "AgentSwitched",
    "AnswerFailed",
    "AnswerFinished",
    "AnswerSkipped",
    "ConversationSummarized",
    "EndCallRequested",
    "Event",
    "MessageAdded",
    "MessageCorrected",
    "RoleChanged",
    "ToolCalled",
    "ToolFinishedLate",
    "UserMessageCancelled",
]


@attrs.frozen
class MessageAdded:
    """An item entered the conversation.

    Args:
        message: The message, tool call or tool result.
        index: Where it stands; not always the end: a result stands right after its call,
            an interrupted text before what the caller said into it.

    Source: Micdrop event ``Message``.
    """

    message: Item
    index: int


@attrs.frozen
class MessageCorrected:
    """A stored item was replaced, because less of it was heard than was stored.

    Args:
        old: The item as it was.
        new: The item as it is now; ``None`` if nothing of it was heard and it is gone.
        index: Where it stands, or stood.
    """

    old: Item
    new: Item | None
    index: int


@attrs.frozen
class ConversationSummarized:
    """The oldest turns were replaced by a summary of them.

    Args:
        old: What is gone.
        summary: The message in its place, with ``metadata["summary"]``.
        index: Where it stands.
    """

    old: tuple[Item, ...]
    summary: Message
    index: int


@attrs.frozen
class UserMessageCancelled:
    """The user message was noise and has been taken out of the conversation.

    Args:
        message: The message; ``None`` if there was none to take out.
        index: Where it stood; ``None`` if there was none.

    Source: Micdrop event ``CancelLastUserMessage``.
    """

    message: Message | None
    index: int | None = None


@attrs.frozen
class AnswerSkipped:
    """The agent says nothing this time: the turn is the caller's again.

    Source: Micdrop event ``SkipAnswer``.
    """


@attrs.frozen
class EndCallRequested:
    """The call should end now; comes after the last chunk of the farewell was handed over.

    Source: Micdrop event ``EndCall``.
    """


@attrs.frozen
class ToolCalled:
    """A tool with ``emit_output=True`` has run.

    Args:
        name: Name of the tool.
        parameters: Its arguments, decoded.
        output: What it returned; ``None`` if nothing.

    Source: Micdrop event ``ToolCall``.
    """

    name: str
    parameters: Any
    output: Any


@attrs.frozen
class ToolFinishedLate:
    """A tool with ``on_cancel="detach"`` has ended after its answer was cancelled; comes when nobody speaks.

    Its result was added to the conversation behind a call of its own, so ``agent.answer()`` speaks of it.

    Args:
        call: The call as the model made it.
        result: The result that was added.
    """

    call: ToolCall
    result: ToolResult


@attrs.frozen
class AnswerFailed:
    """The answer failed for good, after every retry and every child.

    Args:
        error: A ``ProviderError``, an ``AllAgentsFailedError``, or what your own code raised.

    Source: Micdrop event ``Failed``.
    """

    error: Exception

    @property
    def kind(self) -> FailureKind | Literal["all_failed", "bug"]:
        """What sort of failure it is: the ``kind`` of a ``ProviderError``, else which of the others it is."""
        match self.error:
            case ProviderError():
                return self.error.kind
            case AllAgentsFailedError():
                return "all_failed"
            case _:
                return "bug"


@attrs.frozen
class AgentSwitched:
    """A ``FallbackAgent`` went on to its next child within an answer.

    Args:
        from_: Name of the child that failed or was too slow.
        to: Name of the child that answers now.
        reason: Why: the error of the first, or a ``TimeoutError`` for one that lost a hedge.
        restarted: Text was already received and the new child starts from the beginning:
            the host should drop the audio it has not played yet.
    """

    from_: str
    to: str
    reason: Exception
    restarted: bool = False


@attrs.frozen
class RoleChanged:
    """The agent has another system prompt, or other tools, from now on.

    Args:
        old: The system prompt as it was; it stands at the beginning of the conversation.
        new: The system prompt as it is now.
        tools: Names of the tools that it has now.
    """

    old: Message
    new: Message
    tools: tuple[str, ...]


@attrs.frozen
class AnswerFinished:
    """The generation of an answer ended, one way or another; comes once for each answer.

    Args:
        result: Text, status, usage, times and error.
    """

    result: AnswerResult


Event: TypeAlias = (
    MessageAdded
    | MessageCorrected
    | ConversationSummarized
    | UserMessageCancelled
    | AnswerSkipped
    | EndCallRequested
    | ToolCalled
    | ToolFinishedLate
    | AnswerFailed
    | AgentSwitched
    | RoleChanged
    | AnswerFinished
)
EVENT_TYPES: Final[tuple[type[Event], ...]] = get_args(Event)
