"""Reads tool calls that a model wrote as text, in the forms that model families are trained on. No I/O.

A block is what stood between the marks of a call (``narration`` finds it). Inside, four forms cover
what is known: JSON objects that name their tool, a name before its JSON arguments, parameters as
elements, and a call as Python writes it.
"""

from __future__ import annotations

import ast
import json
import re
from typing import TYPE_CHECKING, Any, Final, cast

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import TypeAlias

    Declared: TypeAlias = Mapping[str, Mapping[str, Any] | None]
    """Names of the tools on offer, each with its parameters' schema if it is known."""

__all__ = ["WrittenCall", "call_in_object", "calls_in", "stated_name"]

_NAME_KEYS: Final = ("name", "tool_name", "function_name", "tool", "function")
_ARGUMENT_KEYS: Final = ("arguments", "parameters", "args", "input", "tool_input", "params", "kwargs")
_OTHER_KEYS: Final = frozenset({"id", "type", "tool_call_id", "call_id", "index", "status"})
_NAME_MEMBER: Final = re.compile(r'"(?:name|tool_name)"\s*:\s*"([^"\\]*)"')

_HEAD: Final = re.compile(
    r"""<(?:[^<>\w/]*DSML[^<>\w]*)?(?:\w+:)?(?:function|invoke)(?:=|\s+name=)["']?([\w.:-]+)["']?[^<>]*>"""
)
_TAIL: Final = re.compile(r"</(?:[^<>\w]*DSML[^<>\w]*)?(?:\w+:)?(?:function|invoke)>")
_PARAMETER: Final = re.compile(
    r"""<(?:[^<>\w/]*DSML[^<>\w]*)?(?:\w+:)?parameter(?:=|\s+name=)["']?([\w.:-]+)["']?[^<>]*>"""
    r"""(.*?)</(?:[^<>\w]*DSML[^<>\w]*)?(?:\w+:)?parameter>""",
    re.DOTALL,
)
_ARG: Final = re.compile(r"<arg_key>(.*?)</arg_key>\s*<arg_value>(.*?)</arg_value>", re.DOTALL)
_WORD: Final = re.compile(r"[\w-]+")
_OPENING: Final = re.compile(r"\s*(?:<[^<>]*>|```\w*|\[\w+\])\s*")
"""The mark that a block begins with."""

_GEMMA_QUOTE: Final = '<|"|>'
_BARE_KEY: Final = re.compile(r"([{,]\s*)([A-Za-z_]\w*)(\s*:)")
_DECODER: Final = json.JSONDecoder(strict=False)
_MAX_PYTHON: Final = 20_000
"""Characters of a call as Python writes it that are parsed: the parser's time grows with them."""


@attrs.frozen
class WrittenCall:
    """A tool call that came as text: complete, and of a tool that was on offer."""

    name: str

    arguments: str
    """JSON text of an object, as a structured call has it."""


def calls_in(block: str, declared: Declared, *, closed: bool) -> tuple[list[WrittenCall], int]:
    """The calls of ``block`` and the index at which the last of them ends (0 if there is none).

    Args:
        block: What stood between the marks, or all that came after a mark that has no end.
        declared: The tools on offer.
        closed: Whether the mark that ends the block came; without it some forms may be incomplete.
    """
    for read in (_elements, _pairs, _objects, _python) if closed else (_elements, _objects, _python):
        found = [(call, end) for call, end in read(block, declared) if call.name in declared]
        if found:
            return [call for call, _ in found], found[-1][1]
    return [], 0


def call_in_object(value: Any, declared: Declared) -> WrittenCall | None:
    """The call that a decoded JSON value is; ``None`` if it is data that only looks like one."""
    if not isinstance(value, dict):
        return None
    members = cast("dict[str, Any]", value)
    function = members.get("function")
    if isinstance(function, dict):
        return call_in_object(function, declared)
    key = next((key for key in _NAME_KEYS if isinstance(members.get(key), str)), None)
    if key is None or set(members) - {key, *_ARGUMENT_KEYS, *_OTHER_KEYS}:
        return None
    name = _known(members[key], declared)
    given: Any = next((members[key] for key in _ARGUMENT_KEYS if key in members), None)
    if isinstance(given, str):
        given = _decoded(given or "null")
    if name is None or not isinstance(given, dict | None):
        return None
    return WrittenCall(name, _text(cast("object", given) or {}))


def stated_name(text: str) -> str | None:
    """The tool that an object states, which is not a call, or is not complete."""
    value = _decoded(text[text.find("{") :].rstrip())
    if not isinstance(value, dict):
        match = _NAME_MEMBER.search(text)
        return match[1] if match else None
    members = cast("dict[str, Any]", value)
    name: Any = members.get("name")
    return name if isinstance(name, str) else None


