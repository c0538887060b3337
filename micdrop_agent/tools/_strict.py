"""The strict form of a schema: what servers with strict mode accept, with the meaning kept.

In strict form every object is closed and lists all its keys as required, what may be left out may
be null instead, and nothing stands there but a small set of keywords. The other constraints are
said in the description: the arguments are checked by the loose form anyway. A schema that has no
such form (a free-form map, ``allOf``) is used as it is, with strict mode off for that tool.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from micdrop_agent._strict_json import is_dict, is_list, shorten
from micdrop_agent.tools._check import accepts, is_free_form
from micdrop_agent.tools._schema import nullable

if TYPE_CHECKING:
    from micdrop_agent.tools._schema import Schema

_SAID_IN_WORDS: Final = {
    "minimum": "At least {}.",
    "maximum": "At most {}.",
    "exclusiveMinimum": "More than {}.",
    "exclusiveMaximum": "Less than {}.",
    "multipleOf": "A multiple of {}.",
    "minLength": "At least {} characters.",
    "maxLength": "At most {} characters.",
    "pattern": "Matches the pattern {}.",
    "minItems": "At least {} items.",
    "maxItems": "At most {} items.",
}
_FORMATS: Final = {
    "date-time": "Date and time in ISO 8601, such as 2026-12-01T18:30:00+01:00.",
    "date": "Date, such as 2026-12-01.",
    "time": "Time of day, such as 18:30.",
    "uuid": "A UUID.",
}
_WITHOUT_MEANING: Final = frozenset(
    [
        "$schema",
        "$id",
        "$comment",
        "title",
        "description",
        "default",
        "examples",
        "deprecated",
        "readOnly",
        "writeOnly",
        "format",
        "uniqueItems",
        "prefixItems",
        "nullable",
    ]
)
_KEPT: Final = frozenset(
    [
        "type",
        "properties",
        "required",
        "additionalProperties",
        "items",
        "enum",
        "const",
        "anyOf",
        "oneOf",
        "$ref",
    ]
)


_MAX_LEVELS: Final = 10
_MAX_PROPERTIES: Final = 5000
_MAX_VALUES: Final = 1000


class _NotStrictError(Exception):
    pass


def strict_form(schema: Schema) -> Schema | None:
    """``schema`` for strict mode, or None when that would change what it means."""
    defs = schema.get("$defs", {})
    root = {key: value for key, value in schema.items() if key not in {"description", "$defs"}}
    try:
        result = _strict(root, defs)
        if defs:
            result["$defs"] = {name: _strict(each, defs) for name, each in defs.items()}
    except _NotStrictError:
        return None
    return None if _too_large(result) else result


def open_form(schema: Schema) -> Schema:
    """``schema`` for a tool whose strict mode is off: lists say what is in them, which servers insist on."""
    result = dict(schema)
    if _mentions(result, "array"):
        result.setdefault("items", {})
    for key in ("properties", "$defs", "definitions"):
        if is_dict(result.get(key)):
            result[key] = {name: _opened(each) for name, each in result[key].items()}
    for key in ("anyOf", "oneOf", "allOf"):
        if is_list(result.get(key)):
            result[key] = [_opened(each) for each in result[key]]
    for key in ("items", "additionalProperties"):
        if key in result:
            result[key] = _opened(result[key])
    return result


def _opened(schema: Any) -> Any:
    return open_form(schema) if is_dict(schema) else schema


def _too_large(schema: Schema) -> bool:
    """Whether strict mode refuses it for its size (the documented limits)."""
    left = [(schema, 1), *((each, 1) for each in schema.get("$defs", {}).values())]
    properties = values = 0
    while left:
        node, depth = left.pop()
        inner = node.get("properties", {})
        if inner and depth > _MAX_LEVELS:
            return True
        properties += len(inner)
        values += len(node.get("enum", ()))
        left += [(each, depth + 1) for each in inner.values()]
        left += [(each, depth) for each in node.get("anyOf", ())]
        if is_dict(node.get("items")):
            left.append((node["items"], depth + 1))
    return properties > _MAX_PROPERTIES or values > _MAX_VALUES


def _strict(schema: Any, defs: dict[str, Any]) -> Schema:
    if not is_dict(schema) or is_free_form(schema):
        raise _NotStrictError
    unknown = set(schema) - _KEPT - _WITHOUT_MEANING - set(_SAID_IN_WORDS)
    if unknown:
        raise _NotStrictError
    result = _structure(schema, defs)
    text = _description(schema)
    if not text:
        return result
    if "$ref" in result:
        # Nothing may stand next to a reference.
        result = {"anyOf": [result]}
    return {**result, "description": text}


def _structure(schema: Schema, defs: dict[str, Any]) -> Schema:
    if "$ref" in schema:
        return _reference(schema["$ref"], defs)
    options = schema.get("anyOf", schema.get("oneOf"))
    if options is not None:
        if {"properties", "items", "enum", "const"} & set(schema):
            raise _NotStrictError
        return {"anyOf": [_strict(option, defs) for option in options]}
    # Without a type, what else is said tells which one is meant.
    result: Schema = {key: schema[key] for key in ("type", "enum") if key in schema}
    if "const" in schema:
        result["enum"] = [schema["const"]]
    if _mentions(schema, "object"):
        result |= _object(schema, defs)
    if _mentions(schema, "array"):
        result |= {"type": schema.get("type", "array"), "items": _strict(schema.get("items"), defs)}
    if not result:
        raise _NotStrictError
    return result


def _reference(target: str, defs: dict[str, Any]) -> Schema:
    if not target.startswith("#/$defs/") or target.rpartition("/")[2] not in defs:
        raise _NotStrictError
    return {"$ref": target}


def _mentions(schema: Schema, kind: str) -> bool:
    declared = schema.get("type", "object" if "properties" in schema else "array" if "items" in schema else "")
    return kind in declared if is_list(declared) else declared == kind


def _object(schema: Schema, defs: dict[str, Any]) -> Schema:
    properties: dict[str, Any] = schema.get("properties", {})
    required = schema.get("required", [])
    if not set(required) <= set(properties):
        raise _NotStrictError
    return {
        "type": schema.get("type", "object"),
        "properties": {
            key: _property(each, defs, may_be_left_out=key not in required) for key, each in properties.items()
        },
        "required": list(properties),
        "additionalProperties": False,
    }


def _property(schema: Any, defs: dict[str, Any], *, may_be_left_out: bool) -> Schema:
    result = _strict(schema, defs)
    if not may_be_left_out or accepts(schema, None, defs):
        return result
    return nullable(result)


def _description(schema: Schema) -> str:
    sentences: list[str] = []
    text = str(schema.get("description", "")).strip()
    if text:
        sentences.append(text if text[-1] in ".!?:;)" else f"{text}.")
    sentences += [
        words.format(json.dumps(schema[key], ensure_ascii=False))
        for key, words in _SAID_IN_WORDS.items()
        if key in schema
    ]
    if schema.get("format"):
        sentences.append(_FORMATS.get(schema["format"], f"Format: {schema['format']}."))
    if schema.get("uniqueItems"):
        sentences.append("No item twice.")
    if schema.get("default") is not None:
        default = shorten(json.dumps(schema["default"], ensure_ascii=False), 200)
        sentences.append(f"Default: {default}.")
    # One sentence needs no full stop, as its author wrote it.
    return text if sentences[1:] == [] and text else " ".join(sentences)
