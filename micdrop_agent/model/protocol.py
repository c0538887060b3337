"""What the turn loop and a model provider say to each other.

    ModelAgent ── Request ──▶ Provider.open() ──▶ ProviderStream.receive() ──▶ ProviderEvent …

A provider translates: a request into bytes, the bytes that come back into events. It owns no
conversation, no retries, no clocks and no tools.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias

import attrs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from micdrop_agent.messages import Item
    from micdrop_agent.tools import Tool

__all__ = [
    "PROGRESS",
    "TEXT_DONE",
    "CallReady",
    "Finish",
    "FinishReason",
    "Progress",
    "Provider",
    "ProviderEvent",
    "ProviderStream",
    "Refusal",
    "Request",
    "TextDone",
    "Usage",
]

FinishReason = Literal["stop", "length", "tool_calls", "content_filter", "other"]


@attrs.frozen
class Refusal:
    """A part of a refusal; it is spoken like text and marks the stored message."""

    text: str


@attrs.frozen
class CallReady:
    """A tool call that is complete.

    Args:
        id: The provider's id of the call, or one made up by the provider's translation.
        name: Name of the tool.
        arguments: The JSON text that the model wrote.
        extra: What the server attached to it and wants back; for the translation's own use.
    """

    id: str
    name: str
    arguments: str
    extra: Mapping[str, Any] = attrs.field(factory=dict[str, Any], eq=False, repr=False)


@attrs.frozen(kw_only=True)
class Usage:
    """Tokens of one response, as far as the provider reported them; ``+`` adds two of them.

    A provider that goes on counting while it answers gives several: each one says what was added.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None

    def __add__(self, other: Usage) -> Usage:
        """The sum; a figure that only one of them has is kept."""
        return Usage(
            input_tokens=_add(self.input_tokens, other.input_tokens),
            output_tokens=_add(self.output_tokens, other.output_tokens),
            cached_tokens=_add(self.cached_tokens, other.cached_tokens),
            reasoning_tokens=_add(self.reasoning_tokens, other.reasoning_tokens),
        )

    def __sub__(self, other: Usage) -> Usage:
        """What is here on top of ``other``; figures that are the same are left out."""
        return Usage(
            input_tokens=_more(self.input_tokens, other.input_tokens),
            output_tokens=_more(self.output_tokens, other.output_tokens),
            cached_tokens=_more(self.cached_tokens, other.cached_tokens),
            reasoning_tokens=_more(self.reasoning_tokens, other.reasoning_tokens),
        )


def _more(now: int | None, before: int | None) -> int | None:
    return None if now is None or now == before else now - (before or 0)


def _add(left: int | None, right: int | None) -> int | None:
    if left is None or right is None:
        return right if left is None else left
    return left + right


@attrs.frozen
class Finish:
    """The provider said that the response is complete.

    Args:
        reason: Why it ended.
        raw: The provider's own word for it.
        doubtful: It came with the first words or before them: some servers send a reason with every
            chunk, so more may follow.
    """

    reason: FinishReason
    raw: str | None = None
    doubtful: bool = attrs.field(default=False, eq=False)


@attrs.frozen
class Progress:
    """Useful output that is not text yet (a part of a tool call): resets the chunk clock."""


@attrs.frozen
class TextDone:
    """A stretch of text is complete although the response goes on: it is stored now."""


PROGRESS: Final = Progress()
TEXT_DONE: Final = TextDone()

ProviderEvent: TypeAlias = str | Refusal | CallReady | Usage | Finish | Progress | TextDone
"""A plain ``str`` is a piece of text to be spoken: the commonest event has no wrapper."""


@attrs.frozen(kw_only=True)
class Request:
    """What is asked of a model in one step.

    Args:
        items: The conversation, its first item the system prompt of the agent that asks.
            Never changed for a provider's sake.
        tools: The tools offered; empty in the last step of a turn that ran out of steps.
        declared: Tools that may not be called now, but that calls in ``items`` may be of.
        first: Whether this is the first request of an answer. Only there a setting may force a call.
        continue_from: Text that was already spoken for this answer by another provider; the
            model is asked to go on from there. It is not an item of the conversation.
    """

    items: Sequence[Item]
    tools: Sequence[Tool] = ()
    declared: Sequence[Tool] = ()
    first: bool = True
    continue_from: str | None = None


class ProviderStream(Protocol):
    """The response to one request."""

    async def receive(self) -> list[ProviderEvent] | None:
        """The events of one network read (may be empty); ``None`` after the proper end.

        Raises:
            ProviderError: The stream was cut, or an error came inside it.
        """
        ...

    async def aclose(self) -> None:
        """Give the connection back if the response was read to its end, else close it."""
        ...


class Provider(Protocol):
    """Translates for one model server; made by a model agent, closed with it."""

    @property
    def name(self) -> str:
        """Name for errors and logs, without any secret."""
        ...

    async def open(self, request: Request) -> ProviderStream:
        """Send ``request`` and wait for the status line.

        Raises:
            ProviderError: Refused, failed, or no connection.
        """
        ...

    async def prewarm(self) -> None:
        """Have a connection ready for the next request; does nothing when there is one."""
        ...

    async def aclose(self) -> None:
        """Close every connection."""
        ...
