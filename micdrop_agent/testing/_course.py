"""The course of an answer as lines of text: what ``trace`` shows as a picture, for the message of a failed test. No I/O.

0  request 1 to gpt-4o
250 ms  ● first chunk
250 ms  says "We open "
500 ms  end: completed
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from micdrop_agent.tracing.page import SYMBOLS, WORDS, time_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from micdrop_agent.result import TraceEvent

__all__ = ["course_of", "quoted", "shortened"]

_LONGEST: Final = 300
"""Characters of a tool's arguments or output that are shown."""

_TIME_WIDTH: Final = 8


def course_of(
    events: Sequence[TraceEvent], chunks: Iterable[tuple[int, float, str]], calls: Mapping[str, tuple[str, str | None]]
) -> str:
    """One line for each thing that happened, in order.

    Args:
        events: The trace of the answer.
        chunks: What its consumer received: how many of ``events`` there were then, when, and the text.
        calls: Arguments and output of each tool call, by its id.
    """
    # What was said goes before the end that comes in the same moment.
    last = len(events) - bool(events and events[-1].kind == "end")
    found = [(number, 1, event.at, _told(event, calls)) for number, event in enumerate(events)]
    found += [(min(seen, last), 0, at, chunk) for seen, at, chunk in chunks]
    found.sort(key=lambda one: one[:2])
    lines: list[tuple[float, bool, str]] = []
    for _, is_event, at, text in found:
        said = not is_event
        if said and lines and lines[-1][1]:
            lines[-1] = lines[-1][0], True, lines[-1][2] + text
        else:
            lines.append((at, said, text))
    return "\n".join(
        f"{time_of(at):>{_TIME_WIDTH}}  {f'says {quoted(text)}' if said else text}" for at, said, text in lines
    )


def quoted(text: str) -> str:
    """``text`` in double quotes, on one line."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def shortened(text: str) -> str:
    """``text`` on one line, cut where it is long."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"


def _told(event: TraceEvent, calls: Mapping[str, tuple[str, str | None]]) -> str:
    teller = _TELLERS.get(event.kind)
    if teller is not None:
        return teller(event.detail, calls)
    return " ".join([_symbol(event.kind) + WORDS.get(event.kind, event.kind), *_facts(event.detail)])


def _symbol(kind: str) -> str:
    return f"{SYMBOLS[kind]} " if kind in SYMBOLS else ""


def _facts(detail: Mapping[str, Any], *but: str) -> list[str]:
    facts = [
        f"{name.replace('_', ' ')}: {time_of(value) if name == 'wait' else value}"
        for name, value in detail.items()
        if value is not None and name not in but
    ]
    return [f"({', '.join(facts)})"] if facts else []


def _request(detail: Mapping[str, Any], _calls: object) -> str:
    to = detail.get("model") or detail.get("provider")
    return f"request {detail.get('number')} to {to}"


def _headers(detail: Mapping[str, Any], _calls: object) -> str:
    return f"response {detail.get('number')} begins"


def _response(detail: Mapping[str, Any], _calls: object) -> str:
    return " ".join([f"response {detail.get('number')} is over", *_facts(detail, "number")])


def _attempt(detail: Mapping[str, Any], _calls: object) -> str:
    return f"asks {detail.get('agent')}"


def _failed_attempt(detail: Mapping[str, Any], _calls: object) -> str:
    return " ".join([f"{detail.get('agent')} failed", *_facts(detail, "agent")])


def _switch(detail: Mapping[str, Any], _calls: object) -> str:
    again = ", which starts again" if detail.get("restarted") else ""
    return f"{_symbol('switch')}switch from {detail.get('old')} to {detail.get('new')}{again}"


def _tool_started(detail: Mapping[str, Any], calls: Mapping[str, tuple[str, str | None]]) -> str:
    arguments, _ = calls.get(str(detail.get("call")), ("", None))
    return f"calls {detail.get('tool')}({shortened(arguments)})"


def _tool_ended(detail: Mapping[str, Any], calls: Mapping[str, tuple[str, str | None]]) -> str:
    _, output = calls.get(str(detail.get("call")), ("", None))
    told = "" if output is None else f": {shortened(output)}"
    return f"{detail.get('tool')} {'failed' if detail.get('failed') else 'returned'}{told}"


def _end(detail: Mapping[str, Any], _calls: object) -> str:
    error = f", {detail['error']}" if detail.get("error") else ""
    return f"end: {detail.get('status')}{error}"


_TELLERS: Final[dict[str, Callable[[Mapping[str, Any], Mapping[str, tuple[str, str | None]]], str]]] = {
    "request": _request,
    "headers": _headers,
    "response": _response,
    "attempt": _attempt,
    "failed_attempt": _failed_attempt,
    "switch": _switch,
    "tool_started": _tool_started,
    "tool_ended": _tool_ended,
    "end": _end,
}
