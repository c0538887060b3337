"""The SSE reader: what real servers send, every way of cutting it, and bytes that nobody should send."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from micdrop_agent.errors import ProviderError
from micdrop_agent.providers.responses.sse import SseReader

if TYPE_CHECKING:
    from micdrop_agent.providers.responses.sse import SseEvent


def read(*pieces: bytes, limit: int | None = None) -> list[SseEvent]:
    reader = SseReader() if limit is None else SseReader(max_event_bytes=limit)
    events: list[SseEvent] = []
    for piece in pieces:
        events += reader.feed(piece)
    return events + reader.finish()


def read_whatever(pieces: list[bytes], limit: int) -> tuple[list[SseEvent], bool]:
    """The events, and whether the reader refused the rest."""
    reader = SseReader(max_event_bytes=limit)
    events: list[SseEvent] = []
    try:
        for piece in pieces:
            events += reader.feed(piece)
        events += reader.finish()
    except ProviderError as error:
        return events, error.kind == "protocol"
    return events, False


def cut(data: bytes, at: list[int]) -> list[bytes]:
    edges = [0, *sorted({min(position, len(data)) for position in at}), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges)]


@pytest.mark.parametrize(
    ("body", "events"),
    [
        (b'data: {"a":1}\n\ndata: [DONE]\n\n', [b'{"a":1}', b"[DONE]"]),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", [b"a", b"b"]),
        (b"data: a\r\rdata: b\r\r", [b"a", b"b"]),
        (b"data: a\r\n\ndata: b\n\r\ndata: c\r\n\r", [b"a", b"b", b"c"]),
        (b"\xef\xbb\xbfdata: a\n\ndata: \xef\xbb\xbfb\n\n", [b"a", b"\xef\xbb\xbfb"]),
        (b": OPENROUTER PROCESSING\n\n:\n: x\ndata: a\n: y\n\n:\n\n", [b"a"]),
        (b"data:a\n\ndata:  b\n\n", [b"a", b" b"]),
        (b"data: a\ndata: b\ndata:c\n\n", [b"a\nb\nc"]),
        (b"data:\ndata: b\n\n", [b"\nb"]),
        (b"data:\n\ndata\n\n\n\ndata: a\n\n", [b"a"]),
        (b"id: 1\nretry: 5\nevent: response.created\ndata: a\nunknown: x\n\n", [b"a"]),
        (b"event: message\ndata: a\n\nevent: ping\ndata: b\n\n", [b"a", b"b"]),
        (b"event: error\ndata: a\n\ndata: b\n\n", [(b"error", b"a"), b"b"]),
        (b"data: a\nevent:error\n\n", [(b"error", b"a")]),
        (b"event: error\n\n", [(b"error", b"")]),
        (b'error: {"code":500}\n\ndata: b\n\n', [(b"error", b'{"code":500}'), b"b"]),
        (b'data: a\n\n{"error":"x"}\n', [b"a", (b"", b'{"error":"x"}')]),
        (b'{"error":"x"}', [(b"", b'{"error":"x"}')]),
        (b'data: {"a":1}\ndata: {"b":{}}\ndata: [DONE]\n', [b'{"a":1}', b'{"b":{}}', b"[DONE]"]),
        (b'data: {"a":1}\r\ndata: {"b":2}\r\n\r\ndata: c', [b'{"a":1}', b'{"b":2}', b"c"]),
        (b'data: {"a":\ndata: {"b":1}\ndata: }\n\n', [b'{"a":\n{"b":1}\n}']),
        (b'data: [{"a":1}\ndata: ,{"b":1}]\n\n', [b'[{"a":1}\n,{"b":1}]']),
        (b"data: a\n\ndata: last", [b"a", b"last"]),
        (b"data: a\n\ndata: last\r", [b"a", b"last"]),
        (b"", []),
        (b"\xef\xbb", []),
        (b"d", []),
        (b"<html>502 Bad Gateway</html>\n", []),
    ],
)
def test_each_shape_that_servers_send_gives_its_events_however_it_is_cut(body: bytes, events: list[SseEvent]) -> None:
    assert read(body) == events
    assert read(*(bytes([byte]) for byte in body)) == events
    for position in range(len(body)):
        assert read(body[:position], body[position:]) == events


@given(
    st.lists(
        st.sampled_from(
            [b"data: ", b"data:", b"data", b"error: x", b"event: error", b"event: e", b":", b"{", b"id: 1", b" ", b"",
             b"\xef\xbb\xbf", "é👍🏽".encode(), b"xxxxxxxxxxxxxxxxxxxxxxxxxxxx", b"\n", b"\n", b"\n\n", b"\r", b"\r\n"]
        ),
        max_size=40,
    ),
    st.lists(st.integers(0, 200), max_size=12),
)  # fmt: skip
def test_the_same_bytes_give_the_same_events_and_the_same_refusal_however_they_are_cut(
    parts: list[bytes], positions: list[int]
) -> None:
    body = b"".join(parts)
    assert read_whatever(cut(body, positions), 40) == read_whatever([body], 40)
    assert read_whatever([bytes([byte]) for byte in body], 40) == read_whatever([body], 40)


@given(st.lists(st.binary(max_size=60), max_size=8), st.integers(1, 64))
def test_no_bytes_raise_anything_but_a_provider_error(pieces: list[bytes], limit: int) -> None:
    assert read_whatever(pieces, limit) == read_whatever([b"".join(pieces)], limit)


@given(
    st.lists(st.text(st.characters(exclude_characters="\r\n", codec="utf-8"), min_size=1), max_size=6),
    st.sampled_from(["\n", "\r", "\r\n"]),
)
def test_texts_come_out_as_they_went_in_with_every_kind_of_line_end(texts: list[str], line_end: str) -> None:
    body = "".join(f"data: {text}{line_end}{line_end}" for text in texts).encode()
    assert read(*(bytes([byte]) for byte in body)) == [text.encode() for text in texts]


def test_an_endless_line_is_refused_at_the_limit_and_the_events_before_it_are_not_lost() -> None:
    reader = SseReader(max_event_bytes=1000)
    assert reader.feed(b"data: good\n\ndata: " + b"x" * 2000) == [b"good"]
    with pytest.raises(ProviderError, match="1,000 bytes") as caught:
        reader.feed(b"x")
    assert caught.value.kind == "protocol"
    with pytest.raises(ProviderError):
        reader.finish()


def test_an_event_of_endlessly_many_lines_is_refused_at_the_limit() -> None:
    reader = SseReader(max_event_bytes=1000)
    for _ in range(1002):
        assert reader.feed(b"data: \n") == []
    with pytest.raises(ProviderError, match="an event"):
        reader.feed(b"data: \n")


def test_a_long_line_in_small_pieces_is_joined_once_and_not_at_every_piece() -> None:
    reader = SseReader()
    reader.feed(b"data: ")
    for _ in range(1000):
        reader.feed(b"x" * 1000)
    assert len(reader._tail) == 1001
    assert reader.feed(b"\n\n") == [b"x" * 1_000_000]
    assert reader._tail == []
