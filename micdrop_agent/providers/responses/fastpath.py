"""Reads the text of a chunk that differs from an earlier one in nothing but its text; no I/O.

    {"id":"c1",…,"delta":{"content":"Good"},"finish_reason":null}]}
    └────────────── prefix ────────┘└text┘└──────── suffix ───────┘

Four of five chunks of a Chat Completions stream are such twins. A match is exact, never a guess: if
the bytes before and after are those of the model chunk, and the bytes between hold neither a quote nor
a backslash, then a JSON parser would find the same object with another text. ``benchmarks/chunk_parse.py`` measures
what that saves.
"""

from __future__ import annotations

import sys
from typing import Final

from micdrop_agent.providers.json_text import as_dict, decode, encode_text

__all__ = ["TextTemplate"]

_PROBE: Final = "\u00a7probe\u00a7"
_KEYS: Final = (b'"content":', b'"content": ')
"""Compact, as OpenAI writes it, and with a blank, as ``json.dumps`` does (vLLM, LiteLLM, SGLang)."""
_MIN_TEXT_BYTES: Final = 1


class TextTemplate:
    """The bytes around the text of a model chunk.

    Args:
        event: The model chunk.
        text: The only text in it.
    """

    __slots__ = ("_least", "_model", "_prefix", "_skip", "_suffix")

    def __init__(self, event: bytes, text: str) -> None:
        self._model: tuple[bytes, str] | None = event, text
        """Taken apart when it is first compared with: the first text of an answer does not wait for that."""
        self._prefix = self._suffix = b""
        self._least = sys.maxsize
        self._skip = 0

    def match(self, event: bytes) -> str | None:
        """The text of ``event`` if it is a twin of the model chunk, else ``None``.

        It never is if the place of the text in the model chunk cannot be proved.
        """
        if self._model is not None:
            self._learn(*self._model)
            self._model = None
        if len(event) < self._least or not event.startswith(self._prefix) or not event.endswith(self._suffix):
            return None
        middle = event[len(self._prefix) : self._skip]
        if b'"' in middle or b"\\" in middle:
            return None
        return middle.decode("utf-8", "replace")

    def _learn(self, event: bytes, text: str) -> None:
        for key in _KEYS:
            prefix, found, suffix = event.partition(key + encode_text(text))
            if found:
                break
        else:
            return
        prefix, suffix = prefix + key + b'"', b'"' + suffix
        try:
            probe = as_dict(decode(event))
            delta = probe["choices"][0]["delta"]
            if delta["content"] != text:
                return
            delta["content"] = _PROBE
            proved = decode(prefix + _PROBE.encode() + suffix) == probe
        except (KeyError, IndexError, TypeError, ValueError, RecursionError):
            return
        if proved:
            self._prefix, self._suffix = prefix, suffix
            self._least = len(prefix) + len(suffix) + _MIN_TEXT_BYTES
            self._skip = -len(suffix)
