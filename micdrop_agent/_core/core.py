"""What an agent is made of, and its life: one object, in the one slot that an ``Agent`` keeps for itself.

    async with agent:  ── owns ──▶  one task group
        answer()       ── starts ─▶ one task, one cancel scope, one memory stream
        cancel()       ── settles everything at once, then cancels that scope

A child of a ``FallbackAgent`` has an owner: conversation, listeners, tasks and answers are those of the outermost agent
(``root()``), tools and options its own. Agents of the library extend this (``ModelCore``, ``FallbackCore``), users ``Agent``.
"""

from __future__ import annotations

import logging
import math
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import anyio

from micdrop_agent._core import guards
from micdrop_agent._core.answer import Answer
from micdrop_agent._core.event_hub import EventHub
from micdrop_agent._core.extraction import Extraction
from micdrop_agent._core.groups import lone_error_unwrapped
from micdrop_agent._core.history import History, take_last_user_message
from micdrop_agent._core.home import Home
from micdrop_agent._core.log import CALL, SafeLog
from micdrop_agent._core.pause import pause as pause_answer
from micdrop_agent._core.scopes import task_scope
from micdrop_agent._core.tool_run import ToolRun, name_tools_at_work
from micdrop_agent._interrupts import defer_interrupts, know_trio, start_soon
from micdrop_agent.events import MessageAdded
from micdrop_agent.messages import Message, ToolResult
from micdrop_agent.options import LEAVE_TIMEOUT
from micdrop_agent.tools import ToolSet, control_tools

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

    from micdrop_agent._core.agent import Agent
    from micdrop_agent._core.guess import Guess
    from micdrop_agent._core.options import AgentOptions
    from micdrop_agent._core.turn import Turn
    from micdrop_agent.events import Event
    from micdrop_agent.messages import Item
    from micdrop_agent.model.protocol import Usage
    from micdrop_agent.store import CallRecorder
    from micdrop_agent.text import TextFilter
    from micdrop_agent.tools import Tool

__all__ = ["Core", "core_of"]

SUPERSEDED: Final = 100
"""Answers that listeners may start while one ``answer()`` cancels them; more is an endless loop."""


def core_of(agent: Agent) -> Core:
    """The inside of ``agent``, for the rooms of the library."""
    return agent._core  # pyright: ignore[reportPrivateUsage] # the one way in


