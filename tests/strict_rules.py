"""Rules by which providers refuse a request, from their documentation and from reports of refusals; pure functions.

Written from the outside: nothing of the library is used, so that a mistake is not made twice.
"""

from __future__ import annotations

import json
import re
from typing import Any

NINE = re.compile(r"[a-zA-Z0-9]{9}")
NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def _no_constant(word: str) -> Any:
    raise ValueError(word)


def _bounded(text: str) -> float:
    number = float(text)
    if number in {float("inf"), float("-inf")}:
        raise ValueError(text)
    return number


def strict_json(text: str | bytes) -> Any:
    """The value of JSON that every parser takes, not only Python's.

    Raises:
        ValueError: It is none.
    """
    value = json.loads(text, parse_constant=_no_constant, parse_float=_bounded)
    json.dumps(value, ensure_ascii=False).encode()  # halves of letters have no UTF-8
    return value


def _arguments(where: str, text: Any) -> list[str]:
    if not isinstance(text, str):
        return [f"{where}: arguments are no text"]
    try:
        value = strict_json(text)
    except (ValueError, RecursionError) as error:
        return [f"{where}: arguments cannot be read: {error}"]
    return [] if isinstance(value, dict) else [f"{where}: arguments are no object"]


def _words(where: str, message: dict[str, Any]) -> list[str]:
    content = message.get("content")
    if not isinstance(content, str):
        return [f"{where}: content is no text"]
    return [] if content.strip() else [f"{where}: content is blank"]


def _members(where: str, message: dict[str, Any], *allowed: str) -> list[str]:
    surplus = set(message) - set(allowed)
    return [f"{where}: unknown members {sorted(surplus)}"] if surplus else []


def _common(body: dict[str, Any], history: str) -> list[str]:
    bad = [] if body.get("stream") is True else ["stream is not on"]
    if not isinstance(body.get("model"), str) or not body["model"]:
        bad.append("no model")
    if not body[history]:
        bad.append(f"{history} is empty")
    if "tools" in body and not body["tools"]:
        bad.append("tools is empty")
    return bad


def _choice(body: dict[str, Any], *, calls: bool, mixed: bool = False) -> list[str]:
    """Rules about declarations: Anthropic-, Bedrock- and Cerebras-like gateways refuse the rest."""
    tools, choice = body.get("tools", []), body.get("tool_choice")
    functions = [tool.get("function", tool) for tool in tools if tool.get("type") == "function"]
    bad = ["calls in the history, and no tools"] if calls and not tools else []
    bad += ["tool_choice without tools"] if choice is not None and not tools else []
    names = [function["name"] for function in functions]
    bad += [f"a tool is declared twice: {names}"] if len(set(names)) < len(names) else []
    bad += [f"tool name {name!r}" for name in names if not NAME.fullmatch(name)]
    bad += ["strict and not strict"] if not mixed and len({bool(one.get("strict")) for one in functions}) > 1 else []
    return bad


def _call(where: str, call: dict[str, Any], seen: set[str], longest: int) -> list[str]:
    bad = _members(where, call, "id", "type", "function")
    function = call.get("function", {})
    bad += _members(where, function, "name", "arguments") + _arguments(where, function.get("arguments"))
    if not NAME.fullmatch(function.get("name", "")):
        bad.append(f"{where}: name {function.get('name')!r}")
    if not 0 < len(call.get("id", "")) <= longest or call["id"] in seen:
        bad.append(f"{where}: id {call.get('id')!r} is blank, too long, or was used before")
    seen.add(call["id"])
    return bad


