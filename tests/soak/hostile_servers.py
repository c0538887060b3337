"""Servers that do what no honest server does, each as bytes, pauses and an end; no socket and no task.

    agent ── connect ──▶ Line (a byte stream in memory) ── request ──▶ attack(dice) ──▶ steps ── receive() ──▶ agent

A step is bytes, a pause in seconds, or one of ``HANG`` (says nothing more), ``RESET`` and ``CLOSE``. How the bytes are cut
into reads is drawn too. ``ATTACKS`` has the kinds; the same ones are tried by ``tests/test_transport_any_bytes.py`` in virtual time.
"""

from __future__ import annotations

import functools
import gzip
import json
import zlib
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import anyio
import anyio.lowlevel
from anyio.abc import ByteStream

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

HANG: Final = "hang"
RESET: Final = "reset"
CLOSE: Final = "close"
Step: TypeAlias = bytes | float | str
Attack: TypeAlias = "Callable[[random.Random], Sequence[Step]]"

STREAM: Final = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
CHUNKED: Final = STREAM + b"transfer-encoding: chunked\r\n\r\n"
OPEN: Final = STREAM + b"\r\n"


def word(text: object = "word ", **delta: object) -> bytes:
    """An event with a piece of text, or with anything else."""
    event = {"id": "c", "choices": [{"index": 0, "delta": {"content": text, **delta}, "finish_reason": None}]}
    return b"data: " + json.dumps(event).encode() + b"\n\n"


def call(index: object, name: object, arguments: object, call_id: object = "c1") -> bytes:
    """An event with a piece of a tool call."""
    function = {"name": name, "arguments": arguments}
    return word(None, tool_calls=[{"index": index, "id": call_id, "type": "function", "function": function}])


FINISH: Final = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
FINISH_CALLS: Final = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}\n\n'
DONE: Final = b"data: [DONE]\n\n"
REPLY: Final = b"".join(word(text) for text in ("Good ", "morning, ", "we ", "open ", "at ", "nine.")) + FINISH + DONE


def chunk(data: bytes, extension: bytes = b"") -> bytes:
    """One HTTP chunk."""
    return b"%x%s\r\n%s\r\n" % (len(data), extension, data)


def sized(body: bytes, *, status: str = "200 OK", headers: bytes = b"content-type: text/event-stream\r\n") -> bytes:
    """A whole response."""
    return b"HTTP/1.1 %s\r\n%scontent-length: %d\r\n\r\n%s" % (status.encode(), headers, len(body), body)


def coded(coding: bytes, body: bytes) -> bytes:
    """A response in a coding."""
    return sized(body, headers=b"content-type: text/event-stream\r\ncontent-encoding: " + coding + b"\r\n")


@functools.cache
def bomb(megabytes: int) -> bytes:
    """A gzip body that unpacks to so many million newlines."""
    return gzip.compress(b"\n" * 1_000_000 * megabytes)


def flood(unit: bytes, times: int, begin: bytes = b"") -> Attack:
    """``unit``, ``times`` times, then silence."""
    return lambda _dice: [OPEN + begin, unit * times, HANG]


def fixed(*steps: Step) -> Attack:
    """Always the same."""
    return lambda _dice: steps


def deep(depth: int, opening: bytes, closing: bytes) -> bytes:
    """JSON in JSON in JSON."""
    return b"data: " + opening * depth + b"1" + closing * depth + b"\n\n"


def _cut(dice: random.Random) -> Sequence[Step]:
    whole = CHUNKED + b"".join(chunk(part + b"\n\n") for part in REPLY.split(b"\n\n")) + b"0\r\n\r\n"
    return [whole[: dice.randrange(len(whole))], dice.choice([RESET, CLOSE, HANG])]


def _garbage(dice: random.Random) -> Sequence[Step]:
    return [dice.randbytes(dice.randrange(1, 3000)), dice.choice([RESET, CLOSE, HANG])]


def _garbage_body(dice: random.Random) -> Sequence[Step]:
    return [OPEN + word(), dice.randbytes(dice.randrange(1, 30_000)), dice.choice([RESET, CLOSE, HANG])]


def _mangled(dice: random.Random) -> Sequence[Step]:
    whole = bytearray(CHUNKED + b"".join(chunk(part + b"\n\n") for part in REPLY.split(b"\n\n")) + b"0\r\n\r\n")
    for _ in range(dice.randrange(1, 6)):
        whole[dice.randrange(len(whole))] = dice.randrange(256)
    return [bytes(whole), dice.choice([CLOSE, HANG])]


