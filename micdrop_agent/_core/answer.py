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

from micdrop_agent._core.guards import cancel_soon, cancelled_from_outside
from micdrop_agent._core.pipe import Pipe
from micdrop_agent._core.playback import heard_since
from micdrop_agent._core.record import Ending
from micdrop_agent._core.turn import Turn
from micdrop_agent.errors import AllAgentsFailedError, MicdropError, ProviderError, words_of
from micdrop_agent.events import (
    AnswerFailed,
    AnswerFinished,
    AnswerSkipped,
    EndCallRequested,
)
from micdrop_agent.result import TraceEvent

if TYPE_CHECKING:
    from micdrop_agent._core.agent import Agent
    from micdrop_agent._core.guards import Home
    from micdrop_agent.events import (
        Event,
    )
    from micdrop_agent.messages import Message
    from micdrop_agent.model.protocol import ProviderStream
    from micdrop_agent.result import AnswerResult, AnswerStatus, EndStatus

__all__ = ["Answer"]

CLOSE_TIMEOUT: Final = 0.5
"""Seconds that ``aclose()`` waits for the answer's task; a shielded tool may take longer."""

IDLE_READER: Final = 30.0
"""Seconds without a chunk being read after which the end of the call is announced anyway."""

LEFT_READER: Final = 5.0
"""The same when every chunk was handed over, but nobody has come to see that it was the last."""

