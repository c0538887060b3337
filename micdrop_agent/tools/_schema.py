"""JSON Schema from types, in the loose form: what the tool means, with its defaults.

``_strict`` turns the loose form into what strict servers accept, ``_check`` reads arguments by it.
"""

from __future__ import annotations

import datetime as dt
import enum
import uuid
from collections import abc
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, get_args, get_origin

from micdrop_agent.errors import ToolInputError
from micdrop_agent.tools import _docstring
from micdrop_agent.tools._check import accepts
from micdrop_agent.tools._json import plain
from micdrop_agent.tools._models import is_model, model_schema
from micdrop_agent.tools._references import moved_definitions
from micdrop_agent.tools._types import (
    MISSING,
    enum_texts,
    is_class,
    is_enum,
    literal_values,
    strip,
    union_members,
)

if TYPE_CHECKING:
    from micdrop_agent.tools._types import (
        Field,
        Hints,
    )

Schema = dict[str, Any]

_SCALARS: Final[dict[Any, Schema]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    None: {"type": "null"},
    NoneType: {"type": "null"},
    dt.datetime: {"type": "string", "format": "date-time"},
    dt.date: {"type": "string", "format": "date"},
    dt.time: {"type": "string", "format": "time"},
    uuid.UUID: {"type": "string", "format": "uuid"},
    Any: {},
    object: {},
}
_LISTS: Final = (
    list,
    set,
    frozenset,
    abc.Sequence,
    abc.MutableSequence,
    abc.Set,
    abc.MutableSet,
)
_MAPS: Final = (dict, abc.Mapping, abc.MutableMapping)
_JSON_TYPES: Final = {str: "string", bool: "boolean", int: "integer", NoneType: "null"}


def nullable(schema: Schema) -> Schema:
    """``schema``, and null as well."""
    if not schema or accepts(schema, None):
        return schema
    kind = schema.get("type")
    if isinstance(kind, str) and kind not in {"object", "array"}:
        widened = {**schema, "type": [kind, "null"]}
        if "enum" in schema:
            widened["enum"] = [*schema["enum"], None]
        return widened
    null: Schema = {"type": "null"}
    outside: Schema = {key: schema[key] for key in ("description", "default") if key in schema}
    inside = {key: value for key, value in schema.items() if key not in outside}
    options = inside["anyOf"] if set(inside) == {"anyOf"} else [inside]
    return {"anyOf": [*options, null], **outside}


