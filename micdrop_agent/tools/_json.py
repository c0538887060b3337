"""The JSON text of arguments in, the JSON text of an output out."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import fractions
import json
import os
import uuid
from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Final, TypeGuard, cast

import attrs

from micdrop_agent._strict_json import finite, is_dict, is_list, no_constant, shorten
from micdrop_agent.errors import ToolInputError

MAX_ARGUMENTS_CHARS: Final = 250_000
"""Longest text of arguments that is read, in characters. Reading stands on the event loop, where a
pause is heard in every call of the process; the arguments of a spoken turn have some hundreds."""

_MAX_DIGITS: Final = 400
_READABLE_BITS: Final = 128  # 39 digits


def is_mapping(value: object) -> TypeGuard[Mapping[Any, Any]]:
    """Whether a value of a tool's own is a map of some kind."""
    return isinstance(value, Mapping)


def is_collection(value: object) -> TypeGuard[Collection[Any]]:
    """Whether a value of a tool's own has members that can be counted."""
    return isinstance(value, Collection)


def _is_path(value: object) -> TypeGuard[os.PathLike[Any]]:
    return isinstance(value, os.PathLike)


def decode_arguments(tool_name: str, arguments: str | Mapping[str, Any] | None) -> dict[str, Any]:
    """The arguments as a new dict; nothing, blank text and ``null`` mean no arguments.

    Some servers encode the object twice (a JSON string that holds the object's text) and some
    hand over the object itself; both are read for what they mean.

    Raises:
        ToolInputError: The text is not JSON, not an object, or too long.
    """
    if isinstance(arguments, Mapping):
        arguments = _as_text(tool_name, arguments)
    value = _parse(tool_name, arguments or "")
    if isinstance(value, str):
        value = _parse(tool_name, value)
    if value is None:
        return {}
    if not is_dict(value):
        raise ToolInputError(f"The arguments of {tool_name} have to be one JSON object, got {describe(value)}.")
    return value


def _as_text(tool_name: str, arguments: Mapping[str, Any]) -> str:
    try:
        return json.dumps(dict(arguments), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ToolInputError(f"The arguments of {tool_name} are not JSON: {error}.") from error


def _parse(tool_name: str, text: str) -> Any:
    if len(text) > MAX_ARGUMENTS_CHARS:
        raise ToolInputError(
            f"The arguments of {tool_name} are {len(text)} characters long; "
            f"at most {MAX_ARGUMENTS_CHARS} are read. Send less."
        )
    text = text.strip().strip("\ufeff")
    if not text:
        return None
    try:
        return json.loads(
            text,
            object_pairs_hook=_unique,
            parse_float=finite,
            parse_int=_readable_int,
            parse_constant=no_constant,
        )
    except json.JSONDecodeError as error:
        near = text[max(0, error.pos - 15) : error.pos + 15]
        problem = (
            f"{error.msg} at line {error.lineno}, column {error.colno} "
            f"(character {error.pos}), near {json.dumps(near, ensure_ascii=False)}"
        )
    except RecursionError:
        problem = "nested too deeply"
    except ValueError as error:
        problem = str(error)
    raise ToolInputError(f"The arguments of {tool_name} are not valid JSON: {problem}. Send one JSON object.")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        # Said twice with one meaning is harmless; with two, choosing one would be a guess.
        for key, value in pairs:
            kept = result[key]
            if kept is not value and (type(kept) is not type(value) or kept != value):
                raise ValueError(f"the key {quote(key)} is given twice with different values")
    return result


def _readable_int(text: str) -> int:
    # Python's own limit is 4300 digits, and its error speaks of its own settings.
    if len(text) > _MAX_DIGITS:
        raise ValueError(f"the number {shorten(text)} has too many digits")
    return int(text)


def dump_output(value: object) -> str:
    """The JSON text of what a tool returned; ``None`` is ``null``.

    What ``json_form`` knows is turned into it first.

    Raises:
        ToolInputError: ``value`` has no JSON form (also NaN, and values that contain themselves).
    """
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=json_form)
    except (TypeError, ValueError, RecursionError) as error:
        raise ToolInputError(f"output is not JSON: {error}") from error
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            # Half a surrogate pair cannot be sent as UTF-8; as an escape it can.
            text = json.dumps(json.loads(text), separators=(",", ":"))
    return text


