"""Fuzzing of all that reads a model server's bytes: HTTP body to events, for each dialect.

Whatever the bytes are, nothing but a ``ProviderError`` comes out, and the same events however the bytes are
cut. Hypothesis mutates real streams here, in every run of the tests. For hours of it, with coverage as the
guide, ``pip install atheris`` and run ``python tests/fuzz/test_fuzz_streams.py``; arguments go to libFuzzer.
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from micdrop_agent.errors import ProviderError
from micdrop_agent.model.protocol import CallReady, Finish, Progress, Refusal, TextDone, Usage
from micdrop_agent.providers.responses.chat_stream import ChatTranslator
from micdrop_agent.providers.responses.http_stream import BodyReader
from micdrop_agent.providers.responses.responses_stream import ResponsesTranslator
from micdrop_agent.text import ThinkFilter
from micdrop_agent.transport.parser import ResponseParser

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from micdrop_agent.providers.responses.translator import Translator

_CASES: Final = Path(__file__).parent.parent / "cases"
_EVENTS: Final = (str, CallReady, Finish, Progress, Refusal, TextDone, Usage)
_BITS: Final = [
    b"\r",
    b"\n",
    b"\r\n",
    b"\n\n",
    b"data: ",
    b"data:",
    b"event: error\n",
    b"error: {}\n",
    b": ping\n\n",
    b"[DONE]",
    b"\xef\xbb\xbf",
    b"\xff",
    b"\xf0\x9f\x98\x80",
    b"\\ud83d",
    b"null",
    b"true",
    b"1e999",
    b"-1",
    b'""',
    b"{}",
    b"[]",
    b"{",
    b"[" * 200,
    b'"',
    b"<think>",
    b"</think>",
    b'"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"{}"}}],',
    b'"finish_reason":"tool_calls"',
    b'"finish_reason":"content_filter"',
    b'"error":{"message":"no","code":429},',
    b'{"type":"response.failed","response":{"error":null}}',
    b'{"type":"response.completed","response":{"output":[{"type":"function_call"}]}}',
    b'{"type":"response.incomplete","response":{"incomplete_details":7}}',
]


def _new_id() -> str:
    return "made-up"


def translators() -> list[Callable[[], Translator]]:
    return [
        lambda: ChatTranslator("chat", "secret-key", new_id=_new_id),
        lambda: ChatTranslator("chat", think=ThinkFilter(), new_id=_new_id),
        lambda: ResponsesTranslator("openai", "secret-key"),
    ]


def read(make: Callable[[], Translator], pieces: Sequence[bytes]) -> tuple[list[Any], str | None]:
    """The events of a body and how it failed, read as ``HttpStream`` does."""
    translator = make()
    body = BodyReader(translator)
    events: list[Any] = []
    for piece in pieces:
        body.feed(piece)
        events += translator.events
        translator.events = []
        if translator.done or translator.failure is not None:
            break
    else:
        body.end()
        events += translator.events
    if translator.failure is not None:
        assert isinstance(translator.failure, ProviderError)
        return events, translator.failure.kind
    assert translator.done
    return events, None


def spoken(events: Sequence[Any]) -> tuple[str, list[CallReady]]:
    """What does not depend on the cuts: the words, and the calls."""
    for event in events:
        assert isinstance(event, _EVENTS), event
    words = [
        event.text if isinstance(event, Refusal) else event for event in events if isinstance(event, str | Refusal)
    ]
    assert all(isinstance(word, str) for word in words)
    return "".join(words), [event for event in events if isinstance(event, CallReady)]


def check(data: bytes, cuts: Sequence[int]) -> None:
    """One input: every dialect, in one piece and in many."""
    places = sorted({cut % (len(data) + 1) for cut in cuts})
    pieces = [data[start:end] for start, end in zip([0, *places], [*places, len(data)], strict=True)]
    for make in translators():
        whole, failure = read(make, [data])
        events, failure_of_pieces = read(make, pieces)
        assert failure == failure_of_pieces
        # Behind an end mark or a failure nothing is read; where that stands is the same for all cuts.
        assert _without_random_ids(spoken(whole)) == _without_random_ids(spoken(events))
    check_http(pieces)


def _without_random_ids(said: tuple[str, list[CallReady]]) -> tuple[str, list[tuple[str, str]]]:
    return said[0], [(call.name, call.arguments) for call in said[1]]


def check_http(pieces: Sequence[bytes]) -> None:
    """The same bytes as a whole HTTP response."""
    parser = ResponseParser(max_head_bytes=4096, max_response_bytes=1 << 20)
    try:
        for piece in pieces:
            parser.feed(piece)
            parser.take()
        parser.end_of_connection()
    except ProviderError:
        pass
    finally:
        parser.detach()


@cache
def corpus() -> list[bytes]:
    """Real streams: those of the recorded cases, and a response head."""
    streams = [file.read_bytes() for file in sorted(_CASES.rglob("*.sse"))]
    return [*streams, b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"]


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A real stream with a few faults."""
    data = draw(st.sampled_from(corpus()))
    for _ in range(draw(st.integers(0, 4))):
        start = draw(st.integers(0, len(data)))
        end = min(len(data), start + draw(st.integers(0, 40)))
        bit = draw(st.one_of(st.sampled_from(_BITS), st.binary(max_size=8), st.just(data[start:end] * 2)))
        data = data[:start] + bit + data[end:]
    return data


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(data=mutated(), cuts=st.lists(st.integers(0, 1 << 20), max_size=12))
def test_a_damaged_stream_is_read_the_same_however_it_is_cut_and_fails_only_as_provider_error(
    data: bytes, cuts: list[int]
) -> None:
    check(data, cuts)


@settings(max_examples=300, deadline=None)
@given(
    bits=st.lists(st.one_of(st.sampled_from(_BITS), st.binary(max_size=20)), max_size=20),
    cuts=st.lists(st.integers(0, 999)),
)
@example(bits=[b"\xef\xbb\xbf", b"[DONE]"], cuts=[1])  # a cut within the byte order mark
def test_bytes_without_sense_fail_only_as_provider_error(bits: list[bytes], cuts: list[int]) -> None:
    check(b"".join(bits), cuts)


def test_the_streams_that_are_mutated_are_read_at_all() -> None:
    read_well = [data for data in corpus() if any(read(make, [data])[1] is None for make in translators())]
    assert len(read_well) >= 2


def _with_atheris() -> None:
    import atheris  # type: ignore[import-not-found, import-untyped, unused-ignore]  # optional, see above

    untyped: Any = atheris

    def one_input(data: bytes) -> None:
        check(data[4:], [*data[:4]])

    untyped.instrument_all()
    untyped.Setup(sys.argv, one_input)
    untyped.Fuzz()


if __name__ == "__main__":
    _with_atheris()
