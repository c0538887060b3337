"""A whole call as one HTML page: who spoke when, and each answer below it. No I/O."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Final

from micdrop_agent.tracing.call_timeline import stretches
from micdrop_agent.tracing.page import page_of, safe, scale_of, section_of, time_of

if TYPE_CHECKING:
    from micdrop_agent.call import CallResult, CallTurn
    from micdrop_agent.tracing.call_timeline import Stretch

__all__ = ["render_call"]

_CLASSES: Final = {"speech": "tool", "transcript": "wait", "answer": "attempt", "audio": "request"}
"""The colours of the page of answers serve here too."""

_NOTE_ROOM: Final = 70
"""Percent of the width up to which a note has room after its bar; otherwise it stands before it."""

_TICK_ROOM: Final = 92
"""Percent of the width after which the label of a tick stands before it."""

_WORDS: Final = {
    "speech": "the caller speaks",
    "transcript": "wait for the transcript",
    "answer": "the agent answers",
    "audio": "the assistant speaks",
}


def render_call(result: CallResult, *, title: str = "Call") -> str:
    """One HTML page with the timeline of a call, and of every answer in it.

    Args:
        result: What ``Call.run()`` has returned.
        title: Title of the page.
    """
    answers = [(turn, answer) for turn in result.turns for answer in turn.answers]
    sections = [section_of(number, answer, turn.transcript or None) for number, (turn, answer) in enumerate(answers, 1)]
    legend = "".join(f'<span><i class="swatch {_CLASSES[kind]}"></i>{words}</span>' for kind, words in _WORDS.items())
    body = f"<p class=legend>{legend}</p>\n{_chart(result)}\n{_table(result)}\n" + "\n".join(sections)
    return page_of(title, _summary(result), body)


def _summary(result: CallResult) -> str:
    waits = [wait for turn in result.turns if (wait := response_time(turn)) is not None]
    median = f" · first audio after {time_of(statistics.median(waits))} (median)" if waits else ""
    cut = f" · {result.interruptions} interrupted" if result.interruptions else ""
    return f"{len(result.turns)} turn{'' if len(result.turns) == 1 else 's'} in {time_of(result.duration)}{median}{cut}"


def response_time(turn: CallTurn) -> float | None:
    """Seconds from the end of the caller's speech to the first audio; ``None`` without either."""
    if turn.speech_end is None or turn.first_audio_at is None:
        return None
    return turn.first_audio_at - turn.speech_end


def _chart(result: CallResult) -> str:
    scale = scale_of(result.duration)
    if scale is None:
        return ""
    rows = "".join(_row(stretch, scale.share(stretch.start), scale.share(stretch.end)) for stretch in stretches(result))
    grid = "".join(f'<i class=grid style="left:{scale.percent(at)}"></i>' for at in scale.ticks())
    ticks = "".join(
        f'<span class="tick{" last" if scale.share(at) > _TICK_ROOM else ""}" style="left:{scale.percent(at)}">'
        f"{time_of(at)}</span>"
        for at in scale.ticks()
    )
    return (
        '<section><div class=chart role=group aria-label="Timeline of the call">\n'
        f"<div class=overlay>{grid}</div>\n{rows}"
        f"<div class=row><span class=name></span><div class=axis>{ticks}</div></div>\n</div></section>"
    )


def _row(stretch: Stretch, start: float, end: float) -> str:
    name = f"{stretch.turn + 1} {stretch.kind}"
    took = time_of(stretch.end - stretch.start)
    hover = f"{_WORDS[stretch.kind]}, from {time_of(stretch.start)} to {time_of(stretch.end)}"
    note = f"{took}, interrupted" if stretch.cut else took
    place = f'style="left:{end:.3f}%"' if end <= _NOTE_ROOM else f'style="right:{100 - start:.3f}%"'
    where = f'class="note{"" if end <= _NOTE_ROOM else " before"}" {place}'
    return (
        f"<div class=row><span class=name>{name}</span><div class=track>"
        f'<div class="bar {_CLASSES[stretch.kind]} {"cut" if stretch.cut else "ok"}" '
        f'style="left:{start:.3f}%;width:{end - start:.3f}%;--waited:0%" title="{safe(hover)}"></div>'
        f"<span {where}>{safe(note)}</span></div></div>\n"
    )


def _table(result: CallResult) -> str:
    rows = "".join(
        f"<li><b>{number}</b> {safe(turn.transcript) or ('<i>the assistant begins</i>' if turn.speech_start is None else '<i>no words</i>')}"
        f"{'' if (wait := response_time(turn)) is None else f' · first audio after {time_of(wait)}'}</li>"
        for number, turn in enumerate(result.turns, 1)
    )
    return f"<section><ol class=marks>{rows}</ol></section>"
