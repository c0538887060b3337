"""How tools are declared in a request, and how a choice among them is said; no I/O.

    Tool ──▶ declare() ──▶ {"type":"function",…}, encoded once per tool and form
    settings["tool_choice"] ──▶ is_forced(), relaxed() ──▶ the choice of the next request

Invariants, pinned in tests/test_provider_tool_choice.py:

1. All tools of one request are strict, or none is: servers refuse a mixture (Cerebras with 422), but for those
   that are known to take one.
2. A choice that forces a call is relaxed to one that allows it, and keeps everything else that it says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from micdrop_agent.providers.json_text import as_dict, as_list, encode, is_dict, is_list

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from micdrop_agent.tools import Tool

__all__ = ["ToolForm", "declare", "is_forced", "name_of_declared", "nullable_form", "relaxed", "stub"]

ToolForm = Literal["responses", "chat", "loose", "nullable", "messages", "gemini"]
"""Of the Responses API; of Chat Completions, in strict mode, as written, or without lists of types; of Claude; of Gemini."""

_FREE: Final = frozenset({"auto", "none"})


def declare(
    tools: Sequence[Tool], form: ToolForm, others: Iterable[Mapping[str, Any]] = (), *, mixed: bool = False
) -> list[bytes]:
    """The declarations of ``tools``, to be joined by commas.

    Args:
        tools: The agent's tools.
        form: How the provider wants them.
        others: Declarations of the user's own that stand beside them; one that is not strict makes none strict.
        mixed: Whether the server takes strict tools beside others.
    """
    strict = mixed or (all(tool.strict for tool in tools) and not any(_is_loose(other) for other in others))
    key = form if strict else f"{form}, open"
    parts: list[bytes] = []
    for tool in tools:
        part: bytes | None = tool.encoded.get(key)
        if part is None:
            part = tool.encoded[key] = encode(_DECLARE[form](tool, strict))
        parts.append(part)
    return parts


def stub(name: str, form: ToolForm) -> bytes:
    """A declaration for a tool that is gone, and whose calls the conversation still has."""
    about = {"name": name, "description": "No longer available."}
    empty: dict[str, Any] = {"type": "object", "properties": {}}
    if form == "gemini":
        return encode(about)
    if form == "messages":
        return encode({**about, "input_schema": empty})
    if form == "responses":
        return encode({"type": "function", **about, "parameters": empty, "strict": False})
    return encode({"type": "function", "function": {**about, "parameters": empty}})


def name_of_declared(declaration: Mapping[str, Any]) -> str:
    """The name in a function declaration of any API; ``""`` for a tool of the server's own."""
    name = as_dict(declaration.get("function")).get("name") or declaration.get("name")
    own = declaration.get("type", "function") in {"function", "custom"}
    return name if own and isinstance(name, str) else ""


def _is_loose(declaration: Mapping[str, Any]) -> bool:
    function = as_dict(declaration.get("function")) or declaration
    return bool(name_of_declared(declaration)) and function.get("strict") is not True


def _open(tool: Tool) -> dict[str, Any]:
    """Name, description and parameters as their author meant them: lists say what is in them."""
    from micdrop_agent.tools._strict import open_form

    return {"name": tool.name, "description": tool.description, "parameters": open_form(tool.loose_parameters)}


def _responses(tool: Tool, strict: bool) -> dict[str, Any]:
    return {"type": "function", **(tool.declaration if strict else {**_open(tool), "strict": False})}


def _chat(tool: Tool, strict: bool) -> dict[str, Any]:
    return {"type": "function", "function": dict(tool.declaration) if strict else {**_open(tool), "strict": False}}


def _loose(tool: Tool, _strict: bool) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.loose_parameters}
    return {"type": "function", "function": function}


def _nullable(tool: Tool, _strict: bool) -> dict[str, Any]:
    function = _open(tool)
    return {"type": "function", "function": {**function, "parameters": nullable_form(function["parameters"])}}


def _messages(tool: Tool, _strict: bool) -> dict[str, Any]:
    function = _open(tool)
    return {"name": tool.name, "description": tool.description, "input_schema": function["parameters"]}


def _gemini(tool: Tool, _strict: bool) -> dict[str, Any]:
    function = _open(tool)
    declaration = {"name": tool.name, "description": tool.description or tool.name}
    if not function["parameters"].get("properties"):
        return declaration  # an object schema without properties is refused
    return {**declaration, "parametersJsonSchema": nullable_form(function["parameters"])}


_DECLARE: Final[Mapping[ToolForm, Callable[[Tool, bool], dict[str, Any]]]] = {
    "responses": _responses,
    "chat": _chat,
    "loose": _loose,
    "nullable": _nullable,
    "messages": _messages,
    "gemini": _gemini,
}


def nullable_form(schema: Any) -> Any:
    """``schema`` with ``nullable: true`` where it allows null by a list of types, or by an option of its own."""
    if is_list(schema):
        return [nullable_form(each) for each in schema]
    if not is_dict(schema):
        return schema
    node = {key: _nullable_member(key, value) for key, value in schema.items()}
    for word in ("anyOf", "oneOf"):
        options = as_list(node.get(word))
        if {"type": "null"} in options:
            rest = [option for option in options if option != {"type": "null"}]
            del node[word]
            node = {**node, **rest[0], "nullable": True} if len(rest) == 1 else {**node, word: rest, "nullable": True}
    if is_list(node.get("type")):
        kinds = as_list(node["type"])
        node = _without_types(node, [kind for kind in kinds if kind != "null"], null="null" in kinds)
    if node.get("nullable") and "enum" in node:
        node["enum"] = [value for value in as_list(node["enum"]) if value is not None]
    return node


def _nullable_member(key: str, value: Any) -> Any:
    if key in {"properties", "$defs", "definitions"} and is_dict(value):
        return {name: nullable_form(each) for name, each in value.items()}
    return value if key in {"enum", "const", "default", "examples", "required"} else nullable_form(value)


def _without_types(node: dict[str, Any], kinds: list[Any], *, null: bool) -> dict[str, Any]:
    if null:
        node["nullable"] = True
    if len(kinds) == 1:
        return {**node, "type": kinds[0]}
    del node["type"]
    return {**node, "anyOf": [{"type": kind} for kind in kinds]} if kinds else node


def is_forced(choice: object) -> bool:
    """Whether a ``tool_choice`` (of any API) makes the model call a tool."""
    if isinstance(choice, str):
        return choice.lower() not in _FREE
    told = as_dict(choice)
    if told.get("type") == "allowed_tools":
        return as_dict(told.get("allowed_tools")).get("mode", told.get("mode")) not in _FREE
    return bool(told) and told.get("type") not in _FREE


def relaxed(choice: object) -> Any:
    """``choice`` so that the model may answer in words."""
    told = as_dict(choice)
    if told.get("type") == "allowed_tools":
        inner = as_dict(told.get("allowed_tools"))
        # The choice among fewer tools stays; only the duty to call one goes.
        return {**told, "allowed_tools": {**inner, "mode": "auto"}} if inner else {**told, "mode": "auto"}
    if told.get("type") in {"any", "tool"}:  # Claude's form, which is an object also for "auto"
        return {key: value for key, value in told.items() if key not in {"type", "name"}} | {"type": "auto"}
    return "auto"
