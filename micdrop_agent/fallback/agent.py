"""A supervisor of agents: when one fails, the next answers from the same conversation.

    FallbackAgent.answer() ── turn ──▶ attempt of child 0 ── fails ──▶ attempt of child 1 ──▶ …
                                │            └── its own scope, its own child turn
                                └── one conversation, one stream, one set of events

Children are strategies: they never own a conversation, a stream or a listener. See
``supervisor`` for one answer and ``health`` for which child is worth asking.

Source: Micdrop page "FallbackAgent".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, get_args

import anyio

from micdrop_agent._core.agent import Agent
from micdrop_agent.conversation import Conversation
from micdrop_agent.fallback.health import HealthRegistry
from micdrop_agent.fallback.supervisor import CLOSE_TIMEOUT, Supervision
from micdrop_agent.options import check_flag, check_seconds, check_text

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable, Iterable, Sequence

    from micdrop_agent._core.turn import Turn
    from micdrop_agent.messages import Message
    from micdrop_agent.tools import Tool

__all__ = ["AfterPartial", "FallbackAgent"]

AfterPartial: TypeAlias = Literal["continue", "restart", "stop"]
Prefer: TypeAlias = Literal["current", "first"]


class Slot:
    """The place of one child: its factory, and the child once it is built."""

    def __init__(self, index: int, factory: Callable[[], Agent]) -> None:
        self.index = index
        self.factory = factory
        self.agent: Agent | None = None
        self.started = False
        self.key: str = f"agent {index}"
        self.named = False

    def __repr__(self) -> str:
        return f"<Slot {self.key}>"


class FallbackAgent(Agent):
    """Answers with the first of its children that can.

    Args:
        factories: Functions that make a child each; called when it is first needed, and again
            after it failed. The first one is called at once, so a wrong configuration shows.
        first_chunk_timeout: Seconds that one child may take to its first useful output, its own
            retries included; then it counts as failed. ``None``: the children's own clocks.
        give_up_after: Seconds for the whole answer to its first useful output; ``None``: none.
        hedge_after: Ask the next healthy child too when there is no output after so many
            seconds, and take whichever comes first; ``"p95"``: after the 95th percentile of
            that child's own history. Only before any output, within the registry's budget.
        after_partial: When a child fails in mid-answer: ``"continue"``: the next one goes on
            where it stopped; ``"restart"``: it starts again, and ``AgentSwitched.restarted``
            tells the host; ``"stop"``: the answer fails and the next child has the next turn.
        health: Who is in and out; share one between agents. A new one if left out.
        prefer: ``"current"``: the child that answered stays; ``"first"``: go back to the first
            one as soon as it is healthy again.
        prebuild: Make all children when the agent is opened, so that a switch does not wait.
        give_up_text: Said, and stored, when every child failed and nothing was heard yet.
        names: Names of the children in events and in the registry; made from their classes
            and models if left out.
        tools: Shared by all children, after their own.
        record_interrupted: As in ``Agent``.
        raise_on_failure: As in ``Agent``.
        buffer_size: As in ``Agent``.

    Raises:
        TypeError: An option has the wrong type, or a factory returned no agent.
        ValueError: An option is out of range, or there is no factory.

    Source: Micdrop page "FallbackAgent".
    """

    takes_images: ClassVar[bool] = True  # a child that cannot see fails, and the next one is asked

    def __init__(
        self,
        factories: Sequence[Callable[[], Agent]],
        *,
        first_chunk_timeout: float | None = 5.0,
        give_up_after: float | None = None,
        hedge_after: float | Literal["p95"] | None = None,
        after_partial: AfterPartial = "continue",
        health: HealthRegistry | None = None,
        prefer: Prefer = "current",
        prebuild: bool = False,
        give_up_text: str | None = None,
        names: Sequence[str] | None = None,
        tools: Iterable[Tool | Callable[..., Any]] = (),
        record_interrupted: bool = True,
        raise_on_failure: bool = True,
        buffer_size: int | None = None,
    ) -> None:
        super().__init__(
            tools=tools,
            record_interrupted=record_interrupted,
            raise_on_failure=raise_on_failure,
            buffer_size=buffer_size,
        )
        self._discarded: list[Agent] = []
        """Children that failed, whose connections are still to be closed."""
        self._slots = [Slot(index, factory) for index, factory in enumerate(_factories(factories))]
        check_seconds("first_chunk_timeout", first_chunk_timeout, zero=False, none=True)
        check_seconds("give_up_after", give_up_after, zero=False, none=True)
        if hedge_after != "p95":
            check_seconds("hedge_after", hedge_after, zero=False, none=True)
        _one_of("after_partial", after_partial, get_args(AfterPartial))
        _one_of("prefer", prefer, get_args(Prefer))
        check_flag("prebuild", prebuild)
        if give_up_text is not None:
            check_text("give_up_text", give_up_text)
        if health is not None and not isinstance(health, HealthRegistry):
            raise TypeError(f"health must be a HealthRegistry, not {health!r}")
        self.first_chunk_timeout = first_chunk_timeout
        self.give_up_after = give_up_after
        self.hedge_after = hedge_after
        self.after_partial = after_partial
        self.health: HealthRegistry = HealthRegistry() if health is None else health
        self._health_is_shared = health is not None
        self.prefer = prefer
        self.prebuild = prebuild
        self.give_up_text = give_up_text
        self._names = _checked_names(names, len(self._slots))
        for slot in self._slots:
            slot.key = slot.key if self._names is None else self._names[slot.index]
        self._active = 0
        self._logger_given = False
        # The page: it starts with the first agent and adopts its conversation.
        first = self._built(self._slots[0])
        self._system = first._system_message()
        self._conversation = Conversation(first._conversation)
        self._conversation._may_replace = self._check_idle

    # -- children

    @property
    def active(self) -> Agent | None:
        """The child that answers next (or is answering); ``None`` if it is not built yet."""
        return self._slots[self._active].agent

    @property
    def active_name(self) -> str:
        """Name of that child."""
        return self._slots[self._active].key

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools that the active child offers: its own, then those added to this agent."""
        return tuple(self._offered_tools())

    def get_tool(self, name: str) -> Tool | None:
        """The tool of that name among ``tools``; ``None`` if there is none."""
        return next((tool for tool in self.tools if tool.name == name), None)

    def _offered_tools(self) -> Sequence[Tool]:
        child = self.active
        return self._shared_tools() if child is None else child._offered_tools()

    def _built(self, slot: Slot) -> Agent:
        """The child of ``slot``, made by its factory if need be; raises what that raises."""
        if slot.agent is not None and slot.agent._state == "new":
            return slot.agent
        self._discard(slot)  # it has closed itself
        child = slot.factory()
        if not isinstance(child, Agent):
            raise TypeError(f"factory {slot.index} returned {child!r}, which is no Agent")
        if child._owner is not None or child is self:
            raise ValueError(
                f"factory {slot.index} returned an agent that is in use already; a factory makes a new one each time"
            )
        if child._state != "new":
            raise ValueError(f"factory {slot.index} returned an agent that is open or closed; return a new one")
        child._owner = self
        if self._logger_given:
            child.logger = self.logger
        slot.agent = child
        slot.key, slot.named = self._name_of(slot, child), True
        return child

    def _learn_names(self) -> None:
        """With a shared registry, know the children by name before the first one is asked."""
        if not self._health_is_shared or self._names is not None:
            return
        for slot in self._slots:
            if slot.named:
                continue
            try:
                self._built(slot)
            except Exception:
                self._safe_logger.debug("factory %d raised", slot.index, exc_info=True)

    def _name_of(self, slot: Slot, child: Agent) -> str:
        if self._names is not None:
            return self._names[slot.index]
        name = child._label()
        taken = {other.key for other in self._slots if other is not slot}
        return name if name not in taken else f"{name} #{slot.index + 1}"

    def _discard(self, slot: Slot) -> None:
        """Forget a child that failed. Its connections are closed after the answer: now the next child is waited for."""
        child, slot.agent, slot.started = slot.agent, None, False
        if child is not None:
            child._state = "closed"
            self._discarded.append(child)
            self._afterwards(self._close_discarded)

    async def _close_discarded(self) -> None:
        while self._discarded:
            with anyio.move_on_after(CLOSE_TIMEOUT, shield=True):
                await self._close_child(self._discarded.pop(0))

    async def _close_child(self, child: Agent) -> None:
        child._state = "closed"
        try:
            await child.aclose()
        except Exception:  # foreign code: a subclass may close what it opened in there
            self._safe_logger.exception("aclose() of a child raised")
        await child._let_go()

    def _take_over(self, slot: Slot) -> None:
        """``slot`` has won: it is the active child, under its own system prompt."""
        self._active = slot.index
        self._apply_system()

    def _apply_system(self) -> None:
        root = self._root()
        conversation = root._conversation
        child = self.active
        if child is None or not len(conversation) or conversation[0].role != "system":
            return
        message = child._system_message()
        if conversation[0] is not message:
            conversation._put(0, message)

    def _system_message(self) -> Message:
        child = self.active
        return self._system if child is None else child._system_message()

    def _label(self) -> str:
        return "FallbackAgent"

    # -- the agent

    async def _start(self) -> None:
        if not self.prebuild:
            return
        for slot in self._slots:
            try:
                child = self._built(slot)
                await child._start()
            except Exception:  # foreign code: told again, as a failure, when the child is needed
                self._safe_logger.exception("child %d could not be made ready", slot.index)
                self._discard(slot)
                self._spawn(self._close_discarded, "micdrop child close")
                continue
            slot.started = True
            # Opening does not wait for a server that is down.
            self._spawn(child.prewarm, f"micdrop prewarm {slot.key}")

    async def _stop_resources(self) -> None:
        # Side by side: the time for all of them is limited, and one that hangs must not use it up.
        for slot in self._slots:
            self._discard(slot)
        async with anyio.create_task_group() as tasks:
            while self._discarded:
                tasks.start_soon(self._close_child, self._discarded.pop(0))

    async def prewarm(self) -> None:
        """Have a connection of the active child ready."""
        child = self.active
        if child is not None:
            await child.prewarm()

    @property
    def logger(self) -> logging.Logger:
        """Where this agent and its children log."""
        return self._logger

    @logger.setter
    def logger(self, logger: logging.Logger) -> None:
        self._logger_given = True
        self._use_logger(logger)
        for slot in self._slots:
            if slot.agent is not None:
                slot.agent.logger = logger

    async def generate_answer(self, turn: Turn) -> None:
        """Ask the children, each at most once, until one has answered.

        Raises:
            AllAgentsFailedError: None could.
            ProviderError: One failed in mid-answer and ``after_partial`` is ``"stop"``, or the
                text cannot be continued.
        """
        await Supervision(self, turn).run()


