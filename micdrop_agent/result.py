"""What is known of an answer once its generation has ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import attrs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from micdrop_agent.errors import Attempt
    from micdrop_agent.model.protocol import FinishReason, Usage

__all__ = ["AnswerResult", "AnswerStatus", "EndStatus", "TraceEvent", "TraceKind"]

EndStatus = Literal["completed", "skipped", "cancelled", "failed"]
TraceKind = Literal[
    "attempt",
    "request",
    "headers",
    "first_chunk",
    "response",
    "tool_started",
    "tool_ended",
    "retry",
    "hedge",
    "failed_attempt",
    "switch",
    "pause",
    "resume",
    "cancel",
    "end",
]
AnswerStatus = Literal["running", "completed", "skipped", "cancelled", "failed"]


@attrs.frozen
class TraceEvent:
    """Something that happened while an answer was made.

    Args:
        at: Seconds since ``answer()`` was called.
        kind: What happened: ``attempt`` (a child of a ``FallbackAgent`` was asked), ``request``
            (a request was sent), ``headers`` (its status line came), ``first_chunk`` (the first
            text of the answer was written), ``response`` (the response was over, complete or not;
            ``request``, ``headers`` and ``response`` have the same ``number``), ``tool_started``, ``tool_ended``, ``retry`` (a wait
            before another request), ``hedge`` (a rival was started), ``failed_attempt``,
            ``switch`` (another child answers now), ``pause``, ``resume``, ``cancel``, ``end``.
        detail: Facts, by name: ``agent``, ``provider``, ``tool``, ``error``, ``wait`` and so on.
            Never the text of the conversation.
    """

    at: float
    kind: TraceKind
    detail: Mapping[str, Any]


def _no_trace() -> tuple[TraceEvent, ...]:
    return ()


@attrs.frozen(kw_only=True)
class AnswerResult:
    """The end of one answer.

    Args:
        text: All text that was written for the consumer (for a cancelled answer: received by it).
        status: How the generation ended.
        error: What failed; ``None`` unless ``status`` is ``"failed"``.
        attempts: Children that failed before this answer ended, with their errors.
        usage: Tokens of all its requests, as far as the providers told.
        wasted: Tokens of guesses that were discarded before this answer, as far as the providers told.
        finish_reason: Why the model stopped, in the last response that said so.
        requests: How many requests were sent.
        time_to_first_chunk: Seconds from ``answer()`` to the first chunk that was written,
            retries and switches included; ``None`` if there was none.
        duration: Seconds from ``answer()`` to the end of the generation.
        extracted: The extracted value; ``None`` if there was none.
        trace: What happened, in order, with times.
    """

    text: str
    status: EndStatus
    error: Exception | None = None
    attempts: tuple[Attempt, ...] = ()
    usage: Usage | None = None
    wasted: Usage | None = None
    finish_reason: FinishReason | None = None
    requests: int = 0
    time_to_first_chunk: float | None = None
    duration: float = 0.0
    extracted: Any = None
    trace: tuple[TraceEvent, ...] = attrs.field(factory=_no_trace, repr=False)
