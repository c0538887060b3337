"""What is learned while an answer is made: for its result, its trace and its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import attrs

from micdrop_agent.result import TraceEvent

if TYPE_CHECKING:
    from micdrop_agent.errors import Attempt
    from micdrop_agent.providers.protocol import FinishReason, Usage
    from micdrop_agent.result import TraceKind

__all__ = ["Facts"]


def _no_attempts() -> list[Attempt]:
    return []


def _no_events() -> list[TraceEvent]:
    return []


@attrs.define(eq=False)
class Facts:
    """What is learned while an answer is made; shared by all turns of it."""

    started_at: float
    first_chunk_at: float | None = None
    usage: Usage | None = None
    finish_reason: FinishReason | None = None
    requests: int = 0
    attempts: list[Attempt] = attrs.field(factory=_no_attempts)
    extracted: Any = None
    filler: object = None
    """The turn whose hook has said something."""
    skipped: bool = False
    ends_call: bool = False
    ended: bool = False
    """The author ended the stream early; a later write is an error."""
    trace: list[TraceEvent] = attrs.field(factory=_no_events)

    def note(self, kind: TraceKind, /, at: float | None = None, **detail: Any) -> None:
        """Add an event to the trace of the answer."""
        now = anyio.current_time() if at is None else at
        self.trace.append(TraceEvent(now - self.started_at, kind, detail))
