"""Bytes are handled in slices: whatever a server sends, the event loop has its turn, and memory stays bounded.

How much is handled between two turns is counted, not timed; ``benchmarks/hostile.py`` measures.
"""

from __future__ import annotations

import gzip
import tracemalloc
import zlib
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from micdrop_agent import ChatAgent, ProviderError, Retry, Timeouts
from micdrop_agent.providers.json_text import decode
from micdrop_agent.providers.responses.chat_stream import ChatTranslator
from micdrop_agent.providers.responses.http_stream import (
    DENSE_BYTES,
    MAX_EVENTS,
    MAX_TEXT_CHARS,
    SLICE_BYTES,
    SLICE_EVENTS,
    SLICE_LINES,
    BodyReader,
    HttpStream,
)
from micdrop_agent.testing import BACKENDS, ScriptedProvider, run_virtual
from micdrop_agent.transport.base import Response
from micdrop_agent.transport.decoding import SLICE_BYTES as UNPACKED_BYTES
from micdrop_agent.transport.decoding import Decoder

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from micdrop_agent.testing import Backend, Exchange

each_backend = pytest.mark.parametrize("backend", BACKENDS)
WORD: Final = b'data: {"choices":[{"index":0,"delta":{"content":"word "},"finish_reason":null}]}\n\n'
MIB: Final = 1024 * 1024


class Body(Response):
    """A response that has everything at once, and never lets the loop run by itself."""

    def __init__(self, *reads: bytes) -> None:
        self.status = 200
        self.headers = {}
        self._reads = list(reads)

    async def receive(self) -> bytes:
        if not self._reads:
            raise anyio.EndOfStream
        return self._reads.pop(0)

    async def aclose(self) -> None:
        """Nothing is open."""


def unpacked(data: bytes, *, at: int) -> tuple[bytes, int]:
    """What ``data`` unpacks to, cut at ``at``, and the largest slice."""
    decoder = Decoder(1 << 30)
    body, largest = b"", 0
    for piece in (data[:at], data[at:]):
        decoder.feed(piece)
        while decoder.pending:
            part = decoder.take()
            largest = max(largest, len(part))
            body += part
    assert decoder.complete
    return body, largest


@settings(max_examples=60, deadline=None)
@given(
    parts=st.lists(st.binary(max_size=300) | st.integers(0, 400_000).map(bytes), max_size=4),
    cut=st.floats(0, 1),
    kind=st.sampled_from(["gzip", "zlib", "raw"]),
)
def test_a_coded_body_comes_in_slices_and_whole_however_it_is_cut(parts: list[bytes], cut: float, kind: str) -> None:
    body = b"".join(parts)
    if kind == "gzip":
        data = b"".join(gzip.compress(part) for part in parts or [b""])
    else:
        packer = zlib.compressobj(wbits=15 if kind == "zlib" else -15)
        data = packer.compress(body) + packer.flush()
    got, largest = unpacked(data, at=int(cut * len(data)))
    assert got == body
    assert largest <= UNPACKED_BYTES


def test_members_without_end_are_begun_a_few_at_a_time() -> None:
    decoder = Decoder(MIB)
    decoder.feed(gzip.compress(b"") * 3000)
    turns = 0
    while decoder.pending:
        assert decoder.take() == b""
        turns += 1
    assert turns > 3000 / 33


FLOODS: Final = {
    "words": WORD,
    "blank lines": b"\n",
    "carriage returns": b"\r",
    "comments": b": ping\n\n",
    "pings": b"data: ping\n\n",
    "empty data": b"data:\n",
    "numbers": b"data: 1\n\n",
    "names": b"event: x\n",
    "words that are no fields": b"hello\n",
    "zero bytes": b"\x00",
    "errors of nothing": b"event: error\n",
}