def _known(name: str, declared: Declared) -> str | None:
    """``name`` as it was declared: some models write ``functions.name:0``."""
    if name in declared:
        return name
    bare = name.rpartition(".")[2].partition(":")[0]
    return bare if bare in declared else None


def _decoded(text: str) -> Any:
    try:
        return json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _elements(block: str, declared: Declared) -> Iterator[tuple[WrittenCall, int]]:
    """``<function=name>…</function>``, ``<invoke name="name">…</invoke>``."""
    for head in _HEAD.finditer(block):
        tail = _TAIL.search(block, head.end())
        name = _known(head[1], declared)
        if tail is None or name is None:
            continue
        inner = block[head.end() : tail.start()]
        plain: object = _decoded(inner)
        if isinstance(plain, dict):
            yield WrittenCall(name, inner.strip()), tail.end()
            continue
        yield WrittenCall(name, _typed(_PARAMETER.findall(inner), declared[name])), tail.end()


def _pairs(block: str, declared: Declared) -> Iterator[tuple[WrittenCall, int]]:
    """``name<arg_key>key</arg_key><arg_value>value</arg_value>…``."""
    inner = _OPENING.sub("", block, count=1)
    word = _WORD.match(inner)
    name = word and _known(word[0], declared)
    if not name or ("<arg_key>" not in inner and inner.strip() != name):
        return
    yield WrittenCall(name, _typed(_ARG.findall(block), declared[name])), len(block)


def _typed(pairs: list[tuple[str, str]], schema: Mapping[str, Any] | None) -> str:
    """Values that came as bare text, as the schema means them."""
    properties: Mapping[str, Any] = (schema or {}).get("properties", {})
    values: dict[str, Any] = {}
    for key, raw in pairs:
        text = raw.removeprefix("\n").removesuffix("\n")
        wanted = properties.get(key.strip())
        takes_text = isinstance(wanted, dict) and "string" in _types(cast("dict[str, Any]", wanted))
        value = None if takes_text else _decoded(text.strip())
        values[key.strip()] = text if value is None and text.strip() != "null" else value
    return _text(values)


def _types(schema: Mapping[str, Any]) -> set[str]:
    kinds = schema.get("type", [])
    found: set[str] = {kinds} if isinstance(kinds, str) else set(kinds)
    for branch in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        if isinstance(branch, dict):
            found |= _types(cast("dict[str, Any]", branch))
    if not found and all(isinstance(each, str) for each in schema.get("enum", (None,))):
        found.add("string")
    return found


def _objects(block: str, declared: Declared) -> Iterator[tuple[WrittenCall, int]]:
    """JSON objects, each naming its tool or standing after the tool's name."""
    if _GEMMA_QUOTE in block:
        block = _BARE_KEY.sub(r'\1"\2"\3', block.replace(_GEMMA_QUOTE, '"'))
    position = 0
    while (start := block.find("{", position)) >= 0:
        try:
            value, end = _DECODER.raw_decode(block, start)
        except (ValueError, RecursionError):
            return
        call = call_in_object(value, declared)
        if call is None:
            names = [name for word in _WORD.findall(block, position, start) if (name := _known(word, declared))]
            call = WrittenCall(names[-1], _text(value)) if names else None
        if call is not None:
            yield call, end
        position = end


def _python(block: str, declared: Declared) -> Iterator[tuple[WrittenCall, int]]:
    """``name(key="value")``, alone or in a list."""
    source = _OPENING.sub("", block, count=1).strip("` \n")
    if "(" not in source or len(source) > _MAX_PYTHON:
        return
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        written = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        name = _known(written, declared)
        if name is None:
            continue
        try:
            arguments = _python_arguments(node, declared[name])
        except ValueError:
            continue  # an argument is not a literal: nobody evaluates it here
        yield WrittenCall(name, arguments), len(block)


def _python_arguments(node: ast.Call, schema: Mapping[str, Any] | None) -> str:
    order = list((schema or {}).get("properties", {}))
    given = [ast.literal_eval(each) for each in node.args]
    if len(given) == 1 and isinstance(given[0], dict) and not node.keywords:
        values = cast("dict[str, Any]", given[0])
    else:
        if len(given) > len(order):
            raise ValueError("arguments without names")
        values = dict(zip(order, given, strict=False))
    values |= {each.arg: ast.literal_eval(each.value) for each in node.keywords if each.arg is not None}
    try:
        return _text(values)
    except TypeError as error:
        raise ValueError("a literal that JSON does not know") from error
