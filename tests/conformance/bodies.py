"""Request bodies of two dialects, brought to one neutral form for comparison.

What DESIGN.md or the bug cases decide differently is levelled out: arguments encoded once or twice, an absent or an
empty list of tools, one assistant message per call or one for all, the ids that a provider insists on.
"""

from __future__ import annotations

import json
from typing import Any

_SCHEMA_NOISE = {"$schema"}


def differences(seen: dict[str, Any], wanted: dict[str, Any]) -> list[str]:
    """What differs between our body and the recorded one, in words."""
    found = []
    for name, value in wanted.items():
        if name not in {"input", "messages", "tools"} and seen.get(name) != value:
            found.append(f"member {name} is {seen.get(name)!r}, not {value!r}")
    ours, theirs = history(seen), history(wanted)
    if ours != theirs:
        found.append(f"history\n    seen   {ours}\n    wanted {theirs}")
    tools_seen, tools_wanted = tools(seen), tools(wanted)
    if [t[0] for t in tools_seen] != [t[0] for t in tools_wanted]:
        found.append(f"tools {[t[0] for t in tools_seen]}, not {[t[0] for t in tools_wanted]}")
    for (name, text, schema), (_, text_wanted, schema_wanted) in zip(tools_seen, tools_wanted, strict=False):
        if text != text_wanted and not text_wanted.startswith("<default description of"):
            found.append(f"description of {name} is {text!r}, not {text_wanted!r}")
        if not _schema_agrees(schema, schema_wanted):
            found.append(f"schema of {name}\n    seen   {schema}\n    wanted {schema_wanted}")
    return found


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content)
    return content or ""


def _arguments(text: Any) -> Any:
    # The original encodes them once more at each step; that defect (D35 in the vectors) is not ours.
    value = text
    while isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return value
    return value


def history(body: dict[str, Any]) -> list[tuple[Any, ...]]:
    """The conversation of a body as neutral tuples; ids are numbered in order of appearance."""
    ids: dict[str, str] = {}

    def number(call_id: str) -> str:
        return ids.setdefault(call_id, f"#{len(ids) + 1}")

    items: list[tuple[Any, ...]] = []
    for item in body.get("input") or body.get("messages") or []:
        kind = item.get("type", "message")
        if kind == "function_call":
            items.append(("call", number(item["call_id"]), item["name"], _arguments(item["arguments"])))
        elif kind == "function_call_output":
            items.append(("result", number(item["call_id"]), item["output"]))
        elif item["role"] == "tool":
            items.append(("result", number(item["tool_call_id"]), _text(item["content"])))
        else:
            if _text(item.get("content")) or not item.get("tool_calls"):
                items.append((item["role"], _text(item.get("content"))))
            for call in item.get("tool_calls") or ():
                function = call["function"]
                items.append(("call", number(call["id"]), function["name"], _arguments(function["arguments"])))
    return _each_result_behind_its_call(items)


def _each_result_behind_its_call(items: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    ordered = [item for item in items if item[0] != "result"]
    for result in (item for item in items if item[0] == "result"):
        calls = [place for place, item in enumerate(ordered) if item[0] == "call" and item[1] == result[1]]
        ordered.insert(calls[-1] + 1 if calls else len(ordered), result)
    return ordered


def tools(body: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    """Name, description and schema of each tool that is offered, not of one declared for earlier calls only."""
    found: list[tuple[str, str, dict[str, Any]]] = []
    if body.get("tool_choice") == "none":
        return found
    for tool in body.get("tools") or ():
        function = tool.get("function", tool)
        found.append((function["name"], function.get("description", ""), function.get("parameters", {})))
    return found


def _schema_agrees(seen: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """Same properties and types; ours is in the strict form, where an optional property may be null."""
    ours, theirs = seen.get("properties", {}), wanted.get("properties", {})
    if list(ours) != list(theirs) or not set(wanted.get("required", ())) <= set(seen.get("required", ())):
        return False
    optional = set(theirs) - set(wanted.get("required", ()))
    return all(
        _types(ours[name]) - ({"null"} if name in optional else set()) == _types(theirs[name]) for name in theirs
    )


def _types(schema: dict[str, Any]) -> set[str]:
    if "anyOf" in schema:
        return set().union(*(_types(part) for part in schema["anyOf"]))
    kind = schema.get("type", "?")
    return set(kind) if isinstance(kind, list) else {kind}


def calls_are_paired(data: Any) -> bool:
    """Whether each call has exactly one result, right after it or behind its neighbour calls.

    Takes a conversation in wire form, or a request body of either dialect.
    """
    if isinstance(data, dict):
        items = [(item[0], item[1]) for item in _flat(data) if item[0] in {"call", "result"}] if data else []
        kinds = [item[0] for item in _flat(data)]
    else:
        words = {"tool_call": "call", "tool_result": "result"}
        items = [(words[item["role"]], item["toolCallId"]) for item in data if item["role"] in words]
        kinds = [words.get(item["role"], "message") for item in data]
    waiting: list[str] = []
    for kind, call_id in items:
        if kind == "call":
            waiting.append(call_id)
        elif call_id in waiting:
            waiting.remove(call_id)
        else:
            return False
    return not waiting and not _interrupted(kinds)


def _flat(body: dict[str, Any]) -> list[tuple[Any, ...]]:
    flat: list[tuple[Any, ...]] = []
    for item in body.get("input") or body.get("messages") or []:
        kind = item.get("type", "message")
        if kind == "function_call":
            flat.append(("call", item["call_id"]))
        elif kind == "function_call_output":
            flat.append(("result", item["call_id"]))
        elif item.get("role") == "tool":
            flat.append(("result", item["tool_call_id"]))
        else:
            flat.append(("message",)) if not item.get("tool_calls") else None
            flat.extend(("call", call["id"]) for call in item.get("tool_calls") or ())
    return flat


def _interrupted(kinds: list[str]) -> bool:
    """Whether a message stands between a call and its result."""
    open_calls = 0
    for kind in kinds:
        if kind == "call":
            open_calls += 1
        elif kind == "result":
            open_calls -= 1
        elif open_calls:
            return True
    return False
