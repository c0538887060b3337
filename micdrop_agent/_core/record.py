"""What is learned while an answer is made: for its result, its trace and its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from micdrop_agent.result import AnswerResult, TraceEvent

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from micdrop_agent._core.ledger import Ledger
    from micdrop_agent.errors import Attempt
    from micdrop_agent.model.protocol import FinishReason, Usage
    from micdrop_agent.result import EndStatus, TraceKind

    Seen: TypeAlias = tuple["Facts", Ledger, EndStatus, int, Exception | None, int, int]
    Known: TypeAlias = tuple[Usage | None, FinishReason | None, int, Any]

__all__ = ["Ending", "Facts"]


class Facts:
    """What is learned while an answer is made; shared by all turns of it.

    Args:
        clock: Seconds on the event loop's clock.
    """

    __slots__ = (
        "attempts",
        "called",
        "clock",
        "ended",
        "ends_call",
        "extracted",
        "filled",
        "filler",
        "finish_reason",
        "first_chunk_at",
        "requests",
        "skipped",
        "started_at",
        "trace",
        "usage",
        "wasted",
    )

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.started_at = clock()
        self.first_chunk_at: float | None = None
        self.usage: Usage | None = None
        self.wasted: Usage | None = None
        """Tokens of guesses before this answer."""
        self.finish_reason: FinishReason | None = None
        self.requests = 0
        self.attempts: list[Attempt] = []
        self.extracted: Any = None
        self.filled = False
        """A tool's filler was said."""
        self.filler: object = None
        """The turn whose hook has said something."""
        self.skipped = False
        self.called = False
        """A tool was called: what was said before cannot be continued."""
        self.ends_call = False
        self.ended = False
        """The author ended the stream early; a later write is an error."""
        self.trace: list[tuple[float, TraceKind, dict[str, Any]]] = []
        """Events of the trace, as the arguments of ``TraceEvent``: most are never looked at."""

    def note(self, kind: TraceKind, /, at: float | None = None, **detail: Any) -> None:
        """Add an event to the trace of the answer."""
        self.trace.append(((self.clock() if at is None else at) - self.started_at, kind, detail))


class Ending:
    """How an answer ended, as it was known at that moment.

    The result is made of it when somebody asks: within ``cancel()`` a caller waits.

    Args:
        facts: Those of the answer; its end was noted last.
        ledger: What it said.
        status: How it ended.
        upto: Characters of the text that belong to the result.
        error: Why it failed.
    """

    __slots__ = ("_known", "_made", "_seen")

    def __init__(self, facts: Facts, ledger: Ledger, status: EndStatus, upto: int, error: Exception | None) -> None:
        self._made: AnswerResult | None = None
        # As known now: a turn that goes on may still learn something. The lists only grow.
        self._seen: Seen = (facts, ledger, status, upto, error, len(facts.attempts), len(facts.trace))
        self._known: Known = (facts.usage, facts.finish_reason, facts.requests, facts.extracted)

    @property
    def result(self) -> AnswerResult:
        """The same result each time."""
        if self._made is None:
            self._made = self._make()
        return self._made

    def _make(self) -> AnswerResult:
        facts, ledger, status, upto, error, attempts, noted = self._seen
        usage, finish_reason, requests, extracted = self._known
        first = facts.first_chunk_at
        ended_at, _, _ = facts.trace[noted - 1]
        return AnswerResult(
            text=ledger.text[:upto],  # nothing is written behind an end
            status=status,
            error=error,
            attempts=tuple(facts.attempts[:attempts]),
            usage=usage,
            wasted=facts.wasted,
            finish_reason=finish_reason,
            requests=requests,
            time_to_first_chunk=None if first is None else first - facts.started_at,
            duration=ended_at,
            extracted=extracted,
            trace=tuple(TraceEvent(*each) for each in facts.trace[:noted]),
        )
