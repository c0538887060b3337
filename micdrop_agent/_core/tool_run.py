"""Running tool calls: every call gets exactly one result, right after it, whatever happens.

A call is stored before its tool starts and its result when the tool ends. A cancelled answer
closes its open calls inside ``cancel()``; what a tool returns after that is dropped, with one
exception: a tool that cancels its own answer and then returns without ever suspending has run
to its end, so its result is real (``_stepwise`` sees that). Pinned in tests/test_toolrun.py
and by invariant 6.
"""

from __future__ import annotations

import inspect
import math
import types
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio
import attrs

from micdrop_agent._core.filler import speak_filler
from micdrop_agent._core.groups import lone_error_unwrapped
from micdrop_agent._core.home import cancelled_from_outside
from micdrop_agent._core.ledger import CANCELLED_OUTPUT
from micdrop_agent._core.scopes import task_scope
from micdrop_agent._interrupts import defer_interrupts, interruptibly, start_soon
from micdrop_agent.errors import ToolError
from micdrop_agent.events import AnswerSkipped, ToolCalled

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence

    from micdrop_agent._core.detach import Detachable
    from micdrop_agent._core.ledger import OpenCall
    from micdrop_agent._core.log import SafeLog
    from micdrop_agent._core.turn import Turn
    from micdrop_agent.messages import ToolCall
    from micdrop_agent.tools import BoundCall, Tool

PATIENCE: Final = 1.0
"""Seconds that a tool has to end after its answer was cancelled, before it is named in a warning."""

FAILED: Final = "the tool failed"
"""What the model reads of a tool that raised: the rest is in the log (docs/design.md D13)."""

__all__ = [
    "ToolRun",
    "ToolsOutcome",
    "begin_call",
    "name_tools_at_work",
    "run_call",
    "run_call_apart",
    "run_calls",
    "watch_tools",
]


@attrs.define(eq=False)
class ToolsOutcome:
    """What a set of tool calls means for the turn.

    Args:
        ran: Calls that got a result.
        skip: A control tool ended the turn: nothing more is to be said.
        end_call: The model asked for the end of the call.
        plain: Calls whose result the model should see and speak of.
    """

    ran: int = 0
    skip: bool = False
    end_call: bool = False
    plain: int = 0


async def run_calls(turn: Turn, calls: Sequence[ToolCall], *, parallel: bool) -> ToolsOutcome:
    """Run ``calls``, at the same time or in turn, and sum up what they mean."""
    outcome = ToolsOutcome()
    await turn.adopted()
    if not parallel or len(calls) < 2:  # noqa: PLR2004 - one call needs no task of its own
        for item in calls:
            call = begin_call(turn, item)
            if call is not None:
                await run_call(turn, call, outcome)
        return outcome
    with lone_error_unwrapped():
        async with anyio.create_task_group() as tasks:
            for item in calls:
                call = begin_call(turn, item)
                if call is not None:
                    start_soon(tasks, run_call_apart, turn, call, outcome)
                    await anyio.lowlevel.checkpoint()  # Trio starts the tasks of one step in any order
    return outcome


def begin_call(turn: Turn, item: ToolCall) -> OpenCall | None:
    """Store ``item`` as a call that runs from now on; ``None`` if the turn is fenced.

    Synchronous, so calls are stored in the order of the model, whatever order their tasks run in.
    """
    if not turn.claim():
        return None
    turn.part()
    turn.ran_tool = turn.facts.called = True
    call, events = turn.ledger.open_call(item, turn)
    turn.emit_all(events)
    # A listener of the call may have cancelled the answer: then its tool never starts.
    return None if turn.fenced else call


@defer_interrupts
async def run_call_apart(turn: Turn, call: OpenCall, outcome: ToolsOutcome) -> None:
    """As ``run_call``, in a task of its own: who cancels that task natively has cancelled this tool only.

    Let through, it would end the tools beside it as well, without a word and without their results.
    """
    await run_call(turn, call, outcome, apart=True)


async def run_call(turn: Turn, call: OpenCall, outcome: ToolsOutcome, *, apart: bool = False) -> None:
    """Run the tool of ``call`` and store its result; drops it when the turn is fenced by then."""
    if turn.fenced:
        return
    name = call.item.tool_name
    turn.facts.note("tool_started", tool=name, call=call.item.tool_call_id, agent=turn.label)
    run = ToolRun(turn, call, next((tool for tool in turn.tools if tool.name == name), None), apart=apart)
    turn.root.tools_at_work[run] = None
    if run.tool is not None and run.tool.filler is not None and not turn.facts.filled:
        run.filler_due = anyio.current_time() + run.tool.filler_after
        turn.root.spawn(partial(speak_filler, run, run.tool), f"micdrop filler {name}")
    if run.tool is not None and run.tool.on_cancel == "detach":
        run.apart = True
        from micdrop_agent._core.detach import Detachable

        run.late = Detachable(run)
        await run.late.wait(lambda: _to_its_end(run, outcome))
    else:
        await _to_its_end(run, outcome)


