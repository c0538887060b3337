"""The strict model of requests: why a provider would answer 400 to a body.

``cases/strict_provider.py``, as it was handed in, has the rules of reports; here are those of the providers' own
documentation on top of it. Written from the outside: nothing of the library is used, so that a mistake is not made twice.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def load(given: Path | None = None) -> ModuleType:
    """The handed-in rules: those beside the cases in a folder that is given, or our copy."""
    folders = [] if given is None else [given, given / "tools", given.parent / "tools"]
    path = next((folder / "strict_provider.py" for folder in folders if (folder / "strict_provider.py").exists()), None)
    ours = Path(__file__).parent / "cases" / "strict_provider.py"
    spec = importlib.util.spec_from_file_location("strict_provider", path or ours)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PROVIDER = load()
DIALECTS: dict[str, Callable[[dict[str, Any]], list[str]]] = PROVIDER.DIALECTS
strict_schema: Callable[[Any], list[str]] = PROVIDER.strict_schema


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


def _readable(text: Any) -> bool:
    try:
        return isinstance(text, str) and isinstance(strict_json(text), dict)
    except (ValueError, RecursionError):
        return False


def _call(call_id: Any, name: Any, arguments: Any, longest: int) -> Iterator[str]:
    if not isinstance(call_id, str) or not 0 < len(call_id) <= longest:
        yield f"id {call_id!r} is blank or too long"
    if not isinstance(name, str) or not NAME.fullmatch(name):
        yield f"name {name!r}"
    if not _readable(arguments):
        yield f"arguments cannot be read: {arguments!r}"


def _surplus(item: dict[str, Any], *allowed: str) -> Iterator[str]:
    if surplus := set(item) - set(allowed):
        yield f"unknown members {sorted(surplus)}"


def _words(item: dict[str, Any]) -> Iterator[str]:
    content = item.get("content")
    if not isinstance(content, str) or not content.strip():
        yield f"content is blank or no text: {content!r}"


def _message(item: dict[str, Any], longest: int, *, prefix: bool) -> Iterator[str]:
    role = item.get("role")
    if role == "tool":
        yield from _surplus(item, "role", "tool_call_id", "content")
        if not isinstance(item.get("content"), str):
            yield "content is no text"
    elif role == "assistant" and "tool_calls" in item:
        yield from _surplus(item, "role", "content", "tool_calls")
        yield from () if item["content"] is None else _words(item)
        for call in item["tool_calls"]:
            yield from _surplus(call, "id", "type", "function")
            yield from _surplus(call["function"], "name", "arguments")
            yield from _call(call.get("id"), call["function"].get("name"), call["function"].get("arguments"), longest)
    else:
        yield from _surplus(item, "role", "content", *(("prefix",) if prefix and role == "assistant" else ()))
        yield from _words(item)
        if role not in {"system", "user", "assistant"}:
            yield f"role {role!r}"


def _item(item: dict[str, Any], waiting: list[str]) -> Iterator[str]:
    match item.get("type", "message"):
        case "function_call":
            yield from _surplus(item, "type", "call_id", "name", "arguments")
            yield from _call(item.get("call_id"), item.get("name"), item.get("arguments"), 64)
            waiting.append(item["call_id"])
        case "function_call_output":
            yield from _surplus(item, "type", "call_id", "output")
            if item["call_id"] not in waiting:
                yield "an output of no call before it"
            else:
                waiting.remove(item["call_id"])
        case _:
            yield from _surplus(item, "type", "role", "content")
            yield from _words(item)
            if item.get("role") not in {"system", "user", "assistant"}:
                yield f"role {item.get('role')!r}"
            if waiting:
                yield f"words between {waiting} and the output"


def _declared(body: dict[str, Any], *, calls: bool) -> list[str]:
    """Rules about declarations: Anthropic-, Bedrock- and Cerebras-like gateways refuse the rest."""
    tools = body.get("tools", [])
    functions = [tool.get("function", tool) for tool in tools if tool.get("type") == "function"]
    names = [function["name"] for function in functions]
    bad = ["calls in the history, and no tools"] if calls and not tools else []
    bad += ["tool_choice without tools"] if body.get("tool_choice") is not None and not tools else []
    bad += [f"a tool is declared twice: {names}"] if len(set(names)) < len(names) else []
    mixed = "messages" in body and len({bool(function.get("strict")) for function in functions}) > 1
    return bad + (["strict and not strict"] if mixed else [])


def _documented(body: dict[str, Any], longest: int = 40, *, prefix: bool = False) -> list[str]:
    history = "messages" if "messages" in body else "input"
    bad = [] if body.get("stream") is True else ["stream is not on"]
    bad += [] if isinstance(body.get("model"), str) and body["model"] else ["no model"]
    bad += [] if body[history] else [f"{history} is empty"]
    waiting: list[str] = []
    for number, item in enumerate(body[history]):
        found = _message(item, longest, prefix=prefix) if history == "messages" else _item(item, waiting)
        bad += [f"{history}[{number}]: {why}" for why in found]
    calls = any(item.get("tool_calls") or item.get("type") == "function_call" for item in body[history])
    return bad + _declared(body, calls=calls)


def chat(body: dict[str, Any]) -> list[str]:
    """Why OpenAI's Chat Completions would answer 400."""
    return DIALECTS["openai_chat"](body) + _documented(body)


def mistral(body: dict[str, Any]) -> list[str]:
    """Why Mistral would answer 400 or 422; with ``prefix`` its own message may be the last one."""
    messages = body["messages"]
    bad = [] if messages[-1].get("prefix") else [why for why in DIALECTS["mistral"](body) if "last role" in why]
    bad += [why for why in DIALECTS["mistral"](body) if "last role" not in why] + _documented(body, 9, prefix=True)
    roles = [message["role"] for message in messages]
    pairs = enumerate(itertools.pairwise(roles), 1)
    bad += [
        f"messages[{at}]: {b} behind a result" for at, (a, b) in pairs if a == "tool" and b not in {"tool", "assistant"}
    ]
    return bad + ["prefix before the end" for message in messages[:-1] if message.get("prefix")]


def template(body: dict[str, Any]) -> list[str]:
    """Why the chat template of an open model would raise: it counts calls and their results among the turns."""
    bad, wanted = DIALECTS["template"](body) + _documented(body), "user"
    for number, message in enumerate(body["messages"]):
        role = message["role"]
        if role == "tool":
            wanted = "assistant"
        elif role != "system":
            bad += [] if role == wanted else [f"messages[{number}]: {role} where {wanted} is due"]
            wanted = "user" if role == "assistant" else "assistant"
    last = body["messages"][-1]["role"]
    return bad if last in {"user", "tool"} else [*bad, "there is nothing to answer at the end"]


RULES: dict[str, Callable[[dict[str, Any]], list[str]]] = {
    "openai_chat": chat,
    "openai_responses": lambda body: DIALECTS["openai_responses"](body) + _documented(body),
    "mistral": mistral,
    "template": template,
    "deepseek_responses": lambda body: DIALECTS["deepseek_responses"](body) + _documented(body),
}
"""By the names of the dialects in the cases."""
