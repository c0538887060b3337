"""What a call was: its turns with their times, for logs, metrics and tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from micdrop_agent._core.answer import Answer
    from micdrop_agent.messages import Item
    from micdrop_agent.result import AnswerResult

__all__ = ["CallResult", "CallTurn", "TurnRecord"]


@attrs.frozen(kw_only=True)
class CallTurn:
    """One turn: the caller speaks, and what follows. All times in seconds since the call began.

    The first turn of a call that the assistant opens has no speech. A time is ``None`` where that
    did not happen.
    """

    speech_start: float | None = None
    """The client reported that the caller speaks."""

    speech_end: float | None = None
    """The client reported that the caller has stopped."""

    transcript: str = ""
    """What the caller said."""

    transcript_at: float | None = None
    """The last of it was known."""

    first_word_at: float | None = None
    """The agent's first text."""

    first_audio_at: float | None = None
    """The first audio was handed to the connection."""

    audio_seconds: float = 0.0
    """Audio that was sent."""

    interrupted: bool = False
    """The caller spoke, or paused, before all of it was heard."""

    answers: tuple[AnswerResult, ...] = ()
    """The answers of the agent; more than one if more words came while it was answering."""

    answered_at: tuple[float, ...] = ()
    """When each of them was begun."""


@attrs.frozen(kw_only=True)
class CallResult:
    """A call that has ended."""

    conversation: tuple[Item, ...]
    """The items of the conversation at the end."""

    duration: float
    """Seconds."""

    turns: tuple[CallTurn, ...]
    """The turns, in order."""

    @property
    def interruptions(self) -> int:
        """How many turns of the assistant the caller interrupted."""
        return sum(turn.interrupted for turn in self.turns)


def _nothing() -> list[tuple[float, Answer]]:
    return []


def _no_words() -> list[str]:
    return []


@attrs.define(eq=False)
class TurnRecord:
    """A turn while it happens; times on the loop's clock."""

    speech_start: float | None = None
    speech_end: float | None = None
    words: list[str] = attrs.field(factory=_no_words)
    transcript_at: float | None = None
    first_word_at: float | None = None
    first_audio_at: float | None = None
    audio_bytes: int = 0
    interrupted: bool = False
    answers: list[tuple[float, Answer]] = attrs.field(factory=_nothing)

    @property
    def is_something(self) -> bool:
        """Whether anything has happened in it."""
        return bool(self.speech_start is not None or self.answers or self.audio_bytes)

    def seal(self, began: float) -> CallTurn:
        """The turn with times since ``began``."""

        def since(at: float | None) -> float | None:
            return None if at is None else at - began

        ended = [(at, answer) for at, answer in self.answers if answer.status != "running"]
        return CallTurn(
            speech_start=since(self.speech_start),
            speech_end=since(self.speech_end),
            transcript=" ".join(self.words),
            transcript_at=since(self.transcript_at),
            first_word_at=since(self.first_word_at),
            first_audio_at=since(self.first_audio_at),
            audio_seconds=self.audio_bytes / 32_000,
            interrupted=self.interrupted,
            answers=tuple(answer.result for _, answer in ended),
            answered_at=tuple(at - began for at, _ in ended),
        )