class SchemaBuilder:
    """Builds schemas for one tool. Classes stand where they are used, recursive ones in ``defs``."""

    def __init__(self, hints: Hints) -> None:
        self._hints = hints
        self._open: list[type] = []
        self._shared: dict[type, str] = {}
        self.defs: dict[str, Schema] = {}

    def build(self, hint: Any, path: str) -> Schema:
        """The schema of ``hint``; ``path`` names the place in errors.

        Raises:
            TypeError: JSON has no sensible form for it.
        """
        hint, description = strip(hint)
        schema = self._build(hint, path)
        return {**schema, "description": description} if description else schema

    def object_of(self, fields: tuple[Field, ...], path: str = "") -> Schema:
        """A closed object with these fields."""
        properties = {field.key: self._property(field, path) for field in fields}
        required = [field.key for field in fields if field.required]
        schema: Schema = {"type": "object", "properties": properties}
        if required:
            schema["required"] = required
        return {**schema, "additionalProperties": False}

    def _property(self, field: Field, path: str) -> Schema:
        schema = dict(self.build(field.hint, f"{path}.{field.key}" if path else field.key))
        if field.description:
            schema["description"] = field.description
        if field.default is not MISSING:
            try:
                default = plain(field.default)
            except ToolInputError:
                return schema
            # A default that the model itself could not send stays a matter of the function.
            if accepts(schema, default, self.defs):
                schema["default"] = default
        return schema

    def _build(self, hint: Any, path: str) -> Schema:
        try:
            if hint in _SCALARS:
                return dict(_SCALARS[hint])
        except TypeError:  # unhashable: a Literal or Annotated of unhashable things
            pass
        members = union_members(hint)
        if members is not None:
            return self._union(members, path)
        values = literal_values(hint)
        if values is not None:
            return _literal(values, path)
        if is_enum(hint):
            return _enum(hint)
        if is_class(hint):
            return self._class(hint, path)
        if is_model(hint):
            return self._model(hint)
        return self._collection(hint, path)

    def _union(self, members: tuple[Any, ...], path: str) -> Schema:
        others = [member for member in members if member is not NoneType]
        if len(others) == 1:
            schema = self.build(others[0], path)
        else:
            schema = {"anyOf": [self.build(member, path) for member in others]}
        return schema if len(others) == len(members) else nullable(schema)

    def _class(self, cls: type, path: str) -> Schema:
        if cls in self._open or cls in self._shared:
            return {"$ref": f"#/$defs/{self._shared.setdefault(cls, self._name(cls))}"}
        self._open.append(cls)
        schema = self.object_of(self._hints.fields(cls), path)
        self._open.pop()
        text = _docstring.summary(cls.__doc__)
        # A dataclass without a docstring gets its signature as one.
        if text and not text.startswith(f"{cls.__name__}("):
            schema["description"] = text
        if cls not in self._shared:
            return schema
        self.defs[self._shared[cls]] = schema
        return {"$ref": f"#/$defs/{self._shared[cls]}"}

    def _model(self, model: type) -> Schema:
        """A pydantic model stands in ``defs`` under its name, with what it refers to."""
        name = self._shared.get(model)
        if name is None:
            name = self._shared[model] = self._name(model)
            schema = moved_definitions(model_schema(model), self.defs)
            self.defs[name] = schema
        return {"$ref": f"#/$defs/{name}"}

    def _name(self, cls: type) -> str:
        taken = list(self._shared.values())
        return cls.__name__ if cls.__name__ not in taken else f"{cls.__name__}{len(taken) + 1}"

    def _collection(self, hint: Any, path: str) -> Schema:
        origin, args = get_origin(hint) or hint, get_args(hint)
        if origin is tuple:
            return self._tuple(args, path)
        if origin in _LISTS:
            return {"type": "array", "items": self.build(args[0], f"{path}[]") if args else {}}
        if origin in _MAPS and (not args or strip(args[0])[0] in (str, Any)):
            value = self.build(args[1], f"{path}.*") if args else {}
            return {"type": "object", "additionalProperties": value or True}
        raise TypeError(
            f"{path}: {_name_of(hint)} cannot come from JSON; use str, int, float, bool, Literal, an "
            "enum, a date, list, tuple, set, dict[str, ...], an attrs class, dataclass, TypedDict or pydantic model"
        )

    def _tuple(self, args: tuple[Any, ...], path: str) -> Schema:
        if not args or args[-1] is Ellipsis:
            return {"type": "array", "items": self.build(args[0], f"{path}[]") if args else {}}
        parts = [self.build(arg, f"{path}[{n}]") for n, arg in enumerate(args)]
        alike = all(part == parts[0] for part in parts)
        return {
            "type": "array",
            "prefixItems": parts,
            "items": parts[0] if alike else {"anyOf": parts},
            "minItems": len(parts),
            "maxItems": len(parts),
        }


def _enum(hint: type[enum.Enum]) -> Schema:
    texts = enum_texts(hint)
    schema = _values(list(texts))
    if not all(isinstance(text, str) for text in texts):
        # By the names the model distinguishes one number from another.
        named = ", ".join(f"{text} = {member.name}" for text, member in texts.items())
        schema["description"] = named
    return schema


def _literal(values: tuple[Any, ...], path: str) -> Schema:
    texts = [value.value if isinstance(value, enum.Enum) else value for value in values]
    if not all(type(text) in _JSON_TYPES for text in texts):
        raise TypeError(f"{path}: a Literal may hold texts, whole numbers, booleans and None only")
    return _values(texts)


def _values(values: list[Any]) -> Schema:
    # A subclass (StrEnum, IntEnum) is written as what it is in JSON.
    kinds = list(dict.fromkeys(_json_type(value) for value in values))
    return {"type": kinds[0] if len(kinds) == 1 else kinds, "enum": values}


def _json_type(value: Any) -> str:
    return next(name for cls, name in _JSON_TYPES.items() if isinstance(value, cls))


def _name_of(hint: Any) -> str:
    return hint.__qualname__ if isinstance(hint, type) else str(hint)
