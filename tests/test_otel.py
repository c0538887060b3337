from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import anyio
import attrs
import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from micdrop_agent import Agent, ChatAgent, FallbackAgent, MicdropError, MistralAgent, ProviderError, Retry, tool
from micdrop_agent.testing import (
    BACKENDS,
    HANG,
    Backend,
    Call,
    ScriptedAgent,
    ScriptedProvider,
    call_tool,
    fault,
    run_virtual,
    say,
)
from micdrop_agent.tracing import instrument

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opentelemetry.sdk.trace import ReadableSpan

    from micdrop_agent.testing import Exchange, Reply

pytestmark = pytest.mark.parametrize("backend", BACKENDS)


@attrs.define(eq=False)
class Telemetry:
    """Providers that keep what they are given."""

    spans: InMemorySpanExporter
    tracer_provider: TracerProvider
    reader: InMemoryMetricReader
    meter_provider: MeterProvider

    @property
    def options(self) -> dict[str, Any]:
        return {"tracer_provider": self.tracer_provider, "meter_provider": self.meter_provider}

    def tree(self) -> list[str]:
        """The spans as lines, indented by their depth, in the order in which they began."""
        spans = self.spans.get_finished_spans()
        by_id = {span.context.span_id: span for span in spans if span.context is not None}

        def depth(span: ReadableSpan) -> int:
            outer = None if span.parent is None else by_id.get(span.parent.span_id)
            return 0 if outer is None else 1 + depth(outer)

        ordered = sorted(spans, key=lambda span: (span.start_time or 0, depth(span)))
        return [f"{'  ' * depth(span)}{span.name} {span.status.status_code.name}" for span in ordered]

    def named(self, name: str) -> ReadableSpan:
        return next(span for span in self.spans.get_finished_spans() if span.name == name)

    def metrics(self) -> dict[str, list[Any]]:
        data = self.reader.get_metrics_data()
        assert data is not None
        return {
            metric.name: list(metric.data.data_points)
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


@pytest.fixture
def telemetry() -> Iterator[Telemetry]:
    spans, reader = InMemorySpanExporter(), InMemoryMetricReader()
    tracer_provider = TracerProvider(shutdown_on_exit=False)
    tracer_provider.add_span_processor(SimpleSpanProcessor(spans))
    meter_provider = MeterProvider([reader], shutdown_on_exit=False)
    yield Telemetry(spans, tracer_provider, reader, meter_provider)
    tracer_provider.shutdown()
    meter_provider.shutdown()


@tool
def look(where: str) -> str:
    """Look."""
    return f"nothing at the {where}"


def ask(backend: Backend, telemetry: Telemetry, script: list[Reply], **options: Any) -> None:
    """One answer of a chat agent, instrumented."""

    async def scenario() -> None:
        async with ScriptedProvider(script) as provider:
            agent = ChatAgent(
                base_url=provider.base_url,
                model="m",
                connect=provider.connect,
                tools=[look],
                system_prompt="Be brief.",
                retry=Retry(first_wait=0.5, jitter=0),
                raise_on_failure=False,
            )
            async with agent:
                instrument(agent, **telemetry.options, **options)
                agent.add_user_message("Where is the cat?")
                await agent.answer().wait()

    run_virtual(backend, scenario)


async def counted(exchange: Exchange) -> None:
    """A response that tells how many tokens it took."""
    choice = {"index": 0, "delta": {"content": "Nowhere."}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 12, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 8}}
    for data in ({"choices": [choice]}, {"choices": [], "usage": usage}):
        await exchange.send(f"data: {json.dumps(data)}\n\n".encode())
    await exchange.send(b"data: [DONE]\n\n")
    await exchange.end()


def test_an_answer_is_a_tree_of_spans_with_the_times_of_its_trace(backend: Backend, telemetry: Telemetry) -> None:
    ask(backend, telemetry, [call_tool("look", {"where": "sofa"}), say("No", "where.", gap=0.25)])
    assert telemetry.tree() == [
        "invoke_agent ChatAgent(m) UNSET",
        "  chat m UNSET",
        "  execute_tool look UNSET",
        "  chat m UNSET",
    ]
    spans = telemetry.spans.get_finished_spans()
    root, last = telemetry.named("invoke_agent ChatAgent(m)"), max(spans, key=lambda span: span.start_time or 0)
    assert root.start_time is not None
    assert root.end_time is not None
    assert last.end_time is not None
    assert root.end_time - root.start_time == pytest.approx(0.5e9, abs=1e3)
    assert last.end_time <= root.end_time
    assert root.attributes is not None
    assert root.attributes["gen_ai.operation.name"] == "invoke_agent"
    assert root.attributes["micdrop.answer.status"] == "completed"
    assert root.attributes["gen_ai.response.finish_reasons"] == ("stop",)
    assert last.kind is trace.SpanKind.CLIENT
    assert last.attributes is not None
    assert last.attributes["gen_ai.provider.name"] == "chat"
    assert last.attributes["gen_ai.request.model"] == "m"
    assert last.attributes["gen_ai.request.stream"] is True
    assert last.attributes["gen_ai.response.time_to_first_chunk"] == pytest.approx(0.25)
    ran = telemetry.named("execute_tool look").attributes
    assert ran is not None
    assert ran["gen_ai.tool.name"] == "look"
    assert ran["gen_ai.tool.call.id"] == "c1"


