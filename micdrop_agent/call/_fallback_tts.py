"""Several text-to-speech services in a row: the next one says the unsaid rest of the sentence."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import anyio

from micdrop_agent._core.scopes import task_scope
from micdrop_agent.call._fallback import Slot, SpeechAttempts, SpeechFallback
from micdrop_agent.call._marks import Marks
from micdrop_agent.call._tape import Reader, Tape
from micdrop_agent.call._voice import TextFeed, Voice
from micdrop_agent.fallback.attempts import Clocks
from micdrop_agent.options import check_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anyio.abc import ObjectReceiveStream

    from micdrop_agent.call._protocol import TextToSpeech
    from micdrop_agent.fallback.attempts import Try
    from micdrop_agent.fallback.health import HealthRegistry

__all__ = ["FallbackTTS"]


class FallbackTTS(SpeechFallback["TextToSpeech"]):
    """Speaks with the first of several services that can.

    Args:
        children: The services, in the order in which they are asked.
        first_audio_timeout: Seconds from the first text to the first audio of one service.
        audio_gap_timeout: Seconds without audio while there is text to say.
        give_up_after: Seconds for all of them to the first audio; ``None``: none.
        hedge_after: Ask the next healthy one too after so many seconds without audio, or
            ``"p95"``; see ``FallbackAgent``.
        health: Who is in and out; share one between calls. A new one by default.
        prefer: ``"current"``: the one that worked stays; ``"first"``: go back to the first one
            as soon as it is healthy again.
        names: Their names in events and in the registry.

    Raises:
        TypeError: An option has the wrong type.
        ValueError: An option is out of range; the message names it.
    """

    _method: ClassVar[str] = "synthesize"

    def __init__(
        self,
        children: Sequence[TextToSpeech],
        *,
        first_audio_timeout: float | None = 2.0,
        audio_gap_timeout: float | None = 3.0,
        give_up_after: float | None = None,
        hedge_after: float | Literal["p95"] | None = None,
        health: HealthRegistry | None = None,
        prefer: Literal["current", "first"] = "current",
        names: Sequence[str] | None = None,
    ) -> None:
        check_seconds("first_audio_timeout", first_audio_timeout, zero=False, none=True)
        check_seconds("audio_gap_timeout", audio_gap_timeout, zero=False, none=True)
        super().__init__(
            children,
            give_up_after=give_up_after,
            hedge_after=hedge_after,
            health=health,
            prefer=prefer,
            names=names,
        )
        self.first_audio_timeout = first_audio_timeout
        self.audio_gap_timeout = audio_gap_timeout

    async def synthesize(self, text: ObjectReceiveStream[str], voice: Voice) -> None:
        """Say ``text`` with one service after the other, until all of it is said.

        Raises:
            AllAgentsFailedError: None could.
        """
        await _Synthesis(self, text, voice).run()


class _Part:
    """What one service has taken of the text, and said of it."""

    def __init__(self, start: int, first: str | None) -> None:
        self.start = start
        self.first = first
        self.marks = Marks()
        self.pieces: list[str] = []

    def rest(self) -> tuple[int, str | None]:
        """Where the next service begins: the index of a piece, and what is left of it."""
        said = self.marks.voiced()
        for number, piece in enumerate(self.pieces):
            if said < len(piece):
                return self.start + number, piece[said:]
            said -= len(piece)
        return self.start + len(self.pieces), None


class _Synthesis(SpeechAttempts["TextToSpeech", Voice]):
    def __init__(self, fallback: FallbackTTS, text: ObjectReceiveStream[str], voice: Voice) -> None:
        clocks = Clocks(
            first=fallback.first_audio_timeout,
            first_name="first_audio_timeout",
            all=fallback.give_up_after,
            hedge=fallback.hedge_after,
        )
        super().__init__(fallback, voice, clocks)
        self.tape: Tape[str] = Tape(text)
        self.parts: dict[Voice, _Part] = {}
        self.begin_at: tuple[int, str | None] = (0, None)
        self.gap = math.inf if fallback.audio_gap_timeout is None else fallback.audio_gap_timeout
        self.progress_at = math.inf
        self.text = text
        if isinstance(text, TextFeed):
            text.on_more = self._more_text

    def _more_text(self) -> None:
        """There is something to say: the clock begins, if it stood still."""
        assert isinstance(self.text, TextFeed)
        if self.text.waiting <= 1:  # nothing waited before
            self.progress_at = anyio.current_time()
            self.wake()

    @property
    def _all_taken(self) -> bool:
        """Whether no text waits to be said."""
        text = self.text
        return not self.tape.ended and not (isinstance(text, TextFeed) and (text.waiting or text.ended))

    def side_for(self, slot: Slot[TextToSpeech], child: Any, now: float) -> Voice:
        """A voice of its own, which begins where the one before it stopped."""
        del slot, child, now
        part = _Part(*self.begin_at)
        voice = Voice(_PartSink(self, part), task_scope(), self.outer, self.race)
        self.parts[voice] = part
        return voice

    async def ask(self, attempt: Try[Slot[TextToSpeech], Voice]) -> None:
        """Say what is left."""
        part = self.parts[attempt.side]
        await attempt.child.synthesize(
            Reader(self.tape, part.start, first=part.first, took=lambda _, piece: self._took(part, piece)), attempt.side
        )

    def _took(self, part: _Part, piece: str) -> None:
        part.pieces.append(piece)
        part.marks.take(piece)
        self.progress_at = anyio.current_time()
        self.wake()

    def say(self, part: _Part, pcm: bytes, text: str | None) -> None:
        """The winner has written audio."""
        part.marks.audio(len(pcm), text)
        self.progress_at = anyio.current_time()
        self.outer.pass_on(pcm, text)

    async def wait_for_room(self) -> None:
        """It is not the service that is slow while the client does not keep up."""
        self.progress_at = math.inf
        await self.outer.wait_for_room()
        self.progress_at = anyio.current_time()
        self.wake()

    def winner_deadline(self) -> float:
        """While it has text to say it has to go on."""
        winner = self.winner
        assert winner is not None
        part = self.parts[winner.side]
        taken = part.start + len(part.pieces) == len(self.tape.items)
        if taken and self._all_taken and part.marks.stretches[-1].written:
            return math.inf
        return self.progress_at + self.gap

    def fail(self, attempt: Try[Slot[TextToSpeech], Voice], error: Exception) -> None:
        """The next one says what this one did not say."""
        if attempt is self.winner:
            self.begin_at = self.parts[attempt.side].rest()
        super().fail(attempt, error)


class _PartSink:
    """Takes the audio of one service."""

    def __init__(self, synthesis: _Synthesis, part: _Part) -> None:
        self._synthesis = synthesis
        self._part = part

    def say(self, pcm: bytes, text: str | None) -> None:
        """As ``Voice.write``."""
        self._synthesis.say(self._part, pcm, text)

    async def wait_for_room(self) -> None:
        """As that of the call."""
        await self._synthesis.wait_for_room()
