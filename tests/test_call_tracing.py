"""A call as a page, as spans and as metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from micdrop_agent.call import Call, CallResult
from micdrop_agent.testing import AUDIO_END, BACKENDS, ScriptedAgent, ScriptedSTT, ScriptedTTS, memory_link, run_virtual
from micdrop_agent.tracing import record_call, render_call
from micdrop_agent.tracing.call_timeline import stretches

if TYPE_CHECKING:
    from micdrop_agent.testing import Backend


async def a_call() -> CallResult:
    """A greeting, a turn that is answered, and one whose answer is interrupted."""
    link, client = memory_link()
    agent = ScriptedAgent([0.2, "Fine, thanks."], ["Once upon a time there was <b>a king</b>."])
    stt = ScriptedSTT([AUDIO_END, 0.3, "How <are> you?"], "And then?")
    call = Call(link, agent=agent, stt=stt, tts=ScriptedTTS(delay=0.1), first_message="Hello!")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call.run)
        await anyio.sleep(1)
        client.put("StartSpeaking")
        client.put(bytes(3200))
        await anyio.sleep(0.5)
        client.put("StopSpeaking")
        await anyio.sleep(3)
        client.speak()
        await anyio.sleep(1)
        client.put("StartSpeaking")
        await anyio.sleep(0.5)
        client.close()
    return call.result


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_stretches_of_a_call_are_where_they_were(backend: Backend) -> None:
    parts = stretches(run_virtual(backend, a_call))

    found = [(part.turn, part.kind, round(part.start, 2), round(part.end, 2), part.cut) for part in parts]
    assert found == [
        (0, "audio", 0.1, 0.47, False),
        (1, "speech", 1.0, 1.5, False),
        (1, "transcript", 1.5, 1.8, False),
        (1, "answer", 1.8, 2.0, False),
        (1, "audio", 2.1, 2.91, False),
        (2, "speech", 4.5, 4.5, False),
        (2, "transcript", 4.5, 4.5, False),
        (2, "answer", 4.5, 4.5, False),
        (2, "audio", 4.6, 5.5, True),
        (3, "speech", 5.5, 6.0, False),
    ]


def test_the_page_has_the_call_and_its_answers_and_nothing_unescaped() -> None:
    page = render_call(run_virtual("asyncio", a_call), title="Call <1>")

    assert page.count('<section class="') == 2
    assert "Call &lt;1&gt;" in page
    assert "How &lt;are&gt; you?" in page
    assert "<b>a king" not in page
    assert "4 turns in 6 s" in page
    assert "first audio after 350 ms (median)" in page
    assert "interrupted" in page


def test_the_page_of_a_call_in_which_nothing_happened() -> None:
    page = render_call(CallResult(conversation=(), duration=0.0, turns=()))

    assert "0 turns" in page


def test_spans_and_metrics_have_the_times_of_the_call() -> None:
    spans, reader = InMemorySpanExporter(), InMemoryMetricReader()
    tracers = TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(spans))

    record_call(
        run_virtual("asyncio", a_call),
        conversation_id="c1",
        tracer_provider=tracers,
        meter_provider=MeterProvider([reader]),
    )

    finished = {span.name: span for span in spans.get_finished_spans()}
    call, turn = finished["call"], finished["turn 2"]
    assert turn.parent is not None
    assert call.context is not None
    assert turn.parent.span_id == call.context.span_id
    assert turn.attributes is not None
    assert turn.attributes["micdrop.turn.response_time"] == pytest.approx(0.6)
    assert "micdrop.turn.transcript" not in turn.attributes
    assert call.end_time is not None
    assert call.start_time is not None
    assert call.end_time - call.start_time == pytest.approx(6e9)
    assert {"speech", "transcript", "answer", "audio"} <= set(finished)
    assert _figures(reader)["micdrop.turn.response_time"] == pytest.approx(0.7)
    assert _figures(reader)["micdrop.call.interruptions"] == 1


def _figures(reader: InMemoryMetricReader) -> dict[str, Any]:
    data = reader.get_metrics_data()
    assert data is not None
    points = [
        (metric.name, point)
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in metric.data.data_points
    ]
    return {name: getattr(point, "sum", getattr(point, "value", None)) for name, point in points}
