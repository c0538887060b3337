"""OpenTelemetry for a call that has ended: a span for it, one for each turn, and what was waited for in the turns.

record_call(await call.run())          # pip install 'micdrop-agent[otel]'

call
└── turn 1
├── speech          the caller speaks
├── transcript      from the end of the speech to its text
├── answer          the agent
└── audio           the assistant speaks
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from micdrop_agent.errors import MicdropError
from micdrop_agent.options import check_flag
from micdrop_agent.tracing.call_page import response_time
from micdrop_agent.tracing.call_timeline import stretches
from micdrop_agent.tracing.otel_metrics import BUCKETS

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

    from micdrop_agent.call import CallResult, CallTurn

__all__ = ["record_call"]

_NAME: Final = "micdrop_agent"


def record_call(
    result: CallResult,
    *,
    record_content: bool = False,
    conversation_id: str | None = None,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
) -> None:
    """Record spans and metrics of a call that has just ended.

    Args:
        result: What ``Call.run()`` has returned.
        record_content: Also record what the caller said.
        conversation_id: Id of the call, for ``gen_ai.conversation.id``.
        tracer_provider: Where spans go; defaults to the global one.
        meter_provider: Where metrics go; defaults to the global one.

    Raises:
        MicdropError: OpenTelemetry is not installed.
        TypeError: ``record_content`` is neither ``True`` nor ``False``.
    """
    check_flag("record_content", record_content)
    try:
        from opentelemetry import metrics, trace
    except ImportError as error:
        raise MicdropError("OpenTelemetry is not installed; pip install 'micdrop-agent[otel]'") from error
    from micdrop_agent import __version__

    common: dict[str, Any] = {} if conversation_id is None else {"gen_ai.conversation.id": conversation_id}
    _record_spans(result, trace.get_tracer(_NAME, __version__, tracer_provider), common, record_content=record_content)
    _record_metrics(result, metrics.get_meter(_NAME, __version__, meter_provider))


def _record_spans(result: CallResult, tracer: Any, common: dict[str, Any], *, record_content: bool) -> None:
    from opentelemetry.trace import set_span_in_context

    began = time.time_ns() - int(result.duration * 1e9)

    def at(seconds: float) -> int:
        return began + int(seconds * 1e9)

    facts = {**common, "micdrop.call.turns": len(result.turns), "micdrop.call.interruptions": result.interruptions}
    root = tracer.start_span("call", attributes=facts, start_time=began)
    parts = stretches(result)
    for number, turn in enumerate(result.turns):
        mine = [part for part in parts if part.turn == number]
        if not mine:
            continue
        span = tracer.start_span(
            f"turn {number + 1}",
            set_span_in_context(root),
            attributes={**common, **_turn_facts(turn, record_content=record_content)},
            start_time=at(min(part.start for part in mine)),
        )
        for part in mine:
            inner = tracer.start_span(
                part.kind,
                set_span_in_context(span),
                attributes={**common, "micdrop.interrupted": part.cut},
                start_time=at(part.start),
            )
            inner.end(at(part.end))
        span.end(at(max(part.end for part in mine)))
    root.end(at(result.duration))


def _turn_facts(turn: CallTurn, *, record_content: bool) -> dict[str, Any]:
    facts: dict[str, Any] = {"micdrop.interrupted": turn.interrupted, "micdrop.turn.audio_seconds": turn.audio_seconds}
    wait = response_time(turn)
    if wait is not None:
        facts["micdrop.turn.response_time"] = wait
    if record_content and turn.transcript:
        facts["micdrop.turn.transcript"] = turn.transcript
    return facts


def _record_metrics(result: CallResult, meter: Any) -> None:
    def seconds(name: str, what: str) -> Any:
        return meter.create_histogram(name, "s", what, explicit_bucket_boundaries_advisory=BUCKETS)

    seconds("micdrop.call.duration", "Duration of a call").record(result.duration)
    waits = seconds("micdrop.turn.response_time", "From the end of the caller's speech to the first audio")
    texts = seconds("micdrop.turn.transcript_time", "From the end of the caller's speech to its text")
    cuts = meter.create_counter("micdrop.call.interruptions", "{turn}", "Turns of the assistant that were interrupted")
    for turn in result.turns:
        wait = response_time(turn)
        if wait is not None:
            waits.record(max(0.0, wait))
        if turn.speech_end is not None and turn.transcript_at is not None:
            texts.record(max(0.0, turn.transcript_at - turn.speech_end))
    cuts.add(result.interruptions)
