"""Streams of the Responses API: which message is spoken, which call runs, how a response ends."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from micdrop_agent.model.protocol import TEXT_DONE, CallReady, Finish, Progress, Refusal, Usage
from micdrop_agent.providers.responses.http_stream import BodyReader
from micdrop_agent.providers.responses.responses_stream import ResponsesTranslator

if TYPE_CHECKING:
    from collections.abc import Iterable

    from micdrop_agent.errors import ProviderError
    from micdrop_agent.model.protocol import ProviderEvent


def read(pieces: Iterable[bytes]) -> tuple[list[ProviderEvent], ProviderError | None]:
    reader = BodyReader(ResponsesTranslator("p", new_id=lambda: "made-up"))
    for piece in pieces:
        reader.feed(piece)
    reader.end()
    events: list[ProviderEvent] = [event for event in reader.translator.events if not isinstance(event, Progress)]
    return events, reader.translator.failure


def spoken(events: list[ProviderEvent]) -> str:
    return "".join(e if isinstance(e, str) else e.text for e in events if isinstance(e, str | Refusal))


def calls(events: list[ProviderEvent]) -> list[CallReady]:
    return [event for event in events if isinstance(event, CallReady)]


def event(kind: str, **more: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), json.dumps({"type": kind, **more}).encode())


def delta(text: str, index: int = 0, part: int = 0) -> bytes:
    return event("response.output_text.delta", output_index=index, content_index=part, delta=text)


def completed(output: Iterable[Any] = (), **more: Any) -> bytes:
    return event("response.completed", response={"status": "completed", "output": list(output), **more})


def test_the_second_message_is_not_spoken_also_when_it_interleaves() -> None:
    pieces = [delta("We "), delta("No", 1), delta("open."), delta("pe", 1), completed()]
    assert spoken(read(pieces)[0]) == "We open."


def test_a_part_that_is_done_is_not_spoken_again() -> None:
    done = event("response.output_text.done", output_index=0, content_index=0, text="First.")
    pieces = [delta("First."), done, delta("Second."), done, completed()]
    assert read(pieces)[0] == ["First.", TEXT_DONE, Finish("stop", "completed")]


def test_a_commentary_is_spoken_besides_the_answer() -> None:
    added = event("response.output_item.added", output_index=0, item={"type": "message", "phase": "commentary"})
    pieces = [added, delta("One moment. "), delta("It is nine.", 1), completed()]
    assert spoken(read(pieces)[0]) == "One moment. It is nine."


def test_text_that_comes_only_whole_is_spoken_once() -> None:
    message = {
        "type": "message",
        "content": [{"type": "output_text", "text": "Hi."}, {"type": "refusal", "refusal": "No."}],
    }
    done = event("response.output_text.done", output_index=0, content_index=0, text="Hi.")
    item = event("response.output_item.done", output_index=0, item=message)
    for pieces in ([done, item, completed([message])], [item, completed([message])], [completed([message])]):
        assert spoken(read(pieces)[0]) == "Hi.No."


def call_events(arguments: str, index: int = 0) -> list[bytes]:
    item = {"type": "function_call", "id": f"fc_{index}", "call_id": f"call_{index}", "name": "w", "arguments": ""}
    return [
        event("response.output_item.added", output_index=index, item=item),
        event("response.function_call_arguments.delta", output_index=index, delta=arguments[:3]),
        event("response.function_call_arguments.delta", output_index=index, delta=arguments[3:]),
        event("response.function_call_arguments.done", output_index=index, arguments=arguments),
        event(
            "response.output_item.done",
            output_index=index,
            item={**item, "arguments": arguments, "status": "completed"},
        ),
    ]


@given(kept=st.lists(st.booleans(), min_size=5, max_size=5))
def test_a_call_comes_out_once_whichever_of_its_events_are_sent(kept: list[bool]) -> None:
    arguments = '{"city":"Oslo"}'
    pieces = [piece for piece, keep in zip(call_events(arguments), kept, strict=True) if keep]
    summary = {"type": "function_call", "id": "fc_0", "call_id": "call_0", "name": "w", "arguments": arguments}
    events, failure = read([*pieces, completed([{"type": "reasoning"}, summary])])
    assert failure is None
    assert calls(events) == [CallReady("call_0", "w", arguments)]


def test_calls_interleave_and_keep_to_their_index() -> None:
    first, second = call_events('{"a":1}'), call_events('{"b":2}', 1)
    mixed = [piece for pair in zip(first, second, strict=True) for piece in pair]
    assert [call.arguments for call in calls(read([*mixed, completed()])[0])] == ['{"a":1}', '{"b":2}']


def with_id(piece: bytes, name: str, **changes: Any) -> bytes:
    """An event of a call, its item's id told, its output index dropped or another."""
    value = json.loads(piece.partition(b"data: ")[2])
    value |= {"item_id": name} if "item" not in value else {}
    value = {key: new for key, new in (value | changes).items() if new is not None}
    return b"data: %b\n\n" % json.dumps(value).encode()


