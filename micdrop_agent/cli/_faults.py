"""The ways in which the first server of the failover demo can fail. No I/O; loads nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["FAULTS", "PIECES", "Fault"]

PIECES: Final = ("Our pool opens ", "at seven ", "and closes ", "at ten.")
"""The answer, as a server sends it."""

PACE_MS: Final = 200
"""Milliseconds before each piece, so that one can watch."""


@attrs.frozen
class Fault:
    """One way to fail.

    Args:
        words: What the server does, for people.
        parts: What it sends, as the parts of a scripted reply; ``None``: nobody listens there.
        midway: It has said something before it fails.
    """

    words: str
    parts: tuple[Mapping[str, Any], ...] | None
    midway: bool = False


def spoken(*pieces: str) -> tuple[Mapping[str, Any], ...]:
    """These pieces, at the pace of the demo."""
    return tuple(part for piece in pieces for part in ({"after_ms": PACE_MS}, {"text": [piece]}))


_HALF: Final = (*spoken(*PIECES[:2]), {"wait_ms": PACE_MS / 2})

FAULTS: Final[Mapping[str, Fault]] = {
    "cut": Fault("breaks off in mid-sentence; the second one goes on there", (*_HALF, {"cut": "eof"}), midway=True),
    "reset": Fault("the connection is reset in mid-sentence", (*_HALF, {"cut": "reset"}), midway=True),
    "error": Fault("says in mid-sentence that it has an error", (*_HALF, {"error": "the model crashed"}), midway=True),
    "unfinished": Fault("ends in mid-sentence as if that were all", (*_HALF, {"stop": True}), midway=True),
    "tool": Fault("breaks off inside a tool call", ({"tool_begun": "opening_hours"}, {"cut": "reset"})),
    "refuse": Fault("nobody listens on its port", None),
    "500": Fault("answers HTTP 500", ({"status": 500},)),
    "429": Fault("answers HTTP 429 and asks for 20 seconds", ({"status": 429, "headers": {"retry-after": "20"}},)),
    "401": Fault("answers HTTP 401: it does not like the key", ({"status": 401},)),
    "silent": Fault("takes the request and says nothing at all", ({"silence": "before_headers"},)),
    "stall": Fault("sends its headers and then nothing", ({"silence": True},)),
    "keepalives": Fault("keeps the connection alive and never says a word", ({"keepalives": 0.1},)),
    "none": Fault("is well: no failover", spoken(*PIECES)),
}
