"""The one turn loop for every model provider.

    request ──▶ text ─────────────────────────▶ turn.write
      ▲         calls ──▶ tools ──▶ results ─┐
      └───────────────────────────────────────┘   until the model only talks

Retries have one owner, the step in this module: a step sends at most ``max_retries + 1``
requests, and none after a chunk of its response was received (invariant 10, docs/design.md D2).

Source: Micdrop page "Agent (LLM)"; docs/design.md D4, D5, D8 for the end of a turn.
"""

from __future__ import annotations

import math
import sys
from abc import abstractmethod
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import anyio

from micdrop_agent._core.agent import Agent
from micdrop_agent._core.core import Core
from micdrop_agent._core.options import read_options
from micdrop_agent._interrupts import defer_interrupts
from micdrop_agent.errors import MaxStepsError, ProviderError
from micdrop_agent.messages import is_blank
from micdrop_agent.model.budget import TokenBudget
from micdrop_agent.model.clock import TotalClock
from micdrop_agent.model.context import with_context
from micdrop_agent.model.options import ModelOptions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from typing_extensions import Unpack

    from micdrop_agent._core.options import AgentKeywords
    from micdrop_agent._core.turn import Turn
    from micdrop_agent.messages import Item
    from micdrop_agent.model.options import ModelKeywords
    from micdrop_agent.model.protocol import Provider
    from micdrop_agent.model.step import StepResult
    from micdrop_agent.model.summary import Summarizer

__all__ = ["ModelAgent", "ModelCore"]

V = TypeVar("V")

OVERFLOW_SHARE: Final = 2 / 3
"""Share of a request that was too long for the model to which later ones are kept."""

REWARM_AFTER: Final = 0.005
"""Seconds after a barge-in until a connection is opened in place of the one that it cost."""


@defer_interrupts
class ModelCore(Core):
    """The inside of an agent that asks a model: its provider, and what of the conversation that is sent."""

    __slots__ = ("_budget", "_provider", "_summarizer")

    agent: ModelAgent
    options: ModelOptions

    def __init__(self, agent: ModelAgent, options: ModelOptions) -> None:
        super().__init__(agent, options)
        limit = options.max_context_tokens
        self._budget = None if limit is None else TokenBudget(limit, options.count_tokens)
        self._provider: Provider | None = None
        self._summarizer: Summarizer | None = None
        if options.summarize is not None and limit is not None:
            from micdrop_agent.model.summary import Summarizer

            self._summarizer = Summarizer(self, options.summarize, limit)

    @property
    def provider(self) -> Provider:
        """The translation for this agent's server; made when it is first needed, closed with the agent."""
        if self._provider is None:
            self._provider = self.agent.make_provider()
        return self._provider

    def items(self, turn: Turn) -> Sequence[Item]:
        """The conversation as this agent sends it: under its own system prompt, within its budget."""
        items = self._all_items(turn)
        sent = items if self._budget is None else self._budget.trim(items)
        if self._summarizer is not None and self._budget is not None:
            self._summarizer.look(self._budget.tokens)
        return with_context(sent, turn) if turn.context else sent

    def _all_items(self, turn: Turn) -> Sequence[Item]:
        items: Sequence[Item] = turn.ledger.conversation
        if self.owner is not None:
            rest = items[1:] if len(items) and items[0].role == "system" else items
            items = [self.system_message(), *rest]
        if turn.continue_from is not None and items and turn.ledger.stands_for(items[-1]):
            items = items[:-1]  # a resumed answer: its text is what is to be continued
        return items

    def shorten_requests(self, turn: Turn) -> bool:
        """Leave the oldest turns out of this agent's requests from now on: they are too long for the model.

        Returns:
            Whether anything can be left out.
        """
        count = self.options.count_tokens
        budget = self._budget or TokenBudget(sys.maxsize, count)
        sent = budget.trim(self._all_items(turn))
        limit = max(1, int(budget.tokens_sent * OVERFLOW_SHARE))
        shorter = TokenBudget(limit, count)
        if len(shorter.trim(sent)) == len(sent):
            return False
        self._budget = shorter
        self.log.warning(
            "the conversation is too long for the model: requests are kept below about %d tokens from now on; "
            "see max_context_tokens",
            limit,
        )
        return True

    async def start(self) -> None:
        """Load what the first request needs, rather than in the middle of it, where a caller waits."""
        import_module("micdrop_agent.text")

    async def stop_resources(self) -> None:
        """Close the connections."""
        made, self._provider = self._provider, None
        if made is not None:
            await made.aclose()

    def request_cut(self) -> None:
        """A barge-in cost the connection: have another one before the next answer needs it."""
        self.afterwards(self._rewarm)

    async def _rewarm(self) -> None:
        # Not at once: in these milliseconds the host stops its audio and hears the caller.
        await anyio.sleep(REWARM_AFTER)
        await self.agent.prewarm()


