"""The traces of answers as one HTML page: each answer a picture of what ran when. No I/O.

    results ──▶ timeline() ──▶ rows of bars, marks across them, an axis ──▶ one self-contained page

The page loads nothing (its content policy forbids it), runs no script, and follows the light or dark
theme of its reader. All text comes in escaped.
"""

from __future__ import annotations

import html
import re
import statistics
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final

from micdrop_agent.errors import describe_error
from micdrop_agent.tracing.page_style import STYLE
from micdrop_agent.tracing.timeline import Bar, timeline

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from micdrop_agent.result import AnswerResult
    from micdrop_agent.tracing.timeline import Mark, Timeline

__all__ = ["page_of", "render_trace", "safe", "scale_of", "section_of", "time_of"]

SYMBOLS: Final = {"first_chunk": "●", "hedge": "◇", "switch": "⇄", "retry": "↻", "cancel": "■"}
WORDS: Final = {
    "first_chunk": "first chunk",
    "hedge": "hedge: a rival was started",
    "switch": "switch",
    "retry": "retry",
    "cancel": "cancelled",
}
_UNPRINTABLE: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")


def render_trace(results: Iterable[AnswerResult], *, prompts: Sequence[str | None] = (), title: str = "Answers") -> str:
    """One HTML page with the timeline of every answer.

    Args:
        results: The results of the answers, in order (``answer.result``, or of ``AnswerFinished``).
        prompts: What each of them answered, in the same order; shorter or empty is fine.
        title: Title of the page.
    """
    listed = list(results)
    answers = [
        _answer(number, result, prompt)
        for number, (result, prompt) in enumerate(zip_longest(listed, prompts[: len(listed)]), 1)
        if result is not None
    ]
    return page_of(title, _summary(listed), f"{_LEGEND}\n" + "\n".join(answers))


