"""Replies for a ``ScriptedProvider``: answers, tool calls, and faults by name.

    ScriptedProvider([fault("status", status=503), say("We open ", "at nine.")])

The same reply serves both kinds of endpoint: the dialect follows from the path of the request.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import anyio

from micdrop_agent.testing._writers import may_call, writer_of

if TYPE_CHECKING:
    from micdrop_agent.testing._provider import Exchange, Reply
    from micdrop_agent.testing._writers import ReplyWriter

Part: TypeAlias = Mapping[str, Any]
"""One part of a reply, such as ``{"text": ["a", "b"]}``; ``parts()`` lists them all."""

FaultName: TypeAlias = Literal[
    "status",
    "close_before_status",
    "stall_before_headers",
    "stall_after_headers",
    "keepalives_only",
    "cut_after_text",
    "reset_after_text",
    "cut_inside_tool_call",
    "error_after_text",
    "end_without_mark",
]

_MS: Final = 1000


def say(*chunks: str, gap: float = 0.0) -> Reply:
    """An answer of these chunks.

    Args:
        *chunks: Text deltas; each is one write.
        gap: Seconds before each of them.
    """
    pause: list[Part] = [{"after_ms": gap * _MS}] if gap else []
    return parts([part for chunk in chunks for part in (*pause, {"text": [chunk]})])


def call_tool(name: str, arguments: Mapping[str, Any] | None = None, call_id: str = "c1", *, text: str = "") -> Reply:
    """A response that asks for one tool, after ``text`` if there is any."""
    head: list[Part] = [{"text": [text]}] if text else []
    return parts([*head, {"tool": name, "args": dict(arguments or {}), "id": call_id}])


def fault(name: FaultName, *, text: Sequence[str] = ("Hello ",), status: int = 503, **headers: str) -> Reply:
    """A reply that goes wrong in a known way.

    Args:
        name: Which way; a refused connection is ``ScriptedProvider.refuse``.
        text: The chunks that come before the fault, where there are any.
        status: The HTTP status of ``"status"``.
        **headers: Response headers of ``"status"``; ``retry_after="1"`` is the header ``retry-after``.

    Raises:
        ValueError: No fault has that name.
    """
    fields = {key.replace("_", "-"): value for key, value in headers.items()}
    scripts: dict[str, list[Part]] = {
        "status": [{"status": status, "headers": fields}],
        "close_before_status": [{"cut": "before_status"}],
        "stall_before_headers": [{"silence": "before_headers"}],
        "stall_after_headers": [{"silence": True}],
        "keepalives_only": [{"keepalives": 1.0}],
        "cut_after_text": [{"text": text}, {"cut": "eof"}],
        "reset_after_text": [{"text": text}, {"cut": "reset"}],
        "cut_inside_tool_call": [{"tool_begun": "tool"}, {"cut": "reset"}],
        "error_after_text": [{"text": text}, {"error": "Internal error"}],
        "end_without_mark": [{"text": text}, {"stop": True}],
    }
    if name not in scripts:
        raise ValueError(f"no fault is called {name!r}; there are {', '.join(scripts)}")
    return parts(scripts[name])


def parts(script: Sequence[Part]) -> Reply:
    """A reply made of parts, in order; it ends properly unless a part ends it otherwise.

    Parts: ``text`` (list of deltas), ``tool`` with ``args`` and ``id``, ``tool_begun``, ``raw_delta``, ``finish``,
    ``after_ms`` / ``wait_ms`` (a pause), ``silence``, ``keepalives`` (seconds between), ``cut`` (``"reset"``,
    ``"eof"``, ``"before_status"``), ``stop`` (end of the body without an end mark), ``status`` with ``headers``,
    ``error``, ``end``, and ``if_tools_offered`` with ``else``. ``buffered`` sends a part with what follows it.

    Raises:
        ValueError: A part is unknown.
    """
    for part in script:
        if not _KNOWN & set(part):
            raise ValueError(f"unknown part of a reply: {part!r}")

    async def reply(exchange: Exchange) -> None:
        player = _Player(exchange, writer_of(exchange.request.path))
        if not await player.play(script):
            await player.finish()

    return reply


class _Player:
    """Plays the parts of one reply."""

    def __init__(self, exchange: Exchange, writer: ReplyWriter) -> None:
        self.exchange = exchange
        self.writer = writer
        self._held = b""
        self._reason: str | None = None

    async def play(self, script: Sequence[Part]) -> bool:
        """Play ``script``; true if a part has ended the reply."""
        for part in script:
            for word in _ORDER:
                if word in part:
                    if await getattr(self, f"_{word}")(part):
                        return True
                    break
        return False

    async def _send(self, data: bytes, part: Part | None = None) -> None:
        self._held += data
        if part is None or not part.get("buffered"):
            data, self._held = self._held, b""
            await self.exchange.send(data)

    async def finish(self) -> None:
        await self._send(self.writer.done(self._reason))
        await self.exchange.end()

    async def _text(self, part: Part) -> None:
        for chunk in part["text"]:
            await self._send(self.writer.text(chunk), part)

    async def _tool(self, part: Part) -> None:
        arguments = part.get("arguments", json.dumps(part.get("args", {}), ensure_ascii=False))
        await self._send(self.writer.calls([(part.get("id", "c1"), part["tool"], arguments)]), part)

    async def _tool_begun(self, part: Part) -> None:
        await self._send(self.writer.call_begun("c1", part["tool_begun"], '{"a":'), part)

    async def _raw_delta(self, part: Part) -> None:
        await self._send(self.writer.raw(part["raw_delta"], part.get("finish")), part)

    async def _finish(self, part: Part) -> None:
        self._reason = part["finish"]

    async def _error(self, part: Part) -> bool:
        await self._send(self.writer.error(part["error"]))
        await self.exchange.end()
        return True

    async def _wait_ms(self, part: Part) -> None:
        await anyio.sleep(part["wait_ms"] / _MS)

    async def _after_ms(self, part: Part) -> None:
        await self.exchange.head()
        await anyio.sleep(part["after_ms"] / _MS)

    async def _silence(self, part: Part) -> bool:
        if part["silence"] != "before_headers":
            await self.exchange.head()
        await self.exchange.until_closed()
        return True

    async def _keepalives(self, part: Part) -> bool:
        while True:
            await self.exchange.send(b": keep-alive\n\n")
            await anyio.sleep(part["keepalives"])

    async def _cut(self, part: Part) -> bool:
        if part["cut"] == "reset":
            await self.exchange.reset()
        return True

    async def _stop(self, part: Part) -> bool:
        del part
        await self.exchange.end()
        return True

    async def _status(self, part: Part) -> bool:
        await self.exchange.head(part["status"], {"content-type": "application/json", **part.get("headers", {})})
        body = part.get("body", {"error": {"message": "scripted failure", "type": "error", "code": None}})
        await self.exchange.send(json.dumps(body).encode())
        await self.exchange.end()
        return True

    async def _end(self, part: Part) -> bool:
        del part
        await self.finish()
        return True

    async def _if_tools_offered(self, part: Part) -> bool:
        body: dict[str, Any] = self.exchange.request.body or {}
        return await self.play(part["if_tools_offered"] if may_call(body) else part.get("else", ()))


_ORDER: Final = (
    "if_tools_offered",
    "raw_delta",
    "text",
    "tool",
    "tool_begun",
    "status",
    "error",
    "after_ms",
    "wait_ms",
    "silence",
    "keepalives",
    "cut",
    "stop",
    "finish",
    "end",
)
_KNOWN: Final = frozenset(_ORDER)