def _factories(factories: object) -> Sequence[Callable[[], Agent]]:
    if callable(factories) or isinstance(factories, str | bytes | Agent):
        raise TypeError(f"factories must be a list of functions that each make an agent, not {factories!r}")
    listed: list[Any] = list(factories)  # type: ignore[call-overload]  # checked below, one by one
    if not listed:
        raise ValueError("factories is empty; a FallbackAgent needs at least one")
    for index, factory in enumerate(listed):
        if isinstance(factory, Agent) or not callable(factory):
            raise TypeError(
                f"factories[{index}] must be a function that makes an agent, such as lambda: OpenaiAgent(...), "
                f"not {factory!r}"
            )
    return listed


def _checked_names(names: object, count: int) -> list[str] | None:
    if names is None:
        return None
    if isinstance(names, str):
        raise TypeError(f"names must be a list of {count} texts, not {names!r}")
    listed: list[Any] = list(names)  # type: ignore[call-overload]  # checked below
    if len(listed) != count or len(set(listed)) != count or not all(isinstance(name, str) for name in listed):
        raise ValueError(f"names must be {count} different texts, one for each factory, not {listed!r}")
    return listed


def _one_of(name: str, value: object, known: Iterable[str]) -> None:
    if value not in tuple(known):
        raise ValueError(f"{name} must be one of {', '.join(map(repr, known))}, not {value!r}")
