"""Builds the agents that a vector describes.

``KINDS`` says which kinds of agent exist; a vector that needs another one fails.
"""

from __future__ import annotations

import importlib
import itertools
from functools import partial
from typing import TYPE_CHECKING, Any

from micdrop_agent import Agent, ExtractJson, ExtractTag, Retry, Tool
from vector_ops import ScriptError, UnknownOperationError, is_async, json_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from micdrop_agent._core.turn import Turn
    from micdrop_agent.testing import ScriptedProvider
    from vector_ops import Interpreter, Op, Trace

KINDS = {
    "scripted": "",
    "mock": "micdrop_agent:MockAgent",
    "openai": "micdrop_agent:OpenaiAgent",
    "mistral": "micdrop_agent:MistralAgent",
    "fallback": "micdrop_agent:FallbackAgent",
}
"""Where the class of each kind is found."""


def class_of(kind: str) -> Any:
    """The class of a kind."""
    module, _, name = KINDS[kind].partition(":")
    return getattr(importlib.import_module(module), name)


def is_of_the_server(vector: dict[str, Any]) -> bool:
    """Whether a vector shows a call server (frames to the client, speech in and out) and not an agent."""
    expected = {**vector.get("expected", {}), **vector.get("right", {}).get("expected", {})}
    of_server = {"frames_to_client", "frames_contain", "frames_last", "no_frame_contains", "close"}
    return bool(of_server & set(expected)) or vector.get("options", {}).get("agent") == "server"


class VectorAgent(Agent):
    """``scripted``: plays one op list per answer, the last one again and again.

    ``asked`` counts the answers; the instances that one factory makes share it.
    """

    def __init__(
        self, interpreter: Interpreter, answers: Sequence[Sequence[Op]], asked: itertools.count[int], **options: Any
    ) -> None:
        super().__init__(**options)
        self._interpreter = interpreter
        self._answers = answers
        self._asked = asked

    async def generate_answer(self, turn: Turn) -> None:
        ops = self._answers[min(next(self._asked), len(self._answers) - 1)]
        await self._interpreter.run(ops, self, turn)


_KNOWN = frozenset(
    [
        "agent",
        "system_prompt",
        "max_retry",
        "retry_delay_ms",
        "max_steps",
        "model",
        "settings",
        "auto_end_call",
        "auto_semantic_turn",
        "auto_ignore_user_noise",
        "extract",
        "on_before_answer",
        "tools",
        "children",
        "id",
        "raise_on_construct",
        "answers",
        "cancel_style",
    ]
)


