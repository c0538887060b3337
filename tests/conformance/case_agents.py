"""The agents and tools that the bug cases run with.

Default set-up when a case says nothing else: one user message, the tools ``get_weather`` and ``get_time``, the control
tool ``end_call``, retries off, two seconds for the first chunk and between chunks.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import anyio
import attrs

from micdrop_agent import Agent, ExtractJson, ExtractTag, Retry, Timeouts, Tool

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Set as AbstractSet

    from micdrop_agent.testing import ScriptedProvider

CLASSES = {
    "chat": "micdrop_agent:ChatAgent",
    "responses": "micdrop_agent:OpenaiAgent",
    "mistral": "micdrop_agent:MistralAgent",
    "fallback": "micdrop_agent:FallbackAgent",
}


class UnknownWordError(Exception):
    """The case uses something that this runner does not know: a failure, never a skip."""


def class_of(kind: str) -> Any:
    """The class of a kind; ``None`` if it is not there yet."""
    module, _, name = CLASSES[kind].partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError):
        return None


def check_known(found: dict[str, Any], known: AbstractSet[str], where: str) -> None:
    if unknown := set(found) - known:
        raise UnknownWordError(f"{where}: {sorted(unknown)}")


_OPTIONS = {"retries", "retry_delay_ms", "max_retry_wait_ms", "extract", "pool", "after_partial", "timeout_ms"}


def model_agent(
    kind: str,
    provider: ScriptedProvider,
    *,
    host: str = "provider.test",
    options: dict[str, Any] | None = None,
    **more: Any,
) -> Agent:
    """An agent for one protocol, wired to ``provider``."""
    options = options or {}
    check_known(options, _OPTIONS, "options")
    retry: dict[str, Any] = {"max_retries": options.get("retries", 0), "factor": 1.0, "jitter": 0.0}
    if "retry_delay_ms" in options:
        retry["first_wait"] = options["retry_delay_ms"] / 1000
    limit = options.get("timeout_ms", 2000) / 1000
    settings: dict[str, Any] = {
        "model": "m",
        "system_prompt": "SYS",
        "api_key": "test-key",
        "base_url": f"http://{host}/v1",
        "connect": provider.connect,
        "retry": Retry(**retry),
        "timeouts": Timeouts(first_chunk=limit, between_chunks=limit),
        "auto_end_call": True,
    }
    if "extract" in options:
        settings["extract"] = extraction(options["extract"], more.pop("extracted", None))
    more.pop("extracted", None)
    agent: Agent = class_of(kind)(**{**settings, **more})
    return agent


def extraction(spec: dict[str, Any], callback: Callable[[Any], object] | None) -> ExtractJson | ExtractTag:
    check_known(spec, {"start", "end", "json"}, "extract")
    if spec.get("json"):
        return ExtractJson(callback=callback, save_in_metadata=True)
    return ExtractTag(start_tag=spec["start"], end_tag=spec["end"], callback=callback, save_in_metadata=True)


@attrs.define(eq=False)
class Toolbox:
    """Tools that note their runs, and wake whoever waits for one to start."""

    runs: list[tuple[str, dict[str, Any]]] = attrs.Factory(list)
    returned: list[str] = attrs.Factory(list)
    changed: anyio.Event = attrs.Factory(anyio.Event)

    def count(self, name: str) -> int:
        return sum(1 for run, _ in self.runs if run == name)

    def _note(self, name: str, arguments: dict[str, Any]) -> None:
        self.runs.append((name, arguments))
        self._wake()

    def _wake(self) -> None:
        self.changed.set()
        self.changed = anyio.Event()

    def standard(self) -> list[Tool]:
        return [
            self.plain("get_weather", {"city": {"type": "string"}}, {"sky": "clear"}),
            self.plain("get_time", {}, "10:00"),
        ]

    def plain(self, name: str, properties: dict[str, Any], value: Any) -> Tool:
        def execute(arguments: dict[str, Any]) -> Any:
            self._note(name, arguments)
            return value

        schema = {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        }
        return Tool.from_schema(name, f"the tool {name}", schema, execute)

    def from_given(self, spec: dict[str, Any]) -> Tool:
        """A tool of a request case: hand-written JSON Schema, and a function that does nothing."""

        def execute(arguments: dict[str, Any]) -> str:
            self._note(spec["name"], arguments)
            return "ok"

        return Tool.from_schema(spec["name"], spec["description"], spec["parameters"], execute)

    def special(self, name: str, spec: dict[str, Any]) -> Tool:
        """A tool with a behaviour: ``shielded_ms``, ``sleep_ms``, ``returns``, ``raises``, ``calls``."""
        check_known(spec, {"shielded_ms", "sleep_ms", "returns", "raises", "calls"}, f"tool {name}")

        async def execute(arguments: dict[str, Any], agent: Agent) -> Any:
            self._note(name, arguments)
            if "shielded_ms" in spec:
                with anyio.CancelScope(shield=True):
                    await anyio.sleep(spec["shielded_ms"] / 1000)
            if "sleep_ms" in spec:
                await anyio.sleep(spec["sleep_ms"] / 1000)
            if "raises" in spec:
                raise RuntimeError(spec["raises"])
            for call in [spec["calls"]] if isinstance(spec.get("calls"), str) else spec.get("calls", ()):
                await _call(agent, call)
            self.returned.append(name)
            self._wake()
            return spec.get("returns")

        schema = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
        return Tool.from_schema(name, f"the tool {name}", schema, execute)


async def _call(agent: Agent, what: str) -> None:
    match what:
        case "agent.cancel":
            agent.cancel()
        case "agent.destroy":
            await agent.aclose()
        case "agent.end_call":
            agent.end_call()
        case _:
            raise UnknownWordError(f"a tool that calls {what!r}")
