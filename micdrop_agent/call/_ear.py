"""The caller's side of a call: who speaks, what was understood, and when it is the assistant's turn.

    StartSpeaking ─▶ a Listening ─▶ SpeechToText ─▶ final text ─▶ message of the user
    StopSpeaking  ─▶ (turn detector) ─▶ answer now, or wait for the text, or nothing was said

Words that were said are never lost: a text that comes while the caller speaks again, or after a
pause, is stored; only whether it is answered depends on that.
"""

from __future__ import annotations

import inspect
import math
from array import array
from typing import TYPE_CHECKING, Final

import anyio

from micdrop_agent.call._frames import BYTES_PER_SECOND
from micdrop_agent.call._guesses import Guesses
from micdrop_agent.call._hearing import Listening
from micdrop_agent.errors import describe_error as describe
from micdrop_agent.messages import is_blank

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from micdrop_agent.call._session import Session

__all__ = ["Ear"]

MAX_LISTENINGS: Final = 4
"""Stretches of speech whose text is still awaited; the oldest is given up for a fifth (C7)."""


class Ear:
    """What the caller says in one call."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._options = session.options
        self._mouth = session.mouth
        self.speaking: Listening | None = None
        """The stretch that is being spoken."""
        self.awaited: Listening | None = None
        """The stretch whose text is to be answered."""
        self.listenings: list[Listening] = []
        """Stretches whose speech-to-text is still at work."""
        self.hold_until = math.inf
        """The caller has stopped, and may not have finished; infinite if that is not in question."""
        self.holding = False
        self.paused = False
        self.quiet_since = 0.0
        """When the caller was heard last."""
        self._told_of_many = False
        self._guesses = Guesses(session)

    # -- commands of the client

    def start(self) -> None:
        """StartSpeaking: the caller interrupts, and is listened to."""
        now = self._session.clock()
        self._end_open(now)
        self._guesses.drop()
        self._mouth.barge_in()
        self.paused, self.awaited, self.holding = False, None, False
        self._reset_detector()
        record = self._session.new_turn()
        record.speech_start = now
        listening = Listening(self, record, int(self._options.max_turn * BYTES_PER_SECOND))
        self.speaking = listening
        self.listenings.append(listening)
        if len(self.listenings) > MAX_LISTENINGS:
            if not self._told_of_many:
                self._told_of_many = True  # a flood of commands is no flood in the log
                self._session.log.warning("too many texts are awaited; the oldest is given up, here and from now on")
            self.listenings.pop(0).stop()
        self._session.start(lambda: self._transcribe(listening), "micdrop hearing")

    def audio(self, pcm: bytes) -> None:
        """Binary frame: what the caller says; ignored while nobody speaks."""
        listening = self.speaking
        if listening is None:
            return
        pcm = pcm[: len(pcm) & ~1]  # half a sample is not sound
        if not pcm:
            return
        if not listening.push(pcm):
            if not listening.full:
                listening.full = True
                self._session.log.warning("the caller speaks for too long; the rest is not heard")
            return
        if self._options.turn_detector is not None:
            self._push_to_detector(pcm)

    def stop(self) -> None:
        """StopSpeaking: answer what was said, or wait for its text."""
        listening, now = self.speaking, self._session.clock()
        self.speaking = None
        self.quiet_since = now
        self._mouth.wait()
        if listening is None:
            self._nothing_said()
            return
        listening.record.speech_end = now
        if not listening.bytes:
            self._drop(listening)
            self._nothing_said()
            return
        self.awaited = listening
        self._end_audio(listening, now)
        self._guesses.stopped()
        if self._options.turn_detector is None:
            self._turn_over()
        else:
            self._detect()

    def mute(self) -> None:
        """Mute: the caller has paused; what comes later is stored and not answered."""
        self._end_open(self._session.clock())
        self._guesses.drop()
        self.paused, self.awaited, self.holding = True, None, False
        self._mouth.waiting_since = math.inf
        self._mouth.cut(flush=True)

    def _end_open(self, now: float) -> None:
        listening, self.speaking = self.speaking, None
        if listening is None:
            return
        if listening.bytes:
            self._end_audio(listening, now)
        else:
            self._drop(listening)

    def _end_audio(self, listening: Listening, now: float) -> None:
        deadline = math.inf if self._options.hearing_keeps_time else now + self._options.transcript_timeout
        listening.end_audio(deadline)
        self._session.arm(deadline)

    def _drop(self, listening: Listening) -> None:
        listening.stop()
        if listening in self.listenings:
            self.listenings.remove(listening)

    # -- the speech-to-text

    async def _transcribe(self, listening: Listening) -> None:
        """The task of one speech-to-text; no Exception ever leaves it (C6)."""
        error: Exception | None = None
        try:
            with listening.scope:
                await self._options.stt.transcribe(listening.audio, listening.hearing)
        except Exception as raised:  # noqa: BLE001 - foreign code: it ends this hearing and not the call
            error = raised
        except anyio.get_cancelled_exc_class() as cancelled:  # noqa: ASYNC103 - raised where it is ours
            if anyio.current_effective_deadline() == -math.inf:
                raise
            error = RuntimeError("something that the speech-to-text waited for was cancelled")
            error.__cause__ = cancelled
        finally:
            listening.close()
        self._ended(listening, error)

    def _ended(self, listening: Listening, error: Exception | None) -> None:
        """The speech-to-text is done, or has failed, or took too long."""
        if listening.hearing.fenced:
            return
        listening.hearing.fence()
        if listening in self.listenings:
            self.listenings.remove(listening)
        listening.error = error
        if error is not None:
            self._session.log.error("the speech-to-text failed: %s", describe(error), exc_info=error)
            self._session.failures.append(error)
        if self.awaited is listening and not self.holding:
            self._no_text(listening)
        self._session.arm(0.0)

    def on_partial(self, listening: Listening, text: str) -> None:
        """Words that may still change: enough to know that this is more than a sound of agreement."""
        if self._mouth.held is not None and not is_blank(text) and not self._is_backchannel(text):
            self._mouth.cut()
        if self._mouth.held is None and (listening is self.speaking or listening is self.awaited):
            self._guesses.partial(text, stopped=listening is self.awaited)

    def on_final(self, listening: Listening, text: str) -> None:
        """Words that were said."""
        if listening is not self.speaking:
            listening.finals += 1
        if is_blank(text):
            self._guesses.drop()
            if self.awaited is listening:
                self.awaited = None
            self._nothing_said()
            return
        listening.record.words.append(text)
        if self._mouth.held is not None:
            if self._is_backchannel(text):
                if self.speaking is None:
                    self.awaited = None
                    self._mouth.barge.resume()
                return
            self._mouth.cut()
        self._said(listening, text)

    def _said(self, listening: Listening, text: str) -> None:
        """The caller has said ``text``: store it, and answer if it is the assistant's turn."""
        listening.record.transcript_at = self._session.clock()
        answering = self.speaking is None and not self.paused and not self.holding
        guessed = self._guesses.final(text) if answering else None
        if guessed is None:
            self._guesses.drop()
            self._session.add_user(text)
        self._session.classify(text)
        if answering:
            self.awaited = None
            self._mouth.answer(guessed)

    def _is_backchannel(self, text: str) -> bool:
        predicate = self._options.is_backchannel
        if predicate is None:
            return False
        try:
            return bool(predicate(text))
        except Exception:  # foreign code: in doubt the caller wants to say something
            self._session.log.exception("the backchannel predicate raised")
            return False

    # -- whose turn it is

    def _unanswered(self) -> bool:
        items = self._session.items
        last = items[-1] if len(items) else None
        return last is not None and last.role == "user" and last is not self._mouth.answered

    def _turn_over(self) -> None:
        """The caller has finished."""
        self.holding, self.hold_until = False, math.inf
        awaited = self.awaited
        if self._unanswered():
            self.awaited = None
            self._mouth.answer()
        elif awaited is not None and awaited.hearing.fenced:
            self._no_text(awaited)

    def _no_text(self, listening: Listening) -> None:
        """The text that was awaited does not come."""
        self.awaited = None
        if listening.error is None:
            self._nothing_said()
        elif self._mouth.held is not None:
            self._mouth.barge.resume()
        else:
            self._mouth.tell_failure(spoken=True)

    def _nothing_said(self) -> None:
        """It was a sound without words."""
        if self._mouth.held is None:
            self._mouth.skip()
        elif self.speaking is None:
            self._mouth.barge.resume()

    # -- the turn detector

    def _reset_detector(self) -> None:
        detector = self._options.turn_detector
        self.hold_until = math.inf
        if detector is None:
            return
        try:
            detector.reset()
        except Exception:  # foreign code (C6)
            self._session.log.exception("the turn detector raised")

    def _push_to_detector(self, pcm: bytes) -> None:
        detector = self._options.turn_detector
        assert detector is not None
        samples = array("h", pcm)
        if not _LITTLE_ENDIAN:
            samples.byteswap()
        try:
            detector.push(samples)
        except Exception:  # foreign code (C6)
            self._session.log.exception("the turn detector raised")

    def _detect(self) -> None:
        """Ask the detector whether the caller has finished; it may take until ``turn_max_wait``."""
        detector = self._options.turn_detector
        assert detector is not None
        self.holding = True
        self.hold_until = self._session.clock() + self._options.turn_max_wait
        self._session.arm(self.hold_until)
        try:
            verdict = detector.predict()
        except Exception:  # foreign code (C6): without a verdict the turn is over
            self._session.log.exception("the turn detector raised")
            self._turn_over()
            return
        if inspect.isawaitable(verdict):
            listening = self.awaited
            self._session.start(lambda: self._wait_for_verdict(verdict, listening), "micdrop turn detector")
        elif verdict:
            self._turn_over()
        else:
            self._mouth.skip()  # the caller is to go on, and the client to listen

    async def _wait_for_verdict(self, verdict: Awaitable[bool], listening: Listening | None) -> None:
        finished = False
        with anyio.move_on_after(self._options.turn_max_wait) as scope:  # then the turn is over anyway
            try:
                finished = await verdict
            except Exception:  # foreign code (C6)
                self._session.log.exception("the turn detector raised")
                finished = True
        if scope.cancelled_caught or not self.holding or self.awaited is not listening:
            return
        if finished:
            self._turn_over()
        else:
            self._mouth.skip()

    # -- clocks

    def next_timer(self) -> float:
        """When something has to be looked at."""
        deadlines = [one.deadline for one in self.listenings]
        return min([self.hold_until if self.holding else math.inf, *deadlines])

    def timers(self, now: float) -> None:
        """Do what is due."""
        for listening in tuple(self.listenings):
            if now >= listening.deadline:
                late = self.awaited is listening
                wait = self._options.transcript_timeout
                self._ended(listening, TimeoutError(f"no text within {wait:g} seconds") if late else None)
                self._drop(listening)
        if self.holding and now >= self.hold_until:
            self._turn_over()

    @property
    def is_silent(self) -> bool:
        """Whether the caller says nothing and nothing is awaited."""
        return self.speaking is None and self.awaited is None and not self.paused

    @property
    def is_busy(self) -> bool:
        """Whether the caller speaks, or a text of theirs may still come."""
        return self.speaking is not None or self.awaited is not None or bool(self.listenings)

    def close(self) -> None:
        """The call has ended."""
        self._guesses.drop()
        for listening in self.listenings:
            listening.stop()
        self.listenings.clear()
        self.speaking = self.awaited = None


_LITTLE_ENDIAN: Final = array("h", b"\x01\x00")[0] == 1
