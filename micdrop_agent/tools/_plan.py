"""How one tool reads its arguments and calls its function, worked out when it is defined."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import attrs

from micdrop_agent.tools._callables import innermost
from micdrop_agent.tools._handwritten import normalize
from micdrop_agent.tools._models import is_model, model_schema
from micdrop_agent.tools._schema import SchemaBuilder
from micdrop_agent.tools._signature import read_function, takes_value, with_deps
from micdrop_agent.tools._structure import Structurer
from micdrop_agent.tools._types import Hints, is_class

if TYPE_CHECKING:
    from collections.abc import Mapping

    from micdrop_agent.tools._context import ContextKind
    from micdrop_agent.tools._schema import Schema
    from micdrop_agent.tools._signature import Signature

Call = Callable[[Any, "Mapping[ContextKind, Any]"], Any]
"""Calls the tool's function: the value made of the arguments, and what is not of the model."""


@attrs.frozen
class Plan:
    """The loose schema; arguments to value (or problems); value and agent to the call."""

    schema: Schema
    value_of: Callable[[Mapping[str, Any], Mapping[str, Any]], tuple[Any, list[str]]]
    """(as given, defaults filled in) -> the value for ``call``, and what is wrong."""
    call: Call
    prepare: Callable[[], None] = lambda: None
    """Does what the first ``value_of`` would do first, such as importing cattrs."""
    for_deps: Callable[[type], Plan | None] = lambda _kind: None
    """The plan where an argument of that type is no argument, but the ``deps`` of the agent; ``None`` if there is none."""


def plan_function(function: Callable[..., Any]) -> Plan:
    """Every parameter of ``function`` is an argument.

    Raises:
        TypeError: Its signature cannot be one of a tool.
    """
    hints = Hints.of(innermost(function))
    signature = read_function(function, hints)
    builder = SchemaBuilder(hints)
    schema = _with_defs(builder.object_of(signature.fields), builder)
    structurer = Structurer(hints, builder)
    hints.forget_names()
    return _planned(function, signature, schema, structurer)


def _planned(function: Callable[..., Any], signature: Signature, schema: Schema, structurer: Structurer) -> Plan:
    wanted = signature.wanted

    def value_of(given: Mapping[str, Any], _: Mapping[str, Any]) -> tuple[Any, list[str]]:
        # What was left out stays out: the function's own defaults apply, where they are its own.
        keywords, problems = structurer.structure_fields(signature.fields, given)
        return {
            **{name: make() for name, make in signature.defaults.items() if name not in given},
            **keywords,
        }, problems

    def call(keywords: Any, given: Mapping[ContextKind, Any]) -> Any:
        if wanted is not None and not _is_one(given["deps"], wanted):
            deps = type(given["deps"]).__name__
            raise TypeError(f"{signature.contexts['deps']} is a {wanted.__name__}, but the agent's deps are a {deps}")
        return function(**keywords, **{name: given[kind] for kind, name in signature.contexts.items()})

    def for_deps(kind: type) -> Plan | None:
        other = with_deps(signature, kind)
        return (
            None if other is None else _planned(function, other, _without(schema, other.contexts["deps"]), structurer)
        )

    return Plan(schema, value_of, call, structurer.prepare, for_deps)


def _is_one(value: object, wanted: type) -> bool:
    return getattr(wanted, "_is_protocol", False) or isinstance(value, wanted)


def _without(schema: Schema, name: str) -> Schema:
    """``schema`` without the property ``name``, and without the definitions that only that one needs."""
    rest = {**schema, "properties": {key: value for key, value in schema["properties"].items() if key != name}}
    if "required" in rest:
        rest["required"] = [key for key in rest["required"] if key != name]
    defs: dict[str, Any] = dict(rest.pop("$defs", {}))
    while unused := [
        key for key in defs if f"#/$defs/{key}'" not in repr([rest, {k: v for k, v in defs.items() if k != key}])
    ]:
        for key in unused:
            del defs[key]
    return {**rest, "$defs": defs} if defs else rest


def plan_class(cls: type, function: Callable[..., Any] | None) -> Plan:
    """The fields of ``cls`` are the arguments; ``function`` gets one instance.

    Raises:
        TypeError: ``cls`` is not an attrs class, dataclass or TypedDict, or a field cannot be read.
    """
    if is_model(cls):
        return _plan_model(cls, function)
    if not is_class(cls):
        raise TypeError(f"input must be an attrs class, a dataclass, a TypedDict or a pydantic model, not {cls!r}")
    hints = Hints.of(cls)
    builder = SchemaBuilder(hints)
    schema = builder.build(cls, cls.__name__)
    if "$ref" in schema:  # a recursive class: its root has to be an object all the same
        schema = dict(builder.defs[schema["$ref"].rpartition("/")[2]])
    schema.pop("description", None)
    structurer = Structurer(hints, builder)
    hints.forget_names()

    def value_of(given: Mapping[str, Any], _: Mapping[str, Any]) -> tuple[Any, list[str]]:
        return structurer.structure(cls, given)

    return Plan(_with_defs(schema, builder), value_of, _value_call(function), structurer.prepare)


def _plan_model(model: type, function: Callable[..., Any] | None) -> Plan:
    """The model writes its schema and reads its values itself."""
    hints = Hints.of(model)
    schema = normalize(model.__name__, model_schema(model))
    schema.pop("description", None)
    structurer = Structurer(hints, SchemaBuilder(hints))

    def value_of(given: Mapping[str, Any], _: Mapping[str, Any]) -> tuple[Any, list[str]]:
        return structurer.structure(model, given)

    return Plan(schema, value_of, _value_call(function), structurer.prepare)


def plan_schema(name: str, parameters: Mapping[str, Any], function: Callable[..., Any] | None) -> Plan:
    """``parameters`` are JSON Schema; ``function`` gets one dict with the defaults filled in.

    Raises:
        TypeError: ``parameters`` is not a map.
        ValueError: They are not the schema of an object.
    """

    def value_of(_: Mapping[str, Any], filled: Mapping[str, Any]) -> tuple[Any, list[str]]:
        # A copy: what the tool does to its input must not change what was stored of the call.
        return copy.deepcopy(filled), []

    return Plan(normalize(name, parameters), value_of, _value_call(function))


def _with_defs(schema: Schema, builder: SchemaBuilder) -> Schema:
    return {**schema, "$defs": builder.defs} if builder.defs else schema


def _value_call(function: Callable[..., Any] | None) -> Call:
    if function is None:
        return lambda _value, _given: None
    contexts, keyword, takes_it = takes_value(function, Hints.of(innermost(function)))

    def call(value: Any, given: Mapping[ContextKind, Any]) -> Any:
        keywords = {name: given[kind] for kind, name in contexts.items()}
        if not takes_it:
            return function(**keywords)
        if keyword is not None:
            return function(**{keyword: value}, **keywords)
        return function(value, **keywords)

    return call