async def _to_its_end(run: ToolRun, outcome: ToolsOutcome) -> None:
    """Run the tool, clean up behind it, and store its result."""
    turn, call = run.turn, run.call
    at_work = turn.root.tools_at_work
    try:
        await run.execute()
    finally:
        run.over = True
        if run.filler is not None:
            run.filler.cancel()
        if not run.at_work:
            at_work.pop(run, None)
            if run.watcher is not None:
                run.watcher.cancel()
        # The tool itself cancelled the answer and was then cancelled, or raised.
        if call.deferred and run.output is None:
            turn.emit_all(turn.ledger.close_call(call, CANCELLED_OUTPUT))
    assert run.output is not None  # a run that has none has raised
    turn.facts.note("tool_ended", tool=call.item.tool_name, call=call.item.tool_call_id, failed=run.failed)
    if not run.loose:  # then its result comes later
        run.store(run.output, outcome)


def watch_tools(turn: Turn) -> None:
    """``turn`` is fenced: have its tools watched, which were cancelled with it."""
    for run in tuple(turn.root.tools_at_work):
        if run.turn is turn and not (run.tool is not None and run.tool.on_cancel == "finish"):
            turn.root.spawn(run.watch, f"micdrop watch {run.call.item.tool_name}")


def name_tools_at_work(log: SafeLog, runs: Iterable[ToolRun]) -> None:
    """Say which tools an agent gave up on when it was closed."""
    left = [run for run in runs if run.at_work]
    if left and not any(run.call.on_stack for run in left):
        names = ", ".join(sorted(run.call.item.tool_name for run in left))
        log.warning("the agent is closed while tools of it still run: %s", names)


