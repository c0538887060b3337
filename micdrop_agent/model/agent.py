"""The one turn loop for every model provider.

    request ──▶ text ─────────────────────────▶ turn.write
      ▲         calls ──▶ tools ──▶ results ─┐
      └───────────────────────────────────────┘   until the model only talks

Retries have one owner, the step in this module: a step sends at most ``max_retries + 1``
requests, and none after a chunk of its response was received (invariant 10, DESIGN D2).

Source: Micdrop page "Agent (LLM)"; DESIGN D4, D5, D8 for the end of a turn.
"""

from __future__ import annotations

import math
import sys
from abc import abstractmethod
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypedDict

import anyio

from micdrop_agent._core.agent import Agent
from micdrop_agent.errors import MaxStepsError, ProviderError
from micdrop_agent.messages import is_blank
from micdrop_agent.model.budget import TokenBudget, check_counter
from micdrop_agent.model.clock import TotalClock
from micdrop_agent.model.step import Step
from micdrop_agent.options import Retry, Timeouts, check_count, check_flag

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from typing_extensions import Unpack

    from micdrop_agent._core.agent import BeforeAnswer
    from micdrop_agent._core.turn import Turn
    from micdrop_agent.messages import Item
    from micdrop_agent.model.protocol import Provider
    from micdrop_agent.model.step import Response
    from micdrop_agent.options import ExtractJson, ExtractTag
    from micdrop_agent.tools import Tool

__all__ = ["AgentOptions", "ModelAgent"]

_RETRY: Final = Retry()
_TIMEOUTS: Final = Timeouts()

OVERFLOW_SHARE: Final = 2 / 3
"""Share of a request that was too long for the model to which later ones are kept."""

REWARM_AFTER: Final = 0.005
"""Seconds after a barge-in until a connection is opened in place of the one that it cost."""


class AgentOptions(TypedDict, total=False):
    """The keyword options of ``Agent``, for subclasses that pass them on."""

    system_prompt: str
    auto_end_call: bool | str
    auto_semantic_turn: bool | str
    auto_ignore_user_noise: bool | str
    extract: ExtractJson | ExtractTag | None
    on_before_answer: BeforeAnswer | None
    tools: Iterable[Tool | Callable[..., Any]]
    record_interrupted: bool
    raise_on_failure: bool
    parallel_tools: bool
    buffer_size: int | None


