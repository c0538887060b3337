"""Watches an agent: chunks written and received, events, and whose answer each of them belongs to.

The probe sees every change as it happens; an event is ascribed to the answer in whose context it was emitted.
"""

# The kit looks inside on purpose.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import contextvars
import inspect
import math
from typing import TYPE_CHECKING, Any, Final

import attrs

from micdrop_agent._core.core import core_of
from micdrop_agent._event_loop import running_loop
from micdrop_agent.events import (
    EVENT_TYPES,
    AgentSwitched,
    AnswerFailed,
    AnswerFinished,
    ConversationSummarized,
    Event,
    MessageAdded,
    MessageCorrected,
    ToolFinishedLate,
)
from micdrop_agent.messages import ToolResult
from micdrop_agent.pairs import first_open_call
from micdrop_agent.testing._watched import Watched

if TYPE_CHECKING:
    from collections.abc import Callable

    from micdrop_agent._core.agent import Agent
    from micdrop_agent._core.answer import Answer
    from micdrop_agent._core.guess import Guess
    from micdrop_agent._core.turn import Turn
    from micdrop_agent.messages import Item, ToolCall

_IN_ANSWER: contextvars.ContextVar[AnswerTrace | None] = contextvars.ContextVar("micdrop_in_answer", default=None)


END_WITHIN_S: Final = 10.0
"""Virtual seconds in which the task of a cancelled answer must have ended, unless a sweep says otherwise."""

_LEFT_OPEN: Final = '{"error":"no result"}'
"""What the library stores for a call that its answer left without a result."""


def _none_yet() -> list[Any]:
    return []


@attrs.define(eq=False)
class AnswerTrace:
    """One answer as it was seen."""

    number: int
    made: Answer | None = None
    name: str = "the agent"
    written: list[str] = attrs.field(factory=_none_yet)
    received: list[str] = attrs.field(factory=_none_yet)
    finished: list[str] = attrs.field(factory=_none_yet)
    failures: int = 0
    settled: bool = False
    """``cancel()`` or what supersedes it has returned: nothing of this answer may happen any more."""
    silent: bool = False
    """Nor may its consumer get another chunk."""
    cut_at: int | None = None
    """Length of the text that the caller heard, where the host said so."""
    stored: list[Item] = attrs.field(factory=_none_yet)
    one_of_several: bool = False
    """It was resumed, or goes on with one that was cut: their text is one message."""
    taken_apart: bool = False
    """A pause gave back a part of what was received: its chunks are others from then on."""
    taken_back: int = 0
    """Characters that were spoken and do not count: the next child has started again (``after_partial="restart"``)."""
    received_when_stopped: int | None = None
    """Chunks that its consumer had when it was stopped for the first time."""
    stopped_at: float | None = None
    """Virtual time at which it was stopped."""
    ended_seen: bool = False
    """Its task was seen to have ended, or was reported."""
    watched: Watched | None = None
    where: str = ""
    """The line at which it was after its cancellation, at the latest step."""
    items_when_stopped: list[Item] | None = None
    """The conversation at that moment, with what the interruption itself left behind."""
    events_when_stopped: int | None = None

    @property
    def answer(self) -> Answer:
        """The answer itself."""
        assert self.made is not None
        return self.made


@attrs.define(eq=False)
class Trace:
    """What one run showed.

    Attributes:
        answers: Every answer, in order.
        events: Every event of the agent, in order.
        violations: Invariants that were seen broken while it ran, as number and text.
        hook_text: Text that a hook spoke, which is not part of the conversation.
    """

    answers: list[AnswerTrace] = attrs.field(factory=_none_yet)
    events: list[Event] = attrs.field(factory=_none_yet)
    violations: list[tuple[int, str]] = attrs.field(factory=_none_yet)
    agent: Agent | None = None
    initial: list[Item] = attrs.field(factory=_none_yet)
    final: list[Item] = attrs.field(factory=_none_yet)
    at_close: list[Item] | None = None
    """The conversation when the agent was closed: what is added later is not reported."""
    hook_text: str = ""
    tool_texts: tuple[str, ...] = ()
    """Chunks that tools spoke (fillers, ``turn.say``), which are not part of it either."""
    listened: bool = True
    """Whether the probe heard the events; else nothing is known of them."""
    error: BaseException | None = None
    tasks_left: int = 0
    steps: int = 0
    """Scheduling steps that the scenario took."""

    def broken(self, number: int, what: str) -> None:
        """Note that an invariant does not hold."""
        self.violations.append((number, what))

    def summary(self) -> tuple[Any, ...]:
        """What must be the same on every event loop: texts, statuses, events, conversation."""
        texts = tuple(("".join(trace.received), tuple(trace.finished)) for trace in self.answers)
        return texts, tuple(_shape(event) for event in self.events), tuple(self.final)


