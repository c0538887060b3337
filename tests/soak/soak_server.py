"""The model server of the soak, in a process of its own: what the caller said last decides what it does.

It prints its base URL. A line on its standard input is answered with its open connections and the requests
so far, as JSON; it ends when its input does.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.to_thread

from micdrop_agent.testing import ScriptedProvider, call_tool, fault, parts, say

if TYPE_CHECKING:
    from micdrop_agent.testing import ReceivedRequest, Reply

WORDS: Final = ("Good ", "morning, ", "we ", "open ", "at ", "nine ", "and ", "close ", "at ", "five.")

REPLIES: Final[dict[str, Reply]] = {
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
