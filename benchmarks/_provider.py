"""A loopback model server for the benchmarks, in a process of its own: ``python benchmarks/_provider.py``.

It costs some tens of microseconds for a request, so that what a client measures is the client's own:
one asyncio protocol (on uvloop where there is one), HTTP by hand, every byte made before it is asked
for. The model's name says what happens:

    burst-200         200 chunks in one write
    paced-6-350ms     6 chunks, one every 350 ms, the first at once
    late-6-300ms      6 chunks, one every 300 ms, the first after as long
    hold-1            1 chunk, then silence with the connection open
    silent            the head of a response, then nothing
    fail-500          status 500 with an error body
    cut-5             5 chunks, then the connection is closed
    sometimes-20      as burst-10, but every 20th request is left without a response

A name may end in ``~B``: then the words are ``B0000 B0001 …``, so a test sees whose text it got.
``POST …/chat/completions`` and ``POST …/responses``; ``GET /lost`` tells when a client last closed a
connection within an answer (ns of the machine's monotonic clock), ``GET /stats`` what it all cost.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import json
import os
import re
import resource
import ssl
import sys
import time
from typing import Any, ClassVar, NamedTuple

HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ncache-control: no-store\r\n"
    b"x-request-id: req_bench\r\ntransfer-encoding: chunked\r\n\r\n"
)
END = b"0\r\n\r\n"
MODEL = re.compile(rb'"model"\s*:\s*"([^"]+)"')
NAME = re.compile(r"([a-z]+)(?:-(\d+))?(?:-(\d+)ms)?(?:~(\w+))?")
PADDING = "x" * 12
"""Providers add random letters to each event, against guessing from its length."""


class Plan(NamedTuple):
    """What a model's name asks for."""

    kind: str
    number: int
    gap: float
    head: bytes
    chunks: tuple[bytes, ...]
    tail: bytes


def framed(payload: bytes) -> bytes:
    """``payload`` as one HTTP chunk."""
    return b"%x\r\n%b\r\n" % (len(payload), payload)


def event(value: dict[str, Any], *, named: bool) -> bytes:
    """A server-sent event, in an HTTP chunk of its own as the providers send it."""
    name = b"event: %b\n" % value["type"].encode() if named else b""
    return framed(b"%bdata: %b\n\n" % (name, json.dumps(value, separators=(",", ":")).encode()))


def chat(words: list[str]) -> tuple[bytes, list[bytes], bytes]:
    """Opening, chunks and closing of a Chat Completions stream."""

    def chunk(delta: dict[str, Any], reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return event({**base, "choices": [choice], "usage": None, "obfuscation": PADDING}, named=False)

    base = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_790_000_000, "model": "m"}
    usage = {"prompt_tokens": 100, "completion_tokens": len(words), "total_tokens": 100 + len(words)}
    closing = chunk({}, "stop") + event({**base, "choices": [], "usage": usage}, named=False)
    return (
        chunk({"role": "assistant", "content": "", "refusal": None}),
        [chunk({"content": word}) for word in words],
        closing + framed(b"data: [DONE]\n\n") + END,
    )


def responses(words: list[str]) -> tuple[bytes, list[bytes], bytes]:
    """Opening, chunks and closing of a Responses API stream."""
    number = iter(range(1_000_000))

    def told(kind: str, **members: Any) -> bytes:
        return event({"type": kind, "sequence_number": next(number), **members}, named=True)

    def response(status: str, output: list[Any], usage: dict[str, Any] | None) -> dict[str, Any]:
        fixed = {"id": "resp_1", "object": "response", "created_at": 1_790_000_000, "model": "m", "tools": []}
        rest: dict[str, Any] = {
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "metadata": {},
            "tool_choice": "auto",
        }
        return {**fixed, **rest, "parallel_tool_calls": True, "status": status, "output": output, "usage": usage}

    def item(status: str, content: list[Any]) -> dict[str, Any]:
        return {"id": "msg_1", "type": "message", "status": status, "role": "assistant", "content": content}

    def part(text: str) -> dict[str, Any]:
        return {"type": "output_text", "annotations": [], "logprobs": [], "text": text}

    where = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    text = "".join(words)
    usage = {
        "input_tokens": 100,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": len(words),
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 100 + len(words),
    }
    opening = (
        told("response.created", response=response("in_progress", [], None))
        + told("response.in_progress", response=response("in_progress", [], None))
        + told("response.output_item.added", output_index=0, item=item("in_progress", []))
        + told("response.content_part.added", part=part(""), **where)
    )
    deltas = [told("response.output_text.delta", delta=w, logprobs=[], obfuscation=PADDING, **where) for w in words]
    done = item("completed", [part(text)])
    closing = (
        told("response.output_text.done", text=text, logprobs=[], **where)
        + told("response.content_part.done", part=part(text), **where)
        + told("response.output_item.done", output_index=0, item=done)
        + told("response.completed", response=response("completed", [done], usage))
    )
    return opening, deltas, closing + END


