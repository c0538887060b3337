"""Parameters written by hand: JSON Schema, or a plain map of property to schema."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from micdrop_agent.tools._json import is_list, is_object

if TYPE_CHECKING:
    from collections.abc import Iterator

    from micdrop_agent.tools._schema import Schema

_TYPES: Final = frozenset(["string", "integer", "number", "boolean", "null", "array", "object"])


def normalize(tool_name: str, parameters: Mapping[str, Any]) -> Schema:
    """The loose form of what the user wrote, as a copy.

    Two forms are read: an object schema (``{"type": "object", "properties": …}``), and its
    properties alone, each with ``nullable``, ``optional`` and ``default`` if need be.

    Raises:
        TypeError: ``parameters`` is not a map of texts to maps.
        ValueError: A type that JSON Schema does not know, a root that is no object.
    """
    if not isinstance(parameters, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - users pass anything
        raise TypeError(f"parameters of {tool_name} must be a dict, not {parameters!r}")
    schema: Schema = copy.deepcopy(dict(parameters))
    if not _is_object_schema(schema):
        schema = _from_properties(tool_name, schema)
    schema.pop("$schema", None)
    schema["type"] = "object"
    if "properties" not in schema:
        # A root without properties means "no arguments", unless it says that it is open.
        schema["properties"] = {}
    schema.setdefault("additionalProperties", False)
    for path, problem in _problems(schema, "parameters"):
        raise ValueError(f"{tool_name}: {path}: {problem}")
    return schema


def _is_object_schema(schema: Schema) -> bool:
    if schema.get("type") == "object":
        return True
    properties = schema.get("properties")
    return is_object(properties) and all(is_object(each) for each in properties.values())


def _from_properties(tool_name: str, properties: Schema) -> Schema:
    result: Schema = {}
    required: list[str] = []
    for key, written in properties.items():
        if not is_object(written):
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
    if not is_object(schema):
        yield path, f"a schema is a dict, not {schema!r}"
        return
    kinds = schema.get("type", [])
    for kind in kinds if is_list(kinds) else [kinds]:
        if kind not in _TYPES:
            yield path, f"unknown type {kind!r}; known: {', '.join(sorted(_TYPES))}"
    required = schema.get("required", [])
    if not is_list(required):
        yield path, f"required is a list of names, not {required!r}"
    for key, each in _children(schema):
        yield from _problems(each, f"{path}.{key}")


def _children(schema: Schema) -> Iterator[tuple[str, Any]]:
    for key in ("properties", "$defs", "definitions"):
        group = schema.get(key, {})
        if not is_object(group):
            yield key, group
        else:
            yield from group.items()
    for key in ("anyOf", "oneOf", "allOf", "prefixItems"):
        for number, each in enumerate(schema.get(key, [])):
            yield f"{key}[{number}]", each
    for key in ("items", "additionalProperties"):
        if key in schema:
            yield key, schema[key]
