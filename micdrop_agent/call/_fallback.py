"""Several speech services in a row: when one fails, the next goes on within the same sentence.

    FallbackSTT([a, b]) ── the turn's audio, again from where the text stops ──▶ b
    FallbackTTS([a, b]) ── the unsaid rest of the sentence ────────────────────▶ b

Both are supervisors on the same machinery as ``FallbackAgent`` (attempts, claim, clocks, hedge,
health) and report ``AgentSwitched``.
"""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar

import anyio

from micdrop_agent._core.event_hub import EventHub
from micdrop_agent._core.log import SafeLog
from micdrop_agent._core.scopes import task_scope
from micdrop_agent.call._frames import BYTES_PER_SECOND
from micdrop_agent.call._hearing import Hearing
from micdrop_agent.call._marks import Marks
from micdrop_agent.call._options import check_part
from micdrop_agent.call._rival import Race, Rival
from micdrop_agent.call._tape import Reader, Tape
from micdrop_agent.call._voice import TextFeed, Voice
from micdrop_agent.events import AgentSwitched
from micdrop_agent.fallback.attempts import Attempts, Clocks
from micdrop_agent.fallback.health import HealthRegistry
from micdrop_agent.fallback.rotation import Rotation
from micdrop_agent.options import check_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from anyio.abc import ObjectReceiveStream, TaskGroup

    from micdrop_agent.call._protocol import SpeechToText, TextToSpeech
    from micdrop_agent.fallback.attempts import Try

__all__ = ["FallbackSTT", "FallbackTTS"]

C = TypeVar("C")
X = TypeVar("X", bound=Rival)

OVERLAP: float = 1.0
"""Seconds of audio before the last known text that the next speech-to-text hears again: a word twice is
the smaller fault, a word lost is the greater one."""


class Slot(Generic[C]):
    """The place of one service."""

    def __init__(self, index: int, child: C, key: str) -> None:
        self.index = index
        self.child = child
        self.key = key


class SpeechFallback(Generic[C]):
    """What both have in common: the services, their health, and who is told of a switch."""

    keeps_time: ClassVar[bool] = True
    """A call leaves the clocks to it."""

    _method: ClassVar[str]

    def __init__(
        self,
        children: Sequence[C],
        *,
        give_up_after: float | None,
        hedge_after: float | Literal["p95"] | None,
        health: HealthRegistry | None,
        prefer: Literal["current", "first"],
        names: Sequence[str] | None,
    ) -> None:
        listed = list(children)
        if not listed:
            raise ValueError("a fallback needs at least one service")
        for index, child in enumerate(listed):
            check_part(f"number {index}", child, self._method)
        check_seconds("give_up_after", give_up_after, zero=False, none=True)
        if hedge_after != "p95":
            check_seconds("hedge_after", hedge_after, zero=False, none=True)
        if prefer not in {"current", "first"}:
            raise ValueError(f"prefer must be 'current' or 'first', not {prefer!r}")
        keys = _names(listed, names)
        self.slots = [Slot(index, child, key) for index, (child, key) in enumerate(zip(listed, keys, strict=True))]
        self.health: HealthRegistry = HealthRegistry() if health is None else health
        self.give_up_after = give_up_after
        self.hedge_after = hedge_after
        self.prefer = prefer
        self.active = 0
        """Index of the service that is asked first."""
        self.log = SafeLog(logging.getLogger("micdrop_agent.call"))
        self.hub = EventHub(self, self.log)

    @property
    def active_name(self) -> str:
        """Name of the service that is asked first."""
        return self.slots[self.active].key

    def on(self, event_type: type[AgentSwitched], listener: Callable[[AgentSwitched], object]) -> Callable[[], None]:
        """Call ``listener`` for each switch from one service to another; returns what removes it."""
        return self.hub.on(event_type, listener)

    def rotation(self) -> Rotation[Slot[C]]:
        """The services in the order in which this work asks them."""
        return Rotation(self.slots, self.health, 0 if self.prefer == "first" else self.active)


class SpeechAttempts(Attempts[Slot[C], X], Generic[C, X]):
    """One piece of work of a ``SpeechFallback``."""

    def __init__(self, fallback: SpeechFallback[C], outer: X, clocks: Clocks) -> None:
        super().__init__(fallback.rotation(), fallback.health, clocks, fallback.log)
        self.fallback = fallback
        self.outer = outer
        self.race: Race[X] = Race(self.won)
        self._face = fallback.active

    @property
    def fenced(self) -> bool:
        """Whether the call wants no more of it."""
        return self.outer.fenced

    def new_race(self) -> None:
        """A new race for those that come now."""
        self.race = Race(self.won)

    def build(self, slot: Slot[C]) -> Any:
        """The service itself."""
        return slot.child

    def at_work(self, slot: Slot[C]) -> None:
        """Tell of a switch."""
        before, self._face = self._face, slot.index
        self.fallback.active = slot.index
        if before != slot.index:
            old = self.fallback.slots[before].key
            reason = next((attempt.error for attempt in reversed(self.failed)), None)
            faster = TimeoutError(f"{slot.key} was faster, or is healthy again")
            self.fallback.hub.emit(AgentSwitched(old, slot.key, faster if reason is None else reason))

    def has_won(self, attempt: Try[Slot[C], X], *, hedged: bool) -> None:
        """The winner is the one that is asked first from now on."""
        del hedged
        self.at_work(attempt.slot)

    def may_hedge(self) -> bool:
        """Before anything was heard of the work."""
        return not self.outer.claimed


