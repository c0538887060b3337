"""A tool that outlives its answer: it runs in a task of the agent, and its result comes when nobody speaks.

    answer's task ── waits ──▶ the tool, in a task of its own
    cancel() ─────── the call gets "the result follows" ──▶ between two answers: a new pair, ToolFinishedLate

Bounded by ``max_detached``; one more, and what still runs when the agent is closed, is cancelled. Pinned in
tests/test_toolrun_detach.py.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel
import attrs

from micdrop_agent._core.quiet import until_quiet
from micdrop_agent.events import MessageAdded, ToolFinishedLate
from micdrop_agent.messages import ToolCall, ToolResult

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from micdrop_agent._core.history import History
    from micdrop_agent._core.tool_run import ToolRun

__all__ = ["Detachable"]


@attrs.define(eq=False)
class Detachable:
    """The task of a tool with ``on_cancel="detach"``.

    Args:
        run: The run of the tool.
        loose: Whether its answer was cut, and it goes on without it.
    """

    run: ToolRun
    loose: bool = False
    number: int = attrs.field(factory=count().__next__)
    """They are called in this order."""
    _delivered: bool = False
    _scope: anyio.CancelScope = attrs.field(factory=anyio.CancelScope)
    _done: anyio.Event = attrs.field(factory=anyio.Event)

    async def wait(self, work: Callable[[], Awaitable[None]]) -> None:
        """Have ``work`` done in a task of the agent, and wait for its end; cancelled, it goes on if it may."""
        self.run.call.may_outlive = self._let_go
        root = self.run.turn.root
        if not root.spawn(lambda: self._in_own_task(work), f"micdrop tool {self.run.call.item.tool_name}"):
            return  # the agent is being closed, and this answer with it
        try:
            await self._done.wait()
        finally:
            if not self.loose:
                self._scope.cancel()

    async def _in_own_task(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            with self._scope:
                await work()
        finally:
            self._done.set()
        if self.loose and self.run.output is not None:
            await self._wait_to_deliver()

    async def _wait_to_deliver(self) -> None:
        root = self.run.turn.root
        root.tools_at_work[self.run] = None
        try:
            # Tools that end in one moment do so in any order: the one that was called first comes first (invariant 15).
            await anyio.lowlevel.checkpoint()
            await anyio.lowlevel.checkpoint()
            while self.due:
                await until_quiet(root, heard=True)
                waiting = [run.late for run in root.tools_at_work if run.late is not None and run.late.due]
                waiting.sort(key=lambda late: late.number)
                if waiting:  # one at a time: a listener may have it spoken at once
                    waiting[0].deliver()
        finally:
            root.tools_at_work.pop(self.run, None)

    @property
    def due(self) -> bool:
        """Whether it has a result that nobody was told."""
        return self.loose and self.run.over and self.run.output is not None and not self._delivered

    def _let_go(self) -> bool:
        """The answer is cut: whether the tool may go on without it. Synchronous, within ``cancel()``."""
        root = self.run.turn.root
        if not self.loose and not root.over and not self._scope.cancel_called:
            others = sum(run.loose for run in root.tools_at_work)
            self.loose = others < root.options.max_detached
        return self.loose

    def deliver(self) -> None:
        """Store the result as that of a new call: the old one has its result, and a pair is never taken apart."""
        root, asked, output = self.run.turn.root, self.run.call.item, self.run.output
        assert output is not None  # it is due
        self._delivered = True
        history = root.conversation
        call = ToolCall(_unused_id(asked.tool_call_id, history), asked.tool_name, asked.parameters)
        result = ToolResult(call.tool_call_id, call.tool_name, output)
        at, then = history.push(call), history.push(result)
        root.hub.emit(MessageAdded(call, at), MessageAdded(result, then), ToolFinishedLate(asked, result))


def _unused_id(old: str, history: History) -> str:
    known = {item.tool_call_id for item in history if isinstance(item, ToolCall)}
    number = 1
    while (new := f"{old}_late{number}") in known:
        number += 1
    return new
