"""Checks of the wire form: what JSON can hold, and where it does not."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, TypeAlias, cast

from micdrop_agent.errors import MicdropError

__all__ = ["WireError", "as_object", "as_plain", "as_text", "join", "kind_of", "once", "rest_of"]

JsonObject: TypeAlias = dict[str, Any]

_KINDS: Final[dict[type[object], str]] = {
    dict: "an object",
    list: "an array",
    str: "a text",
    bool: "a boolean",
    type(None): "null",
}
_SHOWN: Final = 80
"""Characters of a member's name that an error shows."""


class WireError(MicdropError, ValueError):
    """Something that has no place in the wire form.

    Attributes:
        path: Where, for example ``[3].toolCallId``; ``""`` is the document itself.
        problem: What is wrong there.
    """

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path or 'the wire data'} {problem}")
        self.path = path
        self.problem = problem


def join(path: str, name: object) -> str:
    """The path of the member ``name`` of ``path``."""
    text = str(name)[:_SHOWN]
    if not text.isidentifier():
        return f"{path}[{text!r}]"
    return f"{path}.{text}" if path else text


def kind_of(value: object) -> str:
    """What ``value`` is, in the words of JSON where it has them."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"the number {value!r}"
    return _KINDS.get(type(value), f"a {type(value).__name__}")


def as_text(path: str, value: object) -> str:
    """``value`` if it is a text."""
    if not isinstance(value, str):
        raise WireError(path, f"must be a string, not {kind_of(value)}")
    return value


def as_object(path: str, value: object) -> Mapping[str, Any]:
    """``value`` if it is an object."""
    if not isinstance(value, Mapping):
        raise WireError(path, f"must be an object, not {kind_of(value)}")
    return cast("Mapping[str, Any]", value)


def as_plain(path: str, value: object) -> Any:
    """A copy of ``value`` that JSON gives back as it is; refuses what it would change."""
    try:
        return _plain(path, value)
    except RecursionError:
        raise WireError(path, "is nested too deep, or contains itself") from None


def rest_of(path: str, members: Mapping[str, Any], known: frozenset[str], *, keep: bool) -> JsonObject:
    """The members besides the known ones; refused unless they are to be kept."""
    extra = {name: value for name, value in members.items() if name not in known}
    if extra and not keep:
        raise WireError(join(path, next(iter(extra))), "is an unknown member")
    return cast("JsonObject", as_plain(path, extra))


def _plain(path: str, value: object) -> Any:
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise WireError(path, f"must be a number that JSON can hold, not {value!r}")
        return value
    if isinstance(value, Mapping):
        return _plain_object(path, cast("Mapping[object, object]", value))
    if isinstance(value, list):
        return [_plain(f"{path}[{index}]", member) for index, member in enumerate(cast("list[object]", value))]
    raise WireError(path, f"must be JSON (object, list, text, number, true, false, null), not {kind_of(value)}")


def _plain_object(path: str, value: Mapping[object, object]) -> JsonObject:
    plain: JsonObject = {}
    for name, member in value.items():
        if not isinstance(name, str):
            raise WireError(path, f"must have texts as names of its members, not {name!r}")
        plain[name] = _plain(join(path, name), member)
    return plain


def once(pairs: list[tuple[str, Any]]) -> JsonObject:
    """The object of ``pairs``; a member that comes twice would be dropped silently."""
    members = dict(pairs)
    if len(members) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise WireError("", f"holds the member {name[:_SHOWN]!r} twice in one object")
            seen.add(name)
    return members
