"""A supervisor of agents: when one fails, the next answers from the same conversation.

    FallbackAgent.answer() ── turn ──▶ attempt of child 0 ── fails ──▶ attempt of child 1 ──▶ …
                                │            └── its own scope, its own child turn
                                └── one conversation, one stream, one set of events

Children are strategies: they never own a conversation, a stream or a listener. See ``children`` for how they
come and go, ``supervisor`` for one answer and ``health`` for which child is worth asking.

Source: Micdrop page "FallbackAgent".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, TypeVar, cast

from micdrop_agent._core.agent import Agent
from micdrop_agent._core.options import read_options
from micdrop_agent._interrupts import defer_interrupts
from micdrop_agent.fallback.children import FallbackCore
from micdrop_agent.fallback.options import FallbackOptions
from micdrop_agent.fallback.supervisor import Supervision

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from typing_extensions import Unpack

    from micdrop_agent._core.options import AgentKeywords
    from micdrop_agent._core.turn import Turn
    from micdrop_agent.fallback.health import HealthRegistry
    from micdrop_agent.fallback.options import FallbackKeywords

__all__ = ["FallbackAgent"]

V = TypeVar("V")


@defer_interrupts
class FallbackAgent(Agent):
    """Answers with the first of its children that can.

    Args:
        factories: Functions that make a child each; called when it is first needed, and again
            after it failed. The first one is called at once, so a wrong configuration shows.
        options: ``hedge_after``, ``after_partial``, ``health`` and the others of ``FallbackOptions``.

    Raises:
        TypeError: An option has the wrong type, or a factory returned something that is not an agent.
        ValueError: An option is out of range, or there is no factory.

    Source: Micdrop page "FallbackAgent".
    """

    __slots__ = ()

    takes_images: ClassVar[bool] = True  # a child that cannot see fails, and the next one is asked

    _core: FallbackCore  # pyright: ignore[reportIncompatibleVariableOverride] - made once, by _make_core

    def __init__(self, factories: Sequence[Callable[[], Agent]], **options: Unpack[FallbackKeywords]) -> None:
        super().__init__(**cast("AgentKeywords", {**options, "factories": factories}))

    def _make_core(self, options: Mapping[str, Any]) -> FallbackCore:
        given = dict(options)
        factories = given.pop("factories")
        return FallbackCore(self, factories, read_options(FallbackOptions, given, self))

    @property
    def active(self) -> Agent | None:
        """The child that answers next (or is answering); ``None`` if it is not built yet."""
        child = self._core.active_child
        return None if child is None else child.agent

    @property
    def active_name(self) -> str:
        """Name of that child."""
        return self._core.active_name

    @property
    def health(self) -> HealthRegistry:
        """Which children are available."""
        return self._core.health

    async def prewarm(self) -> None:
        """Have a connection of the active child ready."""
        child = self._core.active_child
        if child is not None:
            await child.agent.prewarm()

    async def ask(self, cls: type[V], text: str, *, retries: int = 1) -> V:
        """One typed answer without speech, from the first child that gives one; see ``ModelAgent.ask``.

        Raises:
            AllAgentsFailedError: No child gave an answer that fits.
            TypeError: ``cls`` is not a class that can be read from JSON, or no child asks a model.
        """
        from micdrop_agent.fallback.ask import ask

        self._core.check_thread("ask()")
        answer: V = await ask(self._core, cls, text, retries)
        return answer

    async def generate_answer(self, turn: Turn) -> None:
        """Ask the children, each at most once, until one has answered.

        Raises:
            AllAgentsFailedError: None could.
            ProviderError: One failed in mid-answer and ``after_partial`` is ``"stop"``, or the
                text cannot be continued.
        """
        await Supervision(self._core, turn).run()
