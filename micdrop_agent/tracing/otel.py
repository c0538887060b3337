"""OpenTelemetry for an agent: spans and metrics of each answer, by the GenAI semantic conventions.

    stop = instrument(agent)          # pip install 'micdrop-agent[otel]'

    invoke_agent FallbackAgent                the answer, from answer() to the end of its generation
    ├── invoke_agent gpt-child                an attempt of a child, when there are several agents
    │   ├── chat gpt-4o                       a request
    │   └── execute_tool look                 a tool

The spans are made when an answer has ended, from its trace, with the times of the trace; their parent
is what was current where ``answer()`` was called. Nothing is recorded of what was said unless
``record_content=True``. Names are those of OpenTelemetry's GenAI conventions 0.1 (all of them still
"in development"); what these have no name for is ``micdrop.*``.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from micdrop_agent._core.core import core_of
from micdrop_agent._extras import install_command
from micdrop_agent.errors import MicdropError, describe_error
from micdrop_agent.events import AnswerFinished
from micdrop_agent.options import check_flag
from micdrop_agent.tracing.otel_names import (
    error_type,
    first_chunk_of,
    request_attributes,
    token_attributes,
    usage_attributes,
)
from micdrop_agent.tracing.timeline import timeline

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from opentelemetry.context import Context
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, Tracer, TracerProvider

    from micdrop_agent._core.agent import Agent
    from micdrop_agent._core.answer import Answer
    from micdrop_agent.messages import Message
    from micdrop_agent.result import AnswerResult
    from micdrop_agent.tracing.timeline import Bar, Timeline

__all__ = ["instrument"]

_NAME: Final = "micdrop_agent"


def instrument(
    agent: Agent,
    *,
    record_content: bool = False,
    conversation_id: str | None = None,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
) -> Callable[[], None]:
    """Record spans and metrics of every answer of ``agent`` from now on; returns what stops it.

    Args:
        agent: The agent that the application holds; children of a ``FallbackAgent`` are included.
        record_content: Also record what was said, and arguments and outputs of tools.
        conversation_id: Id of the call, for ``gen_ai.conversation.id``; defaults to ``agent.call_id``.
        tracer_provider: Where spans go; the global one if left out.
        meter_provider: Where metrics go; the global one if left out.

    Raises:
        MicdropError: OpenTelemetry is not installed.
        ValueError: The agent is a child of a ``FallbackAgent``; instrument that one.
        TypeError: ``record_content`` is neither ``True`` nor ``False``.
    """
    check_flag("record_content", record_content)
    if core_of(agent).owner is not None:
        raise ValueError("this agent belongs to a FallbackAgent; instrument that one")
    try:
        from opentelemetry import metrics, trace
    except ImportError as error:
        raise MicdropError(f"OpenTelemetry is not installed; run: {install_command('otel')}") from error
    from micdrop_agent import __version__
    from micdrop_agent.tracing.otel_metrics import Instruments

    tracer = trace.get_tracer(_NAME, __version__, tracer_provider)
    meter = metrics.get_meter(_NAME, __version__, meter_provider)
    observer = _Observer(agent, tracer, Instruments(meter), conversation_id, record_content=record_content)
    core_of(agent).began.append(observer.began)
    remove = agent.on(AnswerFinished, observer.finished)

    def stop() -> None:
        remove()
        if observer.began in core_of(agent).began:
            core_of(agent).began.remove(observer.began)

    return stop


class _Observer:
    def __init__(
        self, agent: Agent, tracer: Tracer, instruments: Any, conversation_id: str | None, *, record_content: bool
    ) -> None:
        self._agent = agent
        self._tracer = tracer
        self._instruments = instruments
        self._content = record_content
        self._conversation_id = conversation_id
        self._running: list[tuple[Answer, Context]] = []

    def began(self, answer: Answer) -> None:
        from opentelemetry import context

        self._running.append((answer, context.get_current()))

    def finished(self, event: AnswerFinished) -> None:
        ended = time.time_ns()
        result = event.result
        answer, parent = next((pair for pair in self._running if pair[0].ended_with(result)), (None, None))
        self._running = [pair for pair in self._running if pair[0].status == "running"]
        lines = timeline(result)
        name = core_of(self._agent).label()
        self._instruments.record(result, lines, name)
        call_id = self._conversation_id or core_of(self._agent).call_id()
        common = {} if call_id is None else {"gen_ai.conversation.id": call_id}
        spans = _Spans(self._tracer, ended - int(result.duration * 1e9), common)
        root = spans.answer(result, lines, name, parent)
        if self._content:
            self._record_content(root, result, None if answer is None else answer.turn.prompt)
        inner: dict[int, Span] = {}
        for bar in lines.bars:
            outer = root if bar.parent is None else inner[id(bar.parent)]
            span = spans.bar(bar, outer, lines)
            if span is None:
                inner[id(bar)] = outer
                continue
            inner[id(bar)] = span
            if self._content and bar.kind == "tool":
                self._record_tool(span, bar)
        for bar in reversed(lines.bars):
            if bar.kind != "wait":
                inner[id(bar)].end(spans.at(bar.end))
        root.end(spans.at(lines.duration))

    def _record_content(self, span: Span, result: AnswerResult, prompt: Message | None) -> None:
        from micdrop_agent.tracing.otel_content import input_messages, output_messages, system_instructions

        items = self._agent.conversation
        span.set_attribute("gen_ai.system_instructions", system_instructions(items))
        span.set_attribute("gen_ai.input.messages", input_messages(items, prompt))
        span.set_attribute("gen_ai.output.messages", output_messages(result))

    def _record_tool(self, span: Span, bar: Bar) -> None:
        from micdrop_agent.tracing.otel_content import tool_texts

        for name, text in tool_texts(self._agent.conversation, bar.facts.get("call")).items():
            span.set_attribute(name, text)


class _Spans:
    """Makes spans with the times of a trace."""

    def __init__(self, tracer: Tracer, start: int, common: Mapping[str, str]) -> None:
        self._tracer = tracer
        self._start = start
        self._common = common

    def at(self, seconds: float) -> int:
        return self._start + int(seconds * 1e9)

    def answer(self, result: AnswerResult, lines: Timeline, name: str, parent: Context | None) -> Span:
        from opentelemetry.trace import SpanKind, Status, StatusCode

        attributes: dict[str, Any] = {
            **self._common,
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": name,
            "gen_ai.output.type": "text",
            "micdrop.answer.status": result.status,
            "micdrop.answer.requests": result.requests,
        }
        if result.time_to_first_chunk is not None:
            attributes["micdrop.answer.time_to_first_chunk"] = result.time_to_first_chunk
        if result.finish_reason is not None:
            attributes["gen_ai.response.finish_reasons"] = (result.finish_reason,)
        attributes |= usage_attributes(result)
        if result.error is not None:
            attributes["error.type"] = error_type(result.error)
        span = self._tracer.start_span(
            f"invoke_agent {name}", parent, SpanKind.INTERNAL, attributes, start_time=self.at(0.0)
        )
        if result.error is not None:
            span.set_status(Status(StatusCode.ERROR, describe_error(result.error)))
        for mark in lines.marks:
            if mark.kind != "end":
                facts = {f"micdrop.{key}": value for key, value in mark.facts.items() if value is not None}
                span.add_event(f"micdrop.{mark.kind}", facts, self.at(mark.at))
        return span

    def bar(self, bar: Bar, outer: Span, lines: Timeline) -> Span | None:
        from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context

        if bar.kind == "wait":
            return None  # an event of the answer's span says it
        operation, attributes = _ATTRIBUTES[bar.kind](bar, lines)
        attributes |= {**self._common, "gen_ai.operation.name": operation, "micdrop.outcome": bar.outcome}
        error = bar.facts.get("error") or ("tool_error" if bar.facts.get("failed") else None)
        if error is not None:
            attributes["error.type"] = str(error)
        kind = SpanKind.CLIENT if bar.kind == "request" else SpanKind.INTERNAL
        span = self._tracer.start_span(
            f"{operation} {bar.name}", set_span_in_context(outer), kind, attributes, start_time=self.at(bar.start)
        )
        if bar.outcome == "failed":
            span.set_status(Status(StatusCode.ERROR))
        return span


def _of_attempt(bar: Bar, _lines: Timeline) -> tuple[str, dict[str, Any]]:
    return "invoke_agent", {"gen_ai.agent.name": bar.name}


def _of_request(bar: Bar, lines: Timeline) -> tuple[str, dict[str, Any]]:
    attributes: dict[str, Any] = {
        **request_attributes(bar),
        "gen_ai.request.stream": True,
        **token_attributes(bar.facts),
    }
    if "finish" in bar.facts:
        attributes["gen_ai.response.finish_reasons"] = (bar.facts["finish"],)
    first = first_chunk_of(bar, lines)
    if first is not None:
        attributes["gen_ai.response.time_to_first_chunk"] = first
    return "chat", attributes


def _of_tool(bar: Bar, _lines: Timeline) -> tuple[str, dict[str, Any]]:
    call: dict[str, Any] = {} if bar.facts.get("call") is None else {"gen_ai.tool.call.id": bar.facts["call"]}
    return "execute_tool", {**call, "gen_ai.tool.name": bar.name, "gen_ai.tool.type": "function"}


_ATTRIBUTES: Final = {"attempt": _of_attempt, "request": _of_request, "tool": _of_tool}
