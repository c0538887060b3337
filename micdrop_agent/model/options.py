"""The options of an agent that asks a model, beside those of every agent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from micdrop_agent._core.options import AgentKeywords, AgentOptions, flag
from micdrop_agent.model.budget import check_counter
from micdrop_agent.options import Retry, Timeouts, check_count, check_number, check_seconds, check_type, validated

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from micdrop_agent._core.agent import Agent
    from micdrop_agent._core.options import Attribute
    from micdrop_agent.messages import Item

__all__ = ["ModelKeywords", "ModelOptions", "Summarize"]

_RETRY: Final = Retry()
_TIMEOUTS: Final = Timeouts()


def _by(_: object, attribute: Attribute, value: object) -> None:
    if isinstance(value, type) or not (callable(value) or callable(getattr(value, "answer", None))):
        raise TypeError(f"{attribute.name} must be an agent, or a function of a list of items, not {value!r}")


def _is_filled_share(value: float) -> bool:
    return 0 < value <= 1


@attrs.frozen
class Summarize:
    """When and by whom the oldest turns of a long conversation are summarized.

    Args:
        by: An agent of your own, used for nothing else (one that is not open is opened when it is needed, and closed with
            the call), or a function of the items, sync or async, that returns the summary.
        at: Share of ``max_context_tokens`` (0 to 1) from which on it is done.
        keep_turns: So many of the last turns stay as they are; at least 1.
        timeout: Seconds that it may take.

    Raises:
        TypeError: An option has the wrong type.
        ValueError: An option is out of range; the message names it.
    """

    by: Agent | Callable[[Sequence[Item]], str | Awaitable[str]] = attrs.field(validator=_by)
    at: float = attrs.field(
        default=0.7,
        validator=validated(check_number, fits=_is_filled_share, limits="more than 0 and at most 1"),
        kw_only=True,
    )
    keep_turns: int = attrs.field(default=4, validator=validated(check_count, least=1), kw_only=True)
    timeout: float | None = attrs.field(
        default=30.0, validator=validated(check_seconds, zero=False, none=True), kw_only=True
    )


def _or_usual(value: Timeouts | None) -> Timeouts:
    return _TIMEOUTS if value is None else value


def _summarizing(options: ModelOptions, attribute: Attribute, value: object) -> None:
    if value is None:
        return
    if not isinstance(value, Summarize):
        raise TypeError(f"{attribute.name} must be a Summarize(by), not {value!r}")
    if options.max_context_tokens is None:
        raise ValueError("summarize needs max_context_tokens: a share of it is when a summary is made")


def _counter(options: ModelOptions, _: Attribute, value: object) -> None:
    check_counter(value, limit=options.max_context_tokens)


@attrs.frozen(kw_only=True, eq=False)
class ModelOptions(AgentOptions):
    """The options of an agent that asks a model, beside those of every agent."""

    retry: Retry | None = attrs.field(default=None, validator=validated(check_type, kind=Retry, none=True))
    """When a failed request is sent again; ``None`` is ``Retry()``, except in a ``FallbackAgent`` with another healthy
    child: there a child without a ``retry`` of its own fails at once instead of waiting."""

    timeouts: Timeouts = attrs.field(default=None, validator=validated(check_type, kind=Timeouts), converter=_or_usual)
    """How long the provider may take; ``None`` is ``Timeouts()``."""

    max_steps: int = attrs.field(default=5, validator=validated(check_count, least=1))
    """Requests of one answer that may end in tool calls; then comes one last request without tools. At least 1."""

    max_context_tokens: int | None = attrs.field(default=None, validator=validated(check_count, least=1, none=True))
    """Most tokens of the conversation in a request, its system prompt included; the oldest turns are left out of the
    request, never of the conversation. Declarations of tools and the answer itself come on top. ``None``: all is
    sent."""

    count_tokens: Callable[[str], int] | None = attrs.field(default=None, validator=_counter)
    """Tokens of a text, for ``max_context_tokens``; defaults to a cheap estimate (a token for each 4 letters)."""

    summarize: Summarize | None = attrs.field(default=None, validator=_summarizing)
    """Have the oldest turns replaced by a summary, made beside the call when a share of ``max_context_tokens`` is used."""

    run_written_calls: bool = attrs.field(default=True, validator=flag)
    """Run a tool call that the model wrote as text, if it is complete, names a tool on offer, and no call came beside
    it. It is never spoken, whether it is run or not."""

    @property
    def retrying(self) -> Retry:
        """When a failed request is sent again."""
        return _RETRY if self.retry is None else self.retry


class ModelKeywords(AgentKeywords, total=False):
    """The keywords of a ``ModelAgent``, and of subclasses that pass them on; see ``ModelOptions``."""

    retry: Retry | None
    timeouts: Timeouts | None
    max_steps: int
    max_context_tokens: int | None
    count_tokens: Callable[[str], int] | None
    summarize: Summarize | None
    run_written_calls: bool