class ToolRun:
    """One execution of one tool."""

    def __init__(self, turn: Turn, call: OpenCall, tool: Tool | None, *, apart: bool) -> None:
        self.turn = turn
        self.call = call
        self.tool = tool
        self.apart = apart
        self.bound: BoundCall | None = None
        self.value: Any = None
        self.output: str | None = None
        self.failed = False
        self.over = False
        self.filler_due = math.inf
        self.filler: anyio.CancelScope | None = None
        """What waits to say that it takes a moment."""
        self.watcher: anyio.CancelScope | None = None
        """What waits to say that it ignores its cancellation; most tools end at once, and it with them."""
        self.in_thread = tool is not None and tool.thread
        self.late: Detachable | None = None
        """Its own task, if it may outlive the answer."""

    @property
    def loose(self) -> bool:
        """Whether it goes on although its answer was cancelled."""
        return self.late is not None and self.late.loose

    async def execute(self) -> None:
        tool, item = self.tool, self.call.item
        if tool is None:
            known = ", ".join(tool.name for tool in self.turn.tools) or "none"
            self._fail(f"there is no tool {item.tool_name!r}; the tools are: {known}")
            return
        try:
            self.bound = tool.bind(item.parameters)
            self.value = await self._timed(tool, self.bound)
        except ToolError as error:  # its words are for the model
            self._fail(str(error) or FAILED)
        except anyio.get_cancelled_exc_class():  # noqa: ASYNC103 - raised where it is ours
            if not cancelled_from_outside():
                self._fail("something that the tool waited for was cancelled")
            elif self.apart and anyio.current_effective_deadline() > -math.inf:
                self._fail("cancelled")
            else:
                raise
        except Exception as error:  # foreign code: its words may hold secrets, and may be spoken
            self.turn.root.log.warning("tool %s raised", item.tool_name, exc_info=True)
            self._fail("the tool timed out" if isinstance(error, TimeoutError) else FAILED)
        else:
            self._show()

    def _show(self) -> None:
        """What the tool returned, as text: it has run, whatever the form of that (D19)."""
        if self.tool is not None and self.tool.execute is None:
            self.output = "{}"
            return
        from micdrop_agent.tools import show_output

        shown = show_output(self.value)
        self.output = shown.text
        if shown.hidden:
            self.turn.root.log.warning(
                "the output of tool %s holds what cannot be shown to a model: %s",
                self.call.item.tool_name,
                ", ".join(part.strip(" :") for part in shown.hidden),
            )

    def _fail(self, text: str) -> None:
        self.failed = True
        import json

        self.output = json.dumps({"error": text}, ensure_ascii=False, separators=(",", ":"))

    async def _timed(self, tool: Tool, bound: BoundCall) -> Any:
        recorder = self.turn.root.recorder
        if recorder is not None and tool.execute is not None:
            # The worker that goes on after a crash must know that this tool may have run.
            await recorder.before_tool()
        new_scope = task_scope if self.apart else anyio.CancelScope
        limit = new_scope(shield=tool.on_cancel == "finish")
        if tool.timeout is not None:
            limit.deadline = anyio.current_time() + tool.timeout
        value: Any = None
        with limit:
            value = await self._invoke(tool, bound)
        if limit.cancelled_caught:
            raise ToolError(f"the tool took longer than {tool.timeout:g} seconds")
        return value

    async def _invoke(self, tool: Tool, bound: BoundCall) -> Any:
        agent = self.turn.agent
        if tool.thread:
            from micdrop_agent._core.threads import run_in_thread

            # In a list, because Trio refuses a function in a thread that returns a coroutine. Abandoned by its
            # time-out too: what is to be finished is shielded from everything else.
            (value,) = await run_in_thread(lambda: self._blocking(bound))
            return await value if inspect.isawaitable(value) else value
        self.call.on_stack = True
        try:
            if inspect.iscoroutinefunction(tool.execute):
                value = bound.invoke(agent, turn=self.turn)
            else:
                value = interruptibly(bound.invoke, agent, turn=self.turn)
        finally:
            self.call.on_stack = False
        if inspect.isawaitable(value):
            return await _stepwise(value.__await__(), self.call, self._suspended)
        return value

    def _blocking(self, bound: BoundCall) -> list[Any]:
        """In a thread, which may go on when nobody waits for it any more."""
        try:
            return [bound.invoke(self.turn.agent, turn=self.turn)]
        finally:
            self.in_thread = False
            if self.over:
                self.turn.root.tools_at_work.pop(self, None)

    @property
    def at_work(self) -> bool:
        """Whether code of the tool may still be running."""
        return not self.over or self.in_thread

    async def watch(self) -> None:
        """Name the tool if it still runs a while after its answer was cancelled."""
        with anyio.CancelScope() as self.watcher:
            if self.at_work and not self.loose:
                await anyio.sleep(PATIENCE)
        if self.at_work and not self.loose:
            self.turn.root.log.warning(
                "tool %s still runs %g s after its answer was cancelled: it ignores its cancellation%s",
                self.call.item.tool_name,
                PATIENCE,
                " (a thread cannot be stopped; see timeout= and on_cancel=)" if self.in_thread else "",
            )

    def _suspended(self) -> None:
        if self.call.deferred:
            self.turn.emit_all(self.turn.ledger.close_call(self.call, self.call.output_when_cut()))

    def store(self, output: str, outcome: ToolsOutcome) -> None:
        turn, call, tool = self.turn, self.call, self.tool
        if turn.fenced:
            if call.deferred:
                turn.emit_all(turn.ledger.close_call(call, output))
            else:
                turn.root.log.info(
                    "the result of tool %s came after its answer was cancelled; it is dropped",
                    call.item.tool_name,
                )
            return
        outcome.ran += 1
        kind = "plain" if tool is None or self.failed else tool.kind
        if kind == "semantic_turn":
            turn.facts.skipped = True
            turn.emit(AnswerSkipped())
        elif kind == "ignore_user_noise":
            turn.cancel_prompt()
        turn.emit_all(turn.ledger.close_call(call, output))
        if kind == "end_call":
            turn.end_call()
            outcome.end_call = True
        elif tool is not None and tool.skip_answer and not self.failed:
            turn.facts.skipped = True
            outcome.skip = True
        else:
            outcome.plain += 1
        if tool is not None and self.bound is not None and tool.emit_output and not self.failed:
            turn.emit(ToolCalled(tool.name, self.bound.parameters, self.value))


@types.coroutine
def _stepwise(
    steps: Generator[Any, Any, Any], call: OpenCall, suspended: Callable[[], None]
) -> Generator[Any, Any, Any]:
    """Drive an awaitable as ``await`` does, and know when its code is on the stack.

    ``call.on_stack`` is true exactly while the tool's own code runs, so ``cancel()`` can tell
    that it was called by the tool; ``suspended`` is called before each suspension.
    """
    value: Any = None
    error: BaseException | None = None
    while True:
        call.on_stack = True
        try:
            waiting_for = interruptibly(*((steps.send, value) if error is None else (steps.throw, error)))
        except StopIteration as stop:
            return stop.value
        except BaseException:
            steps.close()  # its first step may not have come about
            raise
        finally:
            call.on_stack = False
        suspended()
        value, error = None, None
        try:
            value = yield waiting_for
        except GeneratorExit:
            steps.close()
            raise
        except BaseException as thrown:  # noqa: BLE001, ASYNC103 - passed on to the tool, as await does
            error = thrown
