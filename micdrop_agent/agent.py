"""The agent: a conversation, and at most one answer to it at a time.

    async with agent:  ── owns ──▶  one task group
        answer()       ── starts ─▶ one task, one cancel scope, one memory stream
        cancel()       ── settles everything at once, then cancels that scope

``answer()`` and ``cancel()`` are plain functions and may be called from any task of the event
loop, from a listener, from a tool, or from inside the answer itself.

Source: Micdrop page "Agent (LLM)"; where we differ on purpose is in docs/from-micdrop.
"""

from __future__ import annotations

import inspect
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import anyio
from anyio import AsyncContextManagerMixin

from micdrop_agent import _checks
from micdrop_agent._groups import lone_error_unwrapped
from micdrop_agent._stream import EventStream
from micdrop_agent.answer import Answer
from micdrop_agent.conversation import Conversation
from micdrop_agent.errors import MicdropError
from micdrop_agent.events import (
    AnswerSkipped,
    EndCallRequested,
    Event,
    EventHub,
    MessageAdded,
    UserMessageCancelled,
)
from micdrop_agent.messages import Message, ToolCall, ToolResult, is_blank
from micdrop_agent.options import check_count, check_flag, check_text
from micdrop_agent.tools import ToolSet, control_tools
from micdrop_agent.turn import Turn

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Iterable, Mapping, Sequence
    from typing import Self

    from micdrop_agent._text import TextFilter
    from micdrop_agent.messages import Item, Role
    from micdrop_agent.options import ExtractJson, ExtractTag
    from micdrop_agent.result import TraceEvent
    from micdrop_agent.store import ConversationStore, KeptCall
    from micdrop_agent.tools import Tool

__all__ = ["Agent", "BeforeAnswer"]

CLOSE_TIMEOUT = 5.0
"""Seconds that ``aclose()`` waits for what still runs, for example a shielded tool."""

SUPERSEDED: Final = 100
"""Answers that listeners may start while one ``answer()`` cancels them; more is an endless loop."""

BeforeAnswer: TypeAlias = Callable[["Agent", Turn], "bool | str | Awaitable[bool | str | None] | None"]
E_ = TypeVar("E_", bound=Event)


