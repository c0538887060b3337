"""What a tool returned, as the JSON text that the model reads. No I/O.

A tool that returned has run: whatever the form of its output, its call is not reported as failed,
since the model would call it again (docs/design.md D19). Values with an obvious text form get it; what has
none is named in its place.
"""

from __future__ import annotations

import json
import math
from typing import Any, Final

import attrs

from micdrop_agent.tools._json import dump_output, is_collection, is_mapping, json_form

__all__ = ["Shown", "show_output"]

_MAX_DEPTH: Final = 40
_NOT_SHOWN: Final = "the tool ran; its output ({}) cannot be shown"
_READABLE_BITS: Final = 4_000
"""Longer whole numbers than this cannot be turned into text."""


@attrs.frozen
class Shown:
    """The output as text, and the parts that are not in it."""

    text: str
    hidden: tuple[str, ...] = ()
    """What has no text form: the place and the type of each, never the value."""


def show_output(value: object) -> Shown:
    """The JSON text of ``value``; never raises for what it is.

    Pydantic models, attrs and dataclass instances, msgspec structs and rows of a database become
    objects; dates, UUIDs, decimals, fractions, paths and addresses their text; bytes the text
    that they encode; arrays lists; enums their value.
    """
    try:
        return Shown(dump_output(value))
    except Exception:  # noqa: BLE001 - foreign code: properties, model_dump, __str__ of what a tool returned
        reader = _Reader()
        shown = reader.read(value, "", 0)
        if reader.hidden and reader.hidden[0].startswith(" "):
            return Shown(json.dumps({"result": _NOT_SHOWN.format(type(value).__name__)}), tuple(reader.hidden))
        text = json.dumps(shown, ensure_ascii=False, separators=(",", ":"))
        return Shown(text if _encodes(text) else json.dumps(shown, separators=(",", ":")), tuple(reader.hidden))


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class _Reader:
    """Goes through a value part by part, so that one odd part does not hide the others."""

    def __init__(self) -> None:
        self.hidden: list[str] = []
        self._above: list[int] = []

    def read(self, value: Any, path: str, depth: int) -> Any:
        """``value`` as plain JSON data."""
        if value is None or isinstance(value, bool | str):
            return str(value) if isinstance(value, str) else value
        if isinstance(value, int):
            return int(value) if value.bit_length() < _READABLE_BITS else self._hide(value, path)
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else _name_of_number(value)
        if depth >= _MAX_DEPTH or id(value) in self._above:
            return self._hide(value, path)
        self._above.append(id(value))
        try:
            return self._inside(value, path, depth)
        except Exception:  # noqa: BLE001 - foreign code, as above
            return self._hide(value, path)
        finally:
            self._above.pop()

    def _inside(self, value: Any, path: str, depth: int) -> Any:
        if is_mapping(value):
            return {
                name: self.read(each, f"{path}.{name}" if path else name, depth + 1)
                for key, each in value.items()
                for name in [self._key(key)]
            }
        if is_collection(value) and type(value) in (list, tuple):
            return [self.read(each, f"{path}[{number}]", depth + 1) for number, each in enumerate(value)]
        return self.read(json_form(value), path, depth + 1)

    def _key(self, key: Any) -> str:
        if isinstance(key, str):
            return str(key)
        form = self.read(key, "a key", _MAX_DEPTH - 2)
        return form if isinstance(form, str) else json.dumps(form, ensure_ascii=False)

    def _hide(self, value: object, path: str) -> str:
        self.hidden.append(f"{path or ' '}: {type(value).__name__}")
        return f"({type(value).__name__}, not shown)"


def _name_of_number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"
