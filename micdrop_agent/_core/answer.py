"""One answer: a cancel scope, a turn, and the two ends of a memory object stream.

    generate_answer ──▶ Turn ──[memory object stream]──▶ Answer ──▶ consumer
                          └────── one CancelScope ──────────┘

Invariants, pinned in tests/test_invariants_*.py:

1. No chunk leaves ``receive()`` after ``cancel()`` has returned.
3. An answer ends exactly once, with exactly one status.
4. What the consumer received is a prefix of what was written, in order.
12. The consumer may stop reading at any time.
"""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Final

import anyio
from anyio.abc import ObjectReceiveStream

from micdrop_agent._core.farewell import announce_end, end_call
from micdrop_agent._core.generate import respond
from micdrop_agent._core.guards import awaited
from micdrop_agent._core.home import cancel_soon, cancelled_from_outside
from micdrop_agent._core.pause import written_in_pause
from micdrop_agent._core.pipe import Pipe
from micdrop_agent._core.playback import heard_since
from micdrop_agent._core.record import Ending
from micdrop_agent._core.spoken_pipe import SpokenPipe
from micdrop_agent._core.turn import Turn
from micdrop_agent._interrupts import defer_interrupts
from micdrop_agent.errors import AllAgentsFailedError, MicdropError, ProviderError, describe_error
from micdrop_agent.events import AnswerFailed, AnswerFinished, AnswerSkipped
from micdrop_agent.options import CLOSE_TIMEOUT
from micdrop_agent.result import TraceEvent

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from micdrop_agent._core.core import Core
    from micdrop_agent._core.history import History
    from micdrop_agent._core.home import Home
    from micdrop_agent.events import Event
    from micdrop_agent.messages import Message
    from micdrop_agent.model.protocol import ProviderStream
    from micdrop_agent.result import AnswerResult, AnswerStatus, EndStatus

__all__ = ["Answer"]

JOIN_TIMEOUT: Final = 0.02
"""Seconds that an answer waits for the one it superseded to close its request."""


