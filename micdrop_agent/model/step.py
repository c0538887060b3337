"""One step of a turn: a request, its retries, and what came back.

    Step.run ──▶ _attempt ──▶ provider.open ──▶ receive … ──▶ text, calls, finish
        ▲           │ ProviderError, nothing said yet
        └── wait ◀──┘

The clocks are ours and are moved only by useful output (text or a part of a call). Tool calls
start as soon as they are complete, while the response may still be arriving.
"""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, Final

import anyio

from micdrop_agent._core.groups import lone_error_unwrapped
from micdrop_agent._core.tool_run import begin_call, run_call, run_call_apart
from micdrop_agent._interrupts import start_soon
from micdrop_agent.errors import ProviderError
from micdrop_agent.messages import ToolCall, is_blank
from micdrop_agent.model.call_ids import new_call_id
from micdrop_agent.model.clock import RequestClock
from micdrop_agent.model.protocol import (
    CallReady,
    Finish,
    Progress,
    Refusal,
    Request,
    TextDone,
    Usage,
)
from micdrop_agent.model.step_result import StepResult
from micdrop_agent.options import CLOSE_TIMEOUT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anyio.abc import TaskGroup

    from micdrop_agent._core.turn import Turn
    from micdrop_agent.messages import Item
    from micdrop_agent.model.agent import ModelCore
    from micdrop_agent.model.clock import TotalClock
    from micdrop_agent.model.protocol import (
        ProviderEvent,
        ProviderStream,
    )
    from micdrop_agent.text import NarrationFilter
    from micdrop_agent.text.written import WrittenCall
    from micdrop_agent.tools import Tool

__all__ = ["Step", "StepResult"]

AFTER_FINISH: Final = 0.05
"""Seconds for the usage that a server sends after the reason why it finished. The answer does not wait for more."""

AFTER_DOUBTFUL_FINISH: Final = 2.0
"""The same when the reason came so early that more words may follow: then a pause in the words is not the end."""

LONGEST_ASKED_WAIT: Final = 2.0
"""A ``Retry-After`` of more seconds is dead air in a call: the request is not sent again."""


