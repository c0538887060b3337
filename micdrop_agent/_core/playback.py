"""How much of an answer a caller heard, when the host tells it as a count or as words. No I/O."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["heard_length", "heard_since"]


def heard_length(heard: int | str | None, received: str) -> int:
    """Number of characters of ``received`` that were heard.

    A text need not match to the letter: speech services normalise white space and case, so
    those are ignored. Where that is not enough only letters and digits are compared, however they
    are encoded, because some services give back words without their marks, or with other quotation
    marks. The count ends where the two texts part.

    Raises:
        TypeError: ``heard`` is neither a number, a text nor ``None``.
        ValueError: ``heard`` is negative.
    """
    if heard is None:
        return len(received)
    if isinstance(heard, str):
        return len(heard) if received.startswith(heard) else _loose_prefix(heard, received)
    if isinstance(heard, bool) or not isinstance(heard, int):
        raise TypeError(f"heard must be a number of characters or a text, not {heard!r}")
    if heard < 0:
        raise ValueError(f"heard must be at least 0 characters, not {heard}")
    return min(heard, len(received))


def heard_since(start: int, heard: int | str | None, received: str) -> int:
    """As ``heard_length``, when everything before ``start`` was taken back and said anew.

    A text may be all of it, or only what was said since: the one of which more is found.
    """
    whole = heard_length(heard, received)
    if not start or not isinstance(heard, str):
        return whole
    since = heard_length(heard, received[start:])
    return whole if whole > since else start + since


def _loose_prefix(heard: str, received: str) -> int:
    said = [character for character in heard.casefold() if not character.isspace()]
    length, matched = _matching(said, received, _folded)
    if matched == len(said):
        return length
    words = [letter for character in heard for letter in _letters(character)]
    length, matched = _matching(words, received, _letters)
    if matched == len(words):
        return _with_marks(heard, received, length)
    # More was heard than was received: then all of it was.
    return length if any(map(_letters, received[length:])) else len(received)


def _matching(said: list[str], received: str, read: Callable[[str], list[str]]) -> tuple[int, int]:
    """How many characters of ``received`` stand for the beginning of ``said``, and how long that beginning is."""
    matched = length = 0
    for position, character in enumerate(received):
        if matched == len(said):
            break
        compared = read(character)
        if said[matched : matched + len(compared)] != compared:
            break
        if compared:
            matched += len(compared)
            length = position + 1
    return length, matched


def _folded(character: str) -> list[str]:
    return [] if character.isspace() else list(character.casefold())


def _letters(character: str) -> list[str]:
    plain = unicodedata.normalize("NFKD", character).casefold()
    return [letter for letter in unicodedata.normalize("NFKD", plain) if letter.isalnum()]


def _with_marks(heard: str, received: str, length: int) -> int:
    """``length``, and the marks behind it that ``heard`` ends with, and what belongs to its last letter."""
    while length < len(received) and unicodedata.category(received[length])[0] == "M":
        length += 1
    end = len(heard)
    while end and not _letters(heard[end - 1]):
        end -= 1
    for mark in heard[end:].split():
        if not received.startswith(mark, length):
            break
        length += len(mark)
    return length