@defer_interrupts
class Answer(ObjectReceiveStream[str]):
    """The text of one answer as a stream of chunks, and the handle to stop it.

    Made by ``agent.answer()``; it has started already. Iterate it (``async for``), call
    ``receive()``, or only ``wait()`` for its end. It may be read from any task, by one reader
    after the other; a reader that times out in ``receive()`` does not stop it. Leaving
    ``async with answer``, or ``aclose()``, stops it; a loop that is merely left early does not.

    Raises (from iteration, after the last chunk):
        ProviderError: The answer failed (unless the agent has ``raise_on_failure=False``).
        Exception: What the agent's own code raised.

    Source: Micdrop page "Agent (LLM)", ``answer(): Readable``.
    """

    __slots__ = (
        "_adopted",
        "_ended",
        "_error",
        "_scope",
        "_status",
        "_task_ended",
        "_waiters",
        "core",
        "ending",
        "held",
        "home",
        "ledger",
        "linger",
        "next_chunk",
        "pipe",
        "streams",
        "task_done",
        "turn",
        "work",
    )

    def __init__(self, core: Core, prompt: Message | None, home: Home, *, draft: History | None = None) -> None:
        self.core = core
        self.home = home
        self._scope = home.task_scope()
        self.linger: anyio.CancelScope | None = None
        self.streams: list[ProviderStream] = []
        """The responses that are being received: a hedge may have two."""
        self._ended: anyio.Event | None = None
        self.task_done = False
        self._task_ended: anyio.Event | None = None
        self._status: AnswerStatus = "running"
        self.ending: Ending | None = None
        self._error: Exception | None = None
        self._waiters = 0
        self.held: list[Event] | None = None if draft is None else []
        """Events of a guess, which nobody hears before it is adopted."""
        self._adopted: anyio.Event | None = None
        self.work: Callable[[Turn], Awaitable[None]] | None = None
        """What its task does in place of asking the agent."""
        self.turn = Turn(self, core, prompt=prompt, scope=self._scope, conversation=draft)
        self.ledger = self.turn.ledger
        speech = core.options.speech
        if speech is None:
            self.pipe = Pipe(self.ledger.took, home.loop)
        else:
            self.pipe = SpokenPipe(self.ledger.took, home.loop, speech)
        self.next_chunk = self.pipe.receive

    # -- for everybody

    @property
    def status(self) -> AnswerStatus:
        """``"running"``, then how the generation ended; a later cut does not change it."""
        return self._status

    @property
    def text(self) -> str:
        """The text that the consumer has received so far."""
        return self.ledger.text[: self.ledger.received]

    @property
    def unheard(self) -> str:
        """Text of a cancelled answer that its caller has not heard, as far as it was written."""
        if not self.pipe.cut:
            return ""
        self.ledger.conversation.settle()
        return "".join(segment.unheard for segment in self.ledger.segments)

    @property
    def result(self) -> AnswerResult:
        """Text, status, usage, times and error of the generation.

        Raises:
            RuntimeError: The answer is still running; ``await answer.wait()`` first.
        """
        if self.ending is None:
            raise RuntimeError("the answer is still running; await answer.wait() for its result")
        return self.ending.result

    @property
    def trace(self) -> tuple[TraceEvent, ...]:
        """What has happened so far, in order, with times; ``result.trace`` has all of it at the end."""
        return tuple(TraceEvent(*each) for each in self.turn.facts.trace)

    @property
    def ended(self) -> bool:
        """Whether the generation is over."""
        return self._status != "running"

    def ended_with(self, result: AnswerResult) -> bool:
        """Whether ``result`` is this very answer's."""
        return self.ending is not None and self.ending.result is result

    async def wait(self) -> AnswerResult:
        """Wait until the generation has ended and return its result; raises nothing of it.

        A host that takes the text from here, without iterating, counts as its reader: all of
        it counts as received. Whoever iterates later still gets every chunk.
        """
        self._waiters += 1
        self.pipe.moved()
        try:
            if self.ending is None:
                await self.over()
            else:
                await anyio.lowlevel.checkpoint()
        finally:
            self._waiters -= 1
        if not self.pipe.read and not self.pipe.paused:
            self.pipe.count_all()
        return self.result

    async def over(self) -> None:
        """Wait until the generation has ended, without counting as a reader."""
        if self.ending is None:
            if self._ended is None:
                self._ended = anyio.Event()
            await self._ended.wait()

    def cancel(self, heard: int | str | None = None) -> None:
        """Stop this answer; see ``Agent.cancel``. It may be called at any time, repeatedly.

        Args:
            heard: What the caller really heard of it: a number of characters of ``text``, or
                the text itself. The stored message is cut there. ``None``: all that was received.

        Raises:
            RuntimeError: Called from another thread.
            TypeError: ``heard`` is neither.
            ValueError: ``heard`` is a negative number.
        """
        self.core.check_thread("cancel()")
        self.stop(heard)

    async def receive(self) -> str:
        """The next chunk.

        Raises:
            anyio.EndOfStream: The answer has ended, or was cancelled.
            ProviderError: The answer failed; comes after its last good chunk.
        """
        chunk = await self.next_chunk()
        if chunk is None:
            self._tell_failure()
            raise anyio.EndOfStream
        return chunk

    async def __anext__(self) -> str:
        # As inherited, without an exception on the way: after a barge-in the caller's loop is waited for.
        chunk = await self.next_chunk()
        if chunk is None:
            self._tell_failure()
            raise StopAsyncIteration
        return chunk

    def _tell_failure(self) -> None:
        """Raise for the consumer what the answer failed with, if it failed and that is to be told."""
        if self._error is not None and self.core.options.raise_on_failure and not self.pipe.cut:
            raise self._error

    async def aclose(self) -> None:
        """Stop what is left of the answer and wait (at most 0.5 s) for its task to end; a shielded tool may take longer."""
        self.core.check_thread("aclose()")
        self.stop(None)
        if self.task_done:
            await anyio.lowlevel.checkpoint()
        else:
            await self.join(CLOSE_TIMEOUT)

    async def join(self, seconds: float) -> None:
        """Wait until this answer's task has ended, at most ``seconds``."""
        if self._task_ended is None:
            self._task_ended = anyio.Event()
        with anyio.move_on_after(seconds):
            await self._task_ended.wait()

    if not TYPE_CHECKING:  # type checkers find these mistakes by themselves

        def __iter__(self) -> None:
            raise TypeError("an answer is read with 'async for chunk in answer', not with 'for'")

        __await__ = awaited

    def __del__(self) -> None:
        # An answer that nobody read to its end is legal; its streams must not warn of it.
        pipe = getattr(self, "pipe", None)
        if pipe is not None:
            pipe.close()

    # -- the producer's side

    def push(self, chunk: str) -> None:
        """Hand ``chunk`` to the consumer."""
        pipe = self.pipe
        pipe.push(chunk)
        if pipe.paused:
            written_in_pause(self)

    async def wait_for_room(self, buffer_size: int) -> None:
        """Wait until the consumer has kept up."""
        # Where nobody iterates, wait() takes the text as a whole, in the end: until then nothing was received.
        await self.pipe.wait_for_room(buffer_size, self._nobody_waits)

    def _nobody_waits(self) -> bool:
        """Whether the producer need not wait for a reader: there is none to wait for."""
        return self.turn.fenced or bool(self._waiters and not self.pipe.read)

    # -- the end, from any side

    def stop(self, heard: int | str | None, *, keep_unread: bool = False) -> None:
        """Settle everything in one synchronous step; only then cancel the scope."""
        pipe, ledger = self.pipe, self.ledger
        if pipe.cut and heard is None:
            return  # as a reader's clean-up does, after a barge-in
        upto = ledger.received
        if heard is not None:
            upto = heard_since(ledger.restarted, pipe.heard_in_original(heard), ledger.text[:upto])
        running = self._status == "running"
        self.turn.fence()
        if self.linger is not None:
            self.linger.cancel()
        if not running and self._keeps(unread=keep_unread, heard=heard):
            if pipe.paused:
                pipe.go_on()  # its reader has all of it to itself
            return
        pipe.cut_off()
        conversation, hub = ledger.conversation, self.core.hub
        events: list[Event] = []
        if running and hub.unheard and not conversation.followed and not ledger.calls and self.core.state == "open":
            ledger.interrupt_unheard(upto)  # the caller waits for the voice to stop, not for this
        else:
            events = ledger.interrupt(upto) + ledger.close_calls()
        if running:
            self.turn.facts.note("cancel", received=ledger.received, written=ledger.length)
            events += self.end_as("cancelled", upto)
        self.hang_up()
        self.emit(events)

    def hang_up(self) -> None:
        """Free what the answer uses: its requests, and its task."""
        cancel_soon(self.home, self._scope, self.streams)

    @property
    def paused(self) -> bool:
        """Whether its consumer waits until ``agent.resume()``."""
        return self.pipe.paused

    def _keeps(self, *, unread: bool, heard: int | str | None) -> bool:
        """Whether an answer that has ended stays as it is."""
        if heard is None and (self.pipe.drained or self.core.state == "closed"):
            return True
        return unread and not self.pipe.read

    def finish(self, error: Exception | None) -> None:
        """The generation ended by itself; nothing happens if it was cancelled before."""
        if self._status != "running":
            if error is not None:
                # A barge-in cuts the connection: an error of a read is expected then.
                level = logging.DEBUG if isinstance(error, ProviderError) else logging.WARNING
                self.core.log.log(level, "the answer had ended when its task raised", exc_info=error)
            return
        turn, ledger = self.turn, self.ledger
        events: list[Event] = []
        if error is None:
            status: EndStatus = "skipped" if turn.facts.skipped and not ledger.length else "completed"
        else:
            status = "failed"
            self._error = error
            events += ledger.interrupt(ledger.length)
        events += ledger.close_calls('{"error":"no result"}')
        ended = self.end_as(status, ledger.length, error=error)
        self._log_trace()
        self.pipe.end()
        if error is not None:
            self.core.log.failure(error)
            events.append(AnswerFailed(error))
            if isinstance(error, AllAgentsFailedError):
                events.append(AnswerSkipped())
        self.emit([*events, *ended])
        # In a task of its own: the clean-up of a rival must not hold it up. A listener of the last
        # event may have cut the answer: then there is nobody to wait for.
        self._end_of_call()

    def emit(self, events: Sequence[Event]) -> None:
        """Tell of ``events``, or hold them while this is a guess."""
        if self.held is not None:
            self.held += events
        elif events:
            self.core.hub.emit(*events)

    def _end_of_call(self) -> None:
        if self._status != "running" and self.turn.facts.ends_call and not self.turn.fenced and self.held is None:
            self.core.spawn(lambda: announce_end(self), "micdrop end of call")

    # -- as a guess

    async def adopted(self) -> None:
        """Wait until this is the agent's answer; returns at once if it is."""
        while self.held is not None:
            if self._adopted is None:
                self._adopted = anyio.Event()
            await self._adopted.wait()

    def wake(self) -> None:
        """It is the agent's answer from now on: what waits for that goes on."""
        if self._adopted is not None:
            self._adopted.set()
        self._end_of_call()

    def end_as(self, status: EndStatus, upto: int, *, error: Exception | None = None) -> list[Event]:
        """End with ``status``; returns the event that says so, if somebody hears it."""
        facts, core = self.turn.facts, self.core
        self._status = status
        if error is None:
            facts.note("end", status=status)
        else:
            facts.note("end", status=status, error=describe_error(error))
        ending = self.ending = Ending(facts, self.ledger, status, upto, error)
        if self._ended is not None:
            self._ended.set()
        return [] if core.hub.unheard and self.held is None else [AnswerFinished(ending.result)]

    def settle(self) -> None:
        """What a barge-in leaves to be done, once its caller and its consumer have gone on."""
        self.ledger.conversation.settle()
        self._log_trace()

    def _log_trace(self) -> None:
        if self.ending is not None and self.core.logger.isEnabledFor(logging.DEBUG):
            self.core.log.course(self.ending.result.trace)

    # -- the task

    async def run(self, previous: Answer | None) -> None:
        """The answer's task, in the agent's task group. No Exception ever leaves it."""
        try:
            await self._generate(previous)
        except anyio.get_cancelled_exc_class():  # noqa: ASYNC103 - raised where it is not this task's alone
            self.stop(None, keep_unread=True)
            # The agent's or the host's own cancellation goes on; a native cancellation of this
            # one task is only a cancel() of this answer and must not end the whole agent.
            if anyio.current_effective_deadline() == -math.inf:
                raise
        finally:
            if self._status == "cancelled":
                self.settle()
            self.task_done = True
            if self.pipe.over:
                self.pipe.close()
            if self._task_ended is not None:
                self._task_ended.set()

    async def _generate(self, previous: Answer | None) -> None:
        error: Exception | None = None
        # The try stands outside the scope, which takes its own cancellation out of a group first.
        try:
            with self._scope:
                if previous is not None and previous.status == "cancelled" and not previous.task_done:
                    await previous.join(JOIN_TIMEOUT)
                if not self.turn.fenced:  # cancelled before it began: its hook does not even run
                    await (respond(self.core, self.turn) if self.work is None else self.work(self.turn))
        except Exception as raised:  # noqa: BLE001 - subclass code: its error is the answer's
            error = raised
        except anyio.get_cancelled_exc_class() as stray:  # noqa: ASYNC103 - raised where it is ours
            if cancelled_from_outside():
                raise
            error = MicdropError("something that generate_answer waited for was cancelled")
            error.__cause__ = stray
        self.finish(error)

    def closing(self) -> None:
        """The agent is being closed: what is left of the answer ends with it."""
        if self._status != "running" and self.pipe.drained:
            end_call(self)  # due in a moment, which will not come
        self.stop(None, keep_unread=True)