def chat(body: dict[str, Any], *, longest_id: int = 40, prefix: bool = False) -> list[str]:
    """Why OpenAI's Chat Completions would answer 400."""
    bad = _common(body, "messages")
    seen: set[str] = set()
    waiting: list[str] = []
    for number, message in enumerate(body["messages"]):
        where, role = f"messages[{number}]", message.get("role")
        if waiting and role != "tool":
            bad.append(f"{where}: {waiting} have no result before it")
            waiting = []
        if role == "tool":
            bad += _members(where, message, "role", "tool_call_id", "content")
            if message.get("tool_call_id") not in waiting:
                bad.append(f"{where}: a result of no call before it")
            else:
                waiting.remove(message["tool_call_id"])
            bad += [] if isinstance(message.get("content"), str) else [f"{where}: content is no text"]
        elif role == "assistant" and "tool_calls" in message:
            bad += _members(where, message, "role", "content", "tool_calls")
            bad += [] if message["tool_calls"] else [f"{where}: tool_calls is empty"]
            bad += [] if message["content"] is None else _words(where, message)
            for call in message["tool_calls"]:
                bad += _call(where, call, seen, longest_id)
                waiting.append(call["id"])
        elif role in {"system", "user", "assistant"}:
            allowed = ("role", "content", "prefix") if prefix and role == "assistant" else ("role", "content")
            bad += _members(where, message, *allowed) + _words(where, message)
        else:
            bad.append(f"{where}: role {role!r}")
    bad += _choice(body, calls=bool(seen))
    return bad + ([f"{waiting} have no result"] if waiting else [])


def mistral(body: dict[str, Any]) -> list[str]:
    """Why Mistral would answer 400 or 422."""
    bad = chat(body, longest_id=9, prefix=True)
    messages = body["messages"]
    previous = ""
    for number, message in enumerate(messages):
        role = message["role"]
        if previous == "tool" and role not in {"tool", "assistant"}:
            bad.append(f"messages[{number}]: {role} behind a result")
        bad += [
            f"messages[{number}]: id {call['id']!r}"
            for call in message.get("tool_calls", ())
            if not NINE.fullmatch(call["id"])
        ]
        if message.get("prefix") and number + 1 < len(messages):
            bad.append(f"messages[{number}]: prefix before the end")
        previous = role
    if previous not in {"user", "tool"} and not messages[-1].get("prefix"):
        bad.append(f"the last message is of {previous}")
    return bad


def template(body: dict[str, Any]) -> list[str]:
    """Why the chat template of an open model would raise."""
    bad = chat(body)
    wanted = "user"
    for number, message in enumerate(body["messages"]):
        role = message["role"]
        if role == "system":
            bad += [f"messages[{number}]: system behind the beginning"] if number else []
        elif role == "tool":
            wanted = "assistant"
        else:
            if role != wanted:
                bad.append(f"messages[{number}]: {role} where {wanted} is due")
            wanted = "user" if role == "assistant" else "assistant"
    if body["messages"][-1]["role"] not in {"user", "tool"}:
        bad.append("there is nothing to answer at the end")
    return bad


def responses(body: dict[str, Any]) -> list[str]:  # noqa: C901 - one branch for each kind of item
    """Why OpenAI's Responses API, or a server that copies it strictly, would answer 400."""
    bad = _common(body, "input")
    calls: list[str] = []
    waiting: list[str] = []
    for number, item in enumerate(body["input"]):
        where, kind = f"input[{number}]", item.get("type", "message")
        if kind == "message":
            bad += _members(where, item, "type", "role", "content") + _words(where, item)
            if item.get("role") not in {"system", "user", "assistant"}:
                bad.append(f"{where}: role {item.get('role')!r}")
            if waiting:
                bad.append(f"{where}: words between {waiting} and the output")
        elif kind == "function_call":
            bad += _members(where, item, "type", "call_id", "name", "arguments")
            bad += _arguments(where, item.get("arguments"))
            if not 0 < len(item["call_id"]) <= 64 or item["call_id"] in calls:
                bad.append(f"{where}: call_id {item['call_id']!r} is blank, too long, or was used before")
            if not NAME.fullmatch(item["name"]):
                bad.append(f"{where}: name {item['name']!r}")
            calls.append(item["call_id"])
            waiting.append(item["call_id"])
        elif kind == "function_call_output":
            bad += _members(where, item, "type", "call_id", "output")
            if item["call_id"] not in waiting:
                bad.append(f"{where}: an output of no call before it")
            else:
                waiting.remove(item["call_id"])
            bad += [] if isinstance(item["output"], str) else [f"{where}: output is no text"]
        else:
            bad.append(f"{where}: type {kind!r}")
    bad += _choice(body, calls=bool(calls), mixed=True)
    return bad + ([f"{waiting} have no output"] if waiting else [])


RULES = {
    "openai_chat": chat,
    "openai_responses": responses,
    "mistral": mistral,
    "template": template,
    "deepseek_responses": responses,
}
"""By the names of the dialects in the cases."""