@functools.cache
def plan(api: str, model: str) -> Plan:
    """What to send for ``model``."""
    match = NAME.fullmatch(model)
    kind = match[1] if match else "unknown"
    count = int(match[2] or 10) if match else 0
    gap = int(match[3] or 0) / 1000 if match else 0.0
    said = 10 if kind in {"sometimes", "fail"} else count
    words = [f"{(match[4] if match else None) or 'w'}{number:04d} " for number in range(said)]
    opening, chunks, closing = (responses if api == "responses" else chat)(words)
    return Plan(kind, count, gap, HEAD + opening, tuple(chunks), closing)


def plain(status: bytes, body: bytes) -> bytes:
    """A response with a body of known length."""
    return b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (status, len(body), body)


REFUSED = plain(
    b"500 Internal Server Error", b'{"error":{"message":"out of order","type":"server_error","param":null,"code":null}}'
)


class Connection(asyncio.Protocol):
    """One client."""

    lost: ClassVar[int] = 0
    asked: ClassVar[int] = 0
    accepted: ClassVar[int] = 0
    sometimes: ClassVar[int] = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        self.transport: Any = transport
        self.data = b""
        self.timer: asyncio.TimerHandle | None = None
        self.answering = False
        Connection.accepted += 1

    def eof_received(self) -> None:
        """The client closes in an orderly way."""
        self.left()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        del exc
        self.left()

    def left(self) -> None:
        """Note when an answer was cut by its client."""
        if self.timer is not None:
            self.timer.cancel()
        if self.answering:
            self.answering = False
            Connection.lost = time.monotonic_ns()

    def data_received(self, data: bytes) -> None:
        """A request, or a part of one."""
        self.data += data
        head, blank, body = self.data.partition(b"\r\n\r\n")
        if not blank:
            return
        length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
        if len(body) < int(length or b"0"):
            return
        self.data = b""
        method, target, _ = head.split(b" ", 2)
        if method == b"GET":
            self.tell(target)
        else:
            model = MODEL.search(body)
            api = "responses" if target.endswith(b"/responses") else "chat"
            self.answer(plan(api, model[1].decode() if model else "unknown"))

    def tell(self, target: bytes) -> None:
        """What a benchmark asks about this process."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        told: Any = {"asked": Connection.asked, "accepted": Connection.accepted, "cpu_s": usage.ru_utime}
        if target.endswith(b"/lost"):
            told = Connection.lost
        self.transport.write(plain(b"200 OK", json.dumps(told).encode()))

    def answer(self, what: Plan) -> None:
        """Do what the model's name said."""
        Connection.asked += 1
        self.answering = what.kind not in {"burst", "fail", "cut"}
        write = self.transport.write
        if what.kind == "burst" or (what.kind == "sometimes" and not self.stalls(what.number)):
            self.answering = False
            write(what.head + b"".join(what.chunks) + what.tail)
        elif what.kind == "paced":
            write(what.head + what.chunks[0])
            self.pace(what, 1, asyncio.get_running_loop().time())
        elif what.kind == "late":
            write(what.head)
            self.pace(what, 0, asyncio.get_running_loop().time() + what.gap)
        elif what.kind == "hold":
            write(what.head + b"".join(what.chunks))
        elif what.kind == "silent":
            write(what.head)
        elif what.kind == "cut":
            write(what.head + b"".join(what.chunks))
            self.transport.close()
        elif what.kind != "sometimes":
            write(REFUSED)

    @staticmethod
    def stalls(every: int) -> bool:
        """Whether this is the one request of ``every`` that gets no response."""
        Connection.sometimes += 1
        return Connection.sometimes % every == 0

    def pace(self, what: Plan, number: int, start: float) -> None:
        """Send chunk ``number`` when its time has come."""
        if number >= len(what.chunks):
            self.answering = False
            self.transport.write(what.tail)
            return
        loop = asyncio.get_running_loop()
        self.timer = loop.call_at(start + number * what.gap, self.step, what, number, start)

    def step(self, what: Plan, number: int, start: float) -> None:
        """The time of a chunk has come."""
        self.transport.write(what.chunks[number])
        self.pace(what, number + 1, start)


async def serve(certificate: str | None) -> None:
    """Serve until the process that started this one has gone."""
    context = None
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Connection, "127.0.0.1", 0, backlog=8192, ssl=context)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


def main() -> None:
    """Print the port, then serve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cpu", type=int, help="the one CPU to run on")
    parser.add_argument("--tls", help="PEM file with certificate chain and key")
    options = parser.parse_args()
    if options.cpu is not None:
        os.sched_setaffinity(0, {options.cpu})
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        import uvloop  # noqa: PLC0415 - optional
    except ImportError:
        asyncio.run(serve(options.tls))
    else:
        uvloop.run(serve(options.tls))


if __name__ == "__main__":
    main()
