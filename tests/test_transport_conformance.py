"""What gateways, proxies and clients do with HTTP, over every way to a server: the library's own, and four clients.

Each case is a server that answers byte by byte as one was seen to, and what comes of it. What a client does
differently is in ``DIFFERS``, with the reason, and in docs/guides/providers.md.
"""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
import attrs
import pytest
from transport_support import (
    DONE,
    HELLO,
    KINDS,
    OKAY,
    RawServer,
    always,
    chunk_event,
    chunked,
    each_backend,
    each_kind,
    framed,
    head,
    outcomes,
    replies,
    run,
    spoken,
    with_length,
)

from micdrop_agent import Timeouts

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from transport_support import Connection

    Play = Callable[[Connection], Awaitable[None]]

TEXT: Final = spoken("Hello ", "you.")
SSE: Final = "content-type: text/event-stream"
GUIDE: Final = Path(__file__).parent.parent / "docs" / "guides" / "providers.md"


def then_close(answer: bytes, *, body: bool = True) -> Play:
    async def play(connection: Connection) -> None:
        await connection.request(body=body)
        await connection.send(answer)

    return play


def early(answer: bytes, *, keep: bool) -> Play:
    """Refuse before the body was read, and close or stay."""

    async def play(connection: Connection) -> None:
        await connection.request(body=False)
        await connection.send(answer)
        if keep:
            await anyio.sleep_forever()

    return play


def by_letter(answer: bytes) -> Play:
    async def play(connection: Connection) -> None:
        await connection.request()
        for number in range(len(answer)):
            await connection.send(answer[number : number + 1])

    return play


def after_the_first(answer: bytes, second: bytes) -> Play:
    """One good answer, then what an idle connection gets when it expires in that very moment."""

    async def play(connection: Connection) -> None:
        await connection.request()
        await connection.send(answer)
        await connection.request()
        if second:
            await connection.send(second)

    return play


@attrs.frozen
class Case:
    """A server, what its answers come to, and how many connections and requests that takes."""

    plays: list[Play]
    outcomes: list[str]
    connections: int
    requests: int


def whole(answer: bytes) -> Case:
    """The answer is good, and its connection too."""
    return Case([always(answer)], ["Hello you."] * 2, 1, 2)


def refused(status: str, expected: str, *, keep: bool) -> Case:
    answer = with_length(b'{"error": {"message": "no"}}', status, kind="application/json")
    return Case([early(answer, keep=keep), always(OKAY)], [expected, "Okay."], 2, 2)


def last_of(answer: bytes | Case, expected: str = "Hello you.") -> Case:
    play = answer.plays[0] if isinstance(answer, Case) else then_close(answer)
    return Case([play, always(OKAY)], [expected, "Okay."], 2, 2)


PAGE: Final = b"<html>\r\n<head><title>400 The plain HTTP request was sent to HTTPS port</title></head></html>"
MB: Final = "x" * 12_000_000
CUT: Final = chunked(chunk_event("Hello "), end=False)

CASES: Final[dict[str, Case]] = {
    "content-length": whole(HELLO),
    "chunked": whole(chunked(TEXT)),
    "chunk for each byte": whole(chunked(*(TEXT[n : n + 1] for n in range(len(TEXT))))),
    "chunk extensions and trailers": whole(
        head("200 OK", SSE, "transfer-encoding: chunked") + b"%x;a=b\r\n%s\r\n0\r\nx: y\r\n\r\n" % (len(TEXT), TEXT)
    ),
    "early hints": whole(head("103 Early Hints", "link: </x>") + HELLO),
    "continue": whole(head("100 Continue") + HELLO),
    "until close": last_of(head("200 OK", SSE, "connection: close") + TEXT),
    "http/1.0": last_of(HELLO.replace(b"HTTP/1.1", b"HTTP/1.0", 1)),
    "byte by byte": Case([by_letter(HELLO), always(OKAY)], ["Hello you.", "Okay."], 2, 2),
    "gzip": whole(with_length(gzip.compress(TEXT), "200 OK", "content-encoding: gzip")),
    "deflate": whole(with_length(zlib.compress(TEXT), "200 OK", "content-encoding: deflate")),
    "brotli": last_of(with_length(b"\x0b\x02\x80", "200 OK", "content-encoding: br"), "<protocol>"),
    "gzip as transfer coding": last_of(
        head("200 OK", SSE, "transfer-encoding: gzip, chunked") + framed(gzip.compress(TEXT))
    ),
    "unknown transfer coding": last_of(
        head("200 OK", SSE, "transfer-encoding: zstd, chunked") + framed(b"(\xb5/\xfd"), "<protocol>"
    ),
    "content-length twice": whole(with_length(TEXT, "200 OK", f"Content-Length: {len(TEXT)}")),
    "two different lengths": last_of(with_length(TEXT, "200 OK", "Content-Length: 7"), "<connection>"),
    "bare line feeds": whole(
        b"HTTP/1.1 200 OK\ncontent-type: text/event-stream\ncontent-length: %d\n\n" % len(TEXT) + TEXT
    ),
    "cut in the body": last_of(CUT, "<truncated>"),
    "cut in the head": last_of(b"HTTP/1.1 200 OK\r\ncontent-ty", "<connection>"),
    "no answer": last_of(b"", "<connection>"),
    "not HTTP": last_of(b"SSH-2.0-OpenSSH_9.2\r\n", "<connection>"),
    "page of a proxy": last_of(with_length(PAGE, "400 Bad Request", kind="text/html"), "<bad_request 400>"),
    "redirect": last_of(head("307 Temporary Redirect", "location: http://127.0.0.1:9/v1"), "<protocol 307>"),
    "413 before the body was read, then closed": refused("413 Too Large", "<bad_request 413>", keep=False),
    "413 before the body was read, left open": refused("413 Too Large", "<bad_request 413>", keep=True),
    "401 before the body was read, left open": refused("401 Unauthorized", "<auth 401>", keep=True),
    "silent close of an idle connection": Case(
        [after_the_first(HELLO, b""), always(OKAY)], ["Hello you.", "Okay."], 2, 3
    ),
    "408 on an idle connection": Case(
        [after_the_first(HELLO, with_length(b"", "408 Request Time-out", "connection: close")), always(OKAY)],
        ["Hello you.", "Okay."],
        2,
        3,
    ),
    "408 on a new connection": Case(
        [replies(with_length(b"", "408 Request Time-out", "connection: close")), always(OKAY)],
        ["<timeout 408>", "Okay."],
        2,
        2,
    ),
    "a second response in the same packet": Case(
        [replies(HELLO + with_length(spoken("Bad.")), OKAY), always(OKAY)], ["Hello you.", "Okay."], 2, 2
    ),
    "wrong status for an empty account": last_of(
        with_length(b'{"error": {"code": "insufficient_quota"}}', "429 Too Many Requests", kind="application/json"),
        "<quota 429>",
    ),
}

