"""The tool-call assembler: any cutting, any interleaving, and each server's way of naming its calls."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from micdrop_agent.errors import ProviderError
from micdrop_agent.providers.responses.call_assembler import MAX_ARGUMENT_CHARS, MAX_CALLS, CallAssembler

if TYPE_CHECKING:
    from micdrop_agent.model.protocol import CallReady

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=5,
)
CALLS = st.lists(
    st.tuples(st.sampled_from(["get_weather", "get_time"]), st.dictionaries(st.text(max_size=4), VALUES, max_size=3)),
    min_size=1,
    max_size=4,
)


def cut(text: str, data: st.DataObject) -> list[str]:
    edges = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=3)))
    return [text[a:b] for a, b in zip([0, *edges], [*edges, len(text)], strict=True)]


def assemble(chunks: list[list[dict[str, Any]]]) -> list[CallReady]:
    assembler = CallAssembler()
    out = [call for chunk in chunks for call in assembler.add(chunk)]
    return out + assembler.finish()


@given(calls=CALLS, data=st.data())
def test_any_cutting_and_interleaving_gives_the_same_calls(
    calls: list[tuple[str, dict[str, Any]]], data: st.DataObject
) -> None:
    queues: list[list[dict[str, Any]]] = []
    repeat_head = data.draw(st.booleans())
    for index, (name, arguments) in enumerate(calls):
        pieces = cut(json.dumps(arguments), data)
        head = {"index": index, "id": f"c{index}", "function": {"name": name, "arguments": pieces[0]}}
        again = {"id": f"c{index}"} if repeat_head else {"id": data.draw(st.sampled_from(["", None, "null"]))}
        word = name if repeat_head else data.draw(st.sampled_from(["", None]))
        queues.append(
            [head, *({"index": index, **again, "function": {"name": word, "arguments": p}} for p in pieces[1:])]
        )
    heads = [queue.pop(0) for queue in queues]
    mixed: list[dict[str, Any]] = []
    while heads or any(queues):
        # Calls are opened in their order; what follows interleaves in any way.
        opened = len(calls) - len(heads)
        ready = [queue for queue in queues[:opened] if queue]
        if heads and (not ready or data.draw(st.booleans())):
            mixed.append(heads.pop(0))
        else:
            mixed.append(data.draw(st.sampled_from(ready)).pop(0))
    size = data.draw(st.integers(1, 3))
    chunks = [mixed[n : n + size] for n in range(0, len(mixed), size)]
    out = assemble(chunks)
    assert [(call.id, call.name) for call in out] == [(f"c{n}", name) for n, (name, _) in enumerate(calls)]
    assert [json.loads(call.arguments) for call in out] == [arguments for _, arguments in calls]


@pytest.mark.parametrize("index", [None, 0])
@given(calls=CALLS, data=st.data())
def test_calls_one_after_another_need_no_index(
    index: int | None, calls: list[tuple[str, dict[str, Any]]], data: st.DataObject
) -> None:
    """Gemini leaves the index out, others send 0 for every call."""
    chunks: list[list[dict[str, Any]]] = []
    where: dict[str, Any] = {} if index is None else {"index": index}
    for number, (name, arguments) in enumerate(calls):
        first, *rest = cut(json.dumps(arguments), data)
        chunks.append([{**where, "id": f"c{number}", "function": {"name": name, "arguments": first}}])
        chunks += [[{**where, "function": {"arguments": piece}}] for piece in rest]
    out = assemble(chunks)
    assert [(call.id, call.name, json.loads(call.arguments)) for call in out] == [
        (f"c{number}", name, arguments) for number, (name, arguments) in enumerate(calls)
    ]


@given(calls=CALLS, packed=st.booleans())
def test_whole_calls_without_ids_are_told_apart(calls: list[tuple[str, dict[str, Any]]], packed: bool) -> None:
    calls = [(name, {"city": n, **arguments}) for n, (name, arguments) in enumerate(calls)]
    fragments = [{"function": {"name": name, "arguments": arguments}} for name, arguments in calls]
    out = assemble([fragments] if packed else [[fragment] for fragment in fragments])
    assert [(call.name, json.loads(call.arguments)) for call in out] == calls
    assert len({call.id for call in out}) == len(calls)
    assert all(len(call.id) == 9 and call.id.isalnum() for call in out)


JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 3)
    | st.floats()
    | st.sampled_from(["", "c1", "w", "null", "{", "{}", "}"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["index", "id", "function", "name", "arguments"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(chunks=st.lists(st.lists(JUNK, max_size=4), max_size=6))
def test_no_fragment_is_odd_enough_to_break_it(chunks: list[list[Any]]) -> None:
    out = assemble(chunks)
    ids = [call.id for call in out]
    assert len(set(ids)) == len(ids)
    assert all(ids)
    assert all(call.name for call in out)


def one(*arguments: Any) -> str:
    fragments = [[{"index": 0, "id": "c", "function": {"name": "w", "arguments": a}}] for a in arguments]
    (call,) = assemble(fragments)
    return call.arguments


@pytest.mark.parametrize("arguments", ["", " ", None, "null", {}, "{}", '""', '"{}"'])
def test_no_arguments_are_an_empty_object(arguments: Any) -> None:
    assert json.loads(one(arguments)) == {}


@pytest.mark.parametrize("name", ["", None, "w"])
def test_an_id_that_is_made_up_anew_for_each_fragment_is_no_further_call(name: str | None) -> None:
    pieces = ['{"a"', ":", "1}"]
    out = assemble(
        [
            [{"index": 0, "id": f"a{n}", "function": {"name": name if n else "w", "arguments": piece}}]
            for n, piece in enumerate(pieces)
        ]
    )
    assert [(call.id, call.name, call.arguments) for call in out] == [("a0", "w", '{"a":1}')]


def test_an_index_may_be_a_text() -> None:
    heads = [{"index": f"{n}", "id": f"c{n}", "function": {"name": "w", "arguments": ""}} for n in range(2)]
    more = [{"index": f"{n}", "function": {"arguments": f'{{"a":{n}}}'}} for n in range(2)]
    out = assemble([[fragment] for fragment in (*heads, *more)])
    assert [(call.id, call.arguments) for call in out] == [("c0", '{"a":0}'), ("c1", '{"a":1}')]


@pytest.mark.parametrize(
    "name",
    ["w", " w ", "w<|channel|>commentary", "w<|constrain|>json", "functions.w", "functions.w:0", "default_api:w"],
)
def test_a_name_is_that_of_the_tool_without_what_a_model_puts_around_it(name: str) -> None:
    assert [call.name for call in assemble([[{"index": 0, "id": "c", "function": {"name": name}}]])] == ["w"]


def test_an_empty_opening_is_replaced_by_the_real_arguments() -> None:
    assert one("{}", '{"a"', ":1}") == '{"a":1}'


def test_arguments_repeated_whole_with_the_head_count_once() -> None:
    assert one('{"a"', ":1}", '{"a":1}') == '{"a":1}'


def test_arguments_that_were_encoded_twice_are_unwrapped() -> None:
    assert one('"{\\"a\\":1}"') == '{"a":1}'


def test_broken_arguments_stay_as_the_model_wrote_them() -> None:
    assert one('{"city":"Os') == '{"city":"Os'


def test_a_whole_call_comes_out_when_the_next_one_begins() -> None:
    assembler = CallAssembler()
    assert assembler.add([{"index": 0, "id": "a", "function": {"name": "w", "arguments": '{"x":1}'}}]) == []
    assert [call.id for call in assembler.add([{"index": 1, "id": "b", "function": {"name": "w"}}])] == ["a"]
    assert [call.id for call in assembler.finish()] == ["b"]


def test_a_call_that_may_be_cut_never_comes_out() -> None:
    assembler = CallAssembler()
    assembler.add([{"index": 0, "id": "a", "function": {"name": "w", "arguments": '{"x":1}'}}])
    assembler.add([{"index": 1, "id": "b", "function": {"name": "w", "arguments": '{"x":1}'}}])
    assert assembler.finish(cut=True) == []


def test_arguments_without_end_are_given_up() -> None:
    piece = {"index": 0, "function": {"name": "w", "arguments": "x" * 1000}}
    with pytest.raises(ProviderError) as caught:
        assemble([[piece]] * (MAX_ARGUMENT_CHARS // 1000 + 1))
    assert caught.value.kind == "protocol"


def test_calls_without_end_are_given_up() -> None:
    call = {"function": {"name": "w", "arguments": "{}"}}
    with pytest.raises(ProviderError) as caught:
        assemble([[{"index": number, **call} for number in range(MAX_CALLS + 1)]])
    assert caught.value.kind == "protocol"