def _drip(dice: random.Random) -> Sequence[Step]:
    body = word() * 2
    steps: list[Step] = [OPEN]
    for at in range(0, len(body), 3):
        steps += [body[at : at + 3], dice.random() * 0.004]
    return [*steps, HANG]


def _odd_types(dice: random.Random) -> Sequence[Step]:
    odd: Any = dice.choice([5, None, True, [], {}, [{"text": "x"}], {"a": 1}, "\ud800", 1e308, -1, "\x00"])
    event: Any = dice.choice(
        [
            {"choices": odd},
            {"choices": [odd]},
            {"choices": [{"delta": odd}]},
            {"choices": [{"delta": {"content": odd}}]},
            {"choices": [{"delta": {"tool_calls": odd}}]},
            {"choices": [{"delta": {"tool_calls": [odd]}}]},
            {"choices": [{"delta": {"tool_calls": [{"index": odd, "function": odd}]}}]},
            {"choices": [{"delta": {}, "finish_reason": odd}]},
            {"error": odd},
            {"error": {"message": odd, "code": odd}},
            {"usage": odd, "choices": []},
            {"usage": {"prompt_tokens": odd}, "choices": []},
            odd,
        ]
    )
    return [sized(word() + b"data: " + json.dumps(event).encode() + b"\n\n" + FINISH + DONE)]


def _status(dice: random.Random) -> Sequence[Step]:
    status = dice.choice(
        [300, 301, 304, 307, 400, 401, 403, 404, 408, 409, 413, 418, 422, 429, 500, 502, 503, 529, 599]
    )
    body = dice.choice([b"", b"{", b'{"error":{"code":"x"}}', b"<html>" + b"x" * 5000, b"\xff" * 100, b"[" * 5000])
    extra = dice.choice(
        [b"", b"retry-after: 0\r\n", b"retry-after: 1e9\r\n", b"retry-after: \xff\r\n", b"location: /\r\n"]
    )
    return [sized(body, status=f"{status} X", headers=extra), dice.choice([CLOSE, HANG])]


def _calls(dice: random.Random) -> Sequence[Step]:
    names = ("quick", "slow", "finishing", "raising", "nobody", "", None, 5)
    many = [call(n, dice.choice(names), dice.choice(["{}", "", "{", '{"a":1}', None]), f"c{n}") for n in range(4)]
    return [sized(word() + b"".join(many) + FINISH_CALLS + DONE)]


HONEST: Final[dict[str, Attack]] = {
    "sized": fixed(sized(REPLY)),
    "chunked": fixed(CHUNKED + b"".join(chunk(part + b"\n\n") for part in REPLY.split(b"\n\n") if part) + b"0\r\n\r\n"),
    "slowly": fixed(OPEN, *[step for _ in range(6) for step in (word(), 0.003)], FINISH + DONE, CLOSE),
    "tool": fixed(sized(word("Let me see. ") + call(0, "quick", "{}") + FINISH_CALLS + DONE)),
    "two tools": fixed(sized(call(0, "slow", "{}") + call(1, "finishing", "{}", "c2") + FINISH_CALLS + DONE)),
    "gzip": fixed(coded(b"gzip", gzip.compress(REPLY))),
    "deflate": fixed(coded(b"deflate", zlib.compress(REPLY))),
}
"""What honest servers do, so that not every answer fails."""

