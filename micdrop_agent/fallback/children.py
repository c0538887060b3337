"""The children of a ``FallbackAgent``: built when needed, forgotten when they failed, closed in the end.

Slot ── factory ──▶ child ── failed ──▶ discarded, and built again when it is needed
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio

from micdrop_agent._core.agent import Agent
from micdrop_agent._core.core import Core, core_of
from micdrop_agent._core.groups import lone_error_unwrapped
from micdrop_agent._core.history import History
from micdrop_agent._core.options import AgentOptions, shared
from micdrop_agent._interrupts import defer_interrupts, start_soon
from micdrop_agent.fallback.health import HealthRegistry
from micdrop_agent.options import CLOSE_TIMEOUT
from micdrop_agent.tools import Tool
from micdrop_agent.tools import tool as as_tool

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable, Sequence

    from micdrop_agent._core.extraction import Extraction
    from micdrop_agent.fallback.options import FallbackOptions
    from micdrop_agent.messages import Message

__all__ = ["FallbackCore", "Slot"]


class Slot:
    """The place of one child: its factory, and the inside of the child once it is built."""

    def __init__(self, index: int, factory: Callable[[], Agent]) -> None:
        self.index = index
        self.factory = factory
        self.child: Core | None = None
        self.started = False
        self.key: str = f"agent {index}"
        self.named = False

    def __repr__(self) -> str:
        return f"<Slot {self.key}>"


@defer_interrupts
class FallbackCore(Core):
    """The inside of a ``FallbackAgent``.

    Attributes:
        rules: The options that only it has.
        slots: The places of its children.
        active: Index of the child that answers next, or is answering.
    """

    __slots__ = (
        "_discarded",
        "_health_is_shared",
        "_logger_given",
        "_names",
        "_prompt",
        "_removed",
        "active",
        "health",
        "rules",
        "slots",
    )

    def __init__(self, agent: Agent, factories: Sequence[Callable[[], Agent]], rules: FallbackOptions) -> None:
        super().__init__(agent, AgentOptions(**shared(rules)))
        self.rules = rules
        self.active = 0
        self.slots = [Slot(index, factory) for index, factory in enumerate(checked_factories(factories))]
        self.health: HealthRegistry = HealthRegistry() if rules.health is None else rules.health
        self._health_is_shared = rules.health is not None
        self._discarded: list[Core] = []
        """Children that failed, whose connections are still to be closed."""
        self._removed: set[str] = set()
        """Names of tools of the children that were removed here."""
        self._prompt: Message | None = None
        """The system prompt of every child, where it was exchanged here."""
        self._logger_given = False
        self._names = _checked_names(rules.names, len(self.slots))
        for slot in self.slots:
            slot.key = slot.key if self._names is None else self._names[slot.index]
        # The page: it starts with the first agent and adopts its conversation.
        first = self.built(self.slots[0])
        self.system = first.system_message()
        self.conversation = History(first.conversation, self._check_idle)

    # -- children

    @property
    def active_child(self) -> Core | None:
        """The child that answers next; ``None`` if it is not built yet."""
        return self.slots[self.active].child

    @property
    def active_name(self) -> str:
        """Its name."""
        return self.slots[self.active].key

    def built(self, slot: Slot) -> Core:
        """The child of ``slot``, made by its factory if need be; raises what that raises."""
        if slot.child is not None and slot.child.state == "new":
            return slot.child
        self.discard(slot)  # it has closed itself
        made: object = slot.factory()
        if not isinstance(made, Agent):
            raise TypeError(f"factory {slot.index} returned {made!r}, which is not an Agent")
        child = core_of(made)
        if child.owner is not None or child is self:
            raise ValueError(
                f"factory {slot.index} returned an agent that is in use already; a factory makes a new one each time"
            )
        if child.state != "new":
            raise ValueError(f"factory {slot.index} returned an agent that is open or closed; return a new one")
        child.owner = self
        own = self.options.deps
        child.toolset.use_deps(self.root().options.deps if own is None else own)
        if self._prompt is not None:
            child.use_system(self._prompt)
        for name in self._removed:
            child.remove_tool(name)
        if self._logger_given:
            child.use_logger(self.logger)
        slot.child = child
        slot.key, slot.named = self._name_of(slot, child), True
        return child

    def learn_names(self) -> None:
        """With a shared registry, know the children by name before the first one is asked."""
        if not self._health_is_shared or self._names is not None:
            return
        for slot in self.slots:
            if slot.named:
                continue
            try:
                self.built(slot)
            except Exception:  # foreign code: a factory; reported, as a failure, when the child is asked
                self.log.debug("factory %d raised", slot.index, exc_info=True)

    def _name_of(self, slot: Slot, child: Core) -> str:
        if self._names is not None:
            return self._names[slot.index]
        name = child.label()
        taken = {other.key for other in self.slots if other is not slot}
        return name if name not in taken else f"{name} #{slot.index + 1}"

    def discard(self, slot: Slot) -> None:
        """Forget a child that failed. Its connections are closed after the answer: now the next child is waited for."""
        child, slot.child, slot.started = slot.child, None, False
        if child is not None:
            child.state = "closed"
            self._discarded.append(child)
            self.afterwards(self._close_discarded)

    async def _close_discarded(self) -> None:
        while self._discarded:
            with anyio.move_on_after(CLOSE_TIMEOUT, shield=True):
                await self._close_child(self._discarded.pop(0))

    async def _close_child(self, child: Core) -> None:
        child.state = "closed"
        try:
            await child.agent.aclose()
        except Exception:  # foreign code: a subclass may close what it opened in there
            self.log.exception("aclose() of a child raised")
        finally:
            await child.let_go()  # noqa: ASYNC102 - sockets are closed before it waits; whoever calls this bounds it

    def take_over(self, slot: Slot, conversation: History) -> None:
        """``slot`` has won: it is the active child, under its own system prompt."""
        self.active = slot.index
        self.root().show_system(conversation)

    # -- as every agent

    def system_message(self) -> Message:
        """That of the active child."""
        child = self.active_child
        return self.system if child is None else child.system_message()

    def use_system(self, message: Message) -> None:
        """Have every child answer under that system prompt, those that are built later too."""
        super().use_system(message)
        self._prompt = message
        for slot in self.slots:
            if slot.child is not None:
                slot.child.use_system(message)

    def way_back(self) -> Callable[[], None]:
        """The child that is active now answers next, here and within each child."""
        active = self.active
        inner = [slot.child.way_back() for slot in self.slots if slot.child is not None]

        def go_back() -> None:
            self.active = active
            for back in inner:
                back()

        return go_back

    def label(self) -> str:
        """One name for all of them: their own names are in the events."""
        return "FallbackAgent"

    def listed_tools(self) -> Sequence[Tool]:
        """What the active child offers: its own tools, then those added here."""
        return self.offered_tools()

    def offered_tools(self) -> Sequence[Tool]:
        """What the model of the active child is offered."""
        child = self.active_child
        return self.shared_tools() if child is None else child.offered_tools()

    def add_tool(self, tool: Tool | Callable[..., Any]) -> None:
        """Add a tool for all children; its name must not be that of a tool of the active one."""
        ready = tool if isinstance(tool, Tool) else as_tool(tool)
        if any(listed.name == ready.name for listed in self.listed_tools()):
            raise ValueError(f"there is a tool named {ready.name!r} already; remove it first")
        super().add_tool(ready)

    def remove_tool(self, name: str) -> None:
        """Take the tool of that name away from all children, those that are built later too."""
        super().remove_tool(name)
        self._removed.add(name)
        for slot in self.slots:
            if slot.child is not None:
                slot.child.remove_tool(name)

    def extracting(self) -> Extraction | None:
        """That of the active child."""
        child = self.active_child
        return None if child is None else child.extracting()

    def use_logger(self, logger: logging.Logger) -> None:
        """Log to ``logger`` from now on, the children too."""
        self._logger_given = True
        super().use_logger(logger)
        for slot in self.slots:
            if slot.child is not None:
                slot.child.use_logger(logger)

    async def start(self) -> None:
        """Make all children, if that was asked for."""
        for slot in self.slots if self.rules.prebuild else ():
            try:
                child = self.built(slot)
                await child.start()
            except Exception:  # foreign code: reported again, as a failure, when the child is needed
                self.log.exception("child %d could not be made ready", slot.index)
                self.discard(slot)
                self.spawn(self._close_discarded, "micdrop child close")
                continue
            slot.started = True
            # Opening does not wait for a server that is down.
            self.spawn(child.agent.prewarm, f"micdrop prewarm {slot.key}")

    async def stop_resources(self) -> None:
        """Close all children, side by side: the time is limited, and one that hangs must not use it up."""
        for slot in self.slots:
            self.discard(slot)
        with lone_error_unwrapped():
            async with anyio.create_task_group() as tasks:
                while self._discarded:
                    start_soon(tasks, self._close_child, self._discarded.pop(0))


def checked_factories(factories: object) -> Sequence[Callable[[], Agent]]:
    """Refuse what is not a list of functions."""
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
        raise TypeError(f"names must be a list of {count} strings, not {names!r}")
    listed: list[Any] = list(names)  # type: ignore[call-overload]  # checked below
    if len(listed) != count or len(set(listed)) != count or not all(isinstance(name, str) for name in listed):
        raise ValueError(f"names must be {count} different strings, one for each factory, not {listed!r}")
    return listed