class Step:
    """One request to the model of ``core``, with its retries.

    Args:
        core: Whose provider and options are used.
        turn: Where everything that comes back goes.
        tools: The tools offered.
        total: The clock of the whole answer, shared by its steps.
        first: Whether this is the first request of the turn.
    """

    __slots__ = (
        "_clock",
        "_narration",
        "_tasks",
        "_written",
        "continue_from",
        "core",
        "first",
        "provider",
        "tools",
        "total",
        "turn",
    )
    _clock: RequestClock

    def __init__(self, core: ModelCore, turn: Turn, tools: Sequence[Tool], total: TotalClock, *, first: bool) -> None:
        self.core = core
        self.turn = turn
        self.tools = tools
        self.total = total
        self.first = first
        self.continue_from = turn.continue_from if first else None
        self.provider = core.provider
        self._narration: NarrationFilter | None = None
        self._written: list[WrittenCall] = []
        """Calls of this response that came as text."""
        self._tasks: TaskGroup | None = None

    async def run(self) -> StepResult:
        """Send the request, and again while that makes sense.

        Raises:
            ProviderError: It failed for good.
        """
        retries = 0
        shortened = False
        while True:
            response = StepResult()
            try:
                await self._attempt(response)
            except ProviderError as error:
                if self.turn.fenced:
                    raise  # cut by a barge-in: no failure, and nothing to be sent again
                error.text_sent = self.turn.ledger.length > 0
                if response.outcome.skip or response.outcome.end_call:
                    return response  # the turn is over; what was cut off no longer matters
                if not shortened and self._shorten(error, response):
                    shortened = True  # another request than the one that failed: not one of its retries
                    continue
                retries += 1
                await self._before_retry(retries, error, response)
                if response.outcome.ran:
                    return response  # the next request carries the calls and their results
            else:
                return response

    def _shorten(self, error: ProviderError, response: StepResult) -> bool:
        return error.kind == "context_length" and not response.said and self.core.shorten_requests(self.turn)

    async def _before_retry(self, retries: int, error: ProviderError, response: StepResult) -> None:
        """Wait before retry number ``retries``; raises ``error`` if there is none."""
        wait = None if response.said else self._wait_before(retries, error)
        if wait is None:
            raise error
        self.core.log.info("retry %d in %.2f s: %s", retries, wait, error)
        self.turn.facts.note(
            "retry",
            number=retries,
            of=self.core.options.retrying.max_retries,
            agent=self.turn.label,
            wait=round(wait, 3),
            error=error.kind,
        )
        await self._wait(wait)

    def _wait_before(self, retry: int, error: ProviderError) -> float | None:
        """Seconds to wait before retry number ``retry``; ``None`` to give up."""
        options = self.core.options.retrying
        if retry > options.max_retries:
            return None
        asked = error.retry_after
        if error.kind == "empty":
            # Its output was of no use (a call that cannot be read): asked again once, as an empty response is.
            return 0.0 if error.retryable and retry == 1 else None
        if error.kind == "rate_limit":
            if asked is None or not self.turn.patient:
                return None
        elif not error.retryable:
            return None
        if self.core.options.retry is None and not self.turn.patient:
            return None
        if asked is not None:
            return asked if asked <= LONGEST_ASKED_WAIT else None
        return options.wait_before(retry, random.random())  # noqa: S311 - spreads load, no secret

    async def _wait(self, seconds: float) -> None:
        with anyio.CancelScope(deadline=self.total.ends_at) as limit:
            await anyio.sleep(seconds)
        if limit.cancelled_caught:
            raise self._took_too_long()

    def _took_too_long(self) -> ProviderError:
        return ProviderError(
            f"the answer took longer than {self.core.options.timeouts.total:g} seconds in all (Timeouts.total)",
            kind="timeout",
            provider=self.provider.name,
            retryable=False,
        )

    # -- one request

    async def _attempt(self, response: StepResult) -> None:
        core, turn = self.core, self.turn
        turn.facts.requests += 1
        turn.ran_tool = False
        items = core.items(turn)
        request = Request(
            items=items,
            tools=self.tools,
            declared=turn.tools,
            # Another child of a FallbackAgent may have run the forced call already.
            first=self.first and not _called_since_the_caller_spoke(items),
            continue_from=self.continue_from,
        )
        self._narration, self._written = self._new_narration(), []
        self._clock = RequestClock(turn.new_scope(), self.total, turn.facts.clock, self.core.options.timeouts)
        self._clock.allow(core.options.timeouts.first_chunk, "first chunk")
        if self.tools and core.options.parallel_tools:
            with lone_error_unwrapped():
                failure: ProviderError | None = None
                async with anyio.create_task_group() as tasks:
                    self._tasks = tasks
                    tasks.cancel_scope.deadline = self.total.ends_at  # tools too
                    try:
                        await self._timed(request, response)
                        await self._run_written(response)
                    except ProviderError as error:
                        # Held back: a cut response must not cut the tools that it started.
                        failure = error
                self._tasks = None
            if tasks.cancel_scope.cancelled_caught and (response.called or not response.whole):
                raise self._took_too_long()
            if failure is not None:
                raise failure
        else:
            await self._timed(request, response)
            await self._run_written(response)
        self._complete(response)

    async def _run_written(self, response: StepResult) -> None:
        """End the text of a response, and run the calls in it that came as text (D18)."""
        if response.finish == "content_filter":
            return
        self._end_text(response)
        written, self._written = self._written, []
        if response.called or not self.core.options.run_written_calls:
            return
        with anyio.CancelScope(deadline=self.total.ends_at) as scope:
            for call in written:
                await self._call(CallReady(new_call_id(), call.name, call.arguments), response)
        if scope.cancelled_caught:
            raise self._took_too_long()

    async def _timed(self, request: Request, response: StepResult) -> None:
        facts, number = self.turn.facts, self.turn.facts.requests
        failed: str | None = None
        with self._clock.scope as scope:
            model = getattr(self.core.agent, "model", None)
            facts.note("request", number=number, agent=self.turn.label, provider=self.provider.name, model=model)
            try:
                stream = await self.provider.open(request)
                facts.note("headers", number=number)
                streams = self.turn.answer.streams
                streams.append(stream)
                try:
                    await self._read(stream, response)
                finally:
                    streams.remove(stream)
                    if not getattr(stream, "released", False):
                        await self._close(stream)  # noqa: ASYNC102 - it shields and bounds itself
            except ProviderError as error:
                failed = None if self.turn.fenced else error.kind
                raise
            finally:
                late = scope.cancel_called and response.finish is None
                facts.note("response", number=number, **response.facts("timeout" if late else failed))
                # Not within cancel(): there the caller waits, and the server sees the close first.
                if self.turn.cut:
                    self.core.request_cut()
        if not scope.cancelled_caught:
            return
        if self._clock.total_ran_out and not response.whole:
            raise self._took_too_long()
        if response.finish is None:
            raise ProviderError(
                f"{self.provider.name} sent nothing useful in time ({self._clock})",
                kind="timeout",
                provider=self.provider.name,
                retryable=False,
            )

    async def _close(self, stream: ProviderStream) -> None:
        """Close a response; one that has said everything is read to its end beside the answer (docs/design.md)."""
        hang_up = getattr(stream, "hang_up", None)
        if hang_up is not None and self._clock.scope.cancel_called:
            hang_up()
        leave = None if self.turn.fenced else getattr(stream, "leave", None)
        beside = None if leave is None else leave()
        # There it is bounded by itself; the agent's end cancels it, and its connection is closed then.
        if beside is not None and self.core.spawn(beside, "micdrop end of response"):
            return
        with anyio.move_on_after(CLOSE_TIMEOUT, shield=True):
            await stream.aclose()

    async def _read(self, stream: ProviderStream, response: StepResult) -> None:
        between = self.core.options.timeouts.between_chunks
        while True:
            events = await stream.receive()
            if events is None:
                return
            useful = await self._take(events, response)
            if useful and self.turn.root.options.buffer_size is not None:
                await self._drain()
            if response.whole:
                if response.usage is not None:
                    return  # nothing that follows is of interest: the end mark is not waited for
                self._clock.allow(AFTER_FINISH, "end mark")
            elif useful:
                pause = between
                if response.finish is not None:
                    pause = AFTER_DOUBTFUL_FINISH if between is None else min(between, AFTER_DOUBTFUL_FINISH)
                self._clock.flows(events, pause)

    async def _drain(self) -> None:
        """Let the consumer run, or keep up: waiting for it is not the provider's fault."""
        turn, tasks = self.turn, self._tasks
        if turn.root.options.buffer_size is None:
            await turn.drain()
            return
        began = turn.facts.clock()
        self._clock.forget_rate()
        self._clock.scope.deadline = math.inf
        if tasks is not None:
            tasks.cancel_scope.deadline = math.inf
        await turn.drain()
        self.total.ends_at += turn.facts.clock() - began
        if tasks is not None:
            tasks.cancel_scope.deadline = self.total.ends_at

    async def _take(self, events: Sequence[ProviderEvent], response: StepResult) -> bool:
        """Handle what came in one read; whether any of it was useful."""
        useful = False
        for event in events:
            if type(event) is str:
                self._text(event, response)
                useful = True
                if not response.said:
                    response.said = True
                    # The first chunk goes out before the rest of its burst is handled.
                    await self._drain()
                    if self.turn.reader_waits:
                        # Trio runs what is ready in any order: the reader may come after us.
                        await anyio.lowlevel.checkpoint()
            else:
                useful = await self._other(event, response) or useful
        return useful

    # -- its events

    def _text(self, text: str, response: StepResult) -> None:
        if response.muted:
            return
        if self._narration is not None:
            text = self._narration.feed(text)
        self.turn.write_nowait(text)

    async def _other(self, event: ProviderEvent, response: StepResult) -> bool:
        """Handle an event that is not plain text; returns whether it moves the clock."""
        if isinstance(event, Progress):
            return True
        if isinstance(event, CallReady):
            await self._call(event, response)
            return True
        if isinstance(event, Refusal):
            response.refused = response.said = True
            self._text(event.text, response)
            spoken = self.turn.ledger.open
            if spoken is not None and not self.turn.fenced:
                spoken.metadata["refusal"] = True  # also when it is cut before its end
            return True
        if isinstance(event, TextDone):
            self._end_text(response)
            return True
        if isinstance(event, Usage):
            response.usage = event if response.usage is None else response.usage + event
            self.turn.add_usage(event)
        elif isinstance(event, Finish):
            response.finish, response.doubtful = event.reason, event.doubtful
            self.turn.add_finish(event.reason)
        return False

    def _end_text(self, response: StepResult) -> None:
        """A stretch of text is complete: hand over what was held back, and store it."""
        narration = self._narration
        if narration is not None:
            spoken = narration.finish(called=response.called)
            if not response.muted:
                self.turn.write_nowait(spoken)
            self._written += narration.written
            if narration.dropped:
                self.core.log.warning("taken out of the answer, not run: %s", "; ".join(narration.dropped))
                # A response that was nothing else has said nothing.
                response.said = response.said and not is_blank(self.turn.ledger.text)
            self._narration = self._new_narration()
        self.turn.commit({"refusal": True} if response.refused else None)

    async def _call(self, event: CallReady, response: StepResult) -> None:
        await self._adopted()
        if not self.tools:
            return  # none was offered: the last request of a turn wants words
        response.called |= {event.name}
        self._end_text(response)
        tool = next((tool for tool in self.tools if tool.name == event.name), None)
        if tool is not None and tool.skip_answer and tool.kind != "end_call":
            response.muted = True  # the turn ends in silence: what follows is not spoken
        call = begin_call(self.turn, ToolCall(event.id, event.name, event.arguments))
        if call is None:
            return
        if self._tasks is not None:
            start_soon(self._tasks, run_call_apart, self.turn, call, response.outcome)
            await anyio.lowlevel.checkpoint()  # Trio starts the tasks of one step in any order
            return
        self._clock.allow_all()  # a tool has its own time-out
        await run_call(self.turn, call, response.outcome)
        self._clock.allow(self.core.options.timeouts.between_chunks, "between chunks")

    async def _adopted(self) -> None:
        """Wait before a call until a guess is adopted: that takes as long as the caller does."""
        turn, tasks = self.turn, self._tasks
        if not turn.guessing:
            return
        began = turn.facts.clock()
        self._clock.scope.deadline = math.inf
        if tasks is not None:
            tasks.cancel_scope.deadline = math.inf
        await turn.adopted()
        self.total.ends_at += turn.facts.clock() - began
        if tasks is not None:
            tasks.cancel_scope.deadline = self.total.ends_at
        self._clock.allow(self.core.options.timeouts.between_chunks, "between chunks")

    def _new_narration(self) -> NarrationFilter:
        from micdrop_agent.text import NarrationFilter

        return NarrationFilter({tool.name: tool.loose_parameters for tool in self.tools})

    def _complete(self, response: StepResult) -> None:
        if response.finish == "content_filter":  # before the commit: the text was cut
            raise ProviderError(
                f"{self.provider.name} stopped its response with its content filter",
                kind="content_filter",
                provider=self.provider.name,
            )
        self._end_text(response)


def _called_since_the_caller_spoke(items: Sequence[Item]) -> bool:
    for item in reversed(items):
        if isinstance(item, ToolCall):
            return True
        if item.role == "user":
            return False
    return False
