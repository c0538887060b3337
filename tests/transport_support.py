"""A TCP server that does what it is told byte by byte, and agents that reach it in every way there is."""

from __future__ import annotations

import gc
import socket
import struct
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.abc
import attrs
import httpx
import httpx2
import openai
import pytest
from anyio.streams.tls import TLSListener

from micdrop_agent import ChatAgent, Retry

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

KEY: Final = "sk-own-secret-0123456789abcdef"
NEVER: Final = Retry(max_retries=0)
KINDS: Final = ("own", "httpx2", "httpx", "openai", "openai-httpx")
CLIENT_KINDS: Final = KINDS[1:]
BACKENDS: Final = ("asyncio", "asyncio+uvloop", "trio")
each_backend = pytest.mark.parametrize("backend", ["asyncio", "trio"])
each_kind = pytest.mark.parametrize("kind", KINDS)
each_client = pytest.mark.parametrize("kind", CLIENT_KINDS)


def run(backend: str, scenario: Callable[[], Awaitable[None]], *, within: float = 30) -> None:
    async def bounded() -> None:
        with anyio.fail_after(within):
            await scenario()

    name, _, uvloop = backend.partition("+")
    anyio.run(bounded, backend=name, backend_options={"use_uvloop": True} if uvloop else {})
    gc.collect()  # what warns when it is collected warns here


# -- bytes


def chunk_event(text: str | None = None, finish: str | None = None) -> bytes:
    delta = b"{}" if text is None else b'{"content":"%s"}' % text.encode()
    reason = b"null" if finish is None else b'"%s"' % finish.encode()
    return b'data: {"id":"c","choices":[{"index":0,"delta":%s,"finish_reason":%s}]}\n\n' % (delta, reason)


DONE: Final = b"data: [DONE]\n\n"


def spoken(*texts: str) -> bytes:
    """The body of a whole answer."""
    return b"".join(chunk_event(text) for text in texts) + chunk_event(finish="stop") + DONE


def with_length(body: bytes, status: str = "200 OK", *headers: str, kind: str = "text/event-stream") -> bytes:
    lines = [f"HTTP/1.1 {status}", f"content-type: {kind}", f"content-length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def head(status: str = "200 OK", *headers: str) -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", *headers, "", ""]).encode()


def framed(*pieces: bytes, end: bool = True) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + (b"0\r\n\r\n" if end else b"")


def chunked(*pieces: bytes, end: bool = True) -> bytes:
    return head("200 OK", "content-type: text/event-stream", "transfer-encoding: chunked") + framed(*pieces, end=end)


HELLO: Final = with_length(spoken("Hello ", "you."))
OKAY: Final = with_length(spoken("Okay."))


# -- the server


@attrs.define(eq=False)
class Seen:
    """A request, or the part of it that was read."""

    connection: int
    head: str
    body: bytes

    @property
    def headers(self) -> dict[str, str]:
        lines = self.head.split("\r\n")[1:]
        return {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}


class Connection:
    """The server's side of one connection."""

    def __init__(self, server: RawServer, number: int, stream: anyio.abc.ByteStream) -> None:
        self.server = server
        self.number = number
        self.stream = stream
        self._buffer = b""

    async def request(self, *, body: bool = True) -> Seen:
        """The next request; without its body if that is to stay unread."""
        while b"\r\n\r\n" not in self._buffer:
            self._buffer += await self.stream.receive()
        first, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        seen = Seen(self.number, first.decode("latin-1"), b"")
        self.server.seen.append(seen)
        length = int(seen.headers.get("content-length", "0"))
        if body:
            came = bytearray(self._buffer)
            while len(came) < length:
                came += await self.stream.receive(1 << 20)
            seen.body, self._buffer = bytes(came[:length]), bytes(came[length:])
        return seen

    async def send(self, data: bytes) -> None:
        await self.stream.send(data)

    async def hold(self) -> None:
        """Say nothing more until the client goes."""
        with suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            while True:
                await self.stream.receive()
        self.server.left += 1
        self.server.notify()

    def reset_on_close(self) -> None:
        raw = self.stream.extra(anyio.abc.SocketAttribute.raw_socket)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


Play = "Callable[[Connection], Awaitable[None]]"


