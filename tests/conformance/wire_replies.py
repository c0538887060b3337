"""Replies with exact bytes: recorded bodies with their cuts, gaps and ends.

The format is that of a wire file: ``{"protocol": …, "attempts": [{status, headers, body_file, cut, gap_ms,
wait_ms, encoding, end}], "after": "repeat_last"}``.
"""

from __future__ import annotations

import itertools
import zlib
from typing import TYPE_CHECKING, Any, Final

import anyio

from micdrop_agent.testing import say

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from micdrop_agent.testing import ReceivedRequest
    from micdrop_agent.testing._provider import Exchange, Reply

_ATTEMPT: Final = frozenset({"status", "headers", "body_file", "encoding", "cut", "gap_ms", "wait_ms", "end"})
_ENDS: Final = frozenset({"terminator", "hold", "eof", "reset", "close_before_status", "reset_before_status", "stall"})
_MS: Final = 1000


def wire_script(wire: Mapping[str, Any], read: Callable[[str], bytes]) -> Callable[[ReceivedRequest], Reply]:
    """The script of a wire file.

    Args:
        wire: The decoded file.
        read: Gives the bytes of a body file by its name.

    Raises:
        ValueError: A member or a value is unknown.
    """
    unknown = set(wire) - {"protocol", "attempts", "after"}
    if unknown or wire.get("after", "repeat_last") != "repeat_last":
        raise ValueError(f"unknown members of a wire file: {sorted(unknown) or wire['after']!r}")
    replies = [wire_attempt(attempt, read) for attempt in wire["attempts"]]

    def pick(request: ReceivedRequest) -> Reply:
        if request.number < len(replies):
            return replies[request.number]
        return replies[-1] if wire.get("after") == "repeat_last" else say("Okay.")

    return pick


def wire_attempt(attempt: Mapping[str, Any], read: Callable[[str], bytes]) -> Reply:
    """The reply of one attempt of a wire file."""
    end = attempt.get("end", "terminator")
    if unknown := set(attempt) - _ATTEMPT:
        raise ValueError(f"unknown members of an attempt: {sorted(unknown)}")
    if end not in _ENDS:
        raise ValueError(f"unknown end of an attempt: {end!r}")
    headers = dict(attempt.get("headers", {}))
    pieces = _pieces(attempt, headers, read(attempt["body_file"]) if attempt.get("body_file") else b"")

    async def reply(exchange: Exchange) -> None:
        await anyio.sleep(attempt.get("wait_ms", 0) / _MS)
        if end == "reset_before_status":
            await exchange.reset()
        if end in {"close_before_status", "reset_before_status"}:
            return
        await exchange.head(attempt.get("status", 200), headers)
        if end == "stall":
            await exchange.until_closed()
        for piece in pieces:
            await exchange.send(piece)
            await anyio.sleep(attempt.get("gap_ms", 0) / _MS)
        await _finish(exchange, end)

    return reply


def _pieces(attempt: Mapping[str, Any], headers: dict[str, str], body: bytes) -> list[bytes]:
    """The body in the writes it is sent in; a packed one gets its header."""
    encoding = attempt.get("encoding")
    if encoding is None:
        return _cut(body, attempt.get("cut"))
    if encoding != "gzip-flush":
        raise ValueError(f"unknown encoding: {encoding!r}")
    headers["content-encoding"] = "gzip"
    return _gzip_per_event(body)


async def _finish(exchange: Exchange, end: str) -> None:
    if end == "terminator":
        await exchange.end()
    elif end == "hold":
        await exchange.until_closed()
    elif end == "reset":
        await exchange.reset()


def _cut(body: bytes, cut: Any) -> list[bytes]:
    if cut == "bytes":
        return [body[at : at + 1] for at in range(len(body))]
    if cut is not None and not isinstance(cut, list):
        raise ValueError(f"unknown cut: {cut!r}")
    edges: list[int] = [0, *(cut or ()), len(body)]
    return [body[start:stop] for start, stop in itertools.pairwise(edges) if stop > start]


def _gzip_per_event(body: bytes) -> list[bytes]:
    packer = zlib.compressobj(wbits=31)
    events = [event + b"\n\n" for event in body.split(b"\n\n") if event]
    pieces = [packer.compress(event) + packer.flush(zlib.Z_SYNC_FLUSH) for event in events]
    return [*pieces, packer.flush()]