@defer_interrupts
class Core:
    """The inside of one agent.

    Args:
        agent: The agent itself: what users hold, and whose ``generate_answer`` is called.
        options: Its options.

    Attributes:
        owner: The core of the ``FallbackAgent`` that drives this agent; ``None`` for an agent of the application.
        began: Called with each answer in the step, and the context, in which it is started.
        guess: The guess that may be adopted, if there is one; ``guessed`` counts those since the last answer.
        wasted: Tokens of guesses that were discarded since then.
        system: The system prompt, which is the first message of the conversation.
    """

    __slots__ = (
        "__dict__",  # empty: only a probe, which watches what an agent does, puts something there
        "_alive",
        "_all_done",
        "_background",
        "_left_to_do",
        "_tasks",
        "agent",
        "began",
        "conversation",
        "current",
        "extraction",
        "guess",
        "guessed",
        "home",
        "hub",
        "log",
        "logger",
        "options",
        "owner",
        "recorder",
        "state",
        "system",
        "toolset",
        "wasted",
    )

    continues_exactly = False
    """Whether its model goes on from the very last character when asked to continue."""

    def __init__(self, agent: Agent, options: AgentOptions) -> None:
        know_trio()
        self.agent = agent
        self.options = options
        self.owner: Core | None = None
        self.recorder: CallRecorder | None = None
        self.logger = logging.getLogger(f"micdrop_agent.{type(agent).__name__}")
        self.log = SafeLog(self.logger, self.call_id)
        self.system = Message("system", options.system_prompt)
        self.conversation = History([self.system], self._check_idle)
        control = control_tools(
            auto_end_call=options.auto_end_call,
            auto_semantic_turn=options.auto_semantic_turn,
            auto_ignore_user_noise=options.auto_ignore_user_noise,
        )
        self.toolset = ToolSet([*control, *options.tools], options.deps)
        self.extraction = None if options.extract is None else Extraction(self, options.extract)
        self.hub = EventHub(agent, self.log)
        self.state: guards.State = "new"
        self.home: Home | None = None
        self.current: Answer | None = None
        self.guess: Guess | None = None
        self.guessed = 0
        self.wasted: Usage | None = None
        self.began: list[Callable[[Answer], None]] = []
        self._tasks: anyio.abc.TaskGroup | None = None
        self._background: dict[anyio.CancelScope, str] = {}  # a quarter of an empty set
        self._left_to_do: list[Callable[[], Awaitable[None]]] = []
        self.last_filler = ""
        self.tools_at_work: dict[ToolRun, None] = {}
        """Tools that run, and threads of tools that nobody waits for any more."""
        self._all_done: anyio.Event | None = None
        self._alive = 0

    def root(self) -> Core:
        """The core of the outermost agent, which the application holds."""
        core = self
        while core.owner is not None:
            core = core.owner
        return core

    def check_thread(self, what: str) -> None:
        """Refuse ``what`` from another thread or event loop than that of the open agent."""
        if self.home is not None and self.state != "closed":
            self.home.check(what)

    @property
    def over(self) -> bool:
        """Whether this agent, or the one that drives it, is being closed: nothing new may be opened."""
        return not {"closing", "closed"}.isdisjoint((self.state, self.root().state))

    # -- what it knows

    def _check_idle(self) -> None:
        if self.answering:
            raise RuntimeError("the conversation cannot be replaced while an answer runs; cancel it")
        self._end_pause()

    def add(self, item: Item) -> None:
        """Append ``item`` and report it; the result of a call that runs goes right after that."""
        self.check_thread("adding a message")
        if isinstance(item, ToolResult) and self.current is not None:
            self.hub.emit(*self.current.ledger.add(item))  # right after its call, which has one result
            return
        self._end_pause()
        index = self.conversation.push(item)
        if not self.hub.unheard:
            self.hub.emit(MessageAdded(item, index))

    def _end_pause(self) -> None:
        """The conversation goes on without the rest of a paused answer, unless its own tool says so."""
        live = self.current
        if live is not None and live.paused and not any(call.on_stack for call in live.ledger.calls):
            live.stop(None)

    def cancel_last_user_message(self) -> None:
        """Take the last user message out, wherever it stands."""
        self.check_thread("cancel_last_user_message()")
        self.hub.emit(take_last_user_message(self.conversation))

    def emit(self, what: str, event: Event) -> None:
        """Tell of ``event``, which ``what`` was called for."""
        self.check_thread(what)
        self.hub.emit(event)

    def use_logger(self, logger: logging.Logger) -> None:
        """Log to ``logger`` from now on."""
        self.logger = logger
        self.log = self.hub.log = SafeLog(logger, self.call_id)

    def call_id(self) -> str | None:
        """Name of the call: the one under which it is stored, else the one it was given."""
        root = self.root()
        return root.options.call_id if root.recorder is None else root.recorder.call_id

    # -- as one of several children

    def label(self) -> str:
        """Name of this agent among the children of a ``FallbackAgent``."""
        model = getattr(self.agent, "model", None)
        return f"{type(self.agent).__name__}({model})" if isinstance(model, str) else type(self.agent).__name__

    def system_message(self) -> Message:
        """The system prompt under which it answers."""
        return self.system

    def use_system(self, message: Message) -> None:
        """Answer under another system prompt from now on."""
        self.system = message

    def show_system(self, conversation: History) -> None:
        """Have the prompt that counts at the beginning of ``conversation``."""
        message = self.system_message()
        if len(conversation) and conversation[0].role == "system" and conversation[0] is not message:
            conversation.put(0, message)

    def listed_tools(self) -> Sequence[Tool]:
        """What the application sees as the tools of this agent."""
        return tuple(self.toolset)

    def add_tool(self, tool: Tool | Callable[..., Any]) -> None:
        """Add a tool, or a function that ``@tool`` can wrap."""
        self.toolset.add(tool)

    def remove_tool(self, name: str) -> None:
        """Remove a tool by name."""
        self.toolset.remove(name)

    def extracting(self) -> Extraction | None:
        """What takes a value out of a text of this agent."""
        return self.extraction

    def offered_tools(self) -> Sequence[Tool]:
        """What a model of this agent is offered: its own tools, then those shared with it."""
        return self.shared_tools()

    def shared_tools(self) -> Sequence[Tool]:
        """What this agent shares with its children: what was added to it and to those around it."""
        own = tuple(self.toolset)
        if self.owner is None:
            return own
        names = {tool.name for tool in own}
        return own + tuple(tool for tool in self.owner.shared_tools() if tool.name not in names)

    # -- life

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[None]:
        """The agent's block."""
        guards.may_open(self.agent, self.state, owned=self.owner is not None)
        self.state = "open"
        home = self.home = Home()
        whole, cancelled = False, 0
        try:
            with lone_error_unwrapped():
                async with anyio.create_task_group() as tasks:
                    self._tasks = tasks
                    try:
                        await self.start()
                        yield
                    finally:
                        cancelled = home.cancellations()
                        self.close()
            whole = True
        finally:
            self._tasks = None
            self.state = "closed"
            name_tools_at_work(self.log, self.tools_at_work)
            try:
                with anyio.move_on_after(LEAVE_TIMEOUT, shield=True):
                    try:
                        await self.agent.aclose()
                    finally:  # Ctrl-C comes through a shield too
                        await self.let_go()  # noqa: ASYNC102 - shielded and bounded by the scope around it
            finally:
                if self.recorder is not None:
                    await self.recorder.finish(raising=whole)  # noqa: ASYNC102 - it shields and bounds itself
                if not whole and isinstance(sys.exception(), Exception):
                    home.deliver_lost(cancelled)

    async def aclose(self) -> None:
        """Close, and wait a bounded time until what was running has ended."""
        self.check_thread("aclose()")
        live = self.current
        by_tool = live is not None and any(call.on_stack for call in live.ledger.calls)
        self.close()
        if by_tool:
            await anyio.lowlevel.checkpoint()
        elif self._alive:
            if self._all_done is None:
                self._all_done = anyio.Event()
            with anyio.move_on_after(LEAVE_TIMEOUT) as limit:
                await self._all_done.wait()
            if limit.cancelled_caught:
                self.log.warning(
                    "closing gave up after %g s: %d of its tasks ignore their cancellation (%s)",
                    LEAVE_TIMEOUT,
                    self._alive,
                    ", ".join(self._background.values()) or "an answer, or a tool of it",
                )
        name_tools_at_work(self.log, self.tools_at_work)

    def close(self) -> None:
        """The synchronous part of closing: nothing of this agent has an effect afterwards."""
        self.state = "closing" if self.state == "open" else "closed"
        self.log.debug("closed")
        self.drop_guess()
        if self.current is not None:
            self.current.closing()
        for scope in tuple(self._background):
            scope.cancel()
        self.hub.close()

    async def let_go(self) -> None:
        """Close resources; one that cannot be closed does not hide the error that ended the block."""
        try:
            await self.stop_resources()
        except Exception:  # foreign code: a provider or a client of the application's own
            self.log.exception("the resources of the agent could not be closed")

    async def start(self) -> None:
        """Open resources, in the agent's task group."""

    async def stop_resources(self) -> None:
        """Close resources; runs shielded and bounded."""

    def spawn(self, work: Callable[[], Awaitable[None]], name: str) -> bool:
        """Run ``work`` in the agent's task group, cancelled when the agent is closed; ``False`` if it is closed already."""
        root = self.root()
        if root._tasks is None or root.state != "open":
            return False
        scope = task_scope()
        root._background[scope] = name
        start_soon(root._tasks, root._in_background, work, scope, name=name)
        return True

    def afterwards(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run ``work`` in the task of the answer that is ending, once that is done."""
        self.root()._left_to_do.append(work)

    async def _in_background(self, work: Callable[[], Awaitable[None]], scope: anyio.CancelScope) -> None:
        self._alive += 1
        try:
            with scope:
                await work()
        except Exception:  # background work serves later answers; it must not end this one
            self.log.exception("background work of the agent failed")
        except anyio.get_cancelled_exc_class():  # noqa: ASYNC103 - raised where it is not this task's alone
            # Only on asyncio: the task, or what it waited for, was cancelled natively. Let through, the task
            # group would take that for its own cancellation and end the agent's block without a word.
            if anyio.current_effective_deadline() == -math.inf:
                raise
            self.log.warning("background work of the agent was cancelled", exc_info=True)
        finally:
            self._background.pop(scope, None)
            self._task_ended()

    def _task_ended(self) -> None:
        self._alive -= 1
        if not self._alive and self._all_done is not None:
            self._all_done.set()
            self._all_done = None

    # -- answers

    @property
    def answering(self) -> bool:
        """Whether an answer is being generated right now."""
        return self.current is not None and self.current.status == "running"

    def answer(self) -> Answer:
        """Start an answer; see ``Agent.answer``."""
        guards.may_answer(self.agent, self.state, owned=self.owner is not None)
        self.check_thread("answer()")
        self.drop_guess()
        previous = self.current
        for _ in range(SUPERSEDED):
            if self.current is None or self.current.turn.fenced:
                break
            # A listener of the cancelled answer may have started another one.
            self.current.stop(None, keep_unread=True)
        else:
            raise RuntimeError(
                "a listener starts another answer whenever one is cancelled, also for answer() itself; "
                "let it look at the status in the event"
            )
        home = self.home
        if self.state != "open" or self._tasks is None or home is None:
            raise RuntimeError("the agent was closed by a listener while answer() ran")
        prompt = next((item for item in reversed(self.conversation) if item.role == "user"), None)
        assert prompt is None or isinstance(prompt, Message)
        answer = self.current = Answer(self, prompt, home)
        self.guessed = 0
        for began in self.began:
            began(answer)
        self.launch(answer, previous)
        return answer

    def launch(self, answer: Answer, previous: Answer | None) -> None:
        """Start the task of ``answer``."""
        assert self._tasks is not None
        if self.wasted is not None:
            answer.turn.facts.wasted, self.wasted = self.wasted, None
        start_soon(self._tasks, self._run_answer, answer, previous, name="micdrop answer")
        if answer.home.loop is not None:
            # Behind the first step of the answer's task: that sends its request, and then there is time.
            answer.home.loop.call_soon(answer.pipe.open_early)

    def drop_guess(self) -> None:
        """Discard the guess, if there is one."""
        if self.guess is not None:
            self.guess.discard()

    def way_back(self) -> Callable[[], None]:
        """What makes this agent as it is now again, if a guess is discarded."""
        return lambda: None

    def may_guess(self) -> bool:
        """Whether this turn may have one more guess; takes it if so."""
        self.guessed += 1
        return self.guessed <= self.options.max_guesses

    async def _run_answer(self, answer: Answer, previous: Answer | None) -> None:
        self._alive += 1
        CALL.set(self.call_id)
        try:
            await answer.run(previous)
        finally:
            self._task_ended()
        while self._left_to_do and self.state == "open":
            scope = task_scope()
            self._background[scope] = "what an answer left to do"
            await self._in_background(self._left_to_do.pop(), scope)

    def cancel(self, heard: int | str | None, *, pause: bool = False) -> None:
        """Stop the current answer, or have it wait; see ``Agent.cancel``."""
        self.check_thread("cancel()")
        self.drop_guess()
        if self.current is None:
            return
        if pause:
            pause_answer(self.current, heard)
        else:
            self.current.stop(heard)

    def text_filters(self) -> tuple[TextFilter, ...]:
        """New filters for the next message of a turn."""
        return () if self.extraction is None else self.extraction.filters()

    def extracted(self, turn: Turn) -> dict[str, Any]:
        """Metadata of the value in the message that ``turn`` has just ended."""
        return {} if self.extraction is None else self.extraction.found(turn)
