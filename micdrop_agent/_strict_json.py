"""What every strict reader of JSON refuses, and what it asks of a decoded value."""

from __future__ import annotations

import math
from typing import Any, NoReturn, TypeGuard

__all__ = ["finite", "is_dict", "is_list", "no_constant", "shorten"]


def is_dict(value: object) -> TypeGuard[dict[str, Any]]:
    """Whether a decoded JSON value is an object."""
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[list[Any]]:
    """Whether a decoded JSON value is an array."""
    return isinstance(value, list)


def finite(digits: str) -> float:
    """``parse_float``: the number, unless it is too large for one.

    Raises:
        ValueError: It is.
    """
    value = float(digits)
    if math.isinf(value):
        raise ValueError(f"the number {shorten(digits)} is too large")
    return value


def no_constant(name: str) -> NoReturn:
    """``parse_constant``: refuse NaN and the infinities, which Python reads and JSON does not have."""
    raise ValueError(f"{name} is not a JSON number")


def shorten(text: str, length: int = 60) -> str:
    """``text``, or its beginning when it is longer than ``length`` characters."""
    return text if len(text) <= length else text[:length] + "…"