def replies(*answers: bytes) -> Callable[[Connection], Awaitable[None]]:
    """Each request gets the next of ``answers``; then the connection is closed."""

    async def play(connection: Connection) -> None:
        for answer in answers:
            await connection.request()
            await connection.send(answer)

    return play


def always(answer: bytes) -> Callable[[Connection], Awaitable[None]]:
    """Every request gets ``answer``."""

    async def play(connection: Connection) -> None:
        while True:
            await connection.request()
            await connection.send(answer)

    return play


class RawServer:
    """Plays one script per connection; the last one again and again.

    Attributes:
        seen: The requests, in order.
        left: Connections that the client closed while they were held.
    """

    def __init__(self, *plays: Callable[[Connection], Awaitable[None]]) -> None:
        self.plays = plays
        self.connections = 0
        self.open = 0
        self.seen: list[Seen] = []
        self.left = 0
        self._changed = anyio.Event()

    def notify(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    @asynccontextmanager
    async def listening(self, tls: ssl.SSLContext | None = None) -> AsyncGenerator[str]:
        listener: Any = await anyio.create_tcp_listener(local_host="127.0.0.1")
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        if tls is not None:
            listener = TLSListener(listener, tls, standard_compatible=False)
        async with listener, anyio.create_task_group() as group:
            group.start_soon(listener.serve, self._serve)
            name = "http://127.0.0.1" if tls is None else "https://localhost"
            yield f"{name}:{port}/v1"
            group.cancel_scope.cancel()

    async def _serve(self, stream: anyio.abc.ByteStream) -> None:
        self.connections += 1
        self.open += 1
        connection = Connection(self, self.connections, stream)
        play = self.plays[min(self.connections, len(self.plays)) - 1]
        try:
            with suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                await play(connection)
        finally:
            self.open -= 1
            with anyio.CancelScope(shield=True):
                await anyio.aclose_forcefully(stream)
            self.notify()

    async def until(self, ready: Callable[[], bool]) -> None:
        while not ready():
            await self._changed.wait()


# -- the clients


def make_client(kind: str, url: str, **options: Any) -> Any:
    """A client of the user's own, of one of the kinds; None is the library's own transport."""
    if kind == "own":
        return None
    if kind == "httpx2":
        return httpx2.AsyncClient(headers={"authorization": f"Bearer {KEY}"}, **options)
    if kind == "httpx":
        return httpx.AsyncClient(headers={"authorization": f"Bearer {KEY}"}, **options)
    if kind == "openai":
        inner: Any = httpx2.AsyncClient(**options) if options else None
    else:
        inner = httpx.AsyncClient(**options)
    return openai.AsyncOpenAI(api_key=KEY, base_url=url, http_client=inner)


async def close(client: Any) -> None:
    if client is not None:
        with anyio.CancelScope(shield=True):
            await (client.close() if hasattr(client, "close") else client.aclose())


@asynccontextmanager
async def agent_over(kind: str, url: str, *, client: Any = None, **options: Any) -> AsyncGenerator[ChatAgent]:
    """An agent that asks ``url`` through a client of the given kind."""
    made = make_client(kind, url) if client is None else client
    options = {"model": "m", "raise_on_failure": False, "retry": NEVER, **options}
    if made is None:
        options["api_key"] = KEY
    try:
        async with ChatAgent(client=made, base_url=url, **options) as agent:
            yield agent
    finally:
        await close(made)


async def ask(agent: Any, text: str = "hi") -> Any:
    """The text of an answer, or the error with which it failed."""
    agent.add_user_message(text)
    answer = agent.answer()
    said = "".join([chunk async for chunk in answer])
    await answer.wait()
    return answer.result.error or said


def outcome(result: Any) -> str:
    """An answer or its failure in one line."""
    if isinstance(result, str):
        return result
    kind = getattr(result, "kind", None) or type(result).__name__
    status = getattr(result, "status", None)
    return f"<{kind}>" if status is None else f"<{kind} {status}>"


async def outcomes(kind: str, server: RawServer, times: int, **options: Any) -> list[str]:
    """What so many answers of one agent come to."""
    async with server.listening() as url, agent_over(kind, url, **options) as agent:
        return [outcome(await ask(agent)) for _ in range(times)]


def on_each(names: Sequence[str]) -> Any:
    return pytest.mark.parametrize("name", names)