ATTACKS: Final[dict[str, Attack]] = {
    "cut": _cut,
    "garbage": _garbage,
    "garbage in the body": _garbage_body,
    "mangled": _mangled,
    "drip": _drip,
    "odd types": _odd_types,
    "statuses": _status,
    "odd calls": _calls,
    "silence": fixed(HANG),
    "silence behind the head": fixed(OPEN, HANG),
    "silence behind a word": fixed(OPEN + word(), HANG),
    "closed at once": fixed(CLOSE),
    "reset at once": fixed(RESET),
    "half a head": fixed(b"HTTP/1.1 200 OK\r\ncontent-ty", HANG),
    "no HTTP": fixed(b"SSH-2.0-OpenSSH_9.2\r\n", CLOSE),
    "HTTP/2": fixed(b"\x00\x00\x12\x04\x00\x00\x00\x00\x00", CLOSE),
    "TLS": fixed(b"\x15\x03\x01\x00\x02\x02\x46", CLOSE),
    "bomb": fixed(coded(b"gzip", bomb(4)), HANG),
    "members": fixed(coded(b"gzip", gzip.compress(b"") * 3000), HANG),
    "raw deflate of nothing": fixed(coded(b"deflate", b"\x03\x00" * 2000), HANG),
    "gzip that is none": fixed(coded(b"gzip", REPLY)),
    "gzip cut": fixed(coded(b"gzip", gzip.compress(REPLY)[:-9]), CLOSE),
    "br": fixed(coded(b"br", b"\x8b\x02\x80abc\x03"), HANG),
    "zstd": fixed(coded(b"zstd", b"\x28\xb5\x2f\xfd" + b"\x00" * 60), HANG),
    "codings in a row": fixed(coded(b"gzip, gzip, br", bomb(4)), HANG),
    "blank lines": flood(b"\n", 300_000),
    "carriage returns": flood(b"\r", 300_000, word()),
    "comments": flood(b": ping\n\n", 30_000, word()),
    "one comment": flood(b"x", 1_200_000, b":"),
    "pings": flood(b"data: 1\n\n", 20_000, word()),
    "empty data": flood(b"data:\n", 40_000, word()),
    "words": flood(word(), 2000),
    "one line": flood(b"x", 1_200_000, b"data: "),
    "many data lines": flood(b"data: x\n", 30_000),
    "events of errors": flood(b"event: error\n", 20_000, word()),
    "dense JSON": fixed(OPEN + b"data: [" + b"[]," * 60_000 + b"0]\n\n", HANG),
    "deep lists": fixed(sized(word() + deep(100_000, b"[", b"]") + FINISH + DONE)),
    "deep objects": fixed(sized(word() + deep(50_000, b'{"a":', b"}") + FINISH + DONE)),
    "a long number": fixed(sized(word() + b"data: " + b"9" * 100_000 + b"\n\n" + FINISH + DONE)),
    "huge arguments": fixed(CHUNKED, *[chunk(call(0, "quick", "x" * 10_000))] * 40, chunk(FINISH_CALLS + DONE), HANG),
    "deep arguments": fixed(sized(call(0, "quick", "[" * 50_000 + "]" * 50_000) + FINISH_CALLS + DONE)),
    "endless arguments": fixed(OPEN + call(0, "quick", "{"), *[call(0, None, " " * 20_000)] * 60, HANG),
    "many calls": fixed(sized(b"".join(call(n, "quick", "{}", f"c{n}") for n in range(300)) + FINISH_CALLS + DONE)),
    "calls far apart": fixed(sized(call(10**9, "quick", "{}") + call(-1, "quick", "{}") + FINISH_CALLS + DONE)),
    "chunk extensions": fixed(CHUNKED + b"".join(chunk(b"\n", b";a=" + b"b" * 900) for _ in range(200)), HANG),
    "one long extension": fixed(CHUNKED + b"1;" + b"a" * 300_000, HANG),
    "tiny chunks": fixed(CHUNKED + b"".join(chunk(REPLY[n : n + 1]) for n in range(len(REPLY))) + b"0\r\n\r\n"),
    "trailers": fixed(CHUNKED + chunk(REPLY) + b"0\r\n" + b"x-a: b\r\n" * 20_000, HANG),
    "trailers behind no mark": fixed(CHUNKED + chunk(word()) + b"0\r\n" + b"x-a: b\r\n" * 20_000, HANG),
    "interim heads": fixed(b"HTTP/1.1 100 Continue\r\n\r\n" * 5000, HANG),
    "early hints": fixed(b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n" * 40 + sized(REPLY)),
    "headers": fixed(STREAM + b"".join(b"x-%d: y\r\n" % n for n in range(3000)), HANG),
    "one header": fixed(STREAM + b"x: " + b"y" * 200_000, HANG),
    "two lengths": fixed(STREAM + b"content-length: 5\r\ncontent-length: 900\r\n\r\n" + REPLY, CLOSE),
    "length and chunks": fixed(
        STREAM + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n" + chunk(REPLY) + b"0\r\n\r\n"
    ),
    "length too long": fixed(STREAM + b"content-length: 99999\r\n\r\n" + REPLY, HANG),
    "length too short": fixed(STREAM + b"content-length: 60\r\n\r\n" + REPLY, HANG),
    "negative length": fixed(STREAM + b"content-length: -1\r\n\r\n" + REPLY, CLOSE),
    "bad chunk size": fixed(CHUNKED + b"zz\r\n" + REPLY, CLOSE),
    "huge chunk size": fixed(CHUNKED + b"f" * 16 + b"\r\n" + REPLY, HANG),
    "a response ahead": fixed(sized(REPLY) + sized(word("wrong ") + FINISH + DONE)),
    "held after the end": fixed(OPEN + REPLY, HANG),
    "flood after the end": fixed(OPEN + REPLY, b": x\n\n" * 50_000, HANG),
    "two ends": fixed(sized(REPLY + REPLY)),
    "no end": fixed(sized(word() * 3)),
    "JSON": fixed(sized(b'{"choices":[{"message":{"content":"Hello."},"finish_reason":"stop"}]}')),
    "HTML": fixed(sized(b"<!doctype html><title>x</title>" + b"<p>" * 30_000, headers=b"content-type: text/html\r\n")),
    "error in the stream": fixed(sized(word() + b'data: {"error":{"message":"x","code":500}}\n\n')),
    "bad letters": fixed(sized(word() + b"data: \xff\xfe\xc0{\n\n" + FINISH + DONE)),
    "half letters": fixed(
        sized(word().replace(b"word", b"w\\ud83d") + word().replace(b"word", b"\\udca9") + FINISH + DONE)
    ),
    "byte order marks": fixed(sized(b"\xef\xbb\xbf" * 2000 + REPLY)),
    "redirect": fixed(sized(b"", status="307 X", headers=b"location: http://127.0.0.1:9/\r\n")),
    "upgrade": fixed(b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n" + REPLY, HANG),
}
"""What no honest server does."""

EVERY: Final = {**HONEST, **ATTACKS}


class Line(ByteStream):
    """A connection to a server that does ``attack`` at each request.

    Args:
        attack: What it does at the next request.
        dice: How reads are cut.
        alive: Lines that are open; this one is among them until it is closed.
        watched: Is told of each read (``gave(bytes)``).
    """

    def __init__(
        self, attack: Callable[[], Sequence[Step]], dice: random.Random, alive: set[Line], watched: Any = None
    ) -> None:
        self._attack = attack
        self._dice = dice
        self._alive = alive
        self._steps: list[Step] = []
        self._at = 0
        """How much of the first step is out."""
        self._asked = anyio.Event()
        self._closed = anyio.Event()
        self._most = dice.choice([65_536, 65_536, 65_536, 4096, 300, 70])
        self._watched = watched
        alive.add(self)

    async def send(self, item: bytes) -> None:
        """A request, which comes in one piece."""
        await anyio.lowlevel.checkpoint()
        if self._closed.is_set():
            raise anyio.ClosedResourceError
        self._steps, self._at = list(self._attack()), 0
        self._asked.set()

    async def receive(self, max_bytes: int = 65_536) -> bytes:
        """What the server says next."""
        await anyio.lowlevel.checkpoint()
        while not self._closed.is_set():
            if not self._asked.is_set():
                await self._wait(self._asked)
                continue
            step = self._steps[0] if self._steps else HANG
            if isinstance(step, bytes):
                return self._cut(step, min(max_bytes, self._most))
            if step == CLOSE:
                raise anyio.EndOfStream
            if step == RESET:
                raise anyio.BrokenResourceError
            if step == HANG:
                await self._closed.wait()
                continue
            self._steps.pop(0)
            await anyio.sleep(float(step))
        raise anyio.ClosedResourceError

    async def _wait(self, what: anyio.Event) -> None:
        async with anyio.create_task_group() as tasks:

            async def closed() -> None:
                await self._closed.wait()
                tasks.cancel_scope.cancel()

            tasks.start_soon(closed)
            await what.wait()
            tasks.cancel_scope.cancel()

    def _cut(self, step: bytes, most: int) -> bytes:
        if most < 65_536:
            # A flood is not handed out letter by letter.
            most = self._dice.randrange(1, max(most, len(step) // 200) + 1)
        part = step[self._at : self._at + most]
        self._at += len(part)
        if self._at >= len(step):
            self._steps.pop(0)
            self._at = 0
        if self._watched is not None:
            self._watched.gave(len(part))
        return part

    async def send_eof(self) -> None:
        """Not needed."""

    async def aclose(self) -> None:
        """Closed."""
        self._closed.set()
        self._alive.discard(self)
        await anyio.lowlevel.checkpoint()
