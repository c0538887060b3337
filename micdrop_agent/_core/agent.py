"""The agent: a conversation, and at most one answer to it at a time.

    async with agent:  ── owns ──▶  everything that runs
        answer()       ── starts ─▶ an answer, which is read as a stream of text
        cancel()       ── settles everything at once

``answer()`` and ``cancel()`` are plain functions and may be called from any task of the event loop, from a listener,
a tool, or the answer itself. What is behind them is in ``_core.core``: an agent keeps one name, all others are free.

Source: Micdrop page "Agent (LLM)"; where we differ on purpose is in docs/from-micdrop.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

from anyio import AsyncContextManagerMixin

from micdrop_agent._core.core import Core
from micdrop_agent._core.event_stream import EventStream
from micdrop_agent._core.guess import Guess, same_words
from micdrop_agent._core.options import AgentOptions, read_options
from micdrop_agent._core.resume import resume
from micdrop_agent._core.role import hand_off, set_prompt
from micdrop_agent._interrupts import defer_interrupts
from micdrop_agent.events import AnswerSkipped, EndCallRequested, Event
from micdrop_agent.messages import Message, ToolCall, ToolResult, is_blank

if TYPE_CHECKING:
    import logging
    from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
    from typing import Self

    from typing_extensions import Unpack

    from micdrop_agent._core.answer import Answer
    from micdrop_agent._core.options import AgentKeywords
    from micdrop_agent._core.turn import Turn
    from micdrop_agent.conversation import Conversation
    from micdrop_agent.images import Image
    from micdrop_agent.messages import Role
    from micdrop_agent.store import CallRecorder, ConversationStore
    from micdrop_agent.tools import Tool

__all__ = ["Agent"]

E_ = TypeVar("E_", bound=Event)

OPEN: Final = frozenset({"generate_answer", "prewarm", "aclose", "takes_images"})
"""What a subclass may override; the agent itself depends on its other names."""


@defer_interrupts
class Agent(AsyncContextManagerMixin, ABC):
    """Turns a conversation into text that can be spoken, one answer at a time.

    Open it with ``async with``; leaving the block cancels the live answer, waits for its clean-up and closes every
    connection. An agent belongs to one event loop and can be opened once. Subclasses implement ``generate_answer``
    only, and are free to use every other name that is not an agent's.

    Args:
        options: ``system_prompt``, ``tools``, ``extract``, ``on_before_answer`` and the others of ``AgentOptions``.

    Raises:
        TypeError: An option has the wrong type; the message names it.
        ValueError: An option is out of range; the message names it.

    Source: Micdrop page "Agent (LLM)".
    """

    __slots__ = ("_core",)

    def __init__(self, **options: Unpack[AgentKeywords]) -> None:
        self._core: Core = self._make_core(options)

    def _make_core(self, options: Mapping[str, Any]) -> Core:
        """The inside of this agent; agents of the library that have more in there make their own."""
        return Core(self, read_options(AgentOptions, options, self))

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        if cls.__module__.startswith("micdrop_agent."):
            return
        for name in vars(cls):
            if name in vars(Agent) and name not in OPEN and not name.startswith(("__", "_abc_")):
                raise TypeError(
                    f"{cls.__name__}.{name} would take the place of Agent.{name}, on which the agent itself depends; "
                    f"choose another name (a subclass may override: {', '.join(sorted(OPEN))})"
                )

    if not TYPE_CHECKING:  # for a type checker this would make every attribute known

        def __getattr__(self, name: str) -> Any:
            cls = type(self).__name__
            if name == "_core":
                raise AttributeError(f"{cls}.__init__ does not call super().__init__(…), which makes the agent")
            raise AttributeError(f"{cls!r} object has no attribute {name!r}")

    # -- life

    if not TYPE_CHECKING:  # type checkers find this mistake by themselves

        def __enter__(self) -> None:
            raise TypeError(
                f"an agent is opened with 'async with', not with 'with': async with {type(self).__name__}(…)"
            )

        def __exit__(self, *_: object) -> None:
            """Never reached: 'with' fails before."""

        # As inherited, but deferring a Ctrl-C on Trio: what they call belongs to AnyIO and to contextlib.
        async def __aenter__(self) -> Any:
            return await super().__aenter__()

        async def __aexit__(self, *error: Any) -> Any:
            return await super().__aexit__(*error)  # noqa: ASYNC102 - the core shields and bounds its end

    @asynccontextmanager
    async def __asynccontextmanager__(self) -> AsyncGenerator[Self]:
        async with self._core.opened():
            yield self

    async def aclose(self) -> None:
        """Cancel the live answer, forget the listeners, and let nothing start any more.

        Waits (at most 5 s) until what was running has ended. Idempotent; legal from any task,
        also from a tool, which is not waited for then. The conversation stays readable.

        Source: Micdrop page "Agent (LLM)", ``destroy()``.
        """
        await self._core.aclose()

    @property
    def deps(self) -> Any:
        """What the application gave this agent (or the one around it) for its tools; ``None`` if nothing."""
        own = self._core.options.deps
        return self._core.root().options.deps if own is None else own

    @property
    def call_id(self) -> str | None:
        """Name of the call: the one under which it is stored, else that of the option ``call_id``."""
        return self._core.call_id()

    # -- answers

    def answer(self) -> Answer:
        """Start an answer to the conversation as it is now, and return it at once.

        A running answer is cancelled first. Nothing of the generation runs inside this call.

        Raises:
            RuntimeError: The agent is not open, was closed, or belongs to another thread or
                event loop.

        Source: Micdrop page "Agent (LLM)", ``answer()``.
        """
        return self._core.answer()

    def speculate(self, text: str, matches: Callable[[str, str], bool] = same_words) -> Guess:
        """Begin an answer to what the caller has probably said, while the transcript is not final.

        The conversation plus ``text`` is answered in the background. Until ``guess.adopt(final_text)`` nothing
        of it is stored, emitted or heard, and no tool and no hook runs. There is one guess at most: another one,
        ``answer()``, ``cancel()``, and every change of the conversation discard it. None is begun while an answer
        runs, nor beyond ``max_guesses``; such a guess is discarded from the beginning.

        Args:
            text: The transcript so far.
            matches: Tells of the guessed and the final text whether they mean the same; by default
                they may differ in case, punctuation and white space.

        Raises:
            RuntimeError: As for ``answer()``.
            TypeError: ``text`` is not a string, or ``matches`` is not a function.
        """
        return Guess(self._core, text, matches)

    def resume(self) -> Answer:
        """Go on with the answer that was cancelled last: the interruption was none, a cough for example.

        After ``cancel(pause=True)`` the answer itself is returned, and whoever reads it goes on: nothing was lost, and no
        request is sent. Otherwise a new answer is.

        What was not heard (``answer.unheard``) is handed out again without a request; what was still to come is
        asked for as a continuation. The text of the new answer is that of the complete answer, and the stored
        message becomes that one text again (``MessageCorrected``).

        Raises:
            RuntimeError: There is nothing to go on with; the message says why: no answer was cancelled, the
                conversation has changed since, or the answer had called tools.
        """
        return resume(self._core)

    def cancel(self, heard: int | str | None = None, *, pause: bool = False) -> None:
        """Stop the current answer at once; does nothing when there is none.

        When this returns, its consumer gets no further chunk, nothing of it changes the
        conversation or emits an event any more, and the conversation is complete: the text that
        was received is stored as interrupted, every tool call has a result.

        Args:
            heard: What the caller really heard: a number of characters of ``answer.text``, or
                the text itself. Also after the answer has ended, while its audio still plays.
            pause: Only have its consumer wait, until ``resume()``. The answer itself goes on, its tools included, and
                writes up to ``pause_buffer`` characters ahead; beyond that it is cancelled. So it is by
                every message that is added meanwhile, by ``answer()`` and by ``cancel()``: then it is cut
                where it was paused.

        Raises:
            RuntimeError: Called from another thread (use ``anyio.from_thread.run_sync``).
            TypeError: ``heard`` is neither.
            ValueError: ``heard`` is a negative number.

        Source: Micdrop page "Agent (LLM)", ``cancel()``.
        """
        self._core.root().cancel(heard, pause=pause)

    @property
    def answering(self) -> bool:
        """Whether an answer is being generated right now."""
        return self._core.root().answering

    @abstractmethod
    async def generate_answer(self, turn: Turn) -> None:
        """Generate one answer: write its text to ``turn``; implemented by subclasses.

        It need not handle cancellation: the scope around it does that. Text that was
        written is stored when this returns. An exception fails the answer.

        Args:
            turn: The conversation to read, and the only way to have an effect.

        Source: Micdrop page "Agent (LLM)", ``generateAnswer(stream)``.
        """

    async def prewarm(self) -> None:
        """Have everything ready for a fast first chunk; does nothing for an agent without I/O."""

    # -- conversation

    @property
    def conversation(self) -> Conversation:
        """The conversation, the system prompt first; a child has its outermost agent's."""
        return self._core.root().conversation

    @property
    def system_prompt(self) -> str:
        """The system prompt under which it answers. It may be set between answers, and is stored with the conversation.

        Raises:
            RuntimeError: Set while an answer runs; use ``hand_off()``.
            TypeError: Set to what is not a string.
        """
        return self._core.system_message().content

    @system_prompt.setter
    def system_prompt(self, text: str) -> None:
        set_prompt(self._core, text)

    def hand_off(
        self,
        *,
        system_prompt: str | None = None,
        tools: Iterable[Tool | Callable[..., Any]] | None = None,
        note: str | None = None,
    ) -> None:
        """Take on another role from the next request on, in a running answer too; the conversation stays.

        A tool that calls this hands the caller over within its own answer. Emits ``RoleChanged``.

        Args:
            system_prompt: The new system prompt; ``None`` keeps the one there is.
            tools: The tools from now on, in place of all that there are; ``None`` keeps them.
            note: Added to the conversation as a system message, for the next role to know.

        Raises:
            TypeError: One of them has the wrong type.
            ValueError: Two tools have one name.
        """
        hand_off(self._core, system_prompt=system_prompt, tools=tools, note=note)

    def add_message(self, role: Role, text: str, metadata: Mapping[str, Any] | None = None) -> None:
        """Append a message and emit ``MessageAdded``; a blank text is ignored.

        Raises:
            ValueError: Unknown role.
            TypeError: ``text`` is not a string.

        Source: Micdrop page "Agent (LLM)", ``addMessage``.
        """
        message = Message(role, text, metadata)
        if not is_blank(text):
            self._core.root().add(message)

    takes_images: ClassVar[bool] = False
    """Whether what the user says may have pictures."""

    def add_user_message(
        self, text: str, metadata: Mapping[str, Any] | None = None, *, images: Iterable[Image] = ()
    ) -> None:
        """Append what the caller said; see ``add_message``.

        Args:
            text: The words.
            metadata: Facts about the message.
            images: Pictures that belong to the words, for a model that can see.

        Raises:
            TypeError: This agent takes no images.
        """
        if images:
            from micdrop_agent.images import with_images

            if not self.takes_images:
                raise TypeError(f"{type(self).__name__} takes no images: there is no model in it that can see")
            metadata = with_images(metadata, images)
        self.add_message("user", text, metadata)

    def add_assistant_message(self, text: str, metadata: Mapping[str, Any] | None = None) -> None:
        """Append something that was said outside an answer; see ``add_message``."""
        self.add_message("assistant", text, metadata)

    def add_tool_message(self, message: ToolCall | ToolResult) -> None:
        """Append a tool call or a tool result that was made outside an answer.

        The result of a call that is running takes the place of what its tool returns later.

        Raises:
            TypeError: It is neither.

        Source: Micdrop page "Agent (LLM)", ``addToolMessage``.
        """
        if not isinstance(message, ToolCall | ToolResult):
            raise TypeError(f"add_tool_message takes a ToolCall or a ToolResult, not {message!r}")
        self._core.root().add(message)

    def cancel_last_user_message(self) -> None:
        """Take the last user message out, wherever it stands; emits ``UserMessageCancelled``.

        Source: Micdrop page "Agent (LLM)", ``cancelLastUserMessage()``.
        """
        self._core.root().cancel_last_user_message()

    def end_call(self) -> None:
        """Emit ``EndCallRequested`` now. Inside an answer use ``turn.end_call()``."""
        self._core.root().emit("end_call()", EndCallRequested())

    def skip_answer(self) -> None:
        """Emit ``AnswerSkipped`` now. Inside an answer use ``turn.skip_answer()``."""
        self._core.root().emit("skip_answer()", AnswerSkipped())

    # -- tools

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools, the automatic ones first, then in the order in which they were added."""
        return tuple(self._core.listed_tools())

    def add_tool(self, tool: Tool | Callable[..., Any]) -> None:
        """Add a tool, or a function that ``@tool`` can wrap.

        Raises:
            ValueError: There is one of that name already, or the name is bad.
            TypeError: It is neither, or the function cannot be a tool.

        Source: Micdrop page "Agent (LLM)", ``addTool``.
        """
        self._core.add_tool(tool)

    def remove_tool(self, name: str) -> None:
        """Remove a tool by name; an unknown name does nothing."""
        self._core.remove_tool(name)

    def get_tool(self, name: str) -> Tool | None:
        """The tool of that name; ``None`` if there is none."""
        return next((tool for tool in self._core.listed_tools() if tool.name == name), None)

    # -- extraction

    def extract(self, text: str) -> tuple[str, dict[str, Any] | None]:
        """Take the value out of ``text``: the text that is left, and metadata if asked for.

        Calls the callback, as for an answer. Without ``extract`` in the options, or without a
        value in it, the text comes back as it was.

        Source: Micdrop page "Agent (LLM)", ``extract(message)``.
        """
        extraction = self._core.extracting()
        return (text, None) if extraction is None else extraction.take_from(text)

    # -- events

    def on(self, event_type: type[E_], listener: Callable[[E_], object]) -> Callable[[], None]:
        """Call ``listener(event)`` for each event of that class; returns what removes it.

        Listeners are plain functions, held strongly, called in the order of registration.

        Raises:
            TypeError: Not an event class, or the listener is a coroutine function.
        """
        return self._core.hub.on(event_type, listener)

    def events(self) -> EventStream:
        """All events from now on, as an async stream that ends when the agent is closed."""
        return EventStream(self._core.hub.inbox())

    @property
    def logger(self) -> logging.Logger:
        """Where the agent logs; ``micdrop_agent.<class>`` unless another one is set."""
        return self._core.logger

    @logger.setter
    def logger(self, logger: logging.Logger) -> None:
        self._core.use_logger(logger)

    # -- keeping

    async def attach(
        self,
        store: ConversationStore,
        call_id: str,
        *,
        on_error: Callable[[Exception], object] | None = None,
        close_timeout: float = 30.0,
    ) -> CallRecorder:
        """Store the conversation in ``store`` from now on, after loading what it has of the call.

        Inside the agent's block, before the first answer. What is stored comes first, then what the
        agent has besides; a system prompt of the agent replaces the stored one, an empty one does
        not. A tool call that a crash cut off gets an error as its result. Afterwards nothing waits
        for the store; leaving the block does, and ``flush()``.

        Args:
            store: For example ``SqliteStore("calls.db")``; leave it after the agent.
            call_id: Name of the call, your own.
            on_error: Called when the store fails, which is also logged. The call goes on, and what
                is not stored is tried again. A ``CallMovedError`` is final: another writer has
                the call, so this one should end.
            close_timeout: Seconds that leaving the block waits for a store that makes no progress.

        Raises:
            CallInUseError: Another writer has this call open.
            StoreError: The store cannot be read or written; also from the end of the block, when
                something could not be stored to the last: ``error.unsaved`` has it.
            RuntimeError: The agent is not open, attached already, or answering.
        """
        from micdrop_agent.store import attach

        return await attach(self, store, call_id, on_error=on_error, close_timeout=close_timeout)

    async def flush(self) -> None:
        """Wait until every change up to now is stored; returns at once without ``attach()``.

        Raises:
            StoreError: The store fails.
        """
        if self._core.recorder is not None:
            await self._core.recorder.flush()
