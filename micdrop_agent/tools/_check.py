"""Arguments against a schema in the loose form: every mistake, in words a model can act on.

Strict about kinds (``"2"`` is not a number, nor is ``true``), but ``2.0`` is a whole number, as JSON Schema
has it, and becomes ``2``. Kind about absence: null for something that may be left out, and may not be null,
is left out.
"""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any, Final

from micdrop_agent._strict_json import is_dict, is_list, shorten
from micdrop_agent.tools._json import describe, quote
from micdrop_agent.tools._limits import list_limits, scalar_limits

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_PROBLEMS: Final = 10
"""Mistakes that are spelt out; more of them help no model."""

_KINDS: Final = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
    "array": "a list",
    "object": "an object",
}
_FREE_FORM_EXCEPT: Final = frozenset(["type", "properties", "anyOf", "oneOf", "allOf", "enum", "const", "$ref"])


def check(schema: Mapping[str, Any], value: Any) -> tuple[Any, Any, list[str]]:
    """``value`` as the schema means it, and what is wrong with it (nothing, when it fits).

    Args:
        schema: Loose form, with its ``$defs``.
        value: A decoded JSON value; it is not changed.

    Returns:
        The value as given, without what stands for "left out"; the same with the defaults filled
        in; and the mistakes.
    """
    defs = {**schema.get("definitions", {}), **schema.get("$defs", {})}
    checker = _Checker(defs, fill=False)
    given = checker.visit(schema, value, "")
    hidden = checker.count - len(checker.problems)
    if hidden:
        checker.problems.append(f"and {hidden} more")
    filled = given
    if checker.absent and not checker.count:
        filled = _Checker(defs, fill=True).visit(schema, value, "")
    return given, filled, checker.problems


def accepts(schema: Any, value: Any, defs: Mapping[str, Any] | None = None) -> bool:
    """Whether ``schema`` allows ``value``."""
    checker = _Checker(defs or {}, fill=False)
    checker.visit(schema, value, "")
    return not checker.count


def is_free_form(schema: Any) -> bool:
    """Whether ``schema`` allows keys or values that it does not name."""
    if schema is True or not is_dict(schema):
        return schema is not False
    if not _FREE_FORM_EXCEPT & set(schema):
        return True
    if schema.get("additionalProperties", False) is not False:
        return True
    kinds = schema.get("type")
    if kinds != "object" and not (is_list(kinds) and "object" in kinds):
        return False
    return "properties" not in schema and "additionalProperties" not in schema