def test_nothing_that_was_said_is_recorded_unless_asked(backend: Backend, telemetry: Telemetry) -> None:
    script = [call_tool("look", {"where": "sofa"}), say("Nowhere.")]
    ask(backend, telemetry, script)
    text = " ".join(span.to_json() for span in telemetry.spans.get_finished_spans())
    for word in ("cat", "sofa", "Nowhere", "brief"):
        assert word not in text
    telemetry.spans.clear()
    ask(backend, telemetry, script, record_content=True, conversation_id="call-7")
    root = telemetry.named("invoke_agent ChatAgent(m)").attributes
    assert root is not None
    assert json.loads(str(root["gen_ai.system_instructions"])) == [{"type": "text", "content": "Be brief."}]
    assert json.loads(str(root["gen_ai.input.messages"])) == [
        {"role": "user", "parts": [{"type": "text", "content": "Where is the cat?"}]}
    ]
    assert json.loads(str(root["gen_ai.output.messages"])) == [
        {"role": "assistant", "parts": [{"type": "text", "content": "Nowhere."}], "finish_reason": "stop"}
    ]
    ran = telemetry.named("execute_tool look").attributes
    assert ran is not None
    assert json.loads(str(ran["gen_ai.tool.call.arguments"])) == {"where": "sofa"}
    assert ran["gen_ai.tool.call.result"] == '"nothing at the sofa"'
    assert all(
        span.attributes is not None and span.attributes["gen_ai.conversation.id"] == "call-7"
        for span in telemetry.spans.get_finished_spans()
    )


def test_a_later_answer_records_the_calls_before_it_as_messages(backend: Backend, telemetry: Telemetry) -> None:
    async def scenario() -> None:
        async with ScriptedAgent([Call("look", '{"where"'), "No."], ["Well."], tools=[look]) as agent:
            agent.add_user_message("Look!")
            await agent.answer().wait()
            instrument(agent, record_content=True, **telemetry.options)
            agent.add_user_message("And now?")
            answer = agent.answer()
            agent.add_user_message("Never mind.")
            await answer.wait()

    run_virtual(backend, scenario)
    root = telemetry.named("invoke_agent ScriptedAgent").attributes
    assert root is not None
    messages = json.loads(str(root["gen_ai.input.messages"]))
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant", "user"]
    assert messages[1]["parts"][0]["arguments"] == '{"where"'
    assert "error" in messages[2]["parts"][0]["response"]
    assert messages[-1]["parts"][0]["content"] == "And now?"


def test_a_failed_answer_is_an_error_with_its_kind(backend: Backend, telemetry: Telemetry) -> None:
    ask(backend, telemetry, [fault("status", status=401)])
    assert telemetry.tree() == ["invoke_agent ChatAgent(m) ERROR", "  chat m ERROR"]
    for name in ("invoke_agent ChatAgent(m)", "chat m"):
        attributes = telemetry.named(name).attributes
        assert attributes is not None
        assert attributes["error.type"] == "auth"
    points = telemetry.metrics()["gen_ai.invoke_agent.duration"]
    assert points[0].attributes["error.type"] == "auth"


def test_attempts_of_children_are_spans_of_their_own(backend: Backend, telemetry: Telemetry) -> None:
    down = ProviderError("down", kind="server")

    async def scenario() -> None:
        agent = FallbackAgent(
            [lambda: ScriptedAgent([0.1, down]), lambda: ScriptedAgent([0.1, Call("look", {"where": "a"}), "No."])],
            names=["a", "b"],
            tools=[look],
        )
        async with agent:
            instrument(agent, **telemetry.options)
            agent.add_user_message("Look!")
            await agent.answer().wait()

    run_virtual(backend, scenario)
    assert telemetry.tree() == [
        "invoke_agent FallbackAgent UNSET",
        "  invoke_agent a ERROR",
        "  invoke_agent b UNSET",
        "    execute_tool look UNSET",
    ]
    events = [event.name for event in telemetry.named("invoke_agent FallbackAgent").events]
    assert events == ["micdrop.switch", "micdrop.first_chunk"]
    metrics = telemetry.metrics()
    assert metrics["micdrop.answer.switches"][0].value == 1
    assert "micdrop.answer.retries" not in metrics