@pytest.mark.parametrize("index", [None, 0])
@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("kept", [slice(0, 5), slice(0, 4), slice(0, 3), slice(4, 5)])
def test_calls_that_share_an_index_are_told_apart_by_their_items(index: int | None, mixed: bool, kept: slice) -> None:
    first, second = (
        [with_id(piece, f"fc_{n}", output_index=index) for piece in call_events(text, n)][kept]
        for n, text in enumerate(('{"a":1}', '{"b":2}'))
    )
    pieces = [p for pair in zip(first, second, strict=True) for p in pair] if mixed else [*first, *second]
    events, failure = read([*pieces, completed()])
    assert failure is None
    assert calls(events) == [CallReady("call_0", "w", '{"a":1}'), CallReady("call_1", "w", '{"b":2}')]


def test_an_id_that_a_server_makes_up_anew_for_each_event_is_no_further_call() -> None:
    pieces = [with_id(piece, f"item_{n}") for n, piece in enumerate(call_events('{"a":1}'))]
    last = json.loads(pieces[4].partition(b"data: ")[2])
    last["item"] |= {"id": "fc_9", "call_id": "call_9"}
    pieces[4] = event("response.output_item.done", output_index=0, item=last["item"])
    assert calls(read([*pieces, completed()])[0]) == [CallReady("call_0", "w", '{"a":1}')]


@pytest.mark.parametrize(
    ("end", "kind", "retryable"),
    [
        (event("response.failed", response={"error": {"code": "server_error", "message": "no"}}), "server", True),
        (event("response.failed", response={"error": None}), "server", True),
        (event("error", code="rate_limit_exceeded", message="slow"), "rate_limit", True),
        (event("error", error={"code": "context_length_exceeded", "message": "long"}), "context_length", False),
        (
            event("response.incomplete", response={"incomplete_details": {"reason": "content_filter"}}),
            "content_filter",
            False,
        ),
        (b"", "truncated", False),
    ],
)
def test_a_response_that_fails_says_how(end: bytes, kind: str, retryable: bool) -> None:
    events, failure = read([delta("Hi"), *call_events("{}", 1)[:4], end])
    assert calls(events) == []
    assert spoken(events) == "Hi"
    assert failure is not None
    assert (failure.kind, failure.retryable) == (kind, retryable)


def test_the_token_limit_is_told_with_the_usage() -> None:
    usage = {
        "input_tokens": 9,
        "output_tokens": 3,
        "input_tokens_details": {"cached_tokens": 4},
        "output_tokens_details": {"reasoning_tokens": 2},
    }
    end = event("response.incomplete", response={"incomplete_details": {"reason": "max_output_tokens"}, "usage": usage})
    events, _ = read([delta("Hi"), end])
    told = Usage(input_tokens=9, output_tokens=3, cached_tokens=4, reasoning_tokens=2)
    assert events == ["Hi", told, Finish("length", "max_output_tokens")]


def test_reasoning_is_not_spoken() -> None:
    pieces = [
        event("response.reasoning_summary_text.delta", output_index=0, delta="I think"),
        event(
            "response.output_item.done", output_index=0, item={"type": "reasoning", "summary": [{"text": "I think"}]}
        ),
        delta("Hi.", 1),
        completed(),
    ]
    assert read(pieces)[0] == ["Hi.", Finish("stop", "completed")]


def test_a_whole_response_is_an_answer() -> None:
    output: list[dict[str, Any]] = [
        {"type": "reasoning", "summary": []},
        {"type": "message", "content": [{"type": "output_text", "text": "Hello."}]},
        {"type": "function_call", "call_id": "c", "name": "w", "arguments": "{}"},
    ]
    events, _ = read([json.dumps({"status": "completed", "output": output}).encode()])
    assert events == ["Hello.", CallReady("c", "w", "{}"), Finish("tool_calls", "completed")]
