"""Streams into events: the cases of group A, every cutting of them, and what is no stream at all."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from micdrop_agent.model.protocol import CallReady, Finish, Progress, Refusal, Usage
from micdrop_agent.providers.responses.chat_stream import ChatTranslator
from micdrop_agent.providers.responses.fastpath import TextTemplate
from micdrop_agent.providers.responses.http_stream import BodyReader
from micdrop_agent.providers.responses.responses_stream import ResponsesTranslator
from micdrop_agent.text import ThinkFilter

if TYPE_CHECKING:
    from collections.abc import Iterable

    from micdrop_agent.errors import ProviderError
    from micdrop_agent.model.protocol import ProviderEvent
    from micdrop_agent.providers.responses.translator import Translator

CASES = Path(__file__).parent / "cases"


def translator(protocol: str) -> Translator:
    if protocol == "responses":
        return ResponsesTranslator("p", new_id=lambda: "made-up")
    return ChatTranslator("p", new_id=lambda: "made-up")


def read(pieces: Iterable[bytes], protocol: str = "chat") -> tuple[list[ProviderEvent], ProviderError | None]:
    reader = BodyReader(translator(protocol))
    for piece in pieces:
        reader.feed(piece)
    reader.end()
    events: list[ProviderEvent] = [event for event in reader.translator.events if not isinstance(event, Progress)]
    return events, reader.translator.failure


def spoken(events: list[ProviderEvent]) -> str:
    return "".join(e if isinstance(e, str) else e.text for e in events if isinstance(e, str | Refusal))


def calls(events: list[ProviderEvent]) -> list[CallReady]:
    return [event for event in events if isinstance(event, CallReady)]


@cache
def wire_cases() -> list[tuple[str, str, bytes, dict[str, Any]]]:
    found: list[tuple[str, str, bytes, dict[str, Any]]] = []
    for folder in sorted(CASES.glob("a-*")):
        wire = json.loads((folder / "wire.json").read_text())
        attempt = wire["attempts"][0]
        if attempt.get("status") == 200 and attempt.get("end") == "terminator":
            expect = json.loads((folder / "expect.json").read_text())
            body = (folder / attempt["body_file"]).read_bytes()
            found.append((folder.name, wire["protocol"], body, expect.get("turns", [expect])[0]))
    return found


@pytest.mark.parametrize(("name", "protocol", "body", "expect"), wire_cases())
def test_a_response_is_read_as_its_case_says(name: str, protocol: str, body: bytes, expect: dict[str, Any]) -> None:
    events, failure = read([body], protocol)
    if calls(events) and expect["requests"] == 2:
        assert spoken(events) == ""  # what is spoken there is the answer to the second request
    else:
        assert spoken(events) == expect["spoken"]
    assert [(c.name, json.loads(c.arguments), c.id) for c in calls(events)] == [
        (c["name"], c["arguments"], c["id"]) for c in expect["tool_calls"]
    ]
    if "history_arguments" in expect:
        assert [call.arguments for call in calls(events)] == expect["history_arguments"]
    wanted = expect.get("failure", {}).get("kind")
    if wanted == "truncated" and failure is None:
        # No text and the token limit: that this is a failure is known to the turn only.
        assert events[-1] == Finish("length", "length")
    else:
        assert (failure and failure.kind) == wanted
    if wanted is None:
        assert isinstance(events[-1], Finish)


@given(data=st.data())
def test_the_cutting_of_a_response_changes_nothing(data: st.DataObject) -> None:
    _, protocol, body, _ = data.draw(st.sampled_from(wire_cases()))
    if data.draw(st.booleans()):
        body = body.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
    edges = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=8)))
    pieces = [body[a:b] for a, b in zip([0, *edges], [*edges, len(body)], strict=True)]
    events, failure = read(pieces, protocol)
    whole, whole_failure = read([body], protocol)
    assert events == whole
    assert str(failure) == str(whole_failure)


WORDS = [
    b"data: ", b"\n\n", b"\n", b"event: error\n", b"error: ", b"[DONE]", b":", b"{", b"[", b"<html>", b"\xef\xbb\xbf", b"\xff",
    b'{"choices":[{"index":0,"delta":{"content":"Hi"}}]}', b'{"choices":[{"delta":{"tool_calls":[{"function":{"name":"w"}}]}}]}',
    b'{"choices":[{"delta":', b'{"choices":[[]]}', b'{"choices":[{"index":[],"finish_reason":{}}],"usage":[1]}', b'{"error":{}}',
    b'{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":-1,"completion_tokens":1e999}}',
    b'{"type":"response.output_text.delta","output_index":"x","delta":"Hi"}', b'{"type":"response.completed","response":7}',
    b'{"type":"response.output_item.done","output_index":1,"item":{"type":"function_call","name":"w","arguments":[NaN]}}',
    b'{"type":["x"]}', b'{"type":"response.failed"}', b"[" * 3000, b'{"a":' * 3000, b"null", b"1", b'"x"', b"{}",
]  # fmt: skip


@given(
    pieces=st.lists(st.sampled_from(WORDS) | st.binary(max_size=20), max_size=12),
    protocol=st.sampled_from(["chat", "responses"]),
)
def test_no_bytes_raise_and_every_body_ends_in_a_finish_or_a_failure(pieces: list[bytes], protocol: str) -> None:
    events, failure = read(pieces, protocol)
    assert failure is not None or isinstance(events[-1], Finish | Usage | Refusal | str | CallReady)
    assert failure is not None or any(isinstance(event, Finish) for event in events)


# -- chunks of Chat Completions


def chunk(delta: Any = None, finish: Any = None, *, compact: bool = False, **more: Any) -> bytes:
    choice: dict[str, Any] = {"index": 0, "delta": {} if delta is None else delta, "finish_reason": finish}
    data: dict[str, Any] = {"id": "c", "object": "chat.completion.chunk", "choices": [choice], **more}
    separators = (",", ":") if compact else (", ", ": ")
    return b"data: " + json.dumps(data, ensure_ascii=False, separators=separators).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"


def test_one_chunk_is_one_piece_of_text() -> None:
    texts = ["Good", " ", "morn", 'ing "all"', "\n", "\\", "日本", "."]
    events, _ = read([b"".join(chunk({"content": text}) for text in texts) + chunk(finish="stop") + DONE])
    assert events == [*texts, Finish("stop", "stop")]


@given(texts=st.lists(st.text(min_size=1, max_size=5), max_size=6), extra=st.text(max_size=3), compact=st.booleans())
def test_the_fast_way_reads_what_the_slow_way_reads(texts: list[str], extra: str, compact: bool) -> None:
    chunks = [chunk({"content": text, "x": extra}, system_fingerprint=extra, compact=compact) for text in texts]
    events, _ = read([*chunks, chunk(finish="stop"), DONE])
    assert events == [*texts, Finish("stop", "stop")]


@pytest.mark.parametrize("compact", [False, True])
def test_the_fast_way_is_taken_with_and_without_blanks_after_colons(compact: bool) -> None:
    first, second = (chunk({"content": text}, compact=compact)[6:-2] for text in ("Hi", "日本"))
    assert TextTemplate(first, "Hi").match(second) == "日本"


@pytest.mark.parametrize(
    "event",
    [
        b'{"a":"content","choices":[{"delta":{"content" : "Hi"}}]}',
        b'{"content":"Hi","choices":[{"delta":{"content": "Hi"}}]}',
        b'{"choices":[{"delta":{"content":"Hi","content":"Ho"}}]}',
        b'{"choices":[{"delta":{"content":"H\\u0069"}}]}',
    ],
)
def test_a_place_that_cannot_be_proved_is_not_learned(event: bytes) -> None:
    assert TextTemplate(event, "Hi").match(event) is None


def test_text_behind_the_finish_reason_and_usage_in_any_place_are_taken() -> None:
    usage = {"prompt_tokens": 7, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 5}}
    told = Usage(input_tokens=7, output_tokens=2, cached_tokens=5)
    behind, _ = read(
        [
            chunk({"content": "a"}, "stop"),
            chunk({"content": "b"}),
            b'data: {"choices":[],"usage":%b}\n\n' % json.dumps(usage).encode(),
            DONE,
        ]
    )
    assert behind == ["a", Finish("stop", "stop"), "b", told, Finish("stop", "stop")]
    inside, _ = read(
        [chunk({"content": "a"}, "stop", usage=usage), b'data: {"usage":%b}\n\n' % json.dumps(usage).encode()]
    )
    assert inside == ["a", told, Finish("stop", "stop")]


@pytest.mark.parametrize(
    "usage", [None, 3, [], {"prompt_tokens": "many"}, {"prompt_tokens": None, "completion_tokens": -1}]
)
def test_an_odd_usage_fails_no_answer(usage: Any) -> None:
    events, failure = read([chunk({"content": "Hi"}, "stop", usage=usage), DONE])
    assert failure is None
    assert events == ["Hi", Finish("stop", "stop")]


def escaped(delta: Any) -> bytes:
    return b"data: %b\n\n" % json.dumps({"choices": [{"index": 0, "delta": delta}]}).encode()


@pytest.mark.parametrize("protocol", ["chat", "responses"])
@given(
    units=st.lists(
        st.sampled_from(["A", "\u00e5", "\ud83d", "\ude00", "\ud83d\ude00", "\ufffd"]), min_size=1, max_size=8
    )
)
def test_half_a_letter_waits_for_its_other_half_and_none_is_ever_spoken(protocol: str, units: list[str]) -> None:
    if protocol == "chat":
        pieces = [escaped({"content": unit}) for unit in units] + [chunk(finish="stop")]
    else:
        events = [{"type": "response.output_text.delta", "delta": unit} for unit in units]
        ended = {"type": "response.completed", "response": {"status": "completed"}}
        pieces = [b"data: %b\n\n" % json.dumps(event).encode() for event in [*events, ended]]
    text = spoken(read(pieces, protocol)[0])
    said = "".join(units)
    ended_in_half = said[-1] == "\ud83d"
    wanted = (said[:-1] if ended_in_half else said).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    assert text == wanted
    text.encode()


def test_a_letter_that_is_cut_in_the_arguments_of_a_call_is_whole_in_the_call() -> None:
    fragments: list[dict[str, Any]] = [
        {"index": 0, "id": "c", "function": {"name": "w", "arguments": '{"a":"\ud83d'}},
        {"index": 0, "function": {"arguments": '\ude00"}'}},
    ]
    pieces = [escaped({"tool_calls": [fragment]}) for fragment in fragments]
    assert calls(read([*pieces, chunk(finish="tool_calls")])[0]) == [CallReady("c", "w", '{"a":"\U0001f600"}')]


def told_usage(events: list[ProviderEvent]) -> Usage:
    return sum((event for event in events if isinstance(event, Usage)), Usage())


@given(
    figures=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=5),
    end=st.sampled_from([[], [chunk(finish="stop")], [chunk(finish="stop"), DONE], [b'data: {"error":"x"}\n\n']]),
)
@example(figures=[(1, 0), (1, 0), (0, 0), (1, 0)], end=[])
def test_usage_that_is_counted_on_adds_up_to_its_last_figure_however_the_response_ends(
    figures: list[tuple[int, int]], end: list[bytes]
) -> None:
    pieces = [
        chunk({"content": "a"}, usage={"prompt_tokens": prompt, "completion_tokens": completion})
        for prompt, completion in figures
    ]
    usage = told_usage(read([*pieces, *end])[0])
    assert (usage.input_tokens or 0, usage.output_tokens or 0) == figures[-1]


def test_usage_in_a_choice_and_usage_that_grows_behind_the_finish_reason_are_taken() -> None:
    choice = {"index": 0, "delta": {"content": "Hi"}, "finish_reason": "stop", "usage": {"prompt_tokens": 1}}
    behind = b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2,"cached_tokens":1}}\n\n'
    events, _ = read([b"data: %b\n\n" % json.dumps({"choices": [choice]}).encode(), behind, DONE])
    assert told_usage(events) == Usage(input_tokens=3, output_tokens=2, cached_tokens=1)


def test_a_reason_that_comes_with_or_before_the_first_words_is_doubtful() -> None:
    def doubts(*pieces: bytes) -> list[bool]:
        return [event.doubtful for event in read(pieces)[0] if isinstance(event, Finish)]

    assert doubts(chunk({"content": "a"}, "stop"), chunk({"content": "b"}, "stop"), DONE) == [True, True]
    assert doubts(chunk({"role": "assistant"}, "stop"), chunk({"content": "b"}, "stop"), DONE) == [True, True]
    assert doubts(chunk({"content": "a"}), chunk({"content": "b"}, "stop"), DONE) == [False]
    assert doubts(chunk({"content": "a"}), DONE) == [False]


@pytest.mark.parametrize(
    ("payload", "kind"),
    [
        ({"choices": [{"index": 0, "delta": {}, "error": {"code": 429, "message": "later"}}]}, "rate_limit"),
        ({"choices": [{"index": 0, "delta": {}, "finish_reason": "error", "error": {"code": 502}}]}, "server"),
        ({"code": "InvalidParameter", "message": "no", "request_id": "r"}, "server"),
        ({"code": "InvalidApiKey", "message": "no", "request_id": "r"}, "auth"),
        ({"code": 503, "message": "no"}, "overloaded"),
        ({"status_code": 429, "message": "no"}, "rate_limit"),
        ({"detail": "Internal Server Error"}, "server"),
        ({"error_code": 401, "error_msg": "no"}, "auth"),
    ],
)
@pytest.mark.parametrize("end", [b"", DONE])
def test_a_failure_told_in_an_unusual_place_is_that_failure(payload: Any, kind: str, end: bytes) -> None:
    events, failure = read([b"data: %b\n\n" % json.dumps(payload).encode(), end])
    assert events == []
    assert failure is not None
    assert failure.kind == kind


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("error", "server"),
        ("abort", "server"),
        ("network_error", "server"),
        ("insufficient_system_resource", "overloaded"),
        ("sensitive", "content_filter"),
    ],
)
def test_a_reason_that_says_that_the_model_gave_up_is_a_failure(reason: str, kind: str) -> None:
    events, failure = read([chunk({"content": "Hi "}), chunk(finish=reason), DONE])
    assert events == ["Hi "]
    assert failure is not None
    assert failure.kind == kind


@pytest.mark.parametrize("protocol", ["chat", "responses"])
def test_events_that_were_framed_twice_are_read(protocol: str) -> None:
    told: list[Any] = [{"choices": [{"index": 0, "delta": {"content": "Hi"}}]}]
    if protocol == "responses":
        told = [{"type": "response.output_text.delta", "delta": "Hi"}, {"type": "response.completed"}]
    lines = [*(json.dumps(value) for value in told), "[DONE]"]
    # What a framework makes of events that already have their prefix and their blank line.
    body = "".join(f"data: data: {line}\r\ndata: \r\ndata: \r\n\r\n" for line in lines)
    events, failure = read([body.encode()], protocol)
    assert failure is None
    assert spoken(events) == "Hi"


def test_words_beside_the_answer_are_no_failure_of_it() -> None:
    note = b'data: {"message":"queued","position":2}\n\n'
    assert read([note, chunk({"content": "Hi"}), chunk(finish="stop"), DONE]) == (["Hi", Finish("stop", "stop")], None)


def test_a_refusal_is_spoken_as_one() -> None:
    events, _ = read(
        [chunk({"content": None, "refusal": "I can"}), chunk({"refusal": "not."}), chunk(finish="stop"), DONE]
    )
    assert events == [Refusal("I can"), Refusal("not."), Finish("stop", "stop")]


def test_thinking_in_the_text_is_not_spoken() -> None:
    reader = BodyReader(ChatTranslator("p", think=ThinkFilter()))
    for text in ["<th", "ink>", "greet", "</thi", "nk>\n\n", "Hello", " <", "3"]:
        reader.feed(chunk({"content": text}))
    reader.feed(chunk(finish="stop"))
    assert spoken(reader.translator.events) == "Hello <3"


@pytest.mark.parametrize("reason", ["content_filter", "SAFETY", "content_filter: RECITATION"])
def test_a_content_filter_fails_and_runs_no_call(reason: str) -> None:
    call = {"index": 0, "id": "c", "function": {"name": "w", "arguments": "{}"}}
    events, failure = read([chunk({"content": "First"}), chunk({"tool_calls": [call]}), chunk(finish=reason), DONE])
    assert events == ["First"]
    assert failure is not None
    assert (failure.kind, failure.retryable) == ("content_filter", False)


def test_the_token_limit_runs_no_call_that_may_be_cut() -> None:
    call = {"index": 0, "id": "c", "function": {"name": "w", "arguments": '{"a":1}'}}
    events, _ = read([chunk({"tool_calls": [call]}), chunk(finish="length"), DONE])
    assert events == [Finish("length", "length")]


def test_calls_come_out_with_the_finish_reason_and_not_later() -> None:
    reader = BodyReader(translator("chat"))
    reader.feed(chunk({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "w", "arguments": ""}}]}))
    reader.feed(chunk(finish="tool_calls"))
    assert reader.translator.events[1:] == [CallReady("c", "w", "{}"), Finish("tool_calls", "tool_calls")]
    assert reader.translator.finishing
    assert not reader.translator.done


def test_words_behind_a_call_make_it_whole() -> None:
    def call(arguments: str) -> bytes:
        return chunk({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "w", "arguments": arguments}}]})

    for arguments in ("{}", '{"a":1}'):
        events, _ = read(
            [chunk({"content": "a"}), call(arguments), chunk({"content": "b"}), chunk(finish="stop"), DONE]
        )
        assert events == ["a", CallReady("c", "w", arguments), "b", Finish("stop", "stop")]
    # Without arguments they may still come: the tool does not run with made-up ones.
    events, _ = read([call(""), chunk({"content": "b"}), call('{"a":1}'), chunk(finish="stop"), DONE])
    assert events == ["b", CallReady("c", "w", '{"a":1}'), Finish("stop", "stop")]


def test_an_end_mark_without_a_finish_reason_is_an_end() -> None:
    events, failure = read([chunk({"content": "Hi"}), DONE])
    assert (events, failure) == (["Hi", Finish("stop")], None)


def test_the_old_function_call_member_is_a_call() -> None:
    deltas = [{"function_call": {"name": "w", "arguments": '{"a"'}}, {"function_call": {"arguments": ":1}"}}]
    events, _ = read([*(chunk(delta) for delta in deltas), chunk(finish="function_call"), DONE])
    assert events == [CallReady("made-up", "w", '{"a":1}'), Finish("tool_calls", "function_call")]


def test_only_the_first_choice_is_spoken() -> None:
    other = json.dumps(
        {"choices": [{"index": 1, "delta": {"content": "No"}}, {"index": 0, "delta": {"content": "Yes"}}]}
    )
    events, _ = read([b"data: %b\n\n" % other.encode(), chunk(finish="stop")])
    assert events == ["Yes", Finish("stop", "stop")]


def test_a_damaged_chunk_fails_behind_what_came_before_it() -> None:
    events, failure = read([chunk({"content": "Hi"}) + b'data: {"choices":[{"del\n\n' + chunk({"content": "no"})])
    assert events == ["Hi"]
    assert failure is not None
    assert (failure.kind, failure.retryable) == ("protocol", True)


# -- bodies that are no event stream


def test_a_whole_completion_is_an_answer() -> None:
    message = {
        "role": "assistant",
        "content": "Hello.",
        "tool_calls": [{"id": "c", "function": {"name": "w", "arguments": "{}"}}],
    }
    body = {"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}], "usage": {"prompt_tokens": 1}}
    events, failure = read([b"\n", json.dumps(body, indent=1).encode()])
    assert failure is None
    assert events == ["Hello.", CallReady("c", "w", "{}"), Usage(input_tokens=1), Finish("tool_calls", "tool_calls")]


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"<html><body>Welcome</body></html>", "protocol"),
        (b'{"hello": 1}', "protocol"),
        (b"{broken", "protocol"),
        (b'{"error":{"message":"no","code":"invalid_api_key"}}', "auth"),
        (b'[{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"no"}}]', "rate_limit"),
        (b"", "truncated"),
        (b"no healthy upstream", "truncated"),
    ],
)
@pytest.mark.parametrize("protocol", ["chat", "responses"])
def test_what_is_no_answer_is_a_clear_failure(body: bytes, kind: str, protocol: str) -> None:
    events, failure = read([body], protocol)
    assert events == []
    assert failure is not None
    assert failure.kind == kind
