"""JSON as the providers need it: one encoder, one tolerant reader, typed looks into what came."""

from __future__ import annotations

import json
import re
from typing import Any, Final, cast

from micdrop_agent._strict_json import finite, is_dict, is_list, no_constant

__all__ = [
    "arguments_object",
    "as_dict",
    "as_list",
    "decode",
    "encode",
    "encode_loosely",
    "encode_text",
    "is_dict",
    "is_json",
    "is_list",
    "normal_arguments",
    "normal_name",
    "whole_letters",
]

_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_DECODER: Final = json.JSONDecoder()


_LARGE_BYTES: Final = 128 * 1024

_MOST_VALUES: Final = 100_000
"""Most values of a large event; those of a closing event are strings of a kilobyte."""


def encode(value: object) -> bytes:
    """``value`` as JSON in UTF-8, letters unescaped.

    Raises:
        TypeError: Something in it has no JSON form.
        ValueError: It holds NaN, an infinity, or itself.
    """
    return _to_bytes(_ENCODER.encode(value))


def _to_bytes(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        # A lone surrogate (half an emoji, cut by some other program) has no UTF-8 form; a question
        # mark in a message is better than a call that can never be answered again.
        return text.encode("utf-8", "replace")


def encode_loosely(value: object) -> str:
    """``value`` as JSON text; text that is not JSON where it has no JSON form (NaN, far too deep)."""
    try:
        return encode(value).decode()
    except (TypeError, ValueError, RecursionError):
        return "(a value that has no JSON form)"


def encode_text(text: str) -> bytes:
    """``text`` as a JSON string."""
    return _to_bytes(_ENCODER.encode(text))


def decode(data: bytes) -> object:
    """The value of one event.

    Raises:
        ValueError: It is not JSON, or too deep.
    """
    if len(data) > _LARGE_BYTES and sum(map(data.count, b"{[,")) > _MOST_VALUES:
        # A parser does not stop half-way: dense JSON of a megabyte would take 50 ms, and 50 MB.
        raise ValueError("far too many values")
    text = data.decode("utf-8", "replace").strip()
    try:
        # raw_decode is a third faster than loads, which looks for white space with two patterns.
        value, end = _DECODER.raw_decode(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if end != len(text):
        raise ValueError("more than one JSON value")
    return cast("object", value)


def is_json(data: bytes) -> bool:
    """Whether ``data`` is one complete JSON object or array."""
    if not data.rstrip().endswith((b"}", b"]")):
        return False
    try:
        decode(data)
    except ValueError:
        return False
    return True


def whole_letters(text: str) -> str:
    """``text`` with the halves of letters joined; a half that is alone becomes U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def as_dict(value: object) -> dict[str, Any]:
    """``value`` if it is a JSON object, else an empty one."""
    return value if is_dict(value) else {}


def as_list(value: object) -> list[Any]:
    """``value`` if it is a JSON array, else an empty one."""
    return value if is_list(value) else []


def arguments_object(text: str) -> dict[str, Any] | None:
    """The object that a call's arguments are, or ``None`` if they are none.

    What Python reads and JSON has not (``NaN``, numbers beyond all bounds, halves of letters) is refused by the
    servers that get it back.
    """
    try:
        value: object = json.loads(text, parse_constant=no_constant, parse_float=finite)
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None
    return value if is_dict(value) else None


_QUALIFIED: Final = re.compile(r"(?:functions|default_api)[.:]([\w-]+)(?::\d+)?", re.ASCII)


def normal_name(name: str) -> str:
    """The name of a tool that a call means: no tool's own name has a dot, a colon or a bracket in it.

    Models of the gpt-oss family leak the mark of a channel into it (``get_time<|channel|>commentary``);
    others write the namespace of their prompt (``functions.get_time``, Gemini's ``default_api``).
    """
    bare = name.partition("<|")[0].strip() or name
    qualified = _QUALIFIED.fullmatch(bare)
    return bare if qualified is None else qualified[1]


def normal_arguments(text: str) -> str:
    """A call's arguments as they are stored: blank and ``null`` are ``{}``.

    Arguments that were encoded twice (the JSON text of an object, as a JSON string) are
    unwrapped. What cannot be read stays as the model wrote it, so that its result can say so.
    """
    text = text.lstrip("\ufeff")
    bare = text.strip()
    if bare in {"", "null"}:
        return "{}"
    if bare.startswith('"'):
        try:
            inner = json.loads(bare)
        except (ValueError, RecursionError):
            return text
        if isinstance(inner, str):
            if not inner.strip():
                return "{}"
            if arguments_object(inner) is not None:
                return inner
    return text
