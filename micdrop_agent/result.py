"""What is known of an answer once its generation has ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import attrs

if TYPE_CHECKING:
    from micdrop_agent.errors import Attempt
    from micdrop_agent.providers.protocol import FinishReason, Usage

__all__ = ["AnswerResult", "AnswerStatus", "EndStatus"]

EndStatus = Literal["completed", "skipped", "cancelled", "failed"]
AnswerStatus = Literal["running", "completed", "skipped", "cancelled", "failed"]


@attrs.frozen(kw_only=True)
class AnswerResult:
    """The end of one answer.

    Args:
        text: All text that was written for the consumer (for a cancelled answer: received by it).
        status: How the generation ended.
        error: What failed; ``None`` unless ``status`` is ``"failed"``.
        attempts: Children that failed before this answer ended, with their errors.
        usage: Tokens of all its requests, as far as the providers told.
        finish_reason: Why the model stopped, in the last response that said so.
        requests: How many requests were sent.
        time_to_first_chunk: Seconds from ``answer()`` to the first chunk that was written,
            retries and switches included; ``None`` if there was none.
        duration: Seconds from ``answer()`` to the end of the generation.
        extracted: The extracted value; ``None`` if there was none.
    """

    text: str
    status: EndStatus
    error: Exception | None = None
    attempts: tuple[Attempt, ...] = ()
    usage: Usage | None = None
    finish_reason: FinishReason | None = None
    requests: int = 0
    time_to_first_chunk: float | None = None
    duration: float = 0.0
    extracted: Any = None
