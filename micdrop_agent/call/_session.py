"""One call while it runs: frames in, frames out, and the tasks of everything in between.

    link ──▶ reader ──▶ Ear (the caller) ──▶ Mouth (the assistant) ──▶ Outbox ──▶ writer ──▶ link
                          agent's events ─────────────────────────────▶ ┘

What decides anything is synchronous and happens in the step of its cause. All tasks are in one
task group; when ``run()`` has returned none of them is alive (C5).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import anyio

from micdrop_agent._core.core import core_of
from micdrop_agent._core.groups import lone_error_unwrapped
from micdrop_agent._core.history import History
from micdrop_agent._core.home import Home
from micdrop_agent._interrupts import defer_interrupts, start_soon
from micdrop_agent.call import _frames as frames
from micdrop_agent.call._budget import Budget
from micdrop_agent.call._ear import Ear
from micdrop_agent.call._mouth import Mouth
from micdrop_agent.call._params import BAD_REQUEST
from micdrop_agent.call._result import CallResult, TurnRecord
from micdrop_agent.call._watch import Watch
from micdrop_agent.events import (
    AnswerSkipped,
    EndCallRequested,
    MessageAdded,
    MessageCorrected,
    ToolCalled,
    ToolFinishedLate,
    UserMessageCancelled,
)
from micdrop_agent.messages import Message
from micdrop_agent.wire import WireError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from anyio.abc import TaskGroup

    from micdrop_agent._core.agent import Agent
    from micdrop_agent._core.log import SafeLog
    from micdrop_agent.call._options import Options
    from micdrop_agent.call._protocol import Link
    from micdrop_agent.events import Event
    from micdrop_agent.store import CallMovedError, CallRecorder

__all__ = ["Session"]

REFUSE_TIMEOUT = 1.0
"""Seconds for the closing of the connection of a client that is cut off."""

MAX_CLASSIFICATIONS = 8
"""Classifications that may be in progress; more turns are not classified (C7)."""

MAX_COMPLAINTS = 3
"""Unknown commands of one client that are logged."""


@defer_interrupts
class Session:
    """The live part of a ``Call``."""

    def __init__(self, link: Link, options: Options, log: SafeLog) -> None:
        self.link = link
        self.options = options
        self.log = log
        self.agent: Agent | None = options.agent
        self.items: History = History() if options.agent is None else core_of(options.agent).conversation
        home = Home()
        self.loop: Any = home.loop
        self.clock: Callable[[], float] = home.clock
        """Seconds on the clock of the event loop."""
        self.mouth = Mouth(self)
        self.ear = Ear(self)
        self.watch = Watch(self)
        self.failures: list[Exception] = []
        self.turns: list[TurnRecord] = [self.mouth.record]
        self.closed = False
        self.began_at = 0.0
        self._tasks: TaskGroup | None = None
        self._reading = anyio.CancelScope()
        self._removers: list[Callable[[], None]] = []
        self._classifying = 0
        self._unknown = 0
        self.recorder: CallRecorder | None = None
        """Where workers share the store: is told what was heard."""
        self._moved: CallMovedError | None = None

    # -- the run

    async def run(self) -> CallResult:
        """Talk until the client has gone, or the call is closed."""
        self.began_at = self.mouth.quiet_since = self.clock()
        try:
            with lone_error_unwrapped():
                async with anyio.create_task_group() as tasks:
                    self._tasks = tasks
                    try:
                        self._open()
                        await self._read()
                    finally:
                        self._close()
                        tasks.cancel_scope.cancel()
        finally:
            self._tasks = None
        if self._moved is not None:
            raise self._moved
        return self.result()

    def _open(self) -> None:
        self._follow_agent()
        self._follow_store()
        self.start(self._write, "micdrop call writer")
        self.start(self.watch.run, "micdrop call clocks")
        self.mouth.wait()
        options = self.options
        if options.first_message is not None:
            self.say_and_store(options.first_message)
        elif options.generate_first_message:
            self.mouth.answer()
        else:
            self.mouth.skip()

    def _close(self) -> None:
        """The synchronous part of the end: nothing of the call has an effect afterwards."""
        self.closed = True
        # A client that has gone still plays what it has: all that was sent counts as heard.
        self.mouth.cut()
        if self.recorder is not None:
            self.recorder.show(None)
            self.recorder = None
        self.ear.close()
        for remove in self._removers:
            remove()
        self._removers.clear()

    def result(self) -> CallResult:
        """What the call was, up to now."""
        return CallResult(
            conversation=tuple(self.items),
            duration=self.clock() - self.began_at,
            turns=tuple(turn.seal(self.began_at) for turn in self.turns if turn.is_something),
        )

    def start(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        """Run ``work`` in a task of the call."""
        if self._tasks is not None and not self.closed:
            start_soon(self._tasks, self._work, work, name=name)

    async def _work(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        await work()

    def stop(self) -> None:
        """End the run."""
        self._reading.cancel()

    def arm(self, at: float) -> None:
        """Look at the clocks at ``at``."""
        self.watch.arm(at)

    # -- frames

    async def _read(self) -> None:
        budget = Budget(self.clock())
        try:
            with self._reading:
                while True:
                    frame = await self.link.receive()
                    self._on_frame(frame)
                    # A flood is read slowly, so that it fills the client's own buffers and not ours (C7).
                    pause = budget.spend(len(frame), self.clock())
                    if pause > 0:
                        if budget.is_flood:
                            await self._refuse_flood()
                            return
                        await anyio.sleep(pause)
        except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            return

    async def _refuse_flood(self) -> None:
        """End the call of a client that sends far more than anybody can say (C7)."""
        self.log.warning("the client sends far too many frames; the call ends")
        with anyio.move_on_after(REFUSE_TIMEOUT):
            # With this code the browser client does not come back.
            await self.link.close(BAD_REQUEST, "Too many frames")

    def _on_frame(self, frame: str | bytes) -> None:
        if not isinstance(frame, str):
            command = frames.BINARY_COMMANDS.get(frame) if len(frame) < frames.LONGEST_COMMAND else None
            if command is None:
                self.ear.audio(frame)
                return
            frame = command
        self.watch.active()
        if frame == frames.START:
            self.ear.start()
        elif frame == frames.STOP:
            self.ear.stop()
        elif frame == frames.MUTE:
            self.ear.mute()
        else:
            self._unknown += 1
            if self._unknown <= MAX_COMPLAINTS:
                self.log.warning("an unknown command of the client is ignored: %.40r", frame)
        self.arm(0.0)

    async def _write(self) -> None:
        outbox, link = self.mouth.outbox, self.link
        try:
            while True:
                frame = await outbox.next()
                if isinstance(frame, str):
                    await link.send(frame)
                else:
                    self.mouth.leaving(frame, self.clock())
                    await link.send(frame.pcm)
                outbox.sent(self.clock())
                if not outbox.audio_bytes and (self.mouth.end_due or self.watch.leaving):
                    self.arm(0.0)
        except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            self.stop()

    def overflow(self) -> None:
        """The client does not even read what is written to it."""
        self.log.warning("the client does not read its messages; the call ends")
        self.stop()

    # -- the conversation

    def new_turn(self) -> TurnRecord:
        """The caller speaks: a new turn begins."""
        self.mouth.record = TurnRecord()
        self.turns.append(self.mouth.record)
        return self.mouth.record

    def add_user(self, text: str) -> None:
        """Store what the caller said."""
        self._add(Message("user", text))

    def say_and_store(self, text: str) -> None:
        """Say ``text`` and store it as a message of the assistant."""
        message = self._add(Message("assistant", text))
        if self.mouth.tts is None:
            self.mouth.release()
        else:
            self.mouth.say(text, message)

    def _add(self, message: Message) -> Message | None:
        if self.agent is None:
            self.items.push(message)
            self._send_item(message)
            return message
        try:
            self.agent.add_message(message.role, message.content)
        except RuntimeError:  # closed by the application
            self.log.exception("the agent takes no message")
            return None
        last = self.items[-1] if len(self.items) else None
        return last if isinstance(last, Message) else None

    def correct(self, message: Message, heard: str) -> None:
        """Less of ``message`` was heard than was stored (C4)."""
        index = self.items.index_of(message)
        if index is None:
            return
        corrected = (
            Message(message.role, heard, {**(message.metadata or {}), "interrupted": True}) if heard.strip() else None
        )
        if corrected is None:
            self.items.delete(index)
        else:
            self.items.put(index, corrected)
        if self.agent is not None:
            core_of(self.agent).hub.emit(MessageCorrected(message, corrected, index))

    def end_call(self) -> None:
        """Have the client hang up."""
        self.mouth.hang_up()

    # -- the agent's events

    def _follow_agent(self) -> None:
        agent = self.agent
        if agent is None:
            return
        self._removers += [
            agent.on(MessageAdded, self._on_message),
            agent.on(UserMessageCancelled, self._on_cancelled),
            agent.on(AnswerSkipped, lambda _: self.mouth.skipped()),
            agent.on(EndCallRequested, lambda _: self._on_end()),
            agent.on(ToolCalled, self._send_event),
            agent.on(ToolFinishedLate, lambda _: self.mouth.tell_news()),
        ]

    def _follow_store(self) -> None:
        recorder = None if self.agent is None else core_of(self.agent).root().recorder
        if recorder is None:
            return
        self._removers.append(recorder.on_moved(self._on_moved))
        if recorder.leased:
            self.recorder = recorder
            recorder.show(self.mouth.show_heard)

    def _on_moved(self, error: CallMovedError) -> None:
        """Another worker has the call: nothing more of it happens here."""
        self._moved = error
        self.stop()

    def _on_message(self, event: MessageAdded) -> None:
        role = event.message.role
        if role in {"user", "assistant"} or (self.options.send_system if role == "system" else self.options.send_tools):
            self._send_item(event.message)

    def _send_item(self, item: Any) -> None:
        try:
            frame = frames.item_frame(item)
        except WireError:
            self.log.exception("metadata of a message is not JSON; it is sent without")
            frame = frames.item_frame(Message(item.role, item.content))
        self.mouth.outbox.put(frame)

    def _send_event(self, event: Event) -> None:
        try:
            frame = frames.event_frame(event)
        except WireError:
            self.log.exception("an event is not JSON; it is not sent")
            return
        if frame is not None:
            self.mouth.outbox.put(frame)

    def _on_cancelled(self, event: UserMessageCancelled) -> None:
        self.mouth.user_message_gone(found=event.message is not None)
        self.mouth.outbox.put(frames.CANCEL_LAST)

    def _on_end(self) -> None:
        """The farewell is heard first, if it is complete; then the client hangs up."""
        current = self.mouth.current
        complete = current is None or current.answer is None or current.answer.status != "running"
        if complete and self.mouth.tts is not None and not self.mouth.is_silent(self.clock()):
            self.mouth.end_due = True
            self.arm(0.0)
        else:
            self.end_call()

    # -- classification

    def classify(self, text: str) -> None:
        """Classify what the caller said, beside the answer."""
        if self.options.classifier is not None and self._classifying < MAX_CLASSIFICATIONS:
            self._classifying += 1
            self.start(lambda: self._classify(text), "micdrop classifier")

    async def _classify(self, text: str) -> None:
        assert self.options.classifier is not None
        began = self.clock()
        try:
            result = await self.options.classifier.classify(text)
            took = round((self.clock() - began) * 1000)
            classification = {"input": text, "result": result, "duration": took}
            frame = frames.json_frame("Classification", json.loads(json.dumps(classification)))
        except Exception:  # foreign code (C6)
            self.log.exception("the classifier failed")
            return
        finally:
            self._classifying -= 1
        if self.options.send_classification:
            self.mouth.outbox.put(frame)
