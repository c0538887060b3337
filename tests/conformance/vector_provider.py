"""Plays a vector's ``provider``: one op list for each HTTP request of a child, the last one repeated."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import anyio

from micdrop_agent.testing._writers import writer_of
from vector_ops import UnknownOperationError

if TYPE_CHECKING:
    from micdrop_agent.testing import Exchange, ReceivedRequest, Reply
    from micdrop_agent.testing._writers import ReplyWriter
    from vector_ops import Op, Trace


def script_of(lists: list[list[Op]], trace: Trace) -> Any:
    """The script of one child."""

    def pick(request: ReceivedRequest) -> Reply:
        ops = lists[min(request.number, len(lists) - 1)]

        async def reply(exchange: Exchange) -> None:
            player = _Player(exchange, trace)
            for op in ops:
                if await player.play(op):
                    return

        return reply

    return pick


def _call(op: Op) -> tuple[str, str, Any]:
    return op.get("id", "call1"), op["name"], op.get("arguments", "{}")


class _Player:
    def __init__(self, exchange: Exchange, trace: Trace) -> None:
        self.exchange = exchange
        self.trace = trace
        self.writer: ReplyWriter = writer_of(exchange.request.path)

    async def play(self, op: Op) -> bool:
        """Play one op; true if it was the last of the response."""
        name = op["op"]
        data = self._data(name, op)
        if data is not None:
            await self.exchange.send(data)
            return False
        if name in {"wait", "sleep"}:
            await self.exchange.head()
            await (anyio.sleep(op["ms"] / 1000) if name == "sleep" else self.trace.gate(op["gate"]).wait())
            return False
        end = getattr(self, f"_{name}", None)
        if end is None:
            raise UnknownOperationError(f"provider op {name!r}")
        await end(op)
        return True

    async def _done(self, op: Op) -> None:
        await self.exchange.send(self.writer.done())
        await self.exchange.end()

    async def _failed(self, op: Op) -> None:
        await self.exchange.send(self.writer.failed(op.get("message", "scripted failure")))
        await self.exchange.end()

    async def _incomplete(self, op: Op) -> None:
        await self.exchange.send(self.writer.incomplete(op.get("reason", "max_output_tokens")))
        await self.exchange.end()

    async def _error_event(self, op: Op) -> None:
        await self.exchange.send(self.writer.error(op.get("message", "scripted failure")))
        await self.exchange.end()

    async def _eof(self, op: Op) -> None:
        await self.exchange.end()

    async def _disconnect(self, op: Op) -> None:
        await self.exchange.head()
        await self.exchange.reset()

    async def _hang(self, op: Op) -> None:
        await self.exchange.head()
        await self.exchange.until_closed()

    async def _hang_before_headers(self, op: Op) -> None:
        await self.exchange.until_closed()

    def _data(self, name: str, op: Op) -> bytes | None:
        writer = self.writer
        match name:
            case "delta":
                return writer.text(op["text"])
            case "text_done":
                return writer.text_done()
            case "tool_call":
                return writer.calls([_call(op)], op.get("content"))
            case "tool_calls":
                return writer.calls([_call(call) for call in op["calls"]], op.get("content"))
            case "chunk":
                return writer.raw(op["delta"], op.get("finish"))
            case "refusal":
                return writer.refusal(op["text"])
        return None

    async def _http_error(self, op: Op) -> None:
        headers = {"content-type": "application/json"}
        if not op.get("sdk_retry") and not op.get("sdk_backoff"):
            headers["x-should-retry"] = "false"
        # The recorder used 400 for "the server failed", because the SDK of the original does not retry it by itself
        # while the original's own loop retries everything. For us a 400 is final (DESIGN 6), a 503 is such a failure.
        status = 503 if op["status"] == 400 else op["status"]
        await self.exchange.head(status, headers)
        error = {"message": f"status {status}", "type": "error", "code": None}
        await self.exchange.send(json.dumps({"error": error}).encode())
        await self.exchange.end()
