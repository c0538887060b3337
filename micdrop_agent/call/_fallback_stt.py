"""Several speech-to-text services in a row: the next one hears the audio again from where the text stops."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import anyio

from micdrop_agent._core.scopes import task_scope
from micdrop_agent.call._fallback import Slot, SpeechAttempts, SpeechFallback
from micdrop_agent.call._frames import BYTES_PER_SECOND
from micdrop_agent.call._hearing import Hearing
from micdrop_agent.call._tape import Reader, Tape
from micdrop_agent.fallback.attempts import Clocks
from micdrop_agent.options import check_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anyio.abc import ObjectReceiveStream, TaskGroup

    from micdrop_agent.call._protocol import SpeechToText
    from micdrop_agent.fallback.attempts import Try
    from micdrop_agent.fallback.health import HealthRegistry

__all__ = ["FallbackSTT"]

OVERLAP: float = 1.0
"""Seconds of audio before the last known text that the next speech-to-text hears again: a word twice is
the smaller fault, a word lost is the greater one."""


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