class ModelAgent(Agent):
    """An agent that asks a model, runs the tools it asks for, and asks again.

    Subclasses implement ``_make_provider``.

    Args:
        retry: When a failed request is sent again; ``Retry()`` if left out. In a
            ``FallbackAgent`` with another healthy child, a child without a ``retry`` of its own
            fails at once instead of waiting.
        timeouts: How long the provider may take; ``Timeouts()`` if left out.
        max_steps: Requests of one answer that may end in tool calls; then comes one last
            request without tools. At least 1.
        max_context_tokens: Most tokens of the conversation in a request, its system prompt
            included; the oldest turns are left out of the request, never of the conversation.
            Declarations of tools and the answer itself come on top. ``None``: all is sent.
        count_tokens: Tokens of a text, for ``max_context_tokens``; a cheap estimate (a token for
            each 4 letters) if left out.
        run_written_calls: Run a tool call that the model wrote as text, if it is complete, names a tool
            on offer, and no call came beside it. It is never spoken, whether it is run or not.
        options: The options of ``Agent``.

    Raises:
        TypeError: An option has the wrong type; the message names it.
        ValueError: An option is out of range; the message names it.
    """

    __slots__ = (
        "_budget",
        "_count_tokens",
        "_provider_made",
        "max_context_tokens",
        "max_steps",
        "retry",
        "retry_is_default",
        "run_written_calls",
        "timeouts",
    )

    def __init__(
        self,
        *,
        retry: Retry | None = None,
        timeouts: Timeouts | None = None,
        max_steps: int = 5,
        max_context_tokens: int | None = None,
        count_tokens: Callable[[str], int] | None = None,
        run_written_calls: bool = True,
        **options: Unpack[AgentOptions],
    ) -> None:
        if retry is not None and not isinstance(retry, Retry):
            raise TypeError(f"retry must be a Retry, not {retry!r}")
        if timeouts is not None and not isinstance(timeouts, Timeouts):
            raise TypeError(f"timeouts must be a Timeouts, not {timeouts!r}")
        check_count("max_steps", max_steps, least=1)
        if max_context_tokens is not None:
            check_count("max_context_tokens", max_context_tokens, least=1)
        check_counter(count_tokens, limit=max_context_tokens)
        check_flag("run_written_calls", run_written_calls)
        super().__init__(**options)
        self.retry: Retry = _RETRY if retry is None else retry
        self.retry_is_default: bool = retry is None
        self.timeouts: Timeouts = _TIMEOUTS if timeouts is None else timeouts
        self.max_steps = max_steps
        self.run_written_calls = run_written_calls
        self.max_context_tokens = max_context_tokens
        self._count_tokens = count_tokens
        self._budget = None if max_context_tokens is None else TokenBudget(max_context_tokens, count_tokens)
        self._provider_made: Provider | None = None

    @abstractmethod
    def _make_provider(self) -> Provider:
        """The translation for this agent's server; made once, closed with the agent."""

    @property
    def _provider(self) -> Provider:
        if self._provider_made is None:
            self._provider_made = self._make_provider()
        return self._provider_made

    async def prewarm(self) -> None:
        """Have a connection ready, so that the next first chunk does not wait for a handshake.

        A failure is logged at DEBUG and not raised: the answer itself will tell. Does nothing
        once the agent was closed (or replaced by its supervisor): nobody would close that connection.
        """
        if not {"closing", "closed"}.isdisjoint((self._state, self._root()._state)):
            return
        for tool in self.tools:
            tool.prepare()
        try:
            await self._provider.prewarm()
        except ProviderError as error:
            self._safe_logger.debug("no spare connection: %s", error)

    def _request_cut(self) -> None:
        """A barge-in cost the connection: have another one before the next answer needs it."""
        self._afterwards(self._rewarm)

    async def _rewarm(self) -> None:
        # Not at once: in these milliseconds the host stops its audio and hears the caller.
        await anyio.sleep(REWARM_AFTER)
        await self.prewarm()

    async def _start(self) -> None:
        # Loaded here rather than in the middle of the first request, where a caller waits for it.
        import_module("micdrop_agent.text")

    async def _stop_resources(self) -> None:
        made, self._provider_made = self._provider_made, None
        if made is not None:
            await made.aclose()

    async def generate_answer(self, turn: Turn) -> None:
        """Ask the model until it has nothing more to do.

        Raises:
            ProviderError: The provider failed and no retry helped.
            MaxStepsError: The model asked for tools to the end and said nothing.
        """
        limit = self.timeouts.total
        total = TotalClock(math.inf if limit is None else turn.facts.clock() + limit)
        empties = 0
        called = 0  # requests that ended in calls; an empty one is sent again as it was
        while True:
            tools = turn.tools if called < self.max_steps else ()
            response = await Step(self, turn, tools, total, first=not called).run()
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
            if called >= self.max_steps:
                raise MaxStepsError(self.max_steps, provider=self._provider.name)
            empties = self._count_empty(response, empties)

    def _count_empty(self, response: Response, empties: int) -> int:
        """An empty response is asked again once, if retries are on at all."""
        if empties or not self.retry.max_retries or response.finish == "length":
            raise ProviderError(
                f"{self._provider.name} completed its response without saying anything "
                f"(finish reason {response.finish or 'unknown'})",
                # All tokens went into thinking: the same request would spend them the same way.
                kind="truncated" if response.finish == "length" else "empty",
                provider=self._provider.name,
                retryable=False,
            )
        return empties + 1

    async def _farewell(self, turn: Turn, total: TotalClock) -> None:
        """A call should not end in silence: one request without tools, if nothing was said."""
        if not is_blank(turn.ledger.text):
            return
        try:
            await Step(self, turn, (), total, first=False).run()
        except ProviderError as error:
            if not turn.fenced:
                turn._emit(turn.ledger.interrupt(turn.ledger.length))
            self._safe_logger.warning("no farewell before the end of the call: %s", error)

    def shorten_requests(self, turn: Turn) -> bool:
        """Leave the oldest turns out of this agent's requests from now on: they are too long for the model.

        Returns:
            Whether anything can be left out.
        """
        budget = self._budget or TokenBudget(sys.maxsize, self._count_tokens)
        sent = budget.trim(self._all_items(turn))
        limit = max(1, int(budget.tokens_sent * OVERFLOW_SHARE))
        shorter = TokenBudget(limit, self._count_tokens)
        if len(shorter.trim(sent)) == len(sent):
            return False
        self._budget = shorter
        self._safe_logger.warning(
            "the conversation is too long for the model: requests are kept below about %d tokens from now on; "
            "see max_context_tokens",
            limit,
        )
        return True

    def _items(self, turn: Turn) -> Sequence[Item]:
        """The conversation as this agent sends it: under its own system prompt, within its budget."""
        items = self._all_items(turn)
        return items if self._budget is None else self._budget.trim(items)

    def _all_items(self, turn: Turn) -> Sequence[Item]:
        items: Sequence[Item] = turn.ledger.conversation
        if self._owner is not None:
            rest = items[1:] if len(items) and items[0].role == "system" else items
            items = [self._system, *rest]
        return items
