"""The trace of an answer as bars and marks: what ran from when to when, and within what. No I/O.

result.trace ──▶ timeline() ──▶ Timeline(bars, marks) ──▶ the HTML page, OpenTelemetry's spans
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from micdrop_agent.result import AnswerResult, TraceEvent, TraceKind

__all__ = ["Bar", "BarKind", "Mark", "Outcome", "Timeline", "timeline"]

BarKind = Literal["answer", "attempt", "request", "tool", "wait"]
Outcome = Literal["ok", "failed", "cut", "lost"]


@attrs.define(eq=False)
class Bar:
    """Something that took time.

    Args:
        kind: ``attempt`` (a child of a ``FallbackAgent``), ``request``, ``tool``, ``wait`` (before a
            retry), or ``answer`` (the whole of it, only on the page).
        name: Name of the agent, the model, the tool, or the error that is waited for.
        start: Seconds since ``answer()`` was called.
        end: Likewise.
        outcome: ``ok``, ``failed``, ``cut`` (by the end of the answer, or a barge-in), or
            ``lost`` (another attempt was faster).
        parent: The attempt in which it ran; ``None`` outside a ``FallbackAgent``.
        facts: Details of the events that it was made of.
    """

    kind: BarKind
    name: str
    start: float
    end: float
    outcome: Outcome = "cut"
    parent: Bar | None = None
    facts: dict[str, Any] = attrs.field(factory=dict[str, Any])

    def within(self, other: Bar) -> bool:
        """Whether this is ``other``, or ran in it."""
        bar: Bar | None = self
        while bar is not None and bar is not other:
            bar = bar.parent
        return bar is other


@attrs.frozen
class Mark:
    """Something that happened at one moment: ``first_chunk``, ``hedge``, ``switch``, ``retry``, ``cancel``, ``end``."""

    at: float
    kind: TraceKind
    facts: Mapping[str, Any]


@attrs.frozen
class Timeline:
    """What happened while an answer was made.

    Args:
        duration: Seconds from ``answer()`` to the end of the generation.
        bars: In the order in which they began.
        marks: In the order in which they happened.
    """

    duration: float
    bars: tuple[Bar, ...]
    marks: tuple[Mark, ...]


def timeline(result: AnswerResult) -> Timeline:
    """The timeline of an answer that has ended."""
    reader = _Reader(result)
    for event in result.trace:
        reader.read(event)
    return reader.finish()


_MARKS: Final[frozenset[TraceKind]] = frozenset({"first_chunk", "hedge", "switch", "retry", "cancel", "end"})


class _Reader:
    def __init__(self, result: AnswerResult) -> None:
        self._result = result
        self._duration = max([result.duration, *(event.at for event in result.trace)])
        self._bars: list[Bar] = []
        self._marks: list[Mark] = []
        self._attempts: list[Bar] = []
        self._requests: dict[Any, Bar] = {}
        self._tools: dict[Any, Bar] = {}
        self._steps: dict[TraceKind, Callable[[TraceEvent], None]] = {
            "attempt": self._attempt,
            "hedge": self._attempt,
            "failed_attempt": self._failed_attempt,
            "request": self._request,
            "headers": self._headers,
            "response": self._response,
            "first_chunk": self._claimed,
            "tool_started": self._tool,
            "tool_ended": self._tool_ended,
            "retry": self._wait,
        }

    def read(self, event: TraceEvent) -> None:
        step = self._steps.get(event.kind)
        if step is not None:
            step(event)
        if event.kind in _MARKS:
            self._marks.append(Mark(event.at, event.kind, event.detail))

    def finish(self) -> Timeline:
        for bar in self._attempts:
            if self._result.status in {"completed", "skipped"}:
                bar.outcome = "ok"
        return Timeline(self._duration, tuple(self._bars), tuple(self._marks))

    def _open(self, event: TraceEvent, kind: BarKind, name: str) -> Bar:
        bar = Bar(kind, name, event.at, self._duration, facts=dict(event.detail), parent=self._attempt_of(event))
        self._bars.append(bar)
        return bar

    def _attempt_of(self, event: TraceEvent) -> Bar | None:
        name = event.detail.get("agent")
        return next((bar for bar in reversed(self._attempts) if bar.name == name), None)

    def _close(self, bars: list[Bar], at: float, outcome: Outcome) -> None:
        for bar in bars:
            self._attempts.remove(bar)
            bar.end, bar.outcome = at, outcome

    # -- attempts

    def _attempt(self, event: TraceEvent) -> None:
        bar = self._open(event, "attempt", str(event.detail.get("agent")))
        # Only a hedge runs beside another attempt of its own agent; any other runs within it.
        bar.parent = self._attempts[-1] if self._attempts else None
        if event.kind == "hedge" and bar.parent is not None:
            bar.parent = bar.parent.parent
        self._attempts.append(bar)

    def _failed_attempt(self, event: TraceEvent) -> None:
        failed = self._attempt_of(event)
        if failed is None:  # its factory raised: it never began
            failed = self._open(event, "attempt", str(event.detail.get("agent")))
            self._attempts.append(failed)
        failed.facts |= event.detail
        self._close([bar for bar in self._attempts if bar.within(failed)], event.at, "failed")

    def _claimed(self, event: TraceEvent) -> None:
        """One of several attempts has won: the others end here."""
        winner = self._attempt_of(event)
        if winner is not None:
            self._close([bar for bar in self._attempts if not winner.within(bar)], event.at, "lost")

    # -- within them

    def _request(self, event: TraceEvent) -> None:
        name = str(event.detail.get("model") or event.detail.get("provider"))
        self._requests[event.detail.get("number")] = self._open(event, "request", name)

    def _headers(self, event: TraceEvent) -> None:
        bar = self._requests.get(event.detail.get("number"))
        if bar is not None:
            bar.facts["first_byte"] = event.at

    def _response(self, event: TraceEvent) -> None:
        bar = self._requests.get(event.detail.get("number"))
        if bar is not None:
            bar.end = event.at
            bar.facts |= event.detail
            bar.outcome = "failed" if "error" in event.detail else "ok" if "finish" in event.detail else "cut"

    def _tool(self, event: TraceEvent) -> None:
        self._claimed(event)
        self._tools[event.detail.get("call")] = self._open(event, "tool", str(event.detail.get("tool")))

    def _tool_ended(self, event: TraceEvent) -> None:
        bar = self._tools.pop(event.detail.get("call"), None)
        if bar is not None:
            bar.end = event.at
            bar.facts |= event.detail
            bar.outcome = "failed" if event.detail.get("failed") else "ok"

    def _wait(self, event: TraceEvent) -> None:
        bar = self._open(event, "wait", str(event.detail.get("error")))
        bar.end = min(self._duration, event.at + float(event.detail.get("wait", 0.0)))
        bar.outcome = "ok"
