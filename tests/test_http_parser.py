"""HTTP/1.1 responses from bytes: every way of cutting them, of ending them, and of sending too much."""

from __future__ import annotations

import contextlib
import gzip
import itertools
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from micdrop_agent.errors import ProviderError
from micdrop_agent.transport.parser import ResponseParser

CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: a\r\nx-one: 1\r\nX-One: 2\r\nTransfer-Encoding: chunked\r\n\r\n"
BODY = b"5\r\nhello\r\n6;ext=1\r\n world\r\n0\r\n"


def chunked(*pieces: bytes, encoding: str = "") -> bytes:
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n"
    head += f"content-encoding: {encoding}\r\n".encode() if encoding else b""
    return head + b"\r\n" + b"".join(b"%x\r\n%b\r\n" % (len(p), p) for p in pieces if p) + b"0\r\n\r\n"


def parse(*pieces: bytes, eof: bool = False, **limits: int) -> tuple[ResponseParser, bytes]:
    parser = ResponseParser(**limits)
    body = b""
    for piece in pieces:
        parser.feed(piece)
        body += parser.take()
        while parser.pending:
            body += parser.take()
    if eof:
        parser.end_of_connection()
    if parser.complete:
        parser.check_end()
    return parser, body


@pytest.mark.parametrize(
    ("data", "body", "reusable"),
    [
        (CHUNKED + BODY + b"\r\n", b"hello world", True),
        (CHUNKED + BODY + b"trailer: x\r\nx-one: 3\r\n\r\n", b"hello world", True),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello", b"hello", True),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", b"", True),
        (b"HTTP/1.1 200\ncontent-length: 5\n\nhello", b"hello", True),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5  \r\nhello\r\n0 \r\n\r\n", b"hello", True),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", b"hello", False),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b"", True),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello", b"hello", False),
        (b"HTTP/1.0 200 OK\r\ncontent-length: 5\r\n\r\nhello", b"hello", False),
        (b"HTTP/1.1 100 Continue\r\nx: y\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n" + CHUNKED + BODY + b"\r\n", b"hello world", True),
        (CHUNKED + BODY + b"\r\nHTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nbad", b"hello world", False),
        (CHUNKED + BODY + b"\r\nnonsense", b"hello world", False),
        (chunked(gzip.compress(b"hello world", mtime=0), encoding="gzip"), b"hello world", True),
        (chunked(gzip.compress(b"hello ", mtime=0), gzip.compress(b"world", mtime=0), encoding="x-gzip"), b"hello world", True),
        (chunked(zlib.compress(b"hello world"), encoding="deflate"), b"hello world", True),
        (chunked(zlib.compress(b"hello world", wbits=-15), encoding="deflate"), b"hello world", True),
        (chunked(b"hello world", encoding="utf-8"), b"hello world", True),
        (chunked(b"hello world", encoding="none"), b"hello world", True),
    ],
)  # fmt: skip
def test_each_kind_of_body_is_read_whole_however_it_is_cut(data: bytes, body: bytes, reusable: bool) -> None:
    for pieces in ([data], [bytes([byte]) for byte in data], *([data[:n], data[n:]] for n in range(1, len(data)))):
        parser, got = parse(*pieces)
        assert got == body
        assert parser.complete
        assert parser.reusable is reusable or not any(parser.pieces)
    assert parse(data)[0].reusable is reusable


def test_names_are_in_lower_case_repeated_headers_are_joined_and_trailers_left_out() -> None:
    parser, _ = parse(CHUNKED + BODY + b"x-one: 3\r\n\r\n")
    assert parser.status == 200
    assert parser.headers == {"content-type": "a", "x-one": "1, 2", "transfer-encoding": "chunked"}


def test_a_body_without_a_length_ends_with_the_connection_which_is_not_used_again() -> None:
    parser, body = parse(b"HTTP/1.1 200 OK\r\n\r\nhello ", b"world", eof=True)
    assert (body, parser.complete, parser.reusable) == (b"hello world", True, False)


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"", "connection"),
        (b"HTTP/1.1 200 OK\r\n", "connection"),
        (b"HTTP/1.1 100 Continue\r\n\r\n", "connection"),
        (CHUNKED, "truncated"),
        (CHUNKED + BODY, "truncated"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhell", "truncated"),
        (chunked(gzip.compress(b"hello", mtime=0)[:-9], encoding="gzip"), "truncated"),
        (chunked(b"plain text", encoding="gzip"), "protocol"),
        (chunked(b"x", encoding="br"), "protocol"),
        (b"SSH-2.0-OpenSSH\r\n", "connection"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: five\r\n\r\n", "connection"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello", "connection"),
        (CHUNKED + b"zz\r\n", "connection"),
        (b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n", "connection"),
    ],
)
def test_each_kind_of_cut_or_broken_response_is_named(data: bytes, kind: str) -> None:
    for pieces in ([data], [bytes([byte]) for byte in data]):
        with pytest.raises(ProviderError) as caught:
            parse(*pieces, eof=True)
        assert caught.value.kind == kind


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 2000,
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 9000,
        b"HTTP/1.1 100 Continue\r\n\r\n" * 500,
        b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 30_000,
        CHUNKED + b"1;" + b"x" * 30_000,
        CHUNKED + b"0\r\n" + b"x: y\r\n" * 5000,
        chunked(gzip.compress(b"x" * 3_000_000, mtime=0), encoding="gzip"),
    ],
)
def test_what_never_ends_is_refused_at_a_limit(data: bytes) -> None:
    pieces = [data[i : i + 100] for i in range(0, len(data), 100)]
    with pytest.raises(ProviderError) as caught:
        parse(*pieces, max_head_bytes=4000, max_response_bytes=20_000)
    # llhttp has a limit of its own for some of them.
    assert caught.value.kind in {"protocol", "connection"}


def test_every_flush_of_a_compressed_stream_is_given_out_at_once() -> None:
    packer = zlib.compressobj(wbits=31)
    parser = ResponseParser()
    parser.feed(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-encoding: gzip\r\n\r\n")
    for event in (b"data: one\n\n", b"data: two\n\n"):
        piece = packer.compress(event) + packer.flush(zlib.Z_SYNC_FLUSH)
        parser.feed(b"%x\r\n%b\r\n" % (len(piece), piece))
        assert parser.take() == event


@given(st.lists(st.binary(max_size=40), max_size=6), st.booleans(), st.sampled_from(["", "gzip", "deflate"]))
def test_no_bytes_raise_anything_but_a_provider_error(pieces: list[bytes], head: bool, encoding: str) -> None:
    start = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-encoding: " + encoding.encode() + b"\r\n\r\n"
    with contextlib.suppress(ProviderError):
        parse(*([start] if head else []), *pieces, eof=True)


@given(
    st.lists(st.binary(max_size=30), max_size=8),
    st.lists(st.integers(0, 400), max_size=8),
    st.sampled_from(["", "gzip"]),
)
def test_any_body_comes_out_whole_however_the_bytes_are_cut(parts: list[bytes], cuts: list[int], encoding: str) -> None:
    body = b"".join(parts)
    data = chunked(*([gzip.compress(body)] if encoding else parts), encoding=encoding)
    edges = [0, *sorted({min(c, len(data)) for c in cuts}), len(data)]
    parser, got = parse(*(data[a:b] for a, b in itertools.pairwise(edges)))
    assert got == body
    assert parser.complete
    assert parser.reusable
