"""The agents and tools that the bug cases run with.

Default set-up when a case says nothing else: one user message, the tools ``get_weather`` and ``get_time``, the control
tool ``end_call``, retries off, two seconds for the first chunk and between chunks.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from micdrop_agent import ExtractJson, ExtractTag, Retry, Timeouts
from micdrop_agent.providers.quirks import ChatQuirks

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Set as AbstractSet

    from micdrop_agent import Agent
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
    """The class of a kind of agent."""
    if kind not in CLASSES:
        raise UnknownWordError(f"an agent of kind {kind!r}")
    module, _, name = CLASSES[kind].partition(":")
    return getattr(importlib.import_module(module), name)


def check_known(found: dict[str, Any], known: AbstractSet[str], where: str) -> None:
    if unknown := set(found) - known:
        raise UnknownWordError(f"{where}: {sorted(unknown)}")


DIALECTS: dict[str, tuple[str, dict[str, Any]]] = {
    "openai_chat": ("chat", {"quirks": ChatQuirks(mixed_strict=True)}),  # as OpenAI itself takes them
    "openai_responses": ("responses", {}),
    "mistral": ("mistral", {}),
    "template": ("chat", {"dialect": "template"}),
    "deepseek_responses": ("responses", {}),
}
"""Class and options for each provider family of the cases."""

_LIMITS = {
    "timeout_ms": ("first_chunk", "between_chunks"),
    "first_text_timeout_ms": ("first_chunk",),
    "first_chunk_timeout_ms": ("first_chunk",),
    "first_output_timeout_ms": ("first_chunk",),
    "between_chunks_ms": ("between_chunks",),
    "idle_timeout_ms": ("between_chunks",),
    "stall_timeout_ms": ("between_chunks",),
    "connect_timeout_ms": ("connect",),
    "total_ms": ("total",),
    "total_timeout_ms": ("total",),
    "total_limit_ms": ("total",),
    "budget_ms": ("total",),
}
"""Limits in milliseconds, by the words that cases use, and the clocks that each one sets."""

_RETRY = {"retries": "max_retries", "max_retry": "max_retries", "retry_delay_ms": "first_wait"}

_PLAIN = frozenset(
    [
        "max_steps",
        "settings",
        "model",
        "system_prompt",
        "parallel_tools",
        "record_interrupted",
        "buffer_size",
        "auto_end_call",
        "auto_semantic_turn",
        "auto_ignore_user_noise",
        "max_context_tokens",
        "think",
        "strip_think",
    ]
)
"""Options that are called the same here."""

_IGNORED = frozenset({"pool", "max_retry_wait_ms"})
"""Options of designs that we do not have: no pool, and a longest wait that is fixed at two seconds."""

MODEL_OPTIONS = frozenset({*_LIMITS, *_RETRY, *_PLAIN, *_IGNORED, "extract"})


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
    check_known(options, MODEL_OPTIONS, "options")
    settings: dict[str, Any] = {
        "model": "m",
        "system_prompt": "SYS",
        "api_key": "test-key",
        "base_url": f"http://{host}/v1",
        "connect": provider.connect,
        "retry": _retry(options),
        "timeouts": _timeouts(options),
        "auto_end_call": True,
        **more,
        **{name: options[name] for name in _PLAIN & set(options)},
    }
    if "strip_think" in settings:
        settings["think"] = settings.pop("strip_think")
    extracted = settings.pop("extracted", None)
    if "extract" in options:
        settings["extract"] = extraction(options["extract"], extracted)
    agent: Agent = class_of(kind)(**settings)
    return agent


def _retry(options: dict[str, Any]) -> Retry:
    values: dict[str, Any] = {"max_retries": 0, "factor": 1.0, "jitter": 0.0}
    for word, name in _RETRY.items():
        if word in options:
            values[name] = options[word] / 1000 if word.endswith("_ms") else options[word]
    return Retry(**values)


def _timeouts(options: dict[str, Any]) -> Timeouts:
    values: dict[str, Any] = {"first_chunk": 2.0, "between_chunks": 2.0}
    for word, names in _LIMITS.items():
        if word in options:
            limit = options[word]
            values.update(dict.fromkeys(names, None if limit is None else limit / 1000))
    return Timeouts(**values)


def extraction(spec: dict[str, Any], callback: Callable[[Any], object] | None) -> ExtractJson | ExtractTag:
    check_known(spec, {"start", "end", "start_tag", "end_tag", "json", "save_in_metadata"}, "extract")
    save = spec.get("save_in_metadata", True)
    if spec.get("json"):
        return ExtractJson(callback=callback, save_in_metadata=save)
    start = spec["start"] if "start" in spec else spec["start_tag"]
    end = spec["end"] if "end" in spec else spec["end_tag"]
    return ExtractTag(start_tag=start, end_tag=end, callback=callback, save_in_metadata=save)