@each_backend
@pytest.mark.parametrize("flood", FLOODS)
def test_the_loop_has_its_turn_between_two_slices_of_a_flood(backend: Backend, flood: str) -> None:
    unit = FLOODS[flood]
    read = unit * (65_536 // len(unit))

    async def scenario() -> None:
        turns = slices = most = 0

        async def watch() -> None:
            nonlocal turns
            while True:
                await anyio.lowlevel.checkpoint()
                turns += 1

        stream = HttpStream(Body(WORD, *[read] * 20), ChatTranslator("p"), "p")
        async with anyio.create_task_group() as group:
            group.start_soon(watch)
            await anyio.lowlevel.checkpoint()
            try:
                while (events := await stream.receive()) is not None:
                    slices += 1
                    most = max(most, len(events))
            except ProviderError:
                pass
            group.cancel_scope.cancel()
        # Twenty reads of 64 KiB are forty slices at least; every slice but the first of a read lets the loop run.
        assert most <= SLICE_EVENTS
        if slices > 20:
            assert slices >= 0.8 * 20 * 65_536 / SLICE_BYTES  # a line without end is refused after a megabyte
            assert turns >= slices / 4

    run_virtual(backend, scenario)


@pytest.mark.parametrize("line", [b"data:\n", b"x\n", b"id: 1\n", b"error:\n", b":\n"])
def test_a_slice_of_short_lines_is_smaller(line: bytes) -> None:
    reader = BodyReader(ChatTranslator("p"))
    reader.feed(WORD)
    reader.feed(line * (65_536 // len(line)))
    slices = 1
    while reader.behind:
        slices += 1
        reader.catch_up()
    assert 65_536 / slices / len(line) <= SLICE_LINES * 2
    assert slices >= 65_536 / DENSE_BYTES - 1


@pytest.mark.parametrize("prefix", [b"\n", b"\r\n", b" \n\t", b"\xef\xbb\xbf\n"])
def test_blank_lines_before_the_first_event_are_not_kept(prefix: bytes) -> None:
    reader = BodyReader(ChatTranslator("p"))
    reader.feed(prefix)
    for _ in range(200):
        reader.feed(b"\n" * 4096)
    assert reader.translator.failure is None
    reader.feed(WORD)
    assert reader.translator.events == ["word "]
    late = BodyReader(ChatTranslator("p"))
    for _ in range(80):
        late.feed(b"\n" * 16_000)
        while late.behind:
            late.catch_up()
    assert late.translator.failure is not None
    assert "blank" in str(late.translator.failure)


def flooding(data: bytes, **headers: str) -> Callable[[Exchange], Awaitable[None]]:
    async def reply(exchange: Exchange) -> None:
        await exchange.head(200, headers)
        while True:
            await exchange.send(data)
            await anyio.lowlevel.checkpoint()

    return reply


def fails(backend: Backend, reply: Any, **options: Any) -> tuple[ProviderError, float, int]:
    """The failure of an answer, when it came, and how many letters had come."""
    found: list[Any] = []

    async def scenario() -> None:
        async with (
            ScriptedProvider([reply]) as provider,
            ChatAgent(
                model="m",
                base_url=provider.base_url,
                connect=provider.connect,
                retry=Retry(max_retries=0),
                raise_on_failure=False,
                **options,
            ) as agent,
        ):
            agent.add_user_message("hi")
            answer = agent.answer()
            letters = 0
            async for chunk in answer:
                letters += len(chunk)
            found.extend((answer.result.error, anyio.current_time(), letters))

    run_virtual(backend, scenario)
    return found[0], found[1], found[2]


BIG: Final = b'data: {"choices":[{"index":0,"delta":{"content":"%s"}}]}\n\n' % (b"x" * 30_000)


@each_backend
def test_a_text_without_end_is_ended_by_a_limit(backend: Backend) -> None:
    error, _, letters = fails(backend, flooding(BIG))
    assert (error.kind, error.retryable) == ("protocol", False)
    assert f"{MAX_TEXT_CHARS:,} characters" in str(error)
    assert MAX_TEXT_CHARS <= letters < MAX_TEXT_CHARS + 100_000


def test_events_without_end_are_ended_by_a_limit() -> None:
    reader = BodyReader(ChatTranslator("p"))
    pings = b"data: 1\n\n" * 200
    for _ in range(MAX_EVENTS // 200 + 2):
        reader.feed(pings)
    assert reader.translator.failure is not None
    assert f"{MAX_EVENTS:,} events" in str(reader.translator.failure)


def test_a_bomb_costs_little_memory() -> None:
    bomb = gzip.compress(b"\n" * (60 * MIB))
    tracemalloc.start()
    try:
        decoder = Decoder(64 * MIB)
        reader = BodyReader(ChatTranslator("p"))
        decoder.feed(bomb)
        while decoder.pending and reader.translator.failure is None:
            reader.feed(decoder.take())
            while reader.behind:
                reader.catch_up()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * MIB


@pytest.mark.parametrize("unit", [b"[],", b"{},", b"1,", b'"",'])
def test_dense_json_is_refused_before_it_is_parsed(unit: bytes) -> None:
    with pytest.raises(ValueError, match="too many"):
        decode(b"[" + unit * (MIB // len(unit)) + b"0]")
    assert decode(b'["%s"]' % (b"a, " * 20_000))
    assert decode(b'{"text":"%s"}' % (b"a letter " * 100_000))


@each_backend
def test_the_clocks_hold_while_bytes_flood(backend: Backend) -> None:
    async def slowly(exchange: Exchange) -> None:
        while True:
            await exchange.send(b": ping\n\n" * 500)
            await anyio.sleep(0.001)

    error, at, _ = fails(backend, slowly, timeouts=Timeouts(first_chunk=0.5))
    assert error.kind == "timeout"
    assert at == pytest.approx(0.5, abs=0.05)

    async def words(exchange: Exchange) -> None:
        while True:
            await exchange.send(WORD * 20)
            await anyio.sleep(0.001)

    error, at, _ = fails(backend, words, timeouts=Timeouts(total=0.5))
    assert error.kind == "timeout"
    assert at == pytest.approx(0.5, abs=0.05)