class Builder:
    """Makes the agent of one run, and its children when they are asked for."""

    def __init__(
        self,
        trace: Trace,
        interpreter: Interpreter,
        provider: ScriptedProvider,
        *,
        first_chunk_timeout: float | None,
        like_original: bool,
    ) -> None:
        self.trace = trace
        self.interpreter = interpreter
        self.provider = provider
        self.first_chunk_timeout = first_chunk_timeout
        self.like_original = like_original
        self.agent: Agent | None = None
        self._instances: dict[str, int] = {}
        self._asked: dict[str, itertools.count[int]] = {}

    def build(self, options: dict[str, Any], label: str = "agent") -> Agent:
        if unknown := set(options) - _KNOWN:
            raise UnknownOperationError(f"options {sorted(unknown)}")
        kind = options["agent"]
        if kind not in KINDS:
            raise UnknownOperationError(f"an agent of kind {kind!r}")
        make: Callable[..., Agent] = {
            "scripted": self._scripted,
            "mock": self._mock,
            "openai": self._model,
            "mistral": self._model,
            "fallback": self._fallback,
        }[kind]
        agent = make(options, label)
        self.trace.constructed.append(label)
        return agent

    def _common(self, options: dict[str, Any], label: str) -> dict[str, Any]:
        common: dict[str, Any] = {
            "system_prompt": options.get("system_prompt", "SYS"),
            "raise_on_failure": False,
            "parallel_tools": False,
            "record_interrupted": not self.like_original,
            "tools": [self.tool(tool) for tool in options.get("tools", ())],
        }
        for name in ("auto_end_call", "auto_semantic_turn", "auto_ignore_user_noise"):
            if name in options:
                common[name] = options[name]
        if "on_before_answer" in options:
            common["on_before_answer"] = partial(self._hook, options["on_before_answer"], label)
        if "extract" in options:
            common["extract"] = self._extract(options["extract"])
        return common

    def _scripted(self, options: dict[str, Any], label: str) -> Agent:
        answers = options.get("answers", [[]])
        asked = self._asked.setdefault(options.get("id", label), itertools.count())
        return VectorAgent(self.interpreter, answers, asked, **self._common(options, label))

    def _mock(self, options: dict[str, Any], label: str) -> Agent:
        common = self._common({"system_prompt": "", **options}, label)
        return class_of("mock")(**common)  # type: ignore[no-any-return]

    def _model(self, options: dict[str, Any], label: str) -> Agent:
        child = label.partition("#")[0]
        more: dict[str, Any] = {
            "api_key": "test-key",
            "base_url": f"http://{child}.test/v1",
            "connect": self.provider.connect,
        }
        retries, wait = options.get("max_retry"), options.get("retry_delay_ms")
        retry: dict[str, Any] = {"factor": 1.0, "jitter": 0.0}
        if retries is not None:
            retry["max_retries"] = retries
        if wait is not None:
            retry["first_wait"] = wait / 1000
        more["retry"] = Retry(**retry)
        more.update({name: options[name] for name in ("model", "settings", "max_steps") if name in options})
        return class_of(options["agent"])(**self._common(options, label), **more)  # type: ignore[no-any-return]

    def _fallback(self, options: dict[str, Any], label: str) -> Agent:
        factories = [partial(self._child, child) for child in options["children"]]
        more: dict[str, Any] = {}
        if self.first_chunk_timeout is not None:
            more["first_chunk_timeout"] = self.first_chunk_timeout
        if self.like_original:
            more["record_interrupted"] = False
        return class_of("fallback")(factories=factories, raise_on_failure=False, **more)  # type: ignore[no-any-return]

    def _child(self, options: dict[str, Any]) -> Agent:
        name = options["id"]
        number = self._instances[name] = self._instances.get(name, 0) + 1
        if number in options.get("raise_on_construct", ()):
            raise ScriptError(f"factory {name} failed")
        label = name if options["agent"] == "fallback" else f"{name}#{number}"
        agent = self.build(options, label)
        close = agent.aclose

        async def aclose() -> None:
            # Once the conversation was taken down the run is over: leaving the block closes the others too.
            if label not in self.trace.destroyed and self.trace.conversation is None:
                self.trace.destroyed.append(label)
                self.trace.note(destroy=label)
            await close()

        agent.aclose = aclose  # type: ignore[method-assign]
        return agent

    def _hook(self, ops: Sequence[Op], label: str, agent: Agent, turn: Turn) -> Any:
        self.trace.note(hook=self.label(agent, label))
        return self.interpreter.callable_for(ops, agent, turn)

    def label(self, agent: Agent, label: str = "?") -> str:
        return "agent" if agent is self.agent else label

    def tool(self, spec: dict[str, Any]) -> Tool:
        known = {"name", "description", "input_schema", "execute", "returns", "skip_answer", "emit_output"}
        if unknown := set(spec) - known:
            raise UnknownOperationError(f"members of a tool: {sorted(unknown)}")
        name = spec["name"]
        # A tool without a function only shows that the model called it.
        ops: Any = spec.get("execute", [{"op": "return", "value": spec["returns"]}] if "returns" in spec else None)

        def begin(parameters: dict[str, Any], agent: Agent) -> None:
            entry = {"name": name, "input": parameters, "agent": self.label(agent)}
            self.trace.tools.append(entry)
            self.trace.note(tool=name, input=parameters, agent=entry["agent"])

        def run_now(parameters: dict[str, Any], agent: Agent) -> Any:
            begin(parameters, agent)
            return self.interpreter.run_now(ops, agent)

        async def run(parameters: dict[str, Any], agent: Agent) -> Any:
            begin(parameters, agent)
            return await self.interpreter.run(ops, agent)

        tool: Tool = Tool.from_schema(
            name,
            spec.get("description", ""),
            # Without an input schema the original checks nothing.
            json_schema(spec["input_schema"])
            if "input_schema" in spec
            else {"type": "object", "additionalProperties": True},
            None if ops is None else run if is_async(ops) else run_now,
            skip_answer=spec.get("skip_answer", False),
            emit_output=spec.get("emit_output", False),
        )
        return tool

    def _extract(self, spec: dict[str, Any]) -> ExtractJson | ExtractTag:
        if unknown := set(spec) - {"json", "start_tag", "end_tag", "save_in_metadata", "callback"}:
            raise UnknownOperationError(f"members of extract: {sorted(unknown)}")
        style = spec.get("callback")

        def record(value: Any) -> None:
            self.trace.note(extract_callback=value)

        def fail(value: Any) -> None:
            record(value)
            raise ScriptError("callback failed")

        async def fail_later(value: Any) -> None:
            record(value)
            raise ScriptError("async callback failed")

        callbacks: dict[Any, Any] = {None: None, "record": record, "raise": fail, "async_raise": fail_later}
        more = {"callback": callbacks[style], "save_in_metadata": spec.get("save_in_metadata", False)}
        if spec.get("json"):
            return ExtractJson(**more)
        return ExtractTag(start_tag=spec["start_tag"], end_tag=spec["end_tag"], **more)
