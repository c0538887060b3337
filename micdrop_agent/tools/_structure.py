"""Checked arguments into Python values, with cattrs.

``_check`` has already refused every wrong kind, so what still fails here is code of the user's own:
a validator, a converter, a ``__post_init__``. Their complaints are collected with their paths.
"""

from __future__ import annotations

import datetime as dt
import enum
import functools
import operator
import uuid
from collections.abc import Callable
from types import NoneType
from typing import TYPE_CHECKING, Any

from micdrop_agent.errors import ToolError
from micdrop_agent.tools._check import accepts
from micdrop_agent.tools._limits import read_date, read_datetime
from micdrop_agent.tools._models import is_model, model_problems
from micdrop_agent.tools._types import (
    enum_texts,
    is_class,
    is_enum,
    literal_values,
    strip,
    union_members,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import cattrs

    from micdrop_agent.tools._schema import SchemaBuilder
    from micdrop_agent.tools._types import (
        Field,
        Hints,
    )

Hook = Callable[[Any, Any], Any]


class _FieldErrors(Exception):  # noqa: N818 - a collection of errors, never seen outside
    def __init__(self, errors: list[tuple[str, Exception]]) -> None:
        super().__init__(errors)
        self.errors = errors


class Structurer:
    """Builds the values of one tool. cattrs is imported when the first call is bound."""

    def __init__(self, hints: Hints, builder: SchemaBuilder) -> None:
        self._hints = hints
        self._builder = builder

    @functools.cached_property
    def _converter(self) -> cattrs.Converter:
        import cattrs

        converter = cattrs.Converter(detailed_validation=True)
        for scalar, hook in _SCALARS.items():
            # By identity: an IntEnum is a class below int, and not an int.
            converter.register_structure_hook_func(functools.partial(operator.is_, scalar), hook)
        # The last one that matches wins.
        converter.register_structure_hook_func(lambda hint: hint is object, _as_it_is)
        converter.register_structure_hook_factory(is_enum, _enum_hook)
        converter.register_structure_hook_factory(lambda hint: literal_values(hint) is not None, _literal_hook)
        converter.register_structure_hook_factory(lambda hint: union_members(hint) is not None, self._union_hook)
        converter.register_structure_hook_factory(is_class, self._class_hook)
        converter.register_structure_hook_func(is_model, _model_hook)
        return converter

    def prepare(self) -> None:
        """Import cattrs and set it up now."""
        self._one("", str)

    def structure(self, hint: Any, value: Any) -> tuple[Any, list[str]]:
        """``value`` as ``hint`` says, or what is wrong with it."""
        try:
            return self._one(value, hint), []
        except Exception as error:  # noqa: BLE001 - validators and __post_init__ are foreign code
            return None, list(_problems(error, ""))

    def structure_fields(self, fields: tuple[Field, ...], given: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
        """The given ones of ``fields`` as keyword arguments, or what is wrong with them."""
        try:
            return self._keywords(fields, given), []
        except _FieldErrors as error:
            return {}, list(_problems(error, ""))

    def _one(self, value: Any, hint: Any) -> Any:
        return self._converter.structure(value, strip(hint)[0])

    def _keywords(self, fields: tuple[Field, ...], given: Mapping[str, Any]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        errors: list[tuple[str, Exception]] = []
        for field in fields:
            if field.key in given:
                try:
                    values[field.key] = self._one(given[field.key], field.hint)
                except Exception as error:  # noqa: BLE001 - as above; all of them are reported
                    errors.append((field.key, error))
        if errors:
            raise _FieldErrors(errors)
        return values

    def _class_hook(self, cls: type) -> Hook:
        fields = self._hints.fields(cls)
        return lambda value, _: cls(**self._keywords(fields, value))

    def _union_hook(self, union: Any) -> Hook:
        members = union_members(union) or ()
        schemas = [(member, self._builder.build(member, "")) for member in members]
        as_they_are: set[Any] = {int, bool, NoneType} & set(members)
        if set(members) <= {str, int, float, bool, NoneType}:
            as_they_are.add(str)  # else it could be the text of a date or of an enum

        def structure(value: Any, _: Any) -> Any:
            # Quick, and right: 2 is an int for `float | int` too, though a float would take it.
            if type(value) in as_they_are:
                return value
            for member, schema in schemas:
                if accepts(schema, value, self._builder.defs):
                    return self._one(value, member)
            raise ValueError("fits none of the allowed forms")

        return structure


def _model_hook(value: Any, model: Any) -> Any:
    return model.model_validate(value)


def _as_it_is(value: Any, _: Any) -> Any:
    return value


_SCALARS: dict[Any, Hook] = {
    str: _as_it_is,
    int: _as_it_is,
    bool: _as_it_is,
    NoneType: _as_it_is,
    float: lambda value, _: float(value),
    dt.datetime: lambda value, _: read_datetime(value),
    dt.date: lambda value, _: read_date(value),
    dt.time: lambda value, _: dt.time.fromisoformat(value),
    uuid.UUID: lambda value, _: uuid.UUID(value),
}


def _enum_hook(hint: type[enum.Enum]) -> Hook:
    members = enum_texts(hint)
    return lambda value, _: members[value]


def _literal_hook(hint: Any) -> Hook:
    # By kind and value: Literal[1, True] has two different members.
    members = {_kind_and_value(each): each for each in literal_values(hint) or ()}
    return lambda value, _: members[type(value), value]


def _kind_and_value(member: Any) -> tuple[type, Any]:
    if isinstance(member, enum.Enum):
        member = member.value
    return member.__class__, member


def _problems(error: Exception, path: str) -> Iterator[str]:
    import cattrs

    if isinstance(error, _FieldErrors):
        for key, inner in error.errors:
            yield from _problems(inner, f"{path}.{key}" if path else key)
    elif isinstance(error, cattrs.IterableValidationError):
        for inner, note in error.group_exceptions()[0]:
            index = note.index if isinstance(note.index, str) else f"[{note.index}]"
            yield from _problems(inner, f"{path}.{index}" if isinstance(note.index, str) else path + index)
    elif found := model_problems(error):
        for place, text in found:
            yield f"{'.'.join(filter(None, (path, place)))}: {text}" if path or place else text
    elif not isinstance(error, ValueError | TypeError | ToolError):
        yield f"{path}: not accepted" if path else "not accepted"  # a program's own error: its words stay at home
    else:
        # attrs validators put the attribute, the class and the value after their text.
        text = error.args[0] if error.args and isinstance(error.args[0], str) else str(error)
        text = text or type(error).__name__
        yield f"{path}: {text}" if path else text
