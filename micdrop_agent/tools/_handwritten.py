"""Parameters written by hand: JSON Schema, or a plain map of property to schema."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from micdrop_agent._strict_json import is_dict, is_list
from micdrop_agent.tools._patterns import pattern_problem
from micdrop_agent.tools._references import with_plain_references

if TYPE_CHECKING:
    from collections.abc import Iterator

    from micdrop_agent.tools._schema import Schema

_COMBINED: Final = ("allOf", "anyOf", "oneOf")
_MAX_DEPTH: Final = 8

_TYPES: Final = frozenset(["string", "integer", "number", "boolean", "null", "array", "object"])


def normalize(tool_name: str, parameters: Mapping[str, Any]) -> Schema:
    """The loose form of what the user wrote, as a copy.

    Two forms are read: an object schema (``{"type": "object", "properties": …}``), and its
    properties alone, each with ``nullable``, ``optional`` and ``default`` if need be.

    Raises:
        TypeError: ``parameters`` is not a map of texts to maps.
        ValueError: A type that JSON Schema does not know, a root that is not an object.
    """
    if not isinstance(parameters, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - users pass anything
        raise TypeError(f"parameters of {tool_name} must be a dict, not {parameters!r}")
    schema = _in_one_form(tool_name, copy.deepcopy(dict(parameters)))
    if any(is_list(schema.get(key)) for key in _COMBINED):
        schema = _flat(schema, _definitions(schema))
    elif not _is_object_schema(schema):
        schema = _from_properties(tool_name, schema)
    schema.pop("$schema", None)
    schema["type"] = "object"
    if "properties" not in schema:
        # A root without properties means "no arguments", unless it says that it is open.
        schema["properties"] = {}
    schema.setdefault("additionalProperties", False)
    for path, problem in _problems(schema, "parameters"):
        raise ValueError(f"{tool_name}: {path}: {problem}")
    try:
        json.dumps(schema, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{tool_name}: parameters are nothing that JSON can hold: {error}") from None
    return schema


def _in_one_form(tool_name: str, schema: Schema) -> Schema:
    """``schema`` without what other drafts and generators say otherwise."""
    if is_dict(schema.get("properties")) or any(is_list(schema.get(key)) for key in _COMBINED):
        try:
            schema = with_plain_references(schema)
        except ValueError as error:
            raise ValueError(f"{tool_name}: {error}") from None
    _mend(schema)
    return schema


def _mend(schema: Any) -> None:
    """Write in the form of today what older drafts said otherwise (``"exclusiveMinimum": true``)."""
    if is_list(schema):
        for each in schema:
            _mend(each)
    if not is_dict(schema):
        return
    for limit, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if isinstance(schema.get(exclusive), bool) and schema.pop(exclusive) and limit in schema:
            schema[exclusive] = schema.pop(limit)
    for each in schema.values():
        _mend(each)


def _definitions(schema: Schema) -> Schema:
    return {**schema.get("definitions", {}), **schema.get("$defs", {})}


def _flat(schema: Schema, defs: Schema, depth: int = 0) -> Schema:
    """One object that takes what any of the combined ones takes.

    Servers refuse ``anyOf``, ``oneOf``, ``allOf``, ``enum`` and ``not`` at the root of a tool's parameters,
    and with that tool every other one of the request. Which of them go together is for ``execute`` to say.
    """
    result = {key: value for key, value in schema.items() if key not in {*_COMBINED, "enum", "not"}}
    forms: dict[str, list[Any]] = {name: [each] for name, each in schema.get("properties", {}).items()}
    required = list(schema.get("required", []))
    for key in _COMBINED:
        branches = [_branch(each, defs, depth) for each in schema.get(key, []) if is_dict(each)]
        branches = [branch for branch in branches if branch.get("type", "object") == "object"]
        for branch in branches:
            for name, each in branch.get("properties", {}).items():
                known = forms.setdefault(name, [])
                known += [] if each in known else [each]
            if branch.get("additionalProperties", False) is not False:
                result.setdefault("additionalProperties", branch["additionalProperties"])
        asked: list[set[str]] = [{*branch.get("required", [])} for branch in branches] or [set()]
        needed = asked[0].union(*asked) if key == "allOf" else asked[0].intersection(*asked)
        required += [name for name in forms if name in needed and name not in required]
    result["properties"] = {name: each[0] if len(each) == 1 else {"anyOf": each} for name, each in forms.items()}
    return {**result, "type": "object", "required": required}


def _branch(schema: Schema, defs: Schema, depth: int) -> Schema:
    """A combined schema without references and combinations of its own."""
    target = schema.get("$ref")
    if isinstance(target, str):
        schema = defs.get(target.rpartition("/")[2], {})
    if depth >= _MAX_DEPTH or not any(is_list(schema.get(key)) for key in _COMBINED):
        return schema
    return _flat(schema, defs, depth + 1)


def _is_object_schema(schema: Schema) -> bool:
    if schema.get("type") == "object":
        return True
    properties = schema.get("properties")
    return is_dict(properties) and all(is_dict(each) for each in properties.values())


def _from_properties(tool_name: str, properties: Schema) -> Schema:
    result: Schema = {}
    required: list[str] = []
    for key, written in properties.items():
        if not is_dict(written):
            raise TypeError(
                f"{tool_name}: parameters must be an object schema, or a map of names to schemas; "
                f"{key!r} is {written!r}"
            )
        each = dict(written)
        optional = each.pop("optional", False)
        if each.pop("nullable", False):
            description = each.pop("description", None)
            default = {"default": each.pop("default")} if "default" in each else {}
            each = {"anyOf": [each, {"type": "null"}], **default}
            if description is not None:
                each["description"] = description
        result[key] = each
        if not optional and "default" not in each:
            required.append(key)
    return {"type": "object", "properties": result, "required": required}


def _problems(schema: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(schema, bool):
        return
    if not is_dict(schema):
        yield path, f"a schema is a dict, not {schema!r}"
        return
    kinds = schema.get("type", [])
    for kind in kinds if is_list(kinds) else [kinds]:
        if kind not in _TYPES:
            yield path, f"unknown type {kind!r}; known: {', '.join(sorted(_TYPES))}"
    if (problem := pattern_problem(schema.get("pattern", ""))) is not None:
        yield path, problem
    required = schema.get("required", [])
    if not is_list(required):
        yield path, f"required is a list of names, not {required!r}"
    for key, each in _children(schema):
        yield from _problems(each, f"{path}.{key}")


def _children(schema: Schema) -> Iterator[tuple[str, Any]]:
    for key in ("properties", "$defs", "definitions"):
        group = schema.get(key, {})
        if not is_dict(group):
            yield key, group
        else:
            yield from group.items()
    for key in ("anyOf", "oneOf", "allOf", "prefixItems"):
        for number, each in enumerate(schema.get(key, [])):
            yield f"{key}[{number}]", each
    for key in ("items", "additionalProperties"):
        if key in schema:
            yield key, schema[key]
