"""Groups C and D: what the short forms of a scenario's scripts and options mean."""

from __future__ import annotations

from typing import Any

from case_agents import UnknownWordError


def default_scripts(scenario: dict[str, Any]) -> list[list[Any]]:
    """What the provider says when a scenario has no script: where it waits for a tool, it calls one first."""
    moments = [str(step.get("when", "")).partition(":") for step in scenario["steps"]]
    names = [name for word, _, name in moments if word in {"tool_started", "tool_returned"}]
    if not names:
        return [DEFAULT_SCRIPT]
    return [[{"tool": names[0] or "get_time", "args": {}, "id": "c1"}, {"end": True}], DEFAULT_SCRIPT]


DEFAULT_SCRIPT: list[Any] = [{"text": ["We open "]}, {"after_ms": 20}, {"text": ["at nine."]}, {"end": True}]
"""What the provider says when a scenario has no script."""

PROVIDER_WORDS = frozenset(
    [
        "text",
        "tool",
        "args",
        "arguments",
        "id",
        "raw_delta",
        "finish",
        "after_ms",
        "wait_ms",
        "buffered",
        "silence",
        "cut",
        "status",
        "headers",
        "body",
        "error",
        "end",
        "if_tools_offered",
        "else",
    ]
)

_FALLBACK = {
    "after_partial": "after_partial",
    "prefer": "prefer",
    "hedge_after_ms": "hedge_after",
    "first_chunk_timeout_ms": "first_chunk_timeout",
    "first_text_timeout_ms": "first_chunk_timeout",
    "timeout_ms": "first_chunk_timeout",
    "give_up_after_ms": "give_up_after",
    "total_ms": "give_up_after",
    "total_timeout_ms": "give_up_after",
    "total_limit_ms": "give_up_after",
    "budget_ms": "give_up_after",
}
"""Options of the supervisor, by the words of the cases."""


def script_parts(script: Any) -> list[dict[str, Any]]:
    """The parts of one response, short forms written out.

    Raises:
        UnknownWordError: A part has a word that the format does not know.
    """
    found = []
    for part in _in_one_write([script] if isinstance(script, dict) else script):
        if unknown := set(part) - PROVIDER_WORDS:
            raise UnknownWordError(f"provider words {sorted(unknown)}")
        whole = dict(part)
        if isinstance(whole.get("text"), str):
            whole["text"] = [whole["text"]]
        for word in ("if_tools_offered", "else"):
            if word in whole:
                whole[word] = script_parts(whole[word])
        found.append(whole)
    return found


def _in_one_write(script: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """``{"buffered": [a, b]}`` are parts that are sent in one write."""
    found: list[dict[str, Any]] = []
    for part in script:
        inner = part.get("buffered")
        if isinstance(inner, list):
            found += [{**one, "buffered": True} for one in inner[:-1]] + inner[-1:]
        else:
            found.append(part)
    return found


def lists_of(script: list[Any]) -> list[list[Any]]:
    """One list per request; mostly a step has the parts of one response only."""
    return script if script and isinstance(script[0], list) else [script]


def tools_used(scenario: dict[str, Any]) -> list[str]:
    """The names of all tools that a script of the scenario calls, without those that a step adds."""
    found: list[str] = []
    added: set[str] = set()

    def walk(value: Any) -> None:
        if isinstance(value, dict):
            if isinstance(value.get("tool"), str):
                found.append(value["tool"])
            if str(value.get("do", "")).startswith("add_tool"):
                tool = value.get("tool", value)
                added.add(value["do"].partition(":")[2] or (tool if isinstance(tool, str) else tool["name"]))
            for inner in value.values():
                walk(inner)
        elif isinstance(value, list):
            for inner in value:
                walk(inner)

    walk(scenario.get("provider"))
    walk(scenario["steps"])
    return [name for name in dict.fromkeys(found) if name not in added]


def fallback_options(options: dict[str, Any], names: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the supervisor takes, and what is left for each of its children."""
    own: dict[str, Any] = {"first_chunk_timeout": 2.0}
    rest = {word: value for word, value in options.items() if word not in {*_FALLBACK, *names}}
    for word, name in _FALLBACK.items():
        if word in options:
            value = options[word]
            own[name] = value / 1000 if word.endswith("_ms") and isinstance(value, int | float) else value
    return own, rest