LARGE: Final = {name for name in CASES if "before the body" in name}


@attrs.frozen
class Difference:
    """What a client does in its own way, and why the library lets it."""

    kinds: tuple[str, ...]
    case: Case
    reason: str
    always: bool = True
    """Whether it is so each time; else it depends on what the systems' buffers took."""


H11: Final = ("httpx2", "httpx", "openai", "openai-httpx")

UNREAD: Final = "these clients send the whole request before they look for a response, so the clock ends it"


def hangs(status: str) -> Case:
    other = refused(status, "<timeout>", keep=True)
    return attrs.evolve(other, outcomes=["<timeout>", "Okay."])


DIFFERS: Final[dict[str, Difference]] = {
    "gzip as transfer coding": Difference(
        H11,
        last_of(CASES["gzip as transfer coding"], "<protocol>"),
        "their parser knows no transfer coding but `chunked`, and says so",
    ),
    "content-length twice": Difference(
        ("own",),
        last_of(CASES["content-length twice"], "<connection>"),
        "the library's parser refuses it, and names it",
    ),
    "413 before the body was read, left open": Difference(H11, hangs("413 Too Large"), UNREAD),
    "401 before the body was read, left open": Difference(H11, hangs("401 Unauthorized"), UNREAD),
    "413 before the body was read, then closed": Difference(
        H11,
        refused("413 Too Large", "<connection>", keep=False),
        "some do not read the response once sending has failed",
        always=False,
    ),
    "a second response in the same packet": Difference(
        H11,
        attrs.evolve(CASES["a second response in the same packet"], requests=3),
        "a request that finds it is sent again on another connection; some drop it by themselves",
        always=False,
    ),
}


def expected(name: str, kind: str) -> list[Case]:
    other = DIFFERS.get(name)
    if other is None or kind not in other.kinds:
        return [CASES[name]]
    return [other.case] if other.always else [other.case, CASES[name], attrs.evolve(CASES[name], connections=1)]


# httpx 0.28 leaves the generator of the request's body in the middle when it is cancelled there.
@pytest.mark.filterwarnings("ignore:Exception ignored in. <async_generator object ByteStream.__aiter__")
@each_backend
@each_kind
@pytest.mark.parametrize("name", CASES)
def test_a_server_is_read_alike_over_every_way_to_it(backend: str, kind: str, name: str) -> None:
    cases = expected(name, kind)

    async def scenario() -> None:
        server = RawServer(*cases[0].plays)
        options = {"system_prompt": MB, "timeouts": Timeouts(first_chunk=2)} if name in LARGE else {}
        said = await outcomes(kind, server, len(cases[0].outcomes), **options)
        right = [(case.outcomes, case.connections, case.requests) for case in cases]
        assert (said, server.connections, len(server.seen)) in right

    run(backend, scenario, within=30)


def test_the_guide_lists_what_the_clients_do_differently() -> None:
    text = GUIDE.read_text()
    assert set(DIFFERS) <= set(CASES)
    assert [name for name in DIFFERS if f"| {name} |" not in text] == []
    assert DONE
    assert set(KINDS) >= {kind for other in DIFFERS.values() for kind in other.kinds}