def plain(value: object) -> Any:
    """``value`` as it looks after a trip through JSON.

    Raises:
        ToolInputError: It has no JSON form.
    """
    return json.loads(dump_output(value))


def json_form(value: object) -> Any:
    """One step of ``value`` towards JSON: an object, a list, text or a number.

    attrs and dataclass instances become objects, enums their value, dates ISO 8601 text, a
    ``timedelta`` seconds, sets sorted lists where their members can be sorted. Pydantic models,
    msgspec structs, rows of a database and arrays are known by what they offer, never imported.

    Raises:
        TypeError: There is no obvious form.
    """
    if isinstance(value, enum.Enum):
        return value.value
    form = _scalar_form(value)
    if form is not None:
        return form
    if isinstance(value, type | BaseException):
        raise TypeError(f"{type(value).__name__} has no JSON form")
    return _object_form(value)


def _scalar_form(value: object) -> Any:
    if isinstance(value, dt.date | dt.time):  # datetime is a date too
        return value.isoformat()
    if isinstance(value, dt.timedelta):
        return value.total_seconds()
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(cast("bytes", value)).decode()
    if _is_path(value):
        path: str | bytes = os.fspath(value)
        return path if isinstance(path, str) else path.decode()
    if isinstance(value, uuid.UUID | decimal.Decimal | fractions.Fraction) or _is_address(value):
        return str(value)
    return None


def _is_address(value: object) -> bool:
    return type(value).__module__ == "ipaddress"  # imported by who made it, not by us


def _object_form(value: Any) -> Any:
    cls: Any = type(cast("object", value))
    if callable(getattr(cls, "model_dump", None)):
        return value.model_dump(mode="json")
    if attrs.has(cls):
        fields = attrs.fields(cls)
        return {field.alias: getattr(value, field.name) for field in fields}
    if dataclasses.is_dataclass(cls):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    if isinstance(names := getattr(cls, "__struct_fields__", None), tuple):  # msgspec
        return {name: getattr(value, name) for name in cast("tuple[str, ...]", names)}
    if is_mapping(row := getattr(value, "_mapping", None)):  # SQLAlchemy
        return dict(row)
    if callable(getattr(cls, "tolist", None)):  # arrays, and their numbers
        return value.tolist()
    return _collection_form(value)


def _collection_form(value: Any) -> Any:
    cls: Any = type(cast("object", value))
    if is_mapping(value):
        return dict(value)
    if callable(getattr(cls, "keys", None)):  # sqlite3.Row, asyncpg.Record
        return {key: value[key] for key in value.keys()}  # noqa: SIM118 - its iteration gives the values
    if isinstance(value, AbstractSet):
        members: list[Any] = [*value]
        try:
            return sorted(members)
        except TypeError:
            return members
    if is_collection(value):
        return [*value]
    raise TypeError(f"a {type(value).__name__} has no JSON form")


def quote(text: str) -> str:
    """``text`` in quotes, shortened."""
    return json.dumps(shorten(text), ensure_ascii=False)


def describe(value: object) -> str:
    """A decoded JSON value in a few plain words: ``the text "10"``, ``a list``."""
    if isinstance(value, str):
        return f"the text {quote(value)}"
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, int):
        # Thousands of digits cannot even be turned into text.
        return f"the number {value}" if value.bit_length() < _READABLE_BITS else "a very large number"
    if isinstance(value, float):
        return f"the number {value!r}"
    return "a list" if is_list(value) else "an object"
