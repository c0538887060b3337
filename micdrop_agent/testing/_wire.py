"""Replies with exact bytes: recorded bodies with their cuts, gaps and ends.

The format is that of a wire file: ``{"protocol": …, "attempts": [{status, headers, body_file, cut, gap_ms,
wait_ms, encoding, end}], "after": "repeat_last"}``.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import anyio

from micdrop_agent.testing._replies import say

if TYPE_CHECKING:
    from micdrop_agent.testing._provider import Exchange, ReceivedRequest, Reply

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
    body = read(attempt["body_file"]) if attempt.get("body_file") else b""
    headers = dict(attempt.get("headers", {}))
    if attempt.get("encoding") == "gzip-flush":
        headers["content-encoding"] = "gzip"
        pieces = _gzip_per_event(body)
    elif "encoding" in attempt:
        raise ValueError(f"unknown encoding: {attempt['encoding']!r}")
    else:
        pieces = _cut(body, attempt.get("cut"))

    async def reply(exchange: Exchange) -> None:
        await anyio.sleep(attempt.get("wait_ms", 0) / _MS)
        if end == "close_before_status":
            return
        if end == "reset_before_status":
            await exchange.reset()
            return
        await exchange.head(attempt.get("status", 200), headers)
        if end == "stall":
            await exchange.until_closed()
        for piece in pieces:
            await exchange.send(piece)
            await anyio.sleep(attempt.get("gap_ms", 0) / _MS)
        await _finish(exchange, end)

    return reply


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
    edges = [0, *(cut or ()), len(body)]
    return [body[start:stop] for start, stop in zip(edges, edges[1:], strict=False) if stop > start]


def _gzip_per_event(body: bytes) -> list[bytes]:
    packer = zlib.compressobj(wbits=31)
    events = [event + b"\n\n" for event in body.split(b"\n\n") if event]
    pieces = [packer.compress(event) + packer.flush(zlib.Z_SYNC_FLUSH) for event in events]
    return [*pieces, packer.flush()]
