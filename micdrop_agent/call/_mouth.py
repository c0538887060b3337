"""The assistant's side of a call: what is being said, what the caller has heard of it, and who waits.

    answer() / say() ──▶ Speaking ──▶ Outbox ──▶ client
    barge_in()       ──▶ cut, or held until it is clear that it was only a "mhm"

The client waits after it has connected and after each StopSpeaking, until audio or SkipAnswer comes.
``waiting`` is that state as the server knows it; whatever fails, ``release()`` ends it (C2).
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Any

from micdrop_agent.call._barge_in import BargeIn
from micdrop_agent.call._frames import BYTES_PER_SECOND, END_CALL, SKIP_ANSWER, json_frame
from micdrop_agent.call._outbox import Outbox
from micdrop_agent.call._playback import Playback
from micdrop_agent.call._result import TurnRecord
from micdrop_agent.call._speaking import Speaking
from micdrop_agent.errors import describe_error as describe

if TYPE_CHECKING:
    from micdrop_agent._core.answer import Answer
    from micdrop_agent.call._barge_in import Held
    from micdrop_agent.call._outbox import AudioFrame
    from micdrop_agent.call._pieces import Splitter
    from micdrop_agent.call._protocol import TextToSpeech
    from micdrop_agent.call._session import Session
    from micdrop_agent.messages import Item, Message

__all__ = ["Mouth"]


class Mouth:
    """What the assistant says in one call."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._options = session.options
        self.tts: TextToSpeech | None = session.options.tts
        self.clock = session.clock
        self.loop: Any = session.loop
        self.outbox = Outbox(session.loop, session.clock, session.overflow)
        self.playback = Playback()
        self.current: Speaking | None = None
        self.audible: list[Speaking] = []
        """What was said and may not have been heard to its end, in order."""
        self.texts: deque[tuple[str, Message | None]] = deque()
        """Texts that wait for their turn."""
        self.answered: Item | None = None
        """The item that was answered last."""
        self.waiting_since = math.inf
        """Since when the client waits for audio; infinite while it does not."""
        self.end_due = False
        """The call is to end when the caller has heard everything."""
        self.hung_up = False
        """The client was asked to hang up."""
        self.news_due = False
        """The agent has something to tell when nobody speaks."""
        self.barge = BargeIn(self, session.options)
        self.quiet_since = 0.0
        self.record = TurnRecord()
        self._limit = int(session.options.audio_buffer * BYTES_PER_SECOND)

    # -- saying

    def splitter(self) -> Splitter:
        """What cuts the text of one answer into pieces for the voice."""
        return self._options.new_splitter()

    def answer(self, begun: Answer | None = None) -> None:
        """Have the agent answer, unless it has answered this already, or has begun to."""
        self.news_due = False
        session = self._session
        if begun is not None:
            self.answered = begun.turn.prompt
            self._say_answer(begun)
            return
        agent, items = session.agent, session.items
        last = items[-1] if len(items) else None
        if agent is None or (last is not None and last is self.answered):
            if self.current is None:
                self.release()
            return
        interrupted = self.record.interrupted
        self.cut()
        # More words of the same turn replace its answer: that is no interruption by the caller.
        self.record.interrupted = interrupted
        self.answered = last
        try:
            answer = agent.answer()
        except RuntimeError:  # the application has closed the agent
            session.log.exception("the agent cannot answer")
            self.release()
            return
        self._say_answer(answer)

    def _say_answer(self, answer: Answer) -> None:
        self.record.answers.append((self.clock(), answer))
        self._begin(Speaking(self, self.record, answer=answer))

    def tell_news(self) -> None:
        """A tool has ended late: have the agent speak of it as soon as nobody speaks."""
        self.news_due = True
        self._session.arm(0.0)

    def say(self, text: str, message: Message | None = None) -> None:
        """Say ``text`` as soon as nothing else is being said."""
        self.texts.append((text, message))
        if self.current is None:
            self._next()

    def _next(self) -> None:
        if self.texts:
            text, message = self.texts.popleft()
            self._begin(Speaking(self, self.record, text=text, message=message))

    def _begin(self, speaking: Speaking) -> None:
        now = self.clock()
        played = self.playback.played(now)
        self.audible = [one for one in self.audible if not one.over or not one.marks.is_heard(played)]
        self.current = speaking
        self.audible.append(speaking)
        self._session.start(speaking.run, "micdrop speaking")

    def has_text(self, speaking: Speaking) -> None:
        """The agent has written something."""
        if self.tts is None:
            self._heard_more()
        if self.record.first_word_at is None:
            self.record.first_word_at = self.clock()
        answer = speaking.answer
        # Once the answer has ended its message is on the way, and a part of it would come too late.
        if self._options.partial_messages and answer is not None and answer.status == "running":
            self.outbox.put_latest("PartialAssistantMessage ", json_frame("PartialAssistantMessage", answer.text))

    def finished(self, speaking: Speaking) -> None:
        """Everything of it was said."""
        if speaking is not self.current:
            return
        self.current = None
        self._heard_more()
        self.quiet_since = self.clock()
        if speaking.failed and not speaking.wrote:
            self.tell_failure(spoken=True)
        elif not speaking.wrote and not speaking.released:
            self.skip()
        if self.current is None:
            self._next()
        self._session.arm(0.0)

    # -- audio

    @property
    def is_full(self) -> bool:
        """Whether so much audio waits that the voice has to wait too."""
        return (self.outbox.audio_bytes if self.held is None else self.held.size) > self._limit

    def take_audio(self, frame: AudioFrame, now: float) -> None:
        """The next audio of a voice."""
        if self.held is not None:
            self.held.frames.append(frame)
            self.held.size += len(frame.pcm)
        else:
            self.outbox.put_audio(frame, now)

    async def wait_for_room(self) -> bool:
        """Wait until the client has taken enough; ``False`` if it takes nothing any more."""
        held = self.held
        if held is not None:
            await held.decided.wait()
            return True
        return await self.outbox.wait_for_room(self._limit, self._options.audio_buffer)

    def leaving(self, frame: AudioFrame, now: float) -> None:
        """``frame`` is handed to the link: the client stops waiting, and will play it."""
        self.waiting_since = math.inf
        record = frame.owner.record
        if record.first_audio_at is None:
            record.first_audio_at = now
        record.audio_bytes += len(frame.pcm)
        frame.stretch.note_sent(self.playback.total, len(frame.pcm))
        self.playback.sent(now, len(frame.pcm))
        self.barge.note_sent(frame, now)
        self._heard_more()

    def show_heard(self, items: list[Item]) -> None:
        """Change ``items`` into what they would be if the client were gone now: it plays what it was sent."""
        for speaking in reversed(self.audible):
            speaking.show_heard(items, self.playback.total)

    def _heard_more(self) -> None:
        if self._session.recorder is not None:
            self._session.recorder.heard_more()

    # -- the client's waiting

    def wait(self) -> None:
        """The client waits from now on."""
        self.waiting_since = self.clock()
        self._session.arm(self.waiting_since + self._options.reply_timeout)

    def skip(self) -> None:
        """Tell the client not to wait."""
        self.waiting_since = math.inf
        self.outbox.put(SKIP_ANSWER)

    def release(self) -> None:
        """Tell the client not to wait, if it does."""
        if self.waiting_since != math.inf:
            self.skip()

    def skipped(self) -> None:
        """The agent says nothing this time; reported once for each answer."""
        current = self.current
        if current is None or not current.released:
            self.skip()
        if current is not None:
            current.released = True

    def user_message_gone(self, *, found: bool) -> None:
        """The client was told to drop the last message of the user, and waits no longer."""
        if found:
            self.waiting_since = math.inf
            if self.current is not None:
                self.current.released = True

    # -- interruptions

    def barge_in(self) -> None:
        """The caller speaks: nothing that is being said is sent from now on (C1)."""
        self.waiting_since = math.inf
        if self._options.is_backchannel is None or not self.audible:
            self.cut(flush=True)
        else:
            self.barge.hold()

    def cut(self, *, flush: bool = False) -> None:
        """Stop what is being said, in one synchronous step.

        Args:
            flush: The client drops what it has not played; otherwise it plays all that was sent.
        """
        position = self.barge.give_way()
        if position is None:
            position = self.playback.flush(self.clock()) if flush else self.playback.total
        # First of all this is empty: what follows runs listeners, which may cut again.
        audible, self.audible = self.audible, []
        self.current, self.end_due = None, False
        self.texts.clear()
        self.quiet_since = self.clock()
        for speaking in audible:
            speaking.cut(position)
        self._session.arm(0.0)

    def cut_elsewhere(self, speaking: Speaking) -> None:
        """The application itself has cancelled the answer of ``speaking``."""
        if not speaking.voice.fenced and speaking is self.current:
            self.cut()
            self.release()

    def too_slow(self, speaking: Speaking) -> None:
        """The client takes no audio any more: what is said is cut, as by a barge-in."""
        if not speaking.voice.fenced:
            self._session.log.warning("the client is too slow for its audio; the answer is cut")
            self.cut()
            self.release()

    def correct(self, message: Message, heard: str) -> None:
        """Less of a text than was stored has been heard."""
        self._session.correct(message, heard)

    # -- failures

    def voice_failed(self, speaking: Speaking, error: Exception) -> None:
        """The text-to-speech has failed: what it has said stays, the rest is not heard."""
        self._session.log.error("the voice failed: %s", describe(error), exc_info=error)
        self._session.failures.append(error)
        speaking.voice.fence()
        speaking.scope.cancel()
        answer = speaking.answer
        if answer is not None:
            heard = speaking.voiced()
            if answer.status == "running" or heard < len(answer.text):
                answer.cancel(heard=heard)
        if speaking is self.current:
            self.current = None
            self.texts.clear()
            self.quiet_since = self.clock()
            if not speaking.wrote:
                self.tell_failure(spoken=False)
            self._session.arm(0.0)

    def tell_failure(self, *, spoken: bool) -> None:
        """The caller gets no answer: say so, as the application wishes."""
        text = self._options.failure_text
        if spoken and text is not None and self.tts is not None:
            self.say(text)
        elif self.current is None or not self.current.released:
            self.skip()
        self.end_due = self.end_due or self._options.end_on_failure

    # -- clocks

    def arm_voice(self, speaking: Speaking) -> None:
        """See that the clock of the voice rings in time."""
        at = self._voice_deadline(speaking)
        if at != math.inf:
            self._session.arm(at)

    def _voice_deadline(self, speaking: Speaking) -> float:
        if self._options.voice_keeps_time or not speaking.owes_audio:
            return math.inf
        limit = self._options.audio_gap_timeout if speaking.wrote else self._options.first_audio_timeout
        return speaking.progress_at + limit

    def next_timer(self, now: float) -> float:
        """When something has to be looked at."""
        at = self.waiting_since + self._options.reply_timeout
        if self.current is not None:
            return min(at, self._voice_deadline(self.current))
        due = self.end_due or (self.news_due and not self.hung_up and self._session.ear.is_silent)
        if due and not self.texts and self.held is None and not self.outbox.audio_bytes:
            at = min(at, self.playback.ends_at(now))
        return at

    def timers(self, now: float) -> None:
        """Do what is due."""
        current = self.current
        if current is not None and now >= self._voice_deadline(current):
            wait = self._options.audio_gap_timeout if current.wrote else self._options.first_audio_timeout
            self.voice_failed(current, TimeoutError(f"no audio within {wait:g} seconds"))
        if now >= self.waiting_since + self._options.reply_timeout:
            self._session.log.warning("no audio within %g seconds; the client is released", self._options.reply_timeout)
            self.skip()
        if self.end_due and self.is_silent(now):
            self.end_due = False
            self.hang_up()
        elif self.news_due and not self.hung_up and self._session.ear.is_silent and self.is_silent(now):
            self.answer()

    def hang_up(self) -> None:
        """Ask the client to hang up."""
        self.hung_up = True
        self.outbox.put(END_CALL)

    @property
    def is_busy(self) -> bool:
        """Whether something is being said, or the client waits for it."""
        said = self.current is not None or bool(self.texts) or self.held is not None
        return said or self.end_due or self.waiting_since != math.inf

    def is_silent(self, now: float) -> bool:
        """Whether everything was said, sent and heard."""
        return (
            self.current is None
            and not self.texts
            and self.held is None
            and not self.outbox.audio_bytes
            and now >= self.playback.ends_at(now)
        )

    @property
    def held(self) -> Held | None:
        """What waits for the end of a sound of the caller."""
        return self.barge.held
