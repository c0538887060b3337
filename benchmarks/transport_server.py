"""The loopback server of ``transport.py``, in a process of its own: ``python benchmarks/transport_server.py``."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any, ClassVar

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nx-request-id: r\r\ntransfer-encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


def _framed(payload: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(payload), payload)


def _event(number: int) -> bytes:
    choice = {"index": 0, "delta": {"content": f"w{number:04d} "}, "finish_reason": None}
    delta = {"id": "c", "object": "chat.completion.chunk", "model": "m", "choices": [choice]}
    return _framed(b"data: " + json.dumps(delta).encode() + b"\n\n")


def _reply(events: int) -> bytes:
    return HEAD + b"".join(map(_event, range(events))) + _framed(b"data: [DONE]\n\n") + END


class _Server(asyncio.Protocol):
    """Answers ``/N`` with N events in one write, ``/hold`` with one event and silence.

    ``/lost`` tells when the last connection was closed by its client (ns; the clock is the machine's).
    """

    replies: ClassVar[dict[bytes, bytes]] = {b"hold": HEAD + _event(0)}
    lost: ClassVar[int] = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport
        self.data = b""

    def data_received(self, data: bytes) -> None:
        self.data += data
        head, blank, body = self.data.partition(b"\r\n\r\n")
        if not blank or len(body) < int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]):
            return
        self.data = b""
        name = head.partition(b" ")[2].partition(b" ")[0].rpartition(b"/")[2]
        if name == b"lost":
            text = b"%d" % _Server.lost
            self.transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(text), text))
            return
        if name not in self.replies:
            self.replies[name] = _reply(int(name))
        self.transport.write(self.replies[name])

    def eof_received(self) -> None:
        _Server.lost = time.perf_counter_ns()

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None:
            _Server.lost = time.perf_counter_ns()


async def _serve() -> None:
    server = await asyncio.get_running_loop().create_server(_Server, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve())