@defer_interrupts
class ModelAgent(Agent):
    """An agent that asks a model, runs the tools it asks for, and asks again.

    Subclasses implement ``make_provider``.

    Args:
        options: ``retry``, ``timeouts``, ``max_steps``, ``max_context_tokens`` and ``count_tokens``
            (``ModelOptions``), and those of ``Agent``.

    Raises:
        TypeError: An option has the wrong type; the message names it.
        ValueError: An option is out of range; the message names it.
    """

    __slots__ = ()

    _core: ModelCore  # pyright: ignore[reportIncompatibleVariableOverride] - made once, by _make_core

    def __init__(self, **options: Unpack[ModelKeywords]) -> None:
        super().__init__(**cast("AgentKeywords", options))

    def _make_core(self, options: Mapping[str, Any]) -> ModelCore:
        return ModelCore(self, read_options(ModelOptions, options, self))

    @abstractmethod
    def make_provider(self) -> Provider:
        """The translation for this agent's server; called once, closed with the agent."""

    async def prewarm(self) -> None:
        """Have a connection ready, so that the next first chunk does not wait for a handshake.

        A failure is logged at DEBUG and not raised: the answer itself will tell. Does nothing
        once the agent was closed (or replaced by its supervisor): nobody would close that connection.
        """
        if self._core.over:
            return
        for tool in self.tools:
            tool.prepare()
        try:
            await self._core.provider.prewarm()
        except ProviderError as error:
            self._core.log.debug("no spare connection: %s", error)

    async def ask(self, cls: type[V], text: str, *, retries: int = 1) -> V:
        """One typed answer without speech: what the model makes of ``text``, as an instance of ``cls``.

        A request of its own, beside the conversation, which it neither reads nor changes; the live
        answer goes on.

        Args:
            cls: An attrs class, a dataclass, a TypedDict or a pydantic model.
            text: What the model reads, beside the schema of ``cls``.
            retries: So often it is told what does not fit, and asked again.

        Raises:
            ProviderError: The provider failed, or nothing that it sent fits (kind ``empty``).
            TypeError: ``cls`` is none of them.
        """
        from micdrop_agent.model.ask import ask

        self._core.check_thread("ask()")
        answer: V = await ask(self._core.provider, self._core.options.timeouts, cls, text, retries)
        return answer

    async def generate_answer(self, turn: Turn) -> None:
        """Ask the model until it has nothing more to do.

        Raises:
            ProviderError: The provider failed and no retry helped.
            MaxStepsError: The model asked for tools to the end and said nothing.
        """
        from micdrop_agent.model.step import Step

        core, options = self._core, self._core.options
        limit = options.timeouts.total
        total = TotalClock(math.inf if limit is None else turn.facts.clock() + limit)
        empties = 0
        called = 0  # requests that ended in calls; an empty one is sent again as it was
        while True:
            tools = turn.tools if called < options.max_steps else ()
            response = await Step(core, turn, tools, total, first=not called).run()
            if response.outcome.skip:
                return
            if response.outcome.end_call:
                await self._farewell(turn, total)
                return
            if response.outcome.plain:
                called += 1
                continue
            if response.said:
                return
            if called >= options.max_steps:
                raise MaxStepsError(options.max_steps, provider=core.provider.name)
            empties = self._count_empty(response, empties)

    def _count_empty(self, response: StepResult, empties: int) -> int:
        """An empty response is asked again once, if retries are on at all."""
        provider = self._core.provider.name
        if empties or not self._core.options.retrying.max_retries or response.finish == "length":
            raise ProviderError(
                f"{provider} completed its response without saying anything "
                f"(finish reason {response.finish or 'unknown'})",
                # All tokens went into thinking: the same request would spend them the same way.
                kind="truncated" if response.finish == "length" else "empty",
                provider=provider,
                retryable=False,
            )
        return empties + 1

    async def _farewell(self, turn: Turn, total: TotalClock) -> None:
        """A call should not end in silence: one request without tools, if nothing was said."""
        if not is_blank(turn.ledger.text):
            return
        from micdrop_agent.model.step import Step

        try:
            await Step(self._core, turn, (), total, first=False).run()
        except ProviderError as error:
            if not turn.fenced:
                turn.emit_all(turn.ledger.interrupt(turn.ledger.length))
            self._core.log.warning("no farewell before the end of the call: %s", error)