class _Checker:
    __slots__ = ("_defs", "_fill", "absent", "count", "problems")

    def __init__(self, defs: Mapping[str, Any], *, fill: bool) -> None:
        self._defs = defs
        self._fill = fill
        self.problems: list[str] = []
        self.count = 0
        self.absent = False
        """Whether something with a default was left out."""

    def visit(self, schema: Any, value: Any, path: str) -> Any:
        """Check ``value`` and return it as the schema means it."""
        if not is_dict(schema):
            if schema is False:
                self._add(path, "not allowed")
            return value
        if "$ref" in schema:
            return self.visit(self._target(schema), value, path)
        for part in schema.get("allOf", ()):
            value = self.visit(part, value, path)
        options = schema.get("anyOf") or schema.get("oneOf")
        if options:
            return self._one_of(options, value, path)
        value = self._as_meant(schema, value)
        if not self._fits(schema, value, path):
            return value
        if is_dict(value):
            return self._object(schema, value, path)
        return self._list(schema, value, path) if is_list(value) else value

    def _target(self, schema: Mapping[str, Any]) -> Any:
        return self._defs.get(schema["$ref"].rpartition("/")[2], {})

    def _as_meant(self, schema: Mapping[str, Any], value: Any) -> Any:
        """``4.0`` where a whole number is wanted is ``4``: JSON has one kind of numbers."""
        if not isinstance(value, float) or not value.is_integer():
            return value
        values = [schema["const"]] if "const" in schema else schema.get("enum", ())
        kinds = self._kinds(schema)
        whole = "integer" in kinds and "number" not in kinds
        listed = int(value) in [each for each in values if type(each) is int]
        return int(value) if whole or listed else value

    def _fits(self, schema: Mapping[str, Any], value: Any, path: str) -> bool:
        before = self.count
        self._kind_and_values(schema, value, path)
        if self.count == before:
            for problem in scalar_limits(schema, value):
                self._add(path, problem)
        return self.count == before

    def _one_of(self, options: list[Any], value: Any, path: str) -> Any:
        near: list[_Checker] = []
        for option in options:
            kinds = self._kinds(option)
            if kinds and not any(_is_kind(value, kind) for kind in kinds):
                continue
            attempt = _Checker(self._defs, fill=self._fill)
            result = attempt.visit(option, value, path)
            if not attempt.count:
                self.absent |= attempt.absent
                return result
            near.append(attempt)
        if len(near) == 1:
            # Only one of them can have been meant, so its own complaint says most.
            self.problems += near[0].problems[: MAX_PROBLEMS - len(self.problems)]
            self.count += near[0].count
            return value
        all_kinds = dict.fromkeys(kind for option in options for kind in self._kinds(option))
        wanted = " or ".join(_KINDS.get(kind, kind) for kind in all_kinds) or "something else"
        also = "; it fits none of the allowed forms" if near else ""
        self._add(path, f"expected {wanted}, got {describe(value)}{also}")
        return value

    def _kinds(self, schema: Any) -> list[str]:
        if not is_dict(schema):
            return []
        if "$ref" in schema:
            return self._kinds(self._target(schema))
        kinds = schema.get("type", [])
        return kinds if is_list(kinds) else [kinds]

    def _kind_and_values(self, schema: Mapping[str, Any], value: Any, path: str) -> None:
        values = [schema["const"]] if "const" in schema else schema.get("enum")
        if values is not None:
            if not any(_same(value, each) for each in values):
                allowed = ", ".join(json.dumps(each, ensure_ascii=False) for each in values)
                self._add(path, f"expected {_one(values)}{shorten(allowed, 400)}, got {describe(value)}")
            return
        kinds = self._kinds(schema)
        if kinds and not any(_is_kind(value, kind) for kind in kinds):
            wanted = " or ".join(_KINDS.get(kind, kind) for kind in kinds)
            self._add(path, f"expected {wanted}, got {describe(value)}")

    def _object(self, schema: Mapping[str, Any], value: dict[str, Any], path: str) -> dict[str, Any]:
        properties: dict[str, Any] = schema.get("properties", {})
        required = schema.get("required", ())
        result: dict[str, Any] = {}
        for key, each in properties.items():
            if key in value and not self._means_absent(each, value[key], key in required):
                result[key] = self.visit(each, value[key], _join(path, key))
            elif is_dict(each) and "default" in each:
                self.absent = True
                if self._fill:
                    result[key] = copy.deepcopy(each["default"])
            elif key in required:
                wanted = " or ".join(_KINDS.get(kind, kind) for kind in self._kinds(each))
                self._add(_join(path, key), f"missing{f', expected {wanted}' if wanted else ''}")
        result |= self._others(schema, value, path)
        return result

    def _others(self, schema: Mapping[str, Any], value: dict[str, Any], path: str) -> dict[str, Any]:
        properties: dict[str, Any] = schema.get("properties", {})
        rest = schema.get("additionalProperties", "properties" not in schema)
        result: dict[str, Any] = {}
        for key, each in value.items():
            if key in properties:
                continue
            if rest is False:
                self._unknown(key, properties, path)
            else:
                result[key] = self.visit(rest, each, _join(path, key))
        return result

    def _means_absent(self, schema: Any, value: Any, required: bool) -> bool:
        may_be_absent = not required or (is_dict(schema) and "default" in schema)
        return value is None and may_be_absent and not accepts(schema, None, self._defs)

    def _unknown(self, key: str, properties: Mapping[str, Any], path: str) -> None:
        noun = "member" if path else "argument"
        known = ", ".join(properties)
        there = f"known: {shorten(known, 400)}" if known else f"there are no {noun}s"
        self._add(path, f"unknown {noun} {quote(key)}; {there}")

    def _list(self, schema: Mapping[str, Any], value: list[Any], path: str) -> list[Any]:
        for problem in list_limits(schema, value):
            self._add(path, problem)
        prefix, items = schema.get("prefixItems", ()), schema.get("items", True)
        return [
            self.visit(prefix[n] if n < len(prefix) else items, each, f"{path}[{n}]") for n, each in enumerate(value)
        ]

    def _add(self, path: str, problem: str) -> None:
        self.count += 1
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(f"{shorten(path, 200)}: {problem}" if path else problem)


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _one(values: list[Any]) -> str:
    return "" if len(values) == 1 else "one of "


def _same(left: Any, right: Any) -> bool:
    """Equal, where ``True`` is not 1 and ``1.0`` is not 1 (a StrEnum member is its text)."""
    if isinstance(left, bool) is not isinstance(right, bool):
        return False
    if isinstance(left, float) is not isinstance(right, float):
        return False
    return bool(left == right)


def _is_kind(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if value is None:
        return kind == "null"
    if isinstance(value, str):
        return kind == "string"
    if isinstance(value, int):
        return kind in {"integer", "number"}
    if isinstance(value, float):
        return kind == "number" or (kind == "integer" and value.is_integer())
    return kind == ("array" if is_list(value) else "object")