class Agent(AsyncContextManagerMixin, ABC):
    """Turns a conversation into text that can be spoken, one answer at a time.

    Open it with ``async with``; leaving the block cancels the live answer, waits for its
    clean-up and closes every connection. An agent belongs to one event loop and can be opened
    once. Subclasses implement ``generate_answer`` only.

    Args:
        system_prompt: The first message of the conversation.
        auto_end_call: Give the model a tool that ends the call; a text replaces its prompt.
        auto_semantic_turn: Give it a tool to wait when the caller has not finished; likewise.
        auto_ignore_user_noise: Give it a tool to drop a meaningless user message; likewise.
        extract: Take a value from the end of each answer; it is not spoken.
        on_before_answer: ``hook(agent, turn)``, sync or async, before each answer. ``True``
            skips the generation; a text is said and stored in its place.
        tools: Tools, or functions that ``@tool`` can wrap.
        record_interrupted: Store the heard part of a cut answer, marked ``interrupted``.
        raise_on_failure: Raise the error of a failed answer from its iteration. ``False``:
            the iteration just ends, as in Micdrop.
        parallel_tools: Run the tools of one response at the same time.
        buffer_size: Chunks that may wait for the consumer before the producer waits too;
            ``None`` is no limit (an answer's text is bounded by the model).

    Raises:
        TypeError: An option has the wrong type; the message names it.
        ValueError: An option is out of range; the message names it.

    Source: Micdrop page "Agent (LLM)", ``AgentOptions``.
    """

    def __init__(
        self,
        *,
        system_prompt: str = "",
        auto_end_call: bool | str = False,
        auto_semantic_turn: bool | str = False,
        auto_ignore_user_noise: bool | str = False,
        extract: ExtractJson | ExtractTag | None = None,
        on_before_answer: BeforeAnswer | None = None,
        tools: Iterable[Tool | Callable[..., Any]] = (),
        record_interrupted: bool = True,
        raise_on_failure: bool = True,
        parallel_tools: bool = True,
        buffer_size: int | None = None,
    ) -> None:
        check_text("system_prompt", system_prompt)
        _checks.extract("extract", extract)
        _checks.function("on_before_answer", on_before_answer)
        _checks.tools("tools", tools)
        check_flag("record_interrupted", record_interrupted)
        check_flag("raise_on_failure", raise_on_failure)
        check_flag("parallel_tools", parallel_tools)
        if buffer_size is not None:
            check_count("buffer_size", buffer_size, least=0)
        self.record_interrupted = record_interrupted
        self.raise_on_failure = raise_on_failure
        self.parallel_tools = parallel_tools
        self.buffer_size = buffer_size
        self._extract = extract
        self._before = on_before_answer
        self._logger = logging.getLogger(f"micdrop_agent.{type(self).__name__}")
        self._system = Message("system", system_prompt)
        self._conversation = Conversation([self._system])
        self._conversation._may_replace = self._check_idle
        control = control_tools(
            auto_end_call=auto_end_call,
            auto_semantic_turn=auto_semantic_turn,
            auto_ignore_user_noise=auto_ignore_user_noise,
        )
        self._toolset = ToolSet([*control, *tools])
        self._hub = EventHub(self, self._logger)
        self._owner: Agent | None = None
        self._state: _checks.State = "new"
        self._home: tuple[int, object] | None = None
        self._tasks: anyio.abc.TaskGroup | None = None
        self._background: set[anyio.CancelScope] = set()
        self._current: Answer | None = None
        self._all_done: anyio.Event | None = None
        self._alive = 0
        self._kept: KeptCall | None = None
        self._began: list[Callable[[Answer], None]] = []
        """Called with each answer in the step, and the context, in which it is started."""

    # -- life

    @asynccontextmanager
    async def __asynccontextmanager__(self) -> AsyncGenerator[Self]:
        _checks.may_open(self, self._state, owned=self._owner is not None)
        self._state = "open"
        self._home = (threading.get_ident(), _checks.running_loop())
        whole = False
        try:
            with lone_error_unwrapped():
                async with anyio.create_task_group() as tasks:
                    self._tasks = tasks
                    try:
                        await self._start()
                        yield self
                    finally:
                        self._close()
            whole = True
        finally:
            self._tasks = None
            self._state = "closed"
            try:
                with anyio.move_on_after(CLOSE_TIMEOUT, shield=True):
                    await self.aclose()
                    await self._stop_resources()
            finally:
                if self._kept is not None:
                    await self._kept._finish(raising=whole)

    async def aclose(self) -> None:
        """Cancel the live answer, forget the listeners, and let nothing start any more.

        Waits (at most 5 s) until what was running has ended. Idempotent; legal from any task,
        also from a tool. The conversation stays readable.

        Source: Micdrop page "Agent (LLM)", ``destroy()``.
        """
        self._check_thread("aclose()")
        self._close()
        if self._alive:
            if self._all_done is None:
                self._all_done = anyio.Event()
            with anyio.move_on_after(CLOSE_TIMEOUT):
                await self._all_done.wait()

    def _close(self) -> None:
        """The synchronous part of closing: nothing of this agent has an effect afterwards."""
        self._state = "closing" if self._state == "open" else "closed"
        self.logger.debug("closed")
        if self._current is not None:
            self._current._stop(None, keep_unread=True)
        for scope in tuple(self._background):
            scope.cancel()
        self._hub.close()

    async def _start(self) -> None:
        """Open resources, in the agent's task group. For subclasses of the library."""

    async def _stop_resources(self) -> None:
        """Close resources; runs shielded and bounded. For subclasses of the library."""

    def _spawn(self, work: Callable[[], Awaitable[None]], name: str) -> None:
        """Run ``work`` in the agent's task group, cancelled when the agent is closed."""
        home = self if self._owner is None else self._root()
        if home._state != "open" or home._tasks is None:
            return
        scope = anyio.CancelScope()
        home._background.add(scope)
        home._tasks.start_soon(home._in_background, work, scope, name=name)

    async def _in_background(self, work: Callable[[], Awaitable[None]], scope: anyio.CancelScope) -> None:
        self._alive += 1
        try:
            with scope:
                await work()
        except Exception:  # background work serves later answers; it must not end this one
            self.logger.exception("background work of the agent failed")
        finally:
            self._background.discard(scope)
            self._task_ended()

    def _task_ended(self) -> None:
        self._alive -= 1
        if not self._alive and self._all_done is not None:
            self._all_done.set()
            self._all_done = None

    # -- answers

    def answer(self) -> Answer:
        """Start an answer to the conversation as it is now, and return it at once.

        A running answer is cancelled first. Nothing of the generation runs inside this call.

        Raises:
            RuntimeError: The agent is not open, was closed, or belongs to another thread or
                event loop.

        Source: Micdrop page "Agent (LLM)", ``answer()``.
        """
        _checks.may_answer(self, self._state, owned=self._owner is not None)
        self._check_thread("answer()")
        previous = self._current
        for _ in range(SUPERSEDED):
            if self._current is None or self._current._turn.fenced:
                break
            # A listener of the cancelled answer may have started another one.
            self._current._stop(None, keep_unread=True)
        else:
            raise RuntimeError(
                "a listener starts another answer whenever one is cancelled, also for answer() itself; "
                "let it look at the status in the event"
            )
        if self._state != "open" or self._tasks is None:
            raise RuntimeError("the agent was closed by a listener while answer() ran")
        prompt = next(
            (item for item in reversed(self.conversation) if isinstance(item, Message) and item.role == "user"),
            None,
        )
        answer = self._current = Answer(self, prompt)
        for began in self._began:
            began(answer)
        self._tasks.start_soon(self._run_answer, answer, previous, name="micdrop answer")
        return answer

    async def _run_answer(self, answer: Answer, previous: Answer | None) -> None:
        self._alive += 1
        try:
            await answer._run(previous)
        finally:
            self._task_ended()

    def cancel(self, heard: int | str | None = None) -> None:
        """Stop the current answer, at once and for good; does nothing when there is none.

        When this returns, its consumer gets no further chunk, nothing of it changes the
        conversation or emits an event any more, and the conversation is whole: the text that
        was received is stored as interrupted, every tool call has a result.

        Args:
            heard: What the caller really heard: a number of characters of ``answer.text``, or
                the text itself. Also after the answer has ended, while its audio still plays.

        Raises:
            RuntimeError: Called from another thread (use ``anyio.from_thread.run_sync``).
            TypeError: ``heard`` is neither.
            ValueError: ``heard`` is a negative number.

        Source: Micdrop page "Agent (LLM)", ``cancel()``.
        """
        root = self._root()
        root._check_thread("cancel()")
        if root._current is not None:
            root._current._stop(heard)

    @property
    def answering(self) -> bool:
        """Whether an answer is being generated right now."""
        current = self._root()._current
        return current is not None and current.status == "running"

    @abstractmethod
    async def generate_answer(self, turn: Turn) -> None:
        """Generate one answer: write its text to ``turn``; implemented by subclasses.

        There is no cancellation to handle: the scope around it does that. Text that was
        written is stored when this returns. An exception fails the answer.

        Args:
            turn: The conversation to read, and the only way to have an effect.

        Source: Micdrop page "Agent (LLM)", ``generateAnswer(stream)``.
        """

    async def _respond(self, turn: Turn) -> None:
        """Hook, generation, and the commit of what was written; as root or as a child."""
        turn._filters = self._text_filters()
        if turn.continue_from is not None:
            from micdrop_agent._text import SeamFilter

            turn._filters += (SeamFilter(turn.continue_from, exact=self._continues_exactly),)
        if self._before is not None and await self._skipped_by_hook(turn):
            return
        await self.generate_answer(turn)
        turn.commit()

    async def _skipped_by_hook(self, turn: Turn) -> bool:
        assert self._before is not None
        turn._aside = True
        try:
            verdict = self._before(self, turn)
            if inspect.isawaitable(verdict):
                verdict = await verdict
        except Exception as error:
            raise MicdropError(f"on_before_answer raised {type(error).__name__}: {error}") from error
        finally:
            turn._aside = False
        if turn.fenced:
            return True
        if isinstance(verdict, str):
            turn.write_nowait(verdict)
            turn.commit()
            return True
        if verdict is True:
            turn.facts.skipped = turn.facts.skipped or turn.claim()
            return True
        return False

    async def prewarm(self) -> None:
        """Have everything ready for a fast first chunk; does nothing for an agent without I/O."""

    # -- conversation

    @property
    def conversation(self) -> Conversation:
        """The conversation, the system prompt first; a child has its outermost agent's."""
        return self._conversation if self._owner is None else self._owner.conversation

    def add_message(self, role: Role, text: str, metadata: Mapping[str, Any] | None = None) -> None:
        """Append a message and emit ``MessageAdded``; a blank text is ignored.

        Raises:
            ValueError: Unknown role.
            TypeError: ``text`` is no text.

        Source: Micdrop page "Agent (LLM)", ``addMessage``.
        """
        message = Message(role, text, metadata)
        if not is_blank(text):
            self._add(message)

    def add_user_message(self, text: str, metadata: Mapping[str, Any] | None = None) -> None:
        """Append what the caller said; see ``add_message``."""
        self.add_message("user", text, metadata)

    def add_assistant_message(self, text: str, metadata: Mapping[str, Any] | None = None) -> None:
        """Append something that was said outside an answer; see ``add_message``."""
        self.add_message("assistant", text, metadata)

    def add_tool_message(self, message: ToolCall | ToolResult) -> None:
        """Append a tool call or a tool result that was made outside an answer.

        Raises:
            TypeError: It is neither.

        Source: Micdrop page "Agent (LLM)", ``addToolMessage``.
        """
        if not isinstance(message, ToolCall | ToolResult):
            raise TypeError(f"add_tool_message takes a ToolCall or a ToolResult, not {message!r}")
        self._add(message)

    def _add(self, item: Item) -> None:
        root = self._root()
        root._check_thread("adding a message")
        root._hub.emit(MessageAdded(item, root._conversation._append(item)))

    def cancel_last_user_message(self) -> None:
        """Take the last user message out, wherever it stands; emits ``UserMessageCancelled``.

        Source: Micdrop page "Agent (LLM)", ``cancelLastUserMessage()``.
        """
        root = self._root()
        root._check_thread("cancel_last_user_message()")
        conversation = root._conversation
        for index in range(len(conversation) - 1, -1, -1):
            item = conversation[index]
            if isinstance(item, Message) and item.role == "user":
                conversation._delete(index)
                root._hub.emit(UserMessageCancelled(item, index))
                return
        root._hub.emit(UserMessageCancelled(None))

    def end_call(self) -> None:
        """Emit ``EndCallRequested`` now. Inside an answer use ``turn.end_call()``."""
        root = self._root()
        root._check_thread("end_call()")
        root._hub.emit(EndCallRequested())

    def skip_answer(self) -> None:
        """Emit ``AnswerSkipped`` now. Inside an answer use ``turn.skip_answer()``."""
        root = self._root()
        root._check_thread("skip_answer()")
        root._hub.emit(AnswerSkipped())

    # -- keeping

    async def attach(
        self,
        store: ConversationStore,
        call_id: str,
        *,
        on_error: Callable[[Exception], object] | None = None,
    ) -> KeptCall:
        """Keep the conversation in ``store`` from now on, after loading what it has of the call.

        Inside the agent's block, before the first answer. What is stored comes first, then what the
        agent has besides; a system prompt of the agent replaces the stored one, an empty one does
        not. A tool call that a crash cut off gets an error as its result. Afterwards nothing waits
        for the store; leaving the block does, and ``flush()``.

        Args:
            store: For example ``SqliteStore("calls.db")``; leave it after the agent.
            call_id: Name of the call, your own.
            on_error: Called when the store fails, which is also logged. The call goes on, and what
                is not stored is tried again with the next change and at the end of the block.

        Raises:
            CallInUseError: Somebody else keeps that call.
            StoreError: The store cannot be read or written; also from the end of the block, when
                something could not be stored to the last.
            RuntimeError: The agent is not open, attached already, or answering.
        """
        from micdrop_agent.store import attach

        return await attach(self, store, call_id, on_error=on_error)

    async def flush(self) -> None:
        """Wait until every change up to now is stored; returns at once without ``attach()``.

        Raises:
            StoreError: The store fails.
        """
        if self._kept is not None:
            await self._kept.flush()

    # -- tools

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools, the automatic ones first, then in the order in which they were added."""
        return tuple(self._toolset)

    def add_tool(self, tool: Tool | Callable[..., Any]) -> None:
        """Add a tool, or a function that ``@tool`` can wrap.

        Raises:
            ValueError: There is one of that name already, or the name is bad.
            TypeError: It is neither, or the function cannot be a tool.

        Source: Micdrop page "Agent (LLM)", ``addTool``.
        """
        self._toolset.add(tool)

    def remove_tool(self, name: str) -> None:
        """Remove a tool by name; an unknown name does nothing."""
        self._toolset.remove(name)

    def get_tool(self, name: str) -> Tool | None:
        """The tool of that name; ``None`` if there is none."""
        return self._toolset.get(name)

    def _offered_tools(self) -> Sequence[Tool]:
        """What a model of this agent is offered: its own tools, then those shared with it."""
        own = tuple(self._toolset)
        if self._owner is None:
            return own
        names = {tool.name for tool in own}
        return own + tuple(tool for tool in self._owner._shared_tools() if tool.name not in names)

    def _shared_tools(self) -> Sequence[Tool]:
        """What this agent shares with its children: what was added to it and to those around it."""
        return Agent._offered_tools(self)

    # -- extraction

    def extract(self, text: str) -> tuple[str, dict[str, Any] | None]:
        """Take the value out of ``text``: the text that is left, and metadata if asked for.

        Calls the callback, as for an answer. Without ``extract`` in the options, or without a
        value in it, the text comes back as it was.

        Source: Micdrop page "Agent (LLM)", ``extract(message)``.
        """
        if self._extract is None:
            return text, None
        from micdrop_agent._text import extract_text

        left, found, value = extract_text(text, self._extract)
        return left, (self._use_value(value) or None) if found else None

    def _text_filters(self) -> tuple[TextFilter, ...]:
        if self._extract is None:
            return ()
        from micdrop_agent._text import ExtractFilter

        return (ExtractFilter(self._extract),)

    def _extracted(self, turn: Turn) -> dict[str, Any]:
        """Metadata of the value that the filters of ``turn`` found, after they have ended."""
        if self._extract is None or not turn._filters:
            return {}
        extractor: Any = turn._filters[0]
        if extractor.warning:
            self.logger.warning("%s", extractor.warning)
        if not extractor.found:
            return {}
        turn.facts.extracted = extractor.value
        return self._use_value(extractor.value)

    def _use_value(self, value: Any) -> dict[str, Any]:
        options = self._extract
        if options is None:
            return {}
        if options.callback is not None:
            _checks.call_back(self, options.callback, value)
        return {"extracted": value} if options.save_in_metadata else {}

    # -- events

    def on(self, event_type: type[E_], listener: Callable[[E_], object]) -> Callable[[], None]:
        """Call ``listener(event)`` for each event of that class; returns what removes it.

        Listeners are plain functions, held strongly, called in the order of registration.

        Raises:
            TypeError: Not an event class, or the listener is a coroutine function.
        """
        return self._hub.on(event_type, listener)

    def events(self) -> EventStream:
        """All events from now on, as an async stream that ends when the agent is closed."""
        return EventStream(self._hub.inbox())

    @property
    def logger(self) -> logging.Logger:
        """Where the agent logs; ``micdrop_agent.<class>`` unless another one is set."""
        return self._logger

    @logger.setter
    def logger(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._hub.logger = logger

    def _log_trace(self, trace: Sequence[TraceEvent]) -> None:
        """The course of an answer in one line, at DEBUG; costs nothing when that is off."""
        if self.logger.isEnabledFor(logging.DEBUG):
            steps = ", ".join(
                f"{event.at * 1000:.1f} ms {event.kind}"
                + (f" ({' '.join(f'{key}={value}' for key, value in event.detail.items())})" if event.detail else "")
                for event in trace
            )
            end = trace[-1]
            self.logger.debug(
                "answer: %s", steps, extra={"answer_status": end.detail.get("status"), "answer_seconds": end.at}
            )

    def _log_failure(self, error: Exception) -> None:
        ours = isinstance(error, MicdropError)
        extra = {"error_type": type(error).__name__, "error_kind": getattr(error, "kind", None)}
        self.logger.error("the answer failed: %s", error, exc_info=None if ours else error, extra=extra)

    # -- guards

    _continues_exactly = False
    """Whether its model goes on from the very last character when asked to continue."""

    def _label(self) -> str:
        """Name of this agent among the children of a ``FallbackAgent``."""
        model = getattr(self, "model", None)
        return f"{type(self).__name__}({model})" if isinstance(model, str) else type(self).__name__

    def _system_message(self) -> Message:
        return self._system

    def _root(self) -> Agent:
        agent = self
        while agent._owner is not None:
            agent = agent._owner
        return agent

    def _check_thread(self, what: str) -> None:
        if self._home is not None and self._state != "closed":
            _checks.at_home(what, self._home)

    def _check_idle(self) -> None:
        if self.answering:
            raise RuntimeError("the conversation cannot be replaced while an answer runs; cancel it")
