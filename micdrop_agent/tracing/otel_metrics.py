"""The metrics of ``micdrop_agent.tracing.otel``: made once for an agent, recorded at the end of each answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from micdrop_agent.tracing.otel_names import TOKENS, error_type, first_chunk_of, request_attributes, wasted_tokens

if TYPE_CHECKING:
    from opentelemetry.metrics import Counter, Histogram, Meter

    from micdrop_agent.result import AnswerResult
    from micdrop_agent.tracing.timeline import Bar, Timeline

__all__ = ["Instruments"]

BUCKETS: Final = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
"""Bounds in seconds; the conventions recommend them for durations."""

USAGE: Final = "gen_ai.client.inference."


class Instruments:
    """Histograms and counters.

    Args:
        meter: Makes them.
    """

    def __init__(self, meter: Meter) -> None:
        def seconds(name: str, what: str) -> Histogram:
            return meter.create_histogram(name, "s", what, explicit_bucket_boundaries_advisory=BUCKETS)

        def count(name: str, unit: str, what: str) -> Counter:
            return meter.create_counter(name, unit, what)

        self._answer = seconds("gen_ai.invoke_agent.duration", "Duration of an answer")
        self._request = seconds("gen_ai.client.inference.duration", "Duration of a request to a model")
        self._first = seconds("gen_ai.client.inference.time_to_first_chunk", "From a request to its first chunk")
        self._tool = seconds("gen_ai.execute_tool.duration", "Duration of a tool call")
        self._heard = seconds(
            "micdrop.answer.time_to_first_chunk", "From answer() to its first chunk, retries and switches included"
        )
        self._retries = count("micdrop.answer.retries", "{retry}", "Requests that were sent again")
        self._switches = count("micdrop.answer.switches", "{switch}", "Times that another child went on")
        self._cancels = count("micdrop.answer.cancels", "{answer}", "Answers that were cancelled (barge-ins)")
        self._wasted = count("micdrop.answer.wasted_tokens", "{token}", "Tokens of guesses that were wrong")
        self._tokens = {
            name: count(attribute.replace("gen_ai.", USAGE), "{token}", name.replace("_", " ").capitalize())
            for name, attribute in TOKENS.items()
        }

    def record(self, result: AnswerResult, lines: Timeline, agent: str) -> None:
        """Record one answer of the agent named ``agent``."""
        who: dict[str, Any] = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": agent}
        ended = {**who, "micdrop.answer.status": result.status}
        if result.error is not None:
            ended["error.type"] = error_type(result.error)
        self._answer.record(result.duration, ended)
        if result.time_to_first_chunk is not None:
            self._heard.record(result.time_to_first_chunk, who)
        if result.wasted is not None:
            self._wasted.add(wasted_tokens(result), who)
        if result.status == "cancelled":
            self._cancels.add(1, who)
        self._record_marks(lines, who)
        for bar in lines.bars:
            if bar.kind == "request":
                self._record_request(bar, lines)
            elif bar.kind == "tool":
                self._tool.record(
                    bar.end - bar.start, {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": bar.name}
                )

    def _record_marks(self, lines: Timeline, who: dict[str, Any]) -> None:
        for mark in lines.marks:
            if mark.kind == "retry":
                self._retries.add(1, {**who, "error.type": str(mark.facts.get("error"))})
            elif mark.kind == "switch":
                self._switches.add(1, who)

    def _record_request(self, bar: Bar, lines: Timeline) -> None:
        attributes = {"gen_ai.operation.name": "chat", **request_attributes(bar)}
        for name, counter in self._tokens.items():
            if bar.facts.get(name) is not None:
                counter.add(bar.facts[name], attributes)
        first = first_chunk_of(bar, lines)
        if first is not None:
            self._first.record(first, attributes)
        if "error" in bar.facts:
            attributes["error.type"] = str(bar.facts["error"])
        self._request.record(bar.end - bar.start, attributes)