class FallbackSTT(SpeechFallback["SpeechToText"]):
    """Hears with the first of several services that can.

    Args:
        children: The services, in the order in which they are asked.
        text_timeout: Seconds from the end of the speech to the first text; then the service
            counts as failed, and the next one hears the audio.
        give_up_after: Seconds for all of them; ``None``: none.
        hedge_after: Ask the next healthy one too after so many seconds without a text, or
            ``"p95"``; see ``FallbackAgent``.
        health: Who is in and out; share one between calls. A new one by default.
        prefer: ``"current"``: the one that worked stays; ``"first"``: go back to the first one
            as soon as it is healthy again.
        names: Their names in events and in the registry.

    Raises:
        TypeError: An option has the wrong type.
        ValueError: An option is out of range; the message names it.
    """

    _method: ClassVar[str] = "transcribe"

    def __init__(
        self,
        children: Sequence[SpeechToText],
        *,
        text_timeout: float | None = 5.0,
        give_up_after: float | None = None,
        hedge_after: float | Literal["p95"] | None = None,
        health: HealthRegistry | None = None,
        prefer: Literal["current", "first"] = "current",
        names: Sequence[str] | None = None,
    ) -> None:
        check_seconds("text_timeout", text_timeout, zero=False, none=True)
        super().__init__(
            children,
            give_up_after=give_up_after,
            hedge_after=hedge_after,
            health=health,
            prefer=prefer,
            names=names,
        )
        self.text_timeout = text_timeout

    async def transcribe(self, audio: ObjectReceiveStream[bytes], hearing: Hearing) -> None:
        """Hear ``audio`` with one service after the other, until one has heard it.

        Raises:
            AllAgentsFailedError: None could.
        """
        await _Transcription(self, audio, hearing).run()


class _Transcription(SpeechAttempts["SpeechToText", Hearing]):
    def __init__(self, fallback: FallbackSTT, audio: ObjectReceiveStream[bytes], hearing: Hearing) -> None:
        clocks = Clocks(
            first=fallback.text_timeout,
            first_name="text_timeout",
            all=fallback.give_up_after,
            hedge=fallback.hedge_after,
        )
        super().__init__(fallback, hearing, clocks)
        self.tape: Tape[bytes] = Tape(audio, on_end=self._audio_ended)
        self.known = 0
        """Frames of the tape whose text is known."""
        self.waits_until = math.inf
        """When the winner must have given a text."""

    def begin(self, tasks: TaskGroup) -> None:
        """Take the audio as it comes: nobody knows who will need it."""
        tasks.start_soon(self.tape.play, name="micdrop tape")
        super().begin(tasks)

    def _audio_ended(self) -> None:
        """From now on there is a clock for everybody."""
        self.waits_until = self.first_deadline(anyio.current_time())
        for attempt in self.live:
            attempt.deadline = self.waits_until
        self.wake()

    def first_deadline(self, now: float) -> float:
        """There is none while the caller speaks."""
        return super().first_deadline(now) if self.tape.ended else math.inf

    def winner_deadline(self) -> float:
        """It may be silent while the caller speaks, and no longer than any other afterwards."""
        return self.waits_until

    def side_for(self, slot: Slot[SpeechToText], child: Any, now: float) -> Hearing:
        """A hearing of its own."""
        del slot, child, now
        return Hearing(self, task_scope(), self.outer, self.race)

    async def ask(self, attempt: Try[Slot[SpeechToText], Hearing]) -> None:
        """Hear the audio from where the text stops."""
        await attempt.child.transcribe(Reader(self.tape, self._start()), attempt.side)

    def _start(self) -> int:
        """The first frame that is heard again."""
        start, overlap = self.known, 0
        while start and overlap < OVERLAP * BYTES_PER_SECOND:
            start -= 1
            overlap += len(self.tape.items[start])
        return start

    def winner_is_late(self, attempt: Try[Slot[SpeechToText], Hearing]) -> None:
        """After a text for the end of the audio there is nothing left to wait for."""
        if self.tape.ended and self.known == len(self.tape.items):
            attempt.side.scope.cancel()
            self.ended(attempt, None)
        else:
            super().winner_is_late(attempt)

    def heard_partial(self, text: str) -> None:
        """Pass it on."""
        self.outer.partial(text)

    def heard_final(self, text: str) -> None:
        """Pass it on, and remember how far it goes."""
        self.known = len(self.tape.items)
        if self.tape.ended:
            self.waits_until = self.first_deadline(anyio.current_time())
        self.outer.final(text)


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


def _names(children: Sequence[object], names: Sequence[str] | None) -> list[str]:
    if names is not None:
        listed = list(names)
        if isinstance(names, str) or len(listed) != len(children) or len(set(listed)) != len(listed):
            raise ValueError(f"names must be {len(children)} different strings, one for each service, not {names!r}")
        return listed
    keys: list[str] = []
    for index, child in enumerate(children):
        key = type(child).__name__
        keys.append(key if key not in keys else f"{key} #{index + 1}")
    return keys