def page_of(title: str, summary: str, body: str) -> str:
    """A page that loads nothing and runs no script; ``summary`` and ``body`` are HTML."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>{_safe(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        f"<h1>{_safe(title)}</h1>\n<p class=summary>{summary}</p>\n{body}"
        "\n</main>\n</body>\n</html>\n"
    )


_LEGEND: Final = (
    "<p class=legend>"
    '<span><i class="swatch answer"></i>answer (pale: waiting for the first word)</span>'
    '<span><i class="swatch attempt"></i>attempt</span>'
    '<span><i class="swatch request"></i>request (pale: waiting for the first byte)</span>'
    '<span><i class="swatch tool"></i>tool</span>'
    '<span><i class="swatch wait"></i>wait before a retry</span>'
    + "".join(f'<span><b class="{kind}">{SYMBOLS[kind]}</b>{WORDS[kind]}</span>' for kind in SYMBOLS)
    + "</p>"
)


def _summary(results: Sequence[AnswerResult]) -> str:
    if not results:
        return "No answer was given."
    statuses = [result.status for result in results]
    counts = ", ".join(f"{statuses.count(status)} {status}" for status in dict.fromkeys(statuses))
    firsts = [result.time_to_first_chunk for result in results if result.time_to_first_chunk is not None]
    median = f" · first chunk after {_time(statistics.median(firsts))} (median)" if firsts else ""
    return f"{len(results)} answer{'s' if len(results) > 1 else ''}: {counts}{median}"


def _answer(number: int, result: AnswerResult, prompt: str | None) -> str:
    lines = timeline(result)
    said = "" if prompt is None else f"<p class=caller><b>Caller</b><span>{_safe(prompt)}</span></p>"
    text = _safe(result.text) if result.text else "<i>nothing was said</i>"
    error = (
        ""
        if result.error is None
        else f"<p class=error><b>Error</b><span>{_safe(describe_error(result.error))}</span></p>"
    )
    return (
        f'<section class="{result.status}" id="answer-{number}">\n'
        f"<h2>Answer {number} <span class=status>{result.status}</span>"
        f"<span class=figures>{_figures(result)}</span></h2>\n"
        f"{said}<p class=agent><b>Agent</b><span>{text}</span></p>{error}\n{_chart(number, lines)}\n{_marks(lines)}\n</section>"
    )


def _figures(result: AnswerResult) -> str:
    figures: list[str] = []
    if result.time_to_first_chunk is not None:
        figures.append(f"first chunk {_time(result.time_to_first_chunk)}")
    figures.append(f"{_time(result.duration)} in all")
    if result.requests:
        figures.append(f"{result.requests} request{'s' if result.requests > 1 else ''}")
    usage = result.usage
    if usage is not None and (usage.input_tokens is not None or usage.output_tokens is not None):
        into, out = ("?" if count is None else f"{count:,}" for count in (usage.input_tokens, usage.output_tokens))
        figures.append(f"{into} tokens in, {out} out")
    return " · ".join(figures)


# -- the picture

_INSTANT: Final = 1e-6
"""Seconds below which nothing can be drawn."""

_FIRST: Final[dict[str, str]] = {"request": "first_byte", "answer": "first"}
"""Where the facts of a bar say until when it only waited."""

_TICK_ROOM: Final = 92
"""Percent of the width behind which the label of a tick stands before it."""

_NOTE_ROOM: Final = 70
"""Percent of the width up to which the note of a bar has room behind it; likewise before it."""


def _chart(number: int, lines: Timeline) -> str:
    if lines.duration < _INSTANT:
        return ""
    scale = _Scale(lines.duration)
    marks = [mark for mark in lines.marks if mark.kind in SYMBOLS]
    rows = [_row(bar, scale) for bar in (_whole(lines), *lines.bars)]
    across = "".join(
        f'<i class="line {mark.kind}" style="left:{scale.percent(mark.at)}" title="{_safe(_told(mark))}"></i>'
        for mark in marks
    )
    symbols = "".join(
        f'<b class="symbol {mark.kind}" style="left:{scale.percent(mark.at)}" title="{_safe(_told(mark))}">'
        f"{SYMBOLS[mark.kind]}</b>"
        for mark in marks
    )
    ticks = "".join(
        f'<span class="tick{" last" if scale.share(at) > _TICK_ROOM else ""}" style="left:{scale.percent(at)}">'
        f"{_time(at)}</span>"
        for at in scale.ticks()
    )
    grid = "".join(f'<i class=grid style="left:{scale.percent(at)}"></i>' for at in scale.ticks())
    label = f"Timeline of answer {number}: {len(lines.bars)} bars over {_time(lines.duration)}"
    return (
        f'<div class=chart role=group aria-label="{label}">\n'
        f"<div class=overlay>{grid}{across}</div>\n"
        f"<div class=row><span class=name></span><div class=track>{symbols}</div></div>\n"
        + "".join(rows)
        + f"<div class=row><span class=name></span><div class=axis>{ticks}</div></div>\n</div>"
    )


def _whole(lines: Timeline) -> Bar:
    """What the caller notices of an answer: how long it was silent, and then how long it spoke."""
    word = next((mark.at for mark in lines.marks if mark.kind == "first_chunk"), None)
    return Bar("answer", "", 0.0, lines.duration, "ok", facts={} if word is None else {"first": word})


class _Scale:
    """Seconds as shares of the width of the picture."""

    def __init__(self, duration: float) -> None:
        self.duration = duration

    def share(self, seconds: float) -> float:
        return min(100.0, max(0.0, 100 * seconds / self.duration))

    def percent(self, seconds: float) -> str:
        return f"{self.share(seconds):.3f}%"

    def ticks(self) -> list[float]:
        """At most nine round moments, the beginning among them."""
        power = 1e-6
        while True:
            for step in (power, 2 * power, 5 * power):
                if self.duration / step <= 8:  # noqa: PLR2004 - more would not fit beside each other
                    return [step * count for count in range(int(self.duration / step + 1e-9) + 1)]
            power *= 10


def _row(bar: Bar, scale: _Scale) -> str:
    start, end = scale.share(bar.start), scale.share(bar.end)
    depth, outer = 0, bar.parent
    while outer is not None:
        depth, outer = depth + 1, outer.parent
    style = f"left:{start:.3f}%;width:{end - start:.3f}%"
    if bar.kind in _FIRST:
        first = bar.facts.get(_FIRST[bar.kind])
        waited = 100.0 if first is None else 100 * (float(first) - bar.start) / max(bar.end - bar.start, 1e-9)
        style += f";--waited:{min(100.0, max(0.0, waited)):.1f}%"
    note = _safe(_note(bar))
    if end <= _NOTE_ROOM:
        where = f'class=note style="left:{end:.3f}%"'
    elif start >= 100 - _NOTE_ROOM:
        where = f'class="note before" style="right:{100 - start:.3f}%"'
    else:
        where = 'class="note inside"'
    name, hover = _safe(bar.name), _safe(_hover(bar))
    return (
        f'<div class=row><span class=name style="padding-left:{depth}em" title="{name}"><em>{bar.kind}</em> '
        f'{name}</span><div class=track><div class="bar {bar.kind} {bar.outcome}" style="{style}" title="{hover}">'
        f"</div><span {where}>{note}</span></div></div>\n"
    )


def _note(bar: Bar) -> str:
    note, first = _time(bar.end - bar.start), bar.facts.get("first")
    if bar.kind == "answer":
        return note if first is None else f"first word after {_time(first)}, then {_time(bar.end - first)} of text"
    if bar.kind == "wait":
        return f"{note} after {bar.name}"
    if bar.outcome == "failed":
        return f"{note}, failed" + (f": {bar.facts['error']}" if "error" in bar.facts else "")
    return note if bar.outcome == "ok" else f"{note}, {bar.outcome}"


def _hover(bar: Bar) -> str:
    facts = dict(bar.facts)
    byte = facts.pop(_FIRST.get(bar.kind, ""), None)
    lines = [
        bar.kind if bar.kind == "answer" else f"{bar.kind} {bar.name}: {bar.outcome}",
        f"from {_time(bar.start)} to {_time(bar.end)} ({_time(bar.end - bar.start)})",
    ]
    if byte is not None:
        lines.append(
            f"first {'byte' if bar.kind == 'request' else 'word'} at {_time(float(byte))}, after {_time(float(byte) - bar.start)}"
        )
    return "\n".join([*lines, *_facts(facts)])


def _told(mark: Mark) -> str:
    return ", ".join([f"{WORDS[mark.kind]} at {_time(mark.at)}", *_facts(mark.facts)])


def _facts(facts: Mapping[str, Any]) -> list[str]:
    return [
        f"{name.replace('_', ' ')}: {_time(value) if name == 'wait' else value}"
        for name, value in facts.items()
        if value is not None
    ]


def _marks(lines: Timeline) -> str:
    told = [
        f'<li><b class="{mark.kind}">{SYMBOLS[mark.kind]}</b> {_safe(_told(mark))}</li>'
        for mark in lines.marks
        if mark.kind in SYMBOLS
    ]
    return f"<ol class=marks>{''.join(told)}</ol>" if told else ""


# -- words


def _time(seconds: float) -> str:
    """A duration with the digits that matter."""
    if seconds < 1e-3:  # noqa: PLR2004
        return f"{seconds * 1e6:.0f} µs" if seconds >= 1e-6 else "0"  # noqa: PLR2004
    if seconds < 1:
        return f"{seconds * 1e3:.3g} ms" if seconds < 0.1 else f"{seconds * 1e3:.0f} ms"  # noqa: PLR2004
    return f"{seconds:.4g} s"


def _safe(text: object) -> str:
    """``text`` for HTML: escaped, and without what no page can show or UTF-8 encode."""
    return html.escape(_UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", str(text)))


# -- for the page of a call


def safe(text: object) -> str:
    """``text`` for HTML."""
    return _safe(text)


def time_of(seconds: float) -> str:
    """A duration with the digits that matter."""
    return _time(seconds)


def section_of(number: int, result: AnswerResult, prompt: str | None) -> str:
    """The section of one answer."""
    return _answer(number, result, prompt)


def scale_of(duration: float) -> _Scale | None:
    """Seconds as shares of a picture; ``None`` if there is nothing to draw."""
    return _Scale(duration) if duration >= _INSTANT else None
