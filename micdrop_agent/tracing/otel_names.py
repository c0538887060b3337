"""Names of the GenAI conventions for what a trace knows; shared by spans and metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from micdrop_agent.providers.kinds import KINDS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from micdrop_agent.result import AnswerResult
    from micdrop_agent.tracing.timeline import Bar, Timeline

__all__ = [
    "TOKENS",
    "error_type",
    "first_chunk_of",
    "request_attributes",
    "token_attributes",
    "usage_attributes",
    "wasted_tokens",
]

TOKENS: Final = {
    "input_tokens": "gen_ai.usage.input_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
    "cached_tokens": "gen_ai.usage.cache_read.input_tokens",
    "reasoning_tokens": "gen_ai.usage.reasoning.output_tokens",
}
"""Our figures, and their attributes on a span."""


def request_attributes(bar: Bar) -> dict[str, Any]:
    """Provider and model of a request."""
    provider = str(bar.facts.get("provider"))
    known = KINDS.get(provider)
    attributes = {"gen_ai.provider.name": provider if known is None else known.telemetry}
    if bar.facts.get("model") is not None:
        attributes["gen_ai.request.model"] = str(bar.facts["model"])
    return attributes


def first_chunk_of(bar: Bar, lines: Timeline) -> float | None:
    """Seconds from a request to the answer's first chunk, if that came with its response."""
    for mark in lines.marks:
        if mark.kind == "first_chunk":
            same = mark.facts.get("agent") == bar.facts.get("agent")
            return mark.at - bar.start if same and bar.start <= mark.at <= bar.end else None
    return None


def error_type(error: Exception) -> str:
    """A name of few values for what failed."""
    return str(getattr(error, "kind", None) or type(error).__name__)


def wasted_tokens(result: AnswerResult) -> int:
    """Tokens of guesses that were wrong, as far as the providers reported them."""
    usage = result.wasted
    return 0 if usage is None else (usage.input_tokens or 0) + (usage.output_tokens or 0)


def usage_attributes(result: AnswerResult) -> dict[str, int]:
    """The tokens of an answer, and of the wrong guesses before it."""
    attributes: dict[str, int] = {}
    if result.usage is not None:
        attributes |= token_attributes({name: getattr(result.usage, name) for name in TOKENS})
    if result.wasted is not None:
        attributes["micdrop.answer.wasted_tokens"] = wasted_tokens(result)
    return attributes


def token_attributes(facts: Mapping[str, Any]) -> dict[str, int]:
    """The figures that are known, as attributes."""
    return {attribute: facts[name] for name, attribute in TOKENS.items() if facts.get(name) is not None}