def _shape(event: Event) -> tuple[Any, ...]:
    if isinstance(event, AnswerFinished):
        return ("AnswerFinished", event.result.text, event.result.status)
    if isinstance(event, AnswerFailed):
        return ("AnswerFailed", type(event.error).__name__)
    return (type(event).__name__, *attrs.astuple(event, recurse=False))


class Probe:
    """Hands a scenario what it needs to be watched; ``watch(agent)`` right after the agent is open.

    Args:
        listen: Listen to every event. Without, the agent is one that nobody listens to, and nobody
            looks at its conversation between two steps.
        end_within: Virtual seconds in which the task of an answer must have ended after its cancellation;
            ``math.inf`` looks at nothing of how it ends.
    """

    def __init__(self, *, listen: bool = True, end_within: float = END_WITHIN_S) -> None:
        self.trace: Trace = Trace(listened=listen)
        self._end_within = end_within
        self.stop_reading = False
        self._stopping: list[AnswerTrace] = []
        self._guesses: list[AnswerTrace] = []
        self._adopting: AnswerTrace | None = None
        self._looked_at = -1
        self._open_call: ToolCall | None = None
        """The first call without a result, in the version of the conversation that was looked at."""

    def watch(self, agent: Agent) -> None:
        """Record everything that ``agent`` does from now on."""
        trace = self.trace
        trace.agent = agent
        trace.initial = list(agent.conversation)
        patched: Any = agent
        core: Any = core_of(agent)
        if trace.listened:
            for kind in EVENT_TYPES:
                agent.on(kind, self._on_event)
            core.hub.emit = self._emit(core.hub.emit)
        patched.answer = self._answer(agent.answer)
        patched.resume = self._answer(agent.resume, resuming=True)
        if self._end_within < math.inf:
            patched.generate_answer = self._generate(agent, agent.generate_answer)
        patched.cancel = self._cancel(agent.cancel)
        patched.speculate = self._speculate(agent.speculate)
        core.began.append(self._adopted)
        core.close = self._close(core.close)  # the synchronous part of aclose()

    @property
    def current(self) -> AnswerTrace | None:
        """The latest answer."""
        return self.trace.answers[-1] if self.trace.answers else None

    # -- wrapped methods

    def _generate(self, agent: Agent, generate: Callable[[Turn], Any]) -> Callable[[Turn], Any]:
        name = type(agent).__name__

        def generate_answer(turn: Turn) -> Any:
            made = generate(turn)
            trace = next((one for one in self.trace.answers if one.answer.turn is turn), None)
            if trace is None or not inspect.isawaitable(made):
                return made
            return self._generated(trace, name, made)

        return generate_answer

    async def _generated(self, trace: AnswerTrace, name: str, made: Any) -> Any:
        trace.name = name
        trace.watched = Watched(made, lambda: trace.settled, trace.answer.turn.scope)
        value = await trace.watched
        if trace.watched.swallowed:
            self.trace.broken(
                11, f"{name} swallowed the cancellation of answer {trace.number}: it must be raised again"
            )
        return value

    def _answer(self, start: Callable[[], Answer], *, resuming: bool = False) -> Callable[[], Answer]:
        def answer() -> Answer:
            cut = self.current
            trace = AnswerTrace(len(self.trace.answers))
            # The answer's task inherits this context, and with it everything that it emits is known as its own.
            token = _IN_ANSWER.set(trace)
            try:
                trace.made = start()
            finally:
                _IN_ANSWER.reset(token)
            if resuming and cut is not None:
                if trace.made is cut.made:
                    return trace.made  # it was only paused
                trace.one_of_several = cut.one_of_several = True
            trace.number = len(self.trace.answers)
            self.trace.answers.append(trace)
            self._watch_answer(trace)
            return trace.made

        return answer

    def _speculate(self, start: Callable[..., Guess]) -> Callable[..., Guess]:
        """A guess is an answer from the moment in which it is adopted; until then nobody may see anything of it."""

        def speculate(*args: Any) -> Guess:
            trace = AnswerTrace(-1)
            token = _IN_ANSWER.set(trace)
            try:
                guess = start(*args)
            finally:
                _IN_ANSWER.reset(token)
            trace.made = guess._answer
            if trace.made is not None:
                self._guesses.append(trace)
                self._watch_answer(trace)
            return guess

        return speculate

    def _adopted(self, answer: Answer) -> None:
        trace = next((trace for trace in self._guesses if trace.made is answer), None)
        if trace is not None:
            trace.number = len(self.trace.answers)
            self.trace.answers.append(trace)
            self._adopting = trace

    def _cancel(self, cancel: Callable[..., None]) -> Callable[..., None]:
        def wrapped(heard: int | str | None = None, *, pause: bool = False) -> None:
            current = self.current
            if pause:
                cancel(heard, pause=True)
                if heard is not None and current is not None and current.answer.paused:
                    current.received[:] = [current.answer.text]  # the rest of it comes again
                    current.taken_apart = True
                return
            if current is not None and isinstance(heard, int):
                current.cut_at = min(heard, len("".join(current.received)))
            cancel(heard)
            agent = self.trace.agent
            if agent is not None and agent.answering and not self._stopping:
                self.trace.broken(7, "an answer runs after cancel()")

        return wrapped

    def _close(self, close: Callable[[], None]) -> Callable[[], None]:
        def wrapped() -> None:
            close()
            if self.trace.listened and self.trace.at_close is None and self.trace.agent is not None:
                self.trace.at_close = list(self.trace.agent.conversation)

        return wrapped

    def _watch_answer(self, trace: AnswerTrace) -> None:
        answer: Any = trace.answer
        push, receive, stop = answer.push, answer.next_chunk, answer.stop

        def written(chunk: str) -> None:
            if trace.settled:
                self.trace.broken(2, f"answer {trace.number} wrote {chunk!r} after it was cancelled")
            trace.written.append(chunk)
            push(chunk)

        async def received() -> str | None:
            chunk: str | None = await receive()
            if chunk is None:
                return None
            if answer.paused:
                self.trace.broken(1, f"the consumer of answer {trace.number} got {chunk!r} during a pause")
            if trace.silent:
                self.trace.broken(1, f"the consumer of answer {trace.number} got {chunk!r} after cancel()")
            trace.received.append(chunk)
            return chunk

        def stopped(heard: int | str | None, *, keep_unread: bool = False) -> None:
            self._stopping.append(trace)
            try:
                stop(heard, keep_unread=keep_unread)
            finally:
                self._stopping.pop()
            trace.settled = True
            self._note_stop(trace)
            # One that had ended before, unread, may be read to its end all the same.
            trace.silent = answer.pipe.cut

        answer.push, answer.next_chunk, answer.stop = written, received, stopped
        self._watch_turn(trace)

    def _note_stop(self, trace: AnswerTrace) -> None:
        if trace.received_when_stopped is not None:
            return
        trace.received_when_stopped = len(trace.received)
        trace.stopped_at = loop_time()
        trace.events_when_stopped = len(self.trace.events)
        if self.trace.listened:  # a look is what the message of a barge-in may be waiting for
            trace.items_when_stopped = list(trace.answer.turn.conversation)

    def _watch_turn(self, trace: AnswerTrace) -> None:
        """A turn that an agent keeps for later has no effect any more; that it tries is its fault all the same."""
        answer: Any = trace.answer
        write = answer.turn.write_nowait

        def write_nowait(text: str) -> None:
            if answer.task_done:
                self.trace.broken(
                    2, f"{text!r} was written to answer {trace.number} after its end, through a saved turn"
                )
            write(text)

        answer.turn.write_nowait = write_nowait

    # -- seen

    def _emit(self, emit: Callable[..., None]) -> Callable[..., None]:
        """Know whose event it is when it is emitted: delivery may come later, in the context of somebody else."""

        def wrapped(*events: Event) -> None:
            # What a cancel leaves behind is written by its caller, in whatever context, for the answer it stops.
            adopting, self._adopting = self._adopting, None
            source = self._stopping[-1] if self._stopping else adopting or _IN_ANSWER.get()
            if any(isinstance(event, ToolFinishedLate | ConversationSummarized) for event in events):
                source = None  # between two answers, whichever of them started it
            late = source is not None and source.settled and not self._stopping
            for event in events:
                if source is not None and not isinstance(event, AnswerFinished):
                    if late and not self._deferred(source, event):
                        name = type(event).__name__
                        self.trace.broken(2, f"answer {source.number} emitted {name} after it was cancelled")
                    self._ascribe(event, source)
            emit(*events)

        return wrapped

    def _on_event(self, event: Event) -> None:
        self.trace.events.append(event)
        if isinstance(event, AnswerFinished):
            self._finished(event)

    def _ascribe(self, event: Event, source: AnswerTrace) -> None:
        """Take down what ``event`` says of the answer that emitted it."""
        if isinstance(event, AnswerFailed):
            source.failures += 1
            if source.finished:
                self.trace.broken(3, f"answer {source.number} failed after its end")
        elif isinstance(event, MessageAdded):
            item = event.message
            if isinstance(item, ToolResult) and item.output == _LEFT_OPEN:
                self.trace.broken(6, f"the agent left call {item.tool_call_id} of {item.tool_name} open")
            source.stored.append(item)
        elif isinstance(event, AgentSwitched) and event.restarted:
            source.taken_back = len("".join(source.written))
        elif isinstance(event, MessageCorrected):
            changed = [event.new if item is event.old else item for item in source.stored]
            source.stored = [item for item in changed if item is not None]

    def _deferred(self, source: AnswerTrace, event: Event) -> bool:
        """Whether this is the result of the tool that itself cancelled the answer and then ran to its end."""
        if not isinstance(event, MessageAdded) or not isinstance(event.message, ToolResult):
            return False
        open_call = first_open_call(source.items_when_stopped or [])
        return open_call is not None and open_call.tool_call_id == event.message.tool_call_id

    def _finished(self, event: AnswerFinished) -> None:
        owner = next((t for t in self.trace.answers if t.answer.ended_with(event.result)), None)
        if owner is None:
            self.trace.broken(3, "an end of no answer was announced")
        else:
            owner.finished.append(event.result.status)

    def at_step(self) -> None:
        """Check what must hold between any two scheduling steps."""
        agent = self.trace.agent
        if agent is None:
            return
        self._check_ends()
        running = [trace for trace in self.trace.answers if trace.answer.status == "running"]
        if len(running) > 1:
            self.trace.broken(7, f"{len(running)} answers run at once")
        if running or not self.trace.listened:
            return
        version = agent.conversation.version
        if version != self._looked_at:  # a look at every item costs, and nearly no step changes one
            self._looked_at = version
            self._open_call = first_open_call(list(agent.conversation))
        open_call = self._open_call
        if open_call is not None:
            self.trace.broken(6, f"call {open_call.tool_call_id} has no result and no answer runs")

    def _check_ends(self) -> None:
        """A task that goes on after its cancellation is reported once, with the line that it is at."""
        for trace in self.trace.answers:
            if trace.stopped_at is None or trace.ended_seen:
                continue
            late = loop_time() - trace.stopped_at > self._end_within
            if late:
                self.trace.broken(
                    11,
                    f"{trace.name} still ran {self._end_within:g} s after answer {trace.number} was cancelled{trace.where}: "
                    "clean-up is too long, or the cancellation was shielded or swallowed",
                )
            trace.ended_seen = late or trace.answer.task_done
            if not trace.ended_seen and trace.watched is not None:
                trace.where = f" ({trace.watched.where})"  # at the next step it may be elsewhere


def loop_time() -> float:
    """The time of the event loop, also outside of its tasks."""
    loop: Any = running_loop()
    if loop is not None:
        return float(loop.time())
    import trio

    return trio.current_time()
