"""One thing that is said to the caller: an answer of the agent, or a text.

    answer ──▶ pieces ──▶ TextFeed ──▶ TextToSpeech ──▶ Voice ──▶ say() ──▶ Outbox
                                                                    └──▶ Marks

The task of this is one scope. ``cut()`` settles everything in one synchronous step (fence, queued
audio, stored text) and only then cancels that scope: nothing of it is sent or stored afterwards.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import anyio

from micdrop_agent._core.groups import lone_error_unwrapped
from micdrop_agent._core.heard import shorten, show_heard
from micdrop_agent._core.scopes import task_scope
from micdrop_agent._interrupts import defer_interrupts, interruptible, start_soon
from micdrop_agent.call._marks import Marks
from micdrop_agent.call._outbox import AudioFrame
from micdrop_agent.call._voice import TextFeed, Voice

if TYPE_CHECKING:
    from collections.abc import Iterable

    from anyio.abc import TaskGroup

    from micdrop_agent._core.answer import Answer
    from micdrop_agent.call._mouth import Mouth
    from micdrop_agent.call._protocol import TextToSpeech
    from micdrop_agent.call._result import TurnRecord
    from micdrop_agent.messages import Item, Message

__all__ = ["Speaking"]

MAX_FRAME: Final = 32_000
"""Bytes of one binary frame: a barge-in never waits behind more than a second of audio."""


@defer_interrupts
class Speaking:
    """Says an answer, or a text.

    Args:
        mouth: Who says it.
        record: The turn that it belongs to.
        answer: The answer; without one, ``text`` is said.
        text: What is said.
        message: The stored message of ``text``, which is corrected if less of it was heard.
    """

    def __init__(
        self,
        mouth: Mouth,
        record: TurnRecord,
        *,
        answer: Answer | None = None,
        text: str = "",
        message: Message | None = None,
    ) -> None:
        self.mouth = mouth
        self.record = record
        self.answer = answer
        self.text = text
        self.message = message
        self.scope = task_scope()
        self.voice = Voice(self, self.scope)
        self.marks = Marks()
        self.feed = TextFeed(self.marks.take, mouth.loop)
        self.splitter = mouth.splitter()
        self.wrote = False
        """Audio was written."""
        self.released = False
        """The client was told not to wait for audio of this."""
        self.failed = False
        """The agent failed."""
        self.over = False
        self._started = False
        self.progress_at = math.inf
        """When the voice last did what it has to do; infinite while it has nothing to do."""

    # -- the voice's side

    def say(self, pcm: bytes, text: str | None) -> None:
        """The voice has written audio."""
        now = self.mouth.clock()
        stretch = self.marks.audio(len(pcm), text)
        self.wrote, self.progress_at = True, now
        for begin in range(0, len(pcm), MAX_FRAME):
            self.mouth.take_audio(AudioFrame(pcm[begin : begin + MAX_FRAME], self, stretch), now)

    async def wait_for_room(self) -> None:
        """Wait while the client does not keep up."""
        if not self.mouth.is_full:
            return
        self.progress_at = math.inf  # it is not the voice that is slow
        if not await self.mouth.wait_for_room():
            self.mouth.too_slow(self)
        self.progress_at = self.mouth.clock()
        self.mouth.arm_voice(self)

    # -- the task

    async def run(self) -> None:
        """Say everything; no Exception ever leaves it."""
        failure: Exception | None = None
        try:
            with self.scope, lone_error_unwrapped():
                async with anyio.create_task_group() as tasks:
                    await self._read(tasks)
        except Exception as error:  # noqa: BLE001 - foreign code: a voice that fails ends no call (C6)
            failure = error
        except anyio.get_cancelled_exc_class() as cancelled:  # noqa: ASYNC103 - raised where it is ours
            if anyio.current_effective_deadline() == -math.inf:
                raise
            failure = RuntimeError("something that the voice waited for was cancelled")
            failure.__cause__ = cancelled
        self.over = True
        self.progress_at = math.inf
        if self.voice.fenced:
            return
        self.marks.finish()
        if failure is not None:
            self.mouth.voice_failed(self, failure)
        else:
            self.mouth.finished(self)

    async def _read(self, tasks: TaskGroup) -> None:
        splitter = self.splitter
        try:
            if self.answer is None:
                self._put(splitter.feed(self.text), tasks)
            else:
                try:
                    async for chunk in self.answer:
                        self.mouth.has_text(self)
                        self._put(splitter.feed(chunk), tasks)
                except Exception:  # noqa: BLE001 - the agent has logged it, and reported it as AnswerFailed
                    self.failed = True
                if self.answer.status == "cancelled":
                    self.mouth.cut_elsewhere(self)
            self._put(splitter.finish(), tasks)
        finally:
            self.feed.end()
            self.mouth.arm_voice(self)

    def _put(self, pieces: Iterable[str], tasks: TaskGroup) -> None:
        """Hand text to the voice, which is started with the first piece."""
        tts = self.mouth.tts
        for piece in pieces:
            if self.voice.fenced or tts is None:
                return
            if not self._started:
                self._started = True
                self.progress_at = self.mouth.clock()
                start_soon(tasks, self._synthesize, tts, name="micdrop voice")
            elif self.progress_at == math.inf or not self.owes_audio:
                self.progress_at = self.mouth.clock()
            self.feed.put(piece)
            self.mouth.arm_voice(self)

    async def _synthesize(self, tts: TextToSpeech) -> None:
        await interruptible(tts.synthesize(self.feed, self.voice))

    @property
    def owes_audio(self) -> bool:
        """Whether the voice has something to do."""
        if not self._started or self.over:
            return False
        return bool(self.feed.waiting) or self.feed.ended or not self.marks.stretches[-1].written

    # -- the end, from outside

    def cut(self, position: int) -> None:
        """Stop this in one synchronous step; ``position`` of the playback is how far it was heard."""
        self.voice.fence()
        self.mouth.outbox.drop(self)
        self.scope.cancel()
        if self.mouth.tts is None:
            heard = None
        elif self.over and self.marks.is_heard(position):
            return  # all of it: nothing is cut
        else:
            heard = self.heard(position)
        if self.answer is not None:
            running = self.answer.status == "running"
            if running or heard is None or heard < len(self.answer.text):
                self.record.interrupted = True
                self.answer.cancel(heard=heard)
        elif heard is not None and heard < len(self.text):
            self.record.interrupted = True
            if self.message is not None:
                self.mouth.correct(self.message, self.text[:heard])

    def show_heard(self, items: list[Item], position: int) -> None:
        """Change ``items`` as ``cut(position)`` changes the conversation."""
        if self.voice.fenced or (self.over and (self.mouth.tts is None or self.marks.is_heard(position))):
            return
        if self.answer is not None:
            ledger = self.answer.ledger
            show_heard(ledger, items, ledger.received if self.mouth.tts is None else self.heard(position))
        elif self.message is not None and self.mouth.tts is not None:
            shorten(items, self.message, self.text[: self.heard(position)])

    def heard(self, position: int) -> int:
        """Characters of the text that were heard up to ``position`` of the playback."""
        return self.splitter.original(self.marks.heard(position))

    def voiced(self) -> int:
        """Characters of the text for which there is audio."""
        return self.splitter.original(self.marks.voiced())