def test_the_parent_is_what_was_current_where_the_answer_was_asked_for(backend: Backend, telemetry: Telemetry) -> None:
    async def scenario() -> None:
        tracer = telemetry.tracer_provider.get_tracer("host")
        async with ScriptedAgent(["Well, ", HANG]) as agent:
            stop = instrument(agent, **telemetry.options)
            with tracer.start_as_current_span("call"):
                answer = agent.answer()
            await answer.receive()
            with tracer.start_as_current_span("barge-in"):
                agent.cancel()
            stop()
            stop()
            agent.answer().cancel()

    run_virtual(backend, scenario)
    spans = {span.name: span for span in telemetry.spans.get_finished_spans()}
    assert set(spans) == {"call", "barge-in", "invoke_agent ScriptedAgent"}
    parent = spans["invoke_agent ScriptedAgent"].parent
    assert parent is not None
    assert spans["call"].context is not None
    assert parent.span_id == spans["call"].context.span_id
    assert telemetry.metrics()["micdrop.answer.cancels"][0].value == 1


def test_metrics_have_the_names_and_figures_of_the_conventions(backend: Backend, telemetry: Telemetry) -> None:
    ask(backend, telemetry, [fault("status"), counted])
    metrics = telemetry.metrics()
    assert metrics["micdrop.answer.retries"][0].value == 1
    assert metrics["micdrop.answer.retries"][0].attributes["error.type"] == "overloaded"
    assert metrics["micdrop.answer.time_to_first_chunk"][0].sum == pytest.approx(0.5)
    assert metrics["gen_ai.client.inference.time_to_first_chunk"][0].sum == pytest.approx(0.0)
    requests = metrics["gen_ai.client.inference.duration"]
    assert sorted(str(point.attributes.get("error.type")) for point in requests) == ["None", "overloaded"]
    assert metrics["gen_ai.invoke_agent.duration"][0].attributes["micdrop.answer.status"] == "completed"
    spans = telemetry.spans.get_finished_spans()
    told = [span for span in spans if "gen_ai.usage.input_tokens" in (span.attributes or {})]
    assert len(told) == 2
    assert metrics["gen_ai.client.inference.usage.input_tokens"][0].value == 12
    assert metrics["gen_ai.client.inference.usage.output_tokens"][0].value == 3
    assert metrics["gen_ai.client.inference.usage.cache_read.input_tokens"][0].value == 8


def test_mistral_is_called_what_the_conventions_call_it(backend: Backend, telemetry: Telemetry) -> None:
    async def scenario() -> None:
        async with ScriptedProvider([say("Oui.")]) as provider:
            agent = MistralAgent(model="m", api_key="k", base_url=provider.base_url, connect=provider.connect)
            async with agent:
                instrument(agent, **telemetry.options)
                agent.add_user_message("Oui?")
                await agent.answer().wait()

    run_virtual(backend, scenario)
    attributes = telemetry.named("chat m").attributes
    assert attributes is not None
    assert attributes["gen_ai.provider.name"] == "mistral_ai"


def test_what_cannot_be_instrumented_says_why(
    backend: Backend, telemetry: Telemetry, monkeypatch: pytest.MonkeyPatch
) -> None:
    outer = FallbackAgent([ScriptedAgent])
    assert isinstance(outer.active, Agent)
    with pytest.raises(ValueError, match="FallbackAgent"):
        instrument(outer.active)
    with pytest.raises(TypeError, match="record_content"):
        instrument(outer, record_content="yes")  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(MicdropError, match="pip install"):
        instrument(outer)


def test_opentelemetry_is_loaded_by_nobody_who_did_not_ask(backend: Backend) -> None:
    code = f"import sys; sys.path[:0] = {sys.path!r}; import micdrop_agent.tracing.otel; sys.exit('opentelemetry' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_call_is_named_and_what_a_wrong_guess_cost_is_counted(backend: Backend, telemetry: Telemetry) -> None:
    async def scenario() -> None:
        async with ScriptedProvider([counted, say("Right.")]) as provider:
            agent = ChatAgent(
                model="m", api_key="k", base_url=provider.base_url, connect=provider.connect, call_id="call-8"
            )
            async with agent:
                instrument(agent, **telemetry.options)
                guess = agent.speculate("book a table")
                await anyio.sleep(1)
                assert guess.adopt("Book a cab") is None
                agent.add_user_message("Book a cab")
                answer = agent.answer()
                assert [chunk async for chunk in answer] == ["Right."]
                usage = answer.result.wasted
                assert usage is not None
                wasted.append((usage.input_tokens or 0) + (usage.output_tokens or 0))

    wasted: list[int] = []
    run_virtual(backend, scenario)
    (measured,) = telemetry.metrics()["micdrop.answer.wasted_tokens"]
    assert [measured.value] == wasted
    spans = telemetry.spans.get_finished_spans()
    assert {str(span.attributes["gen_ai.conversation.id"]) for span in spans if span.attributes} == {"call-8"}
    root = telemetry.named("invoke_agent ChatAgent(m)").attributes
    assert root is not None
    assert root["micdrop.answer.wasted_tokens"] == wasted[0]
