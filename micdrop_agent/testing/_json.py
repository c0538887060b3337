"""JSON of which nothing is known: the members of an object, the entries of an array."""

from __future__ import annotations

from typing import Any, cast

__all__ = ["entries", "members"]


def members(value: Any) -> dict[str, Any]:
    """The members of a JSON object; of anything else, none."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def entries(value: Any) -> list[Any]:
    """The entries of a JSON array; of anything else, none."""
    found: Any = cast("Any", value) if isinstance(value, list) else None
    return found or []
