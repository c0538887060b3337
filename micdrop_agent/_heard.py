"""How much of an answer a caller heard, when the host tells it as a count or as words. No I/O."""

from __future__ import annotations

__all__ = ["heard_length"]


def heard_length(heard: int | str | None, received: str) -> int:
    """Number of characters of ``received`` that were heard.

    A text need not match to the letter: speech services normalise white space and case, so
    those are ignored; the count ends where the two texts part.

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


def _loose_prefix(heard: str, received: str) -> int:
    said = [character for character in heard.casefold() if not character.isspace()]
    matched = 0
    length = 0
    for position, character in enumerate(received):
        if matched == len(said):
            break
        if character.isspace():
            continue
        folded = list(character.casefold())
        if said[matched : matched + len(folded)] != folded:
            break
        matched += len(folded)
        length = position + 1
    return length
