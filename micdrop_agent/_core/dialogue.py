"""What an agent knows: its conversation, its tools, its extraction, and who listens to it.

``Agent`` adds what it does: its life and its answers. A child of a ``FallbackAgent`` has the
conversation and the listeners of the outermost agent, and its own tools and options.

Source: Micdrop page "Agent (LLM)", "Conversation Management" and "Public Methods".
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from micdrop_agent._core import guards
from micdrop_agent._core.event_hub import EventHub
from micdrop_agent._core.event_stream import EventStream
from micdrop_agent._core.log import SafeLog
from micdrop_agent.conversation import Conversation
from micdrop_agent.errors import MicdropError, words_of
from micdrop_agent.events import (
    AnswerSkipped,
    EndCallRequested,
    Event,
    MessageAdded,
    UserMessageCancelled,
)
from micdrop_agent.messages import Message, ToolCall, ToolResult, is_blank
from micdrop_agent.tools import ToolSet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from micdrop_agent._core.agent import Agent
    from micdrop_agent._core.answer import Answer
    from micdrop_agent._core.turn import Turn
    from micdrop_agent.images import Image
    from micdrop_agent.messages import Item, Role
    from micdrop_agent.options import ExtractJson, ExtractTag
    from micdrop_agent.result import TraceEvent
    from micdrop_agent.text import TextFilter
    from micdrop_agent.tools import Tool

__all__ = ["Dialogue"]

E_ = TypeVar("E_", bound=Event)


class Dialogue:
    """The part of an agent that outlives its answers; see ``Agent`` for the options."""

    __slots__ = (
        "_conversation",
        "_current",
        "_extract",
        "_home",
        "_hub",
        "_logger",
        "_owner",
        "_safe_logger",
        "_state",
        "_system",
        "_toolset",
    )

    def __init__(
        self,
        *,
        system_prompt: str,
        tools: Iterable[Tool | Callable[..., Any]],
        extract: ExtractJson | ExtractTag | None,
    ) -> None:
        self._logger = logging.getLogger(f"micdrop_agent.{type(self).__name__}")
        self._safe_logger = SafeLog(self._logger)
        self._system = Message("system", system_prompt)
        self._conversation = Conversation([self._system])
        self._conversation._may_replace = self._check_idle
        self._toolset = ToolSet(tools)
        self._extract = extract
        self._hub = EventHub(self, self._safe_logger)
        self._owner: Agent | None = None
        self._state: guards.State = "new"
        self._home: guards.Home | None = None
        self._current: Answer | None = None

    if not TYPE_CHECKING:  # for a type checker this would make every attribute known

        def __getattr__(self, name: str) -> Any:
            cls = type(self).__name__
            if name.startswith("_") and not name.startswith("__"):
                try:
                    object.__getattribute__(self, "_hub")
                except AttributeError:
                    raise AttributeError(
                        f"{cls}.__init__ does not call super().__init__(…), which makes the agent"
                    ) from None
            raise AttributeError(f"{cls!r} object has no attribute {name!r}")

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
        self._add(message)

    def _add(self, item: Item) -> None:
        root = self._root()
        root._check_thread("adding a message")
        if isinstance(item, ToolResult) and root._current is not None:
            root._hub.emit(*root._current._ledger.add(item))  # right behind its call, which has one result
            return
        index = root._conversation._append(item)
        if not root._hub.unheard:
            root._hub.emit(MessageAdded(item, index))

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
        return Dialogue._offered_tools(self)

    # -- extraction

    def extract(self, text: str) -> tuple[str, dict[str, Any] | None]:
        """Take the value out of ``text``: the text that is left, and metadata if asked for.

        Calls the callback, as for an answer. Without ``extract`` in the options, or without a
        value in it, the text comes back as it was.

        Source: Micdrop page "Agent (LLM)", ``extract(message)``.
        """
        if self._extract is None:
            return text, None
        from micdrop_agent.text import extract_text

        left, found, value = extract_text(text, self._extract)
        return left, (self._use_value(value) or None) if found else None

    def _text_filters(self) -> tuple[TextFilter, ...]:
        if self._extract is None:
            return ()
        from micdrop_agent.text import ExtractFilter

        return (ExtractFilter(self._extract),)

    def _extracted(self, turn: Turn) -> dict[str, Any]:
        """Metadata of the value that the filters of ``turn`` found, after they have ended."""
        if self._extract is None or not turn._filters:
            return {}
        extractor: Any = turn._filters[0]
        if extractor.warning:
            self._safe_logger.warning("%s", extractor.warning)
        if not extractor.found:
            return {}
        turn.facts.extracted = extractor.value
        return self._use_value(extractor.value)

    def _use_value(self, value: Any) -> dict[str, Any]:
        options = self._extract
        assert options is not None  # there is a value, so there was an option that told of it
        if options.callback is not None:
            guards.call_back(self, options.callback, value)
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
        self._use_logger(logger)

    def _use_logger(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._safe_logger = self._hub.log = SafeLog(logger)

    def _log_trace(self, trace: Sequence[TraceEvent]) -> None:
        """The course of an answer in one line, at DEBUG."""
        steps = ", ".join(
            f"{event.at * 1000:.1f} ms {event.kind}"
            + (f" ({' '.join(f'{key}={value}' for key, value in event.detail.items())})" if event.detail else "")
            for event in trace
        )
        end = trace[-1]
        self._safe_logger.debug(
            "answer: %s", steps, extra={"answer_status": end.detail.get("status"), "answer_seconds": end.at}
        )

    def _log_failure(self, error: Exception) -> None:
        ours = isinstance(error, MicdropError)
        extra = {"error_type": type(error).__name__, "error_kind": getattr(error, "kind", None)}
        self._safe_logger.error("the answer failed: %s", words_of(error), exc_info=None if ours else error, extra=extra)

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
        agent: Any = self
        while agent._owner is not None:
            agent = agent._owner
        root: Agent = agent
        return root

    def _check_thread(self, what: str) -> None:
        if self._home is not None and self._state != "closed":
            self._home.check(what)

    def _check_idle(self) -> None:
        if self._current is not None and self._current.status == "running":
            raise RuntimeError("the conversation cannot be replaced while an answer runs; cancel it")
