"""The model server of the soak, in a process of its own: what the caller said last decides what it does.

It prints its base URL. A line on its standard input is answered with its open connections and the requests
so far, as JSON; it ends when its input does.
"""

from __future__ import annotations

import gzip
import json
import sys
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.to_thread

from micdrop_agent.testing import ScriptedProvider, call_tool, fault, parts, say

if TYPE_CHECKING:
    from micdrop_agent.testing import Exchange, ReceivedRequest, Reply

WORDS: Final = ("Good ", "morning, ", "we ", "open ", "at ", "nine ", "and ", "close ", "at ", "five.")

TEXT: Final = b'data: {"choices":[{"index":0,"delta":{"content":"%s"},"finish_reason":null}]}\n\n'
END: Final = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
BOMB: Final = gzip.compress(b"\n" * 4_000_000)


def hostile(*pieces: bytes, times: int = 1, status: int = 200, hold: bool = False, **headers: str) -> Reply:
    """Send ``pieces`` as often as said, and end there, or say nothing more."""

    async def reply(exchange: Exchange) -> None:
        await exchange.head(status, {name.replace("_", "-"): value for name, value in headers.items()})
        for _ in range(times):
            for piece in pieces:
                await exchange.send(piece)
        if hold:
            await exchange.until_closed()
        await exchange.end()

    return reply


HOSTILE: Final[dict[str, Reply]] = {
    "bomb": hostile(BOMB, content_encoding="gzip"),
    "flood of blanks": hostile(b"\n" * 60_000, times=40, hold=True),
    "flood of comments": hostile(b": ping\n\n" * 5000, times=40, hold=True),
    "flood of words": hostile(TEXT % b"word " * 200, times=5),
    "flood of pings": hostile(b"data: 1\n\n" * 2000, times=10, hold=True),
    "one long line": hostile(b"data: " + b"x" * 60_000, times=20),
    "dense": hostile(b"data: [" + b"[]," * 60_000 + b"0]\n\n", END),
    "held after the end": hostile(TEXT % b"Hello. " + END, hold=True),
    "held error": hostile(b'{"error":{"code":"insufficient_quota"}}', status=429, hold=True),
    "half an error": hostile(b'{"error":{"mess', status=503, hold=True),
    "drip": parts([{"text": ["a"]}, {"silence": True}]),
    "redirect": hostile(status=307, location="http://127.0.0.1:9/"),
    "bad bytes": hostile(b"data: \xff\xfe{\n\n", END),
}
"""What no honest server does."""


REPLIES: Final[dict[str, Reply]] = {
    **HOSTILE,
    "say": say(*WORDS),
    "slowly": say(*WORDS, gap=0.01),
    "long": say(*WORDS * 20),
    "hold": parts([{"text": list(WORDS[:4])}, {"silence": True}]),
    "empty": say(),
    "quick": call_tool("quick", {}, "c1", text="Let me see. "),
    "slow": call_tool("slow", {}, "c1"),
    "thread": call_tool("in_thread", {}, "c1"),
    "finishing": call_tool("finishing", {}, "c1", text="One moment. "),
    "raising": call_tool("raising", {}, "c1"),
    "unknown": call_tool("unknown", {}, "c1"),
    "several": parts([{"tool": name, "args": {}, "id": f"c_{name}"} for name in ("quick", "slow", "in_thread")]),
    "error 500": fault("status", status=500),
    "error 429": fault("status", status=429, retry_after="0"),
    "error 400": fault("status", status=400),
    "no status": fault("close_before_status"),
    "no headers": fault("stall_before_headers"),
    "no body": fault("stall_after_headers"),
    "keep-alives": fault("keepalives_only"),
    "cut": fault("cut_after_text", text=WORDS[:3]),
    "reset": fault("reset_after_text", text=WORDS[:3]),
    "cut call": fault("cut_inside_tool_call"),
    "error in stream": fault("error_after_text", text=WORDS[:3]),
    "no end mark": fault("end_without_mark", text=WORDS[:3]),
}
"""What the server does, by what the caller said."""


def reply_to(request: ReceivedRequest) -> Reply:
    """The reply that the last message asks for; after a tool's result it says something."""
    body: dict[str, Any] = request.body
    history: list[dict[str, Any]] = body.get("messages") or body["input"]
    last = history[-1]
    said: object = last.get("content")
    if last.get("role") != "user" or not isinstance(said, str):
        return REPLIES["say"]  # the result of a tool, or the beginning that another model has said
    return REPLIES.get(said, REPLIES["say"])


async def main() -> None:
    """Serve until nobody is left who asks."""
    asked = 0

    def forget(_request: ReceivedRequest) -> None:
        nonlocal asked
        asked += 1
        provider.requests.clear()

    async with ScriptedProvider(reply_to) as provider, provider.listening() as base_url:
        provider.on_request = forget
        print(base_url, flush=True)  # noqa: T201 - that is how its parent learns of it
        while await anyio.to_thread.run_sync(sys.stdin.readline):
            print(json.dumps({"open": provider.open_connections, "asked": asked}), flush=True)  # noqa: T201 - likewise


if __name__ == "__main__":
    anyio.run(main)
