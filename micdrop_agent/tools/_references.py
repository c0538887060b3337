"""References within a schema, brought into one form: ``#/$defs/name``. No I/O."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from micdrop_agent._strict_json import is_dict, is_list

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["moved_definitions", "with_plain_references"]

_PREFIX: Final = "#/$defs/"


def with_plain_references(schema: dict[str, Any]) -> dict[str, Any]:
    """``schema`` with every reference to one of its ``$defs``, and nothing of it lost.

    ``#/definitions/x``, ``#/properties/x`` and ``#`` are references that some generators write, and some
    servers refuse.

    Raises:
        ValueError: A reference leads out of the schema, or to nothing.
    """
    defs: dict[str, Any] = {**schema.get("definitions", {}), **schema.get("$defs", {})}
    known = dict(defs)
    names: dict[str, str] = {}

    def rename(target: str) -> str:
        head, _, last = target.rpartition("/")
        if head in {"#/$defs", "#/definitions"} and unquote(last) in known:
            return _PREFIX + last
        if target not in names:
            found = _resolved(schema, target)
            names[target] = _free_name(unquote(last.strip("#")) or "Root", defs)
            defs[names[target]] = {}  # taken, before what is in it asks for names
            inner = {key: value for key, value in found.items() if key not in {"$defs", "definitions", "$schema"}}
            defs[names[target]] = _rewritten(copy.deepcopy(inner), rename)
        return _PREFIX + names[target]

    body = {key: value for key, value in schema.items() if key not in {"$defs", "definitions"}}
    result: dict[str, Any] = _rewritten(body, rename)
    for name, each in known.items():
        defs[name] = _rewritten(each, rename)
    return {**result, "$defs": defs} if defs else result


def moved_definitions(schema: dict[str, Any], defs: dict[str, Any]) -> dict[str, Any]:
    """``schema`` without its own definitions, which are added to ``defs`` under names that are free there."""
    schema = with_plain_references(schema)
    own: dict[str, Any] = schema.pop("$defs", {})
    names = {name: name if defs.get(name) == each else _free_name(name, defs) for name, each in own.items()}

    def rename(target: str) -> str:
        return _PREFIX + names[target.removeprefix(_PREFIX)]

    for name, each in own.items():
        defs[names[name]] = _rewritten(each, rename)
    result: dict[str, Any] = _rewritten(schema, rename)
    return result


def _resolved(schema: dict[str, Any], target: str) -> dict[str, Any]:
    node: Any = schema
    if not target.startswith("#"):
        raise ValueError(f"$ref {target!r} leads out of the schema; put what it means under $defs")
    for part in target.lstrip("#").split("/")[1:]:
        name = unquote(part).replace("~1", "/").replace("~0", "~")
        if is_list(node) and name.isdecimal() and int(name) < len(node):
            node = node[int(name)]
        else:
            node = node.get(name) if is_dict(node) else None
    if not is_dict(node):
        raise ValueError(f"$ref {target!r} leads to nothing; put what it means under $defs")
    return node


def _free_name(name: str, taken: dict[str, Any]) -> str:
    name = "".join(char if char.isalnum() or char in "_-" else "_" for char in name)
    number, free = 2, name
    while free in taken:
        free, number = f"{name}{number}", number + 1
    return free


def _rewritten(node: Any, rename: Callable[[str], str]) -> Any:
    if is_list(node):
        return [_rewritten(each, rename) for each in node]
    if not is_dict(node):
        return node
    result: dict[str, Any] = {}
    for key, each in node.items():
        if key == "$ref" and isinstance(each, str):
            result[key] = rename(each)
        elif key in {"default", "enum", "const", "examples"}:
            result[key] = each
        else:
            result[key] = _rewritten(each, rename)
    return result