JOIN_TIMEOUT: Final = 0.02
"""Seconds that an answer waits for the one it superseded to close its request."""


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
        "_agent",
        "_ended",
        "_ending",
        "_error",
        "_home",
        "_ledger",
        "_linger",
        "_next",
        "_pipe",
        "_scope",
        "_status",
        "_streams",
        "_task_done",
        "_task_ended",
        "_turn",
        "_waiters",
    )

    def __init__(self, agent: Agent, prompt: Message | None, home: Home) -> None:
        self._agent = agent
        self._home = home
        self._scope = home.task_scope()
        self._linger: anyio.CancelScope | None = None
        self._streams: list[ProviderStream] = []
        """The responses that are being received: a hedge may have two."""
        self._ended: anyio.Event | None = None
        self._task_done = False
        self._task_ended: anyio.Event | None = None
        self._status: AnswerStatus = "running"
        self._ending: Ending | None = None
        self._error: Exception | None = None
        self._waiters = 0
        self._turn = Turn(self, agent, prompt=prompt, scope=self._scope)
        self._ledger = self._turn.ledger
        self._pipe = Pipe(self._ledger.took, home.loop)
        self._next = self._pipe.receive

    # -- for everybody

    @property
    def status(self) -> AnswerStatus:
        """``"running"``, then how the generation ended; a later cut does not change it."""
        return self._status

    @property
    def text(self) -> str:
        """The text that the consumer has received so far."""
        return self._ledger.text[: self._ledger.received]

    @property
    def result(self) -> AnswerResult:
        """Text, status, usage, times and error of the generation.

        Raises:
            RuntimeError: The answer is still running; ``await answer.wait()`` first.
        """
        if self._ending is None:
            raise RuntimeError("the answer is still running; await answer.wait() for its result")
        return self._ending.result

    @property
    def trace(self) -> tuple[TraceEvent, ...]:
        """What has happened so far, in order, with times; ``result.trace`` has all of it at the end."""
        return tuple(TraceEvent(*each) for each in self._turn.facts.trace)

    def _ended_with(self, result: AnswerResult) -> bool:
        """Whether ``result`` is this very answer's."""
        return self._ending is not None and self._ending.result is result

    async def wait(self) -> AnswerResult:
        """Wait until the generation has ended and return its result; raises nothing of it.

        A host that takes the text from here, without iterating, counts as its reader: all of
        it counts as received. Whoever iterates later still gets every chunk.
        """
        self._waiters += 1
        self._pipe.moved()
        try:
            if self._ending is None:
                if self._ended is None:
                    self._ended = anyio.Event()
                await self._ended.wait()
            else:
                await anyio.lowlevel.checkpoint()
        finally:
            self._waiters -= 1
        if not self._pipe.read:
            self._pipe.count_all()
        return self.result

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
        self._agent._check_thread("cancel()")
        self._stop(heard)

    async def receive(self) -> str:
        """The next chunk.

        Raises:
            anyio.EndOfStream: The answer has ended, or was cancelled.
            ProviderError: The answer failed; comes after its last good chunk.
        """
        chunk = await self._next()
        if chunk is None:
            self._tell_failure()
            raise anyio.EndOfStream
        return chunk

    async def __anext__(self) -> str:
        # As inherited, without an exception on the way: after a barge-in the caller's loop is waited for.
        chunk = await self._next()
        if chunk is None:
            self._tell_failure()
            raise StopAsyncIteration
        return chunk

    def _tell_failure(self) -> None:
        """Raise for the consumer what the answer failed with, if it failed and that is to be told."""
        if self._error is not None and self._agent.raise_on_failure and not self._cut:
            raise self._error

    async def aclose(self) -> None:
        """Stop what is left of the answer and wait (at most 0.5 s) for its task to end."""
        self._agent._check_thread("aclose()")
        self._stop(None)
        if self._task_done:
            await anyio.lowlevel.checkpoint()
        else:
            await self._join(CLOSE_TIMEOUT)

    async def _join(self, seconds: float) -> None:
        """Wait until this answer's task has ended, at most ``seconds``."""
        if self._task_ended is None:
            self._task_ended = anyio.Event()
        with anyio.move_on_after(seconds):
            await self._task_ended.wait()

    if not TYPE_CHECKING:  # type checkers find these mistakes by themselves

        def __iter__(self) -> None:
            raise TypeError("an answer is read with 'async for chunk in answer', not with 'for'")

    # No __await__ that says so likewise: a portal (portal.call(agent.answer)) awaits what can be awaited.

    def __del__(self) -> None:
        # An answer that nobody read to its end is legal; its streams must not warn of it.
        pipe = getattr(self, "_pipe", None)
        if pipe is not None:
            pipe.close()

    # -- the producer's side

    def _push(self, chunk: str) -> None:
        self._pipe.push(chunk)

    async def _wait_for_room(self, buffer_size: int) -> None:
        if self._waiters and not self._pipe.read:
            self._pipe.count_all()  # nobody iterates: wait() takes the text as a whole
        await self._pipe.wait_for_room(buffer_size, self._nobody_waits)

    def _nobody_waits(self) -> bool:
        """Whether the producer need not wait for a reader: there is none to wait for."""
        return self._turn.fenced or bool(self._waiters and not self._pipe.read)

    @property
    def _cut(self) -> bool:
        return self._pipe.cut

    # -- the end, from any side

    def _stop(self, heard: int | str | None, *, keep_unread: bool = False) -> None:
        """Settle everything in one synchronous step; only then cancel the scope."""
        pipe, ledger = self._pipe, self._ledger
        if pipe.cut and heard is None:
            return  # as a reader's clean-up does, after a barge-in
        upto = ledger.received
        if heard is not None:
            upto = heard_since(ledger.restarted, heard, ledger.text[:upto])
        running = self._status == "running"
        self._turn.fence()
        if self._linger is not None:
            self._linger.cancel()
        if not running and self._keeps(unread=keep_unread, heard=heard):
            return
        pipe.cut_off()
        conversation, hub = ledger.conversation, self._agent._hub
        events: list[Event] = []
        if running and hub.unheard and conversation._unfollowed and not ledger.calls and self._agent._state == "open":
            ledger.interrupt_unheard(upto)  # the caller waits for the voice to stop, not for this
        else:
            events = ledger.interrupt(upto) + ledger.close_calls()
        if running:
            self._turn.facts.note("cancel", received=ledger.received, written=ledger.length)
            events += self._end_as("cancelled", upto)
        cancel_soon(self._home, self._scope, self._streams)
        if events:
            hub.emit(*events)

    def _keeps(self, *, unread: bool, heard: int | str | None) -> bool:
        """Whether an answer that has ended stays as it is."""
        if heard is None and (self._pipe.drained or self._agent._closed):
            return True
        return unread and not self._pipe.read

    def _finish(self, error: Exception | None) -> None:
        """The generation ended by itself; nothing happens if it was cancelled before."""
        if self._status != "running":
            if error is not None:
                # A barge-in cuts the connection: what a read says of that is no news.
                level = logging.DEBUG if isinstance(error, ProviderError) else logging.WARNING
                self._agent._safe_logger.log(level, "the answer had ended when its task raised", exc_info=error)
            return
        turn, ledger = self._turn, self._ledger
        events: list[Event] = []
        if error is None:
            status: EndStatus = "skipped" if turn.facts.skipped and not ledger.length else "completed"
        else:
            status = "failed"
            self._error = error
            events += ledger.interrupt(ledger.length)
        events += ledger.close_calls('{"error":"no result"}')
        ended = self._end_as(status, ledger.length, error=error)
        self._log_trace()
        self._pipe.end()
        if error is not None:
            self._agent._log_failure(error)
            events.append(AnswerFailed(error))
            if isinstance(error, AllAgentsFailedError):
                events.append(AnswerSkipped())
        self._agent._hub.emit(*events, *ended)
        # In a task of its own: the clean-up of a rival must not hold it up. A listener of the last
        # event may have cut the answer: then there is nobody to wait for.
        if turn.facts.ends_call and not turn.fenced:
            self._agent._spawn(self._announce_end, "micdrop end of call")

    def _end_as(self, status: EndStatus, upto: int, *, error: Exception | None = None) -> list[Event]:
        facts, agent = self._turn.facts, self._agent
        self._status = status
        if error is None:
            facts.note("end", status=status)
        else:
            facts.note("end", status=status, error=words_of(error))
        ending = self._ending = Ending(facts, self._ledger, status, upto, error)
        if self._ended is not None:
            self._ended.set()
        return [] if agent._hub.unheard else [AnswerFinished(ending.result)]

    def _settle(self) -> None:
        """What a barge-in leaves to be done, once its caller and its consumer have gone on."""
        self._ledger.conversation._settle()
        self._log_trace()

    def _log_trace(self) -> None:
        if self._ending is not None and self._agent._logger.isEnabledFor(logging.DEBUG):
            self._agent._log_trace(self._ending.result.trace)

    # -- the task

    async def _run(self, previous: Answer | None) -> None:
        """The answer's task, in the agent's task group. No Exception ever leaves it."""
        try:
            await self._generate(previous)
        except anyio.get_cancelled_exc_class():  # noqa: ASYNC103 - raised where it is not this task's alone
            self._stop(None, keep_unread=True)
            # The agent's or the host's own cancellation goes on; a native cancellation of this
            # one task is only a cancel() of this answer and must not end the whole agent.
            if anyio.current_effective_deadline() == -math.inf:
                raise
        finally:
            if self._status == "cancelled":
                self._settle()
            self._task_done = True
            if self._pipe.over:
                self._pipe.close()
            if self._task_ended is not None:
                self._task_ended.set()

    async def _generate(self, previous: Answer | None) -> None:
        error: Exception | None = None
        # The try stands outside the scope, which takes its own cancellation out of a group first.
        try:
            with self._scope:
                if previous is not None and previous._status == "cancelled" and not previous._task_done:
                    await previous._join(JOIN_TIMEOUT)
                if not self._turn.fenced:  # cancelled before it began: its hook does not even run
                    await self._agent._respond(self._turn)
        except Exception as raised:  # noqa: BLE001 - subclass code: its error is the answer's
            error = raised
        except anyio.get_cancelled_exc_class() as stray:  # noqa: ASYNC103 - raised where it is ours
            if cancelled_from_outside():
                raise
            error = MicdropError("something that generate_answer waited for was cancelled")
            error.__cause__ = stray
        self._finish(error)

    async def _announce_end(self) -> None:
        """The end of the call is told once the farewell was handed over, to the last chunk."""
        pipe = self._pipe
        with anyio.CancelScope() as self._linger:
            while not (pipe.drained or self._turn.fenced) and (pipe.unread or pipe.read):
                with anyio.move_on_after(IDLE_READER if pipe.unread else LEFT_READER) as idle:
                    await pipe.wait_for_progress()
                if idle.cancelled_caught:
                    break
            # One turn of the loop, so that the reader sees the end before the event comes.
            await anyio.lowlevel.checkpoint()
            await anyio.lowlevel.checkpoint()
            self._end_call()

    def _end_call(self) -> None:
        """Tell the end of the call, once, unless the answer was cut."""
        if self._turn.facts.ends_call and not self._turn.fenced:
            self._turn.facts.ends_call = False
            self._agent._hub.emit(EndCallRequested())

    def _closing(self) -> None:
        """The agent is being closed: what is left of the answer ends with it."""
        if self._status != "running" and self._pipe.drained:
            self._end_call()  # due in a moment, which will not come
        self._stop(None, keep_unread=True)
