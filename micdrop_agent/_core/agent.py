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
import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import anyio
from anyio import AsyncContextManagerMixin

from micdrop_agent._core import guards
from micdrop_agent._core.answer import Answer
from micdrop_agent._core.dialogue import Dialogue
from micdrop_agent._core.groups import lone_error_unwrapped
from micdrop_agent._core.scopes import task_scope
from micdrop_agent._core.turn import Turn
from micdrop_agent.errors import MicdropError, words_of
from micdrop_agent.messages import Message
from micdrop_agent.options import check_count, check_flag, check_text
from micdrop_agent.tools import control_tools

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Iterable
    from typing import Self

    from micdrop_agent.options import ExtractJson, ExtractTag
    from micdrop_agent.store import ConversationStore, KeptCall
    from micdrop_agent.tools import Tool

__all__ = ["Agent", "BeforeAnswer"]

CLOSE_TIMEOUT = 5.0
"""Seconds that ``aclose()`` waits for what still runs, for example a shielded tool."""

SUPERSEDED: Final = 100
"""Answers that listeners may start while one ``answer()`` cancels them; more is an endless loop."""

BeforeAnswer: TypeAlias = Callable[["Agent", Turn], "bool | str | Awaitable[bool | str | None] | None"]


class Agent(Dialogue, AsyncContextManagerMixin, ABC):
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

    __slots__ = (
        "_alive",
        "_all_done",
        "_background",
        "_before",
        "_began",
        "_kept",
        "_left_to_do",
        "_tasks",
        "buffer_size",
        "parallel_tools",
        "raise_on_failure",
        "record_interrupted",
    )

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
        guards.extract("extract", extract)
        guards.function("on_before_answer", on_before_answer)
        guards.tools("tools", tools)
        check_flag("record_interrupted", record_interrupted)
        check_flag("raise_on_failure", raise_on_failure)
        check_flag("parallel_tools", parallel_tools)
        if buffer_size is not None:
            check_count("buffer_size", buffer_size, least=0)
        super().__init__(
            system_prompt=system_prompt,
            tools=[
                *control_tools(
                    auto_end_call=auto_end_call,
                    auto_semantic_turn=auto_semantic_turn,
                    auto_ignore_user_noise=auto_ignore_user_noise,
                ),
                *tools,
            ],
            extract=extract,
        )
        self.record_interrupted = record_interrupted
        self.raise_on_failure = raise_on_failure
        self.parallel_tools = parallel_tools
        self.buffer_size = buffer_size
        self._before = on_before_answer
        self._tasks: anyio.abc.TaskGroup | None = None
        self._background: dict[anyio.CancelScope, None] = {}  # a quarter of an empty set
        self._left_to_do: list[Callable[[], Awaitable[None]]] = []
        self._all_done: anyio.Event | None = None
        self._alive = 0
        self._kept: KeptCall | None = None
        self._began: list[Callable[[Answer], None]] = []
        """Called with each answer in the step, and the context, in which it is started."""

    # -- life

    if not TYPE_CHECKING:  # type checkers find this mistake by themselves

        def __enter__(self) -> None:
            raise TypeError(
                f"an agent is opened with 'async with', not with 'with': async with {type(self).__name__}(…)"
            )

        def __exit__(self, *_: object) -> None:
            """Never reached: 'with' fails before."""

    @asynccontextmanager
    async def __asynccontextmanager__(self) -> AsyncGenerator[Self]:
        guards.may_open(self, self._state, owned=self._owner is not None)
        self._state = "open"
        self._home = guards.Home()
        whole, cancelled = False, 0
        try:
            with lone_error_unwrapped():
                async with anyio.create_task_group() as tasks:
                    self._tasks = tasks
                    try:
                        await self._start()
                        yield self
                    finally:
                        cancelled = self._home.cancellations()
                        self._close()
            whole = True
        finally:
            self._tasks = None
            self._state = "closed"
            try:
                with anyio.move_on_after(CLOSE_TIMEOUT, shield=True):
                    await self.aclose()
                    await self._let_go()
            finally:
                if self._kept is not None:
                    await self._kept._finish(raising=whole)  # noqa: ASYNC102 - it shields and bounds itself
                if not whole and isinstance(sys.exception(), Exception):
                    self._home.deliver_lost(cancelled)

    async def aclose(self) -> None:
        """Cancel the live answer, forget the listeners, and let nothing start any more.

        Waits (at most 5 s) until what was running has ended. Idempotent; legal from any task,
        also from a tool, which is not waited for then. The conversation stays readable.

        Source: Micdrop page "Agent (LLM)", ``destroy()``.
        """
        self._check_thread("aclose()")
        live = self._current
        by_tool = live is not None and any(call.on_stack for call in live._ledger.calls)
        self._close()
        if by_tool:
            await anyio.lowlevel.checkpoint()
        elif self._alive:
            if self._all_done is None:
                self._all_done = anyio.Event()
            with anyio.move_on_after(CLOSE_TIMEOUT):
                await self._all_done.wait()

    def _close(self) -> None:
        """The synchronous part of closing: nothing of this agent has an effect afterwards."""
        self._state = "closing" if self._state == "open" else "closed"
        self._safe_logger.debug("closed")
        if self._current is not None:
            self._current._closing()
        for scope in tuple(self._background):
            scope.cancel()
        self._hub.close()

    @property
    def _closed(self) -> bool:
        return self._state == "closed"

    async def _let_go(self) -> None:
        """Close resources; one that cannot be closed is no reason to lose the error that ended the block."""
        try:
            await self._stop_resources()
        except Exception:  # foreign code: a provider or a client of the application's own
            self._safe_logger.exception("the resources of the agent could not be closed")

    async def _start(self) -> None:
        """Open resources, in the agent's task group. For subclasses of the library."""

    async def _stop_resources(self) -> None:
        """Close resources; runs shielded and bounded. For subclasses of the library."""

    def _spawn(self, work: Callable[[], Awaitable[None]], name: str) -> None:
        """Run ``work`` in the agent's task group, cancelled when the agent is closed."""
        home = self if self._owner is None else self._root()
        if home._tasks is None or home._state != "open":
            return
        scope = task_scope()
        home._background[scope] = None
        home._tasks.start_soon(home._in_background, work, scope, name=name)

    def _afterwards(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run ``work`` in the task of the answer that is ending, once that is done."""
        home = self if self._owner is None else self._root()
        home._left_to_do.append(work)

    async def _in_background(self, work: Callable[[], Awaitable[None]], scope: anyio.CancelScope) -> None:
        self._alive += 1
        try:
            with scope:
                await work()
        except Exception:  # background work serves later answers; it must not end this one
            self._safe_logger.exception("background work of the agent failed")
        except anyio.get_cancelled_exc_class():  # noqa: ASYNC103 - raised where it is not this task's alone
            # Only on asyncio: the task, or what it waited for, was cancelled natively. Let through, the task
            # group would take that for its own cancellation and end the agent's block without a word.
            if anyio.current_effective_deadline() == -math.inf:
                raise
            self._safe_logger.warning("background work of the agent was cancelled", exc_info=True)
        finally:
            self._background.pop(scope, None)
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
        guards.may_answer(self, self._state, owned=self._owner is not None)
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
        prompt = next((item for item in reversed(self.conversation) if item.role == "user"), None)
        home = self._home
        assert home is not None
        assert prompt is None or isinstance(prompt, Message)
        answer = self._current = Answer(self, prompt, home)
        for began in self._began:
            began(answer)
        self._tasks.start_soon(self._run_answer, answer, previous, name="micdrop answer")
        if home.loop is not None:
            # Behind the first step of the answer's task: that sends its request, and then there is time.
            home.loop.call_soon(answer._pipe.open_early)
        return answer

    async def _run_answer(self, answer: Answer, previous: Answer | None) -> None:
        self._alive += 1
        try:
            await answer._run(previous)
        finally:
            self._task_ended()
        while self._left_to_do and self._state == "open":
            scope = task_scope()
            self._background[scope] = None
            await self._in_background(self._left_to_do.pop(), scope)

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
        root = self if self._owner is None else self._root()
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
            from micdrop_agent.text.joining import LeadInFilter, SeamFilter

            exact, said = self._continues_exactly, turn.continue_from
            turn._filters += (SeamFilter(said, exact=True) if exact else LeadInFilter(said),)
        if self._before is not None and await self._skipped_by_hook(turn):
            return
        generating: object = self.generate_answer(turn)
        if not inspect.isawaitable(generating):
            raise TypeError(
                f"{type(self).__name__}.generate_answer must be an 'async def' that writes its text with "
                f"'await turn.write(text)'; it returned {generating!r} (a 'yield' or a missing 'async'?)"
            )
        returned = await generating
        if returned is not None:
            raise TypeError(
                f"{type(self).__name__}.generate_answer returned {returned!r}, which nobody hears; "
                "write it with 'await turn.write(text)'"
            )
        turn.commit()

    async def _skipped_by_hook(self, turn: Turn) -> bool:
        assert self._before is not None
        turn._aside = True
        try:
            verdict = self._before(self, turn)
            if inspect.isawaitable(verdict):
                verdict = await verdict
        except Exception as error:  # foreign code: the hook fails this answer, and says so
            raise MicdropError(f"on_before_answer raised {type(error).__name__}: {words_of(error)}") from error
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
