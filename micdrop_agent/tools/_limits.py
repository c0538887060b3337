"""The limits that a schema sets for texts, numbers and lists, each in words."""

from __future__ import annotations

import datetime as dt
import json
import math
import re
import sys
import uuid
from typing import TYPE_CHECKING, Any, Final

from micdrop_agent.tools._json import describe
from micdrop_agent.tools._patterns import compiled, pattern_problem

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_LARGEST_FLOAT: Final = sys.float_info.max


def scalar_limits(schema: Mapping[str, Any], value: Any) -> list[str]:
    if isinstance(value, str):
        return _text_limits(schema, value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _number_limits(schema, value)
    return []


def _text_limits(schema: Mapping[str, Any], value: str) -> list[str]:
    problems: list[str] = []
    if len(value) < schema.get("minLength", 0):
        problems.append(f"expected at least {schema['minLength']} characters, got {len(value)}")
    if len(value) > schema.get("maxLength", math.inf):
        problems.append(f"expected at most {schema['maxLength']} characters, got {len(value)}")
    pattern = schema.get("pattern", "")
    # One that cannot be read was refused with its tool, or belongs to a class that checks it itself.
    if pattern and pattern_problem(pattern) is None and compiled(pattern).search(value) is None:
        problems.append(f"expected text that matches {schema['pattern']}, got {describe(value)}")
    wanted, reads = _FORMATS.get(schema.get("format", ""), ("", None))
    if reads is not None:
        try:
            reads(value)
        except ValueError:
            problems.append(f"expected {wanted}, got {describe(value)}")
    return problems


def _number_limits(schema: Mapping[str, Any], value: float) -> list[str]:
    rules: list[tuple[str, str, Callable[[Any], bool]]] = [
        ("minimum", "at least", lambda limit: value < limit),
        ("maximum", "at most", lambda limit: value > limit),
        ("exclusiveMinimum", "more than", lambda limit: value <= limit),
        ("exclusiveMaximum", "less than", lambda limit: value >= limit),
        ("multipleOf", "a multiple of", lambda limit: not _is_multiple(value, limit)),
    ]
    problems = [
        f"expected {words} {schema[key]}, got {describe(value)}"
        for key, words, broken in rules
        if key in schema and broken(schema[key])
    ]
    # JSON has whole numbers of any length; where a float will be made of one, it has to fit.
    if "number" in schema.get("type", ()) and abs(value) > _LARGEST_FLOAT:
        problems.append("the number is too large")
    return problems


def _is_multiple(value: float, step: float) -> bool:
    if isinstance(value, int) and isinstance(step, int):
        return value % step == 0
    if abs(value) > _LARGEST_FLOAT:
        return False
    return math.isclose(value / step, round(value / step), abs_tol=1e-9)


def list_limits(schema: Mapping[str, Any], value: list[Any]) -> list[str]:
    problems: list[str] = []
    if len(value) < schema.get("minItems", 0):
        problems.append(f"expected at least {schema['minItems']} items, got {len(value)}")
    if len(value) > schema.get("maxItems", math.inf):
        problems.append(f"expected at most {schema['maxItems']} items, got {len(value)}")
    if schema.get("uniqueItems") and len({json.dumps(each, sort_keys=True) for each in value}) < len(value):
        problems.append("an item is there twice")
    return problems


def read_datetime(text: str) -> dt.datetime:
    """A date with a time; a bare date is refused, since nobody said midnight."""
    if len(text) <= len("2026-12-01"):
        raise ValueError(text)
    return dt.datetime.fromisoformat(text)


def read_date(text: str) -> dt.date:
    """A date in its long form only: of ``20261201`` nobody knows what was meant."""
    if re.fullmatch(r"\d{4}-\d\d-\d\d", text, re.ASCII) is None:
        raise ValueError(text)
    return dt.date.fromisoformat(text)


_FORMATS: Final[dict[str, tuple[str, Callable[[str], Any]]]] = {
    "date-time": ("a date and time such as 2026-12-01T18:30:00+01:00", read_datetime),
    "date": ("a date such as 2026-12-01", read_date),
    "time": ("a time such as 18:30", dt.time.fromisoformat),
    "uuid": ("a UUID", uuid.UUID),
}
