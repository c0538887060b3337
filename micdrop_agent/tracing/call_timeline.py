"""A call as bars: who spoke from when to when, and what was waited for in between. No I/O.

result ──▶ stretches() ──▶ Stretch(…) ──▶ the HTML page, OpenTelemetry's spans
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import attrs

if TYPE_CHECKING:
    from micdrop_agent.call import CallResult, CallTurn

__all__ = ["Stretch", "StretchKind", "stretches"]

StretchKind = Literal["speech", "transcript", "answer", "audio"]


@attrs.frozen
class Stretch:
    """Something that took time in a call.

    Args:
        kind: ``speech`` of the caller, the wait for its ``transcript``, an ``answer`` of the agent, or the
            ``audio`` of the assistant, from the first frame on.
        turn: Index of its turn.
        start: Seconds since the call began.
        end: Likewise.
        note: What it was about.
        cut: The caller interrupted it.
    """

    kind: StretchKind
    turn: int
    start: float
    end: float
    note: str = ""
    cut: bool = False


def stretches(result: CallResult) -> list[Stretch]:
    """Everything that took time in a call, turn by turn."""
    return [
        stretch
        for number, turn in enumerate(result.turns)
        for stretch in _of_turn(number, turn, result)
        if stretch.end >= stretch.start
    ]


def _of_turn(number: int, turn: CallTurn, result: CallResult) -> list[Stretch]:
    found: list[Stretch] = []
    stopped = result.duration if turn.speech_end is None else turn.speech_end
    if turn.speech_start is not None:
        found.append(Stretch("speech", number, turn.speech_start, stopped, turn.transcript))
    if turn.transcript_at is not None:
        found.append(Stretch("transcript", number, stopped, turn.transcript_at))
    for began, answer in zip(turn.answered_at, turn.answers, strict=False):
        cut = answer.status == "cancelled"
        found.append(Stretch("answer", number, began, began + answer.duration, answer.status, cut))
    if turn.first_audio_at is not None:
        end = turn.first_audio_at + turn.audio_seconds
        if turn.interrupted:
            # What followed was not heard: the next one to speak has ended it.
            after = [later.speech_start for later in result.turns[number + 1 :] if later.speech_start is not None]
            end = min([end, result.duration, *after[:1]])
        found.append(Stretch("audio", number, turn.first_audio_at, end, "", turn.interrupted))
    return found
