"""Arguments: whatever the model writes becomes a call, or a mistake in plain words."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import json
import uuid
from typing import Any, Literal, TypedDict

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from micdrop_agent._strict_json import is_dict, is_list
from micdrop_agent.errors import ToolInputError
from micdrop_agent.tools import Tool, dump_output, tool


class Unit(enum.Enum):
    CELSIUS = "celsius"
    KELVIN = "kelvin"


@attrs.frozen
class Place:
    city: str
    country: str | None = None


@dataclasses.dataclass
class Box:
    size: int

    def __post_init__(self) -> None:
        if self.size > 100:
            raise ValueError("boxes of more than 100 do not fit")


class Note(TypedDict):
    text: str


@attrs.frozen
class Round:
    radius: float = attrs.field(validator=attrs.validators.gt(0))


@tool
def search(
    query: str,
    limit: int = 10,
    place: Place | None = None,
    unit: Unit = Unit.CELSIUS,
    ratio: float | None = None,
) -> Any:
    return query, limit, place, unit, ratio


@tool
def now() -> str:
    return "10:00"


def same(value: Any) -> Any:
    return value


def both(value: Any, agent) -> Any:  # type: ignore[no-untyped-def]  # noqa: ANN001 # pyright: ignore[reportUnknownParameterType, reportMissingParameterType]
    return value, agent  # pyright: ignore[reportUnknownVariableType]


def by_keyword(*, note: Any) -> Any:
    return note


def taking(hint: Any) -> Tool:
    def take(x: Any) -> Any:
        return x

    take.__annotations__ = {"x": hint}
    return tool(take)


def value(hint: Any, x: Any) -> Any:
    return taking(hint).bind(json.dumps({"x": x})).invoke()


def mistakes(arguments: Any, of: Tool = search) -> str:
    with pytest.raises(ToolInputError) as caught:
        of.bind(arguments)
    return str(caught.value)


@pytest.mark.parametrize("arguments", ["", "  \n", "{}", "null", None, {}, '""', '"{}"', '"null"', "\ufeff{}"])
def test_no_arguments_can_be_written_in_many_ways(arguments: Any) -> None:
    call = now.bind(arguments)
    assert call.parameters == {}
    assert call.invoke() == "10:00"


@pytest.mark.parametrize(
    "arguments",
    ['{"query": "x"}', {"query": "x"}, '"{\\"query\\": \\"x\\"}"', ' {"query": "x"} ', '{"query":"x","query":"x"}'],
)
def test_an_object_its_text_and_its_text_encoded_twice_are_the_same(arguments: Any) -> None:
    assert search.bind(arguments).invoke() == ("x", 10, None, Unit.CELSIUS, None)


def test_parameters_are_the_arguments_as_given_with_the_defaults_filled_in() -> None:
    call = search.bind('{"query": "x", "unit": "kelvin", "place": {"city": "Oslo"}, "limit": null}')
    assert call.parameters == {
        "query": "x",
        "limit": 10,
        "place": {"city": "Oslo", "country": None},
        "unit": "kelvin",
        "ratio": None,
    }
    assert call.invoke() == ("x", 10, Place("Oslo"), Unit.KELVIN, None)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"query": "x", "limit": "10"}, 'limit: expected a whole number, got the text "10"'),
        ({"query": "x", "limit": 2.5}, "limit: expected a whole number, got the number 2.5."),
        ({"query": "x", "limit": True}, "limit: expected a whole number, got true"),
        ({"query": 3}, "query: expected text, got the number 3"),
        ({"query": None}, "query: expected text, got null"),
        ({}, "query: missing, expected text"),
        ({"query": "x", "ratio": False}, "ratio: expected a number or null, got false"),
        ({"query": "x", "unit": "rankine"}, 'unit: expected one of "celsius", "kelvin", got the text "rankine"'),
        ({"query": "x", "place": {"city": 1}}, "place.city: expected text, got the number 1"),
        ({"query": "x", "place": "Oslo"}, 'place: expected an object or null, got the text "Oslo"'),
        ({"query": "x", "place": {"city": "O", "zip": 1}}, 'place: unknown member "zip"; known: city, country'),
        ({"query": "x", "q": 1}, 'unknown argument "q"; known: query, limit, place, unit, ratio'),
        ("[1]", "have to be one JSON object, got a list"),
        ("3", "have to be one JSON object, got the number 3"),
        ('"\\"{}\\""', "got the text"),
        ('{"query": x}', "not valid JSON: Expecting value at line 1, column 11 (character 10)"),
        ('{"query": "x"} {"query": "y"}', "not valid JSON: Extra data"),
        ('{"query": NaN}', "NaN is not a JSON number"),
        ('{"ratio": 1e999}', "the number 1e999 is too large"),
        ('{"query": "x", "query": "y"}', 'the key "query" is given twice with different values'),
        ('{"limit": 1, "limit": true}', 'the key "limit" is given twice'),
        ('{"limit": ' + "9" * 5000 + "}", "has too many digits"),
        ("[" * 100_000, "nested too deeply"),
        ({"query": {1, 2}}, "are not JSON"),
    ],
)
def test_a_mistake_is_told_in_plain_words(arguments: Any, said: str) -> None:
    assert said in mistakes(arguments)


def test_all_mistakes_are_told_at_once() -> None:
    told = mistakes('{"limit": "1", "place": {"country": 2}, "foo": 1}')
    for part in ("query: missing", "limit: expected", "place.city: missing", "place.country: expected", '"foo"'):
        assert part in told


def test_a_tool_without_arguments_says_so() -> None:
    assert 'unknown argument "x"; there are no arguments' in mistakes({"x": 1}, now)


def test_forty_thousand_mistakes_are_counted_not_listed() -> None:
    told = mistakes(json.dumps({"x": ["a"] * 40_000}), taking(list[int]))
    assert "and 39990 more" in told
    assert len(told) < 2000


def test_ten_megabytes_of_arguments_are_refused_unread() -> None:
    assert "at most 250000 are read" in mistakes('{"query": "' + "x" * 10_000_000 + '"}')


def test_a_deep_value_of_a_recursive_type_is_told_not_raised() -> None:
    @attrs.frozen
    class Node:
        child: Node | None = None

    @tool
    def add(node: Node) -> None: ...

    depth = 400
    text = '{"node": ' + '{"child": ' * depth + "null" + "}" * depth + "}"
    assert "nested too deeply" in mistakes(text, add)


@pytest.mark.parametrize(
    ("hint", "given_value", "result"),
    [
        (float, 2, 2.0),
        (int | float, 2, 2),
        (float | int, 2, 2),
        (int | str, "2", "2"),
        (dt.date | str, "2026-12-01", dt.date(2026, 12, 1)),
        (dt.date | str, "today", "today"),
        (list[float], [1, 2.5], [1.0, 2.5]),
        (set[int], [1, 1, 2], {1, 2}),
        (frozenset[str], ["a"], frozenset({"a"})),
        (tuple[int, ...], [1, 2], (1, 2)),
        (tuple[int, str], [1, "a"], (1, "a")),
        (dict[str, Unit], {"a": "kelvin"}, {"a": Unit.KELVIN}),
        (dict[str, Any], {"a": [1, {"b": None}]}, {"a": [1, {"b": None}]}),
        (Any, {"a": 1.0}, {"a": 1.0}),
        (object, "x", "x"),
        (list, [1, "a"], [1, "a"]),
        (dict, {"a": 1}, {"a": 1}),
        (Literal["a", 1, True], True, True),
        (Literal[Unit.KELVIN], "kelvin", Unit.KELVIN),
        (Place | Note, {"text": "x"}, {"text": "x"}),
        (Note | Place, {"city": "x"}, Place("x")),
        (list[Place | None], [None, {"city": "x"}], [None, Place("x")]),
        (dt.date, "2026-12-01", dt.date(2026, 12, 1)),
        (dt.time, "18:30", dt.time(18, 30)),
        (dt.datetime, "2026-12-01T18:30:00Z", dt.datetime(2026, 12, 1, 18, 30, tzinfo=dt.UTC)),
        (uuid.UUID, "00000000-0000-0000-0000-000000000001", uuid.UUID(int=1)),
        (None, None, None),
    ],
)
def test_json_becomes_the_type_that_was_asked_for(hint: Any, given_value: Any, result: Any) -> None:
    found = value(hint, given_value)
    assert found == result
    assert type(found) is type(result)


@pytest.mark.parametrize(
    ("hint", "given_value", "said"),
    [
        (dt.datetime, "2026-12-01", "x: expected a date and time such as"),
        (dt.date, "20261201", "x: expected a date such as"),
        (dt.time, "noon", "x: expected a time such as"),
        (uuid.UUID, "1", "x: expected a UUID"),
        (tuple[int, str], [1], "x: expected at least 2 items, got 1"),
        (tuple[int, str], ["a", "b"], "x[0]: expected a whole number"),
        (int | str, [], "x: expected a whole number or text, got a list"),
        (Place | Note, {"a": 1}, "x: expected an object, got an object; it fits none of the allowed forms"),
        (dict[str, int], {"a": "b"}, "x.a: expected a whole number"),
        (float, 10**399, "x: the number is too large"),
        (Box, {"size": 101}, "x: boxes of more than 100 do not fit"),
        (list[Box], [{"size": 1}, {"size": 101}], "x[1]: boxes of more than 100 do not fit"),
        (dict[str, Box], {"a": {"size": 101}}, "x.a: boxes of more than 100 do not fit"),
        (Round, {"radius": 0}, "x: 'radius' must be > 0: 0"),
        (set[Note], [{"text": "a"}], "x"),
    ],
)
def test_what_does_not_fit_the_type_is_told_with_its_path(hint: Any, given_value: Any, said: str) -> None:
    assert said in mistakes(json.dumps({"x": given_value}), taking(hint))


def test_null_is_a_value_where_the_type_allows_it_and_otherwise_the_default() -> None:
    @tool
    def f(a: int = 1, b: int | None = 2) -> Any:
        return a, b

    assert f.bind('{"a": null, "b": null}').invoke() == (1, None)
    assert f.bind("{}").invoke() == (1, 2)


def test_what_a_tool_does_to_its_arguments_does_not_change_the_parameters_of_the_call() -> None:
    @tool
    def clear(labels: dict[str, Any]) -> None:
        labels["a"].clear()

    call = clear.bind('{"labels": {"a": [1]}}')
    call.invoke()
    assert call.parameters == {"labels": {"a": [1]}}


def test_an_input_class_gives_one_instance() -> None:
    made = Tool(name="go", description="Go.", input=Place, execute=both)  # pyright: ignore[reportUnknownArgumentType]
    assert made.bind('{"city": "Oslo"}').invoke("A") == (Place("Oslo"), "A")
    none = Tool(name="go", input=Place, execute=lambda: "nothing")
    assert none.bind('{"city": "Oslo"}').invoke("A") == "nothing"
    by_name = Tool(name="go", input=Note, execute=by_keyword)
    assert by_name.bind('{"text": "x"}').invoke("A") == {"text": "x"}
    assert Tool(name="go", input=Place).bind('{"city": "Oslo"}').invoke() is None
    with pytest.raises(ToolInputError, match="city: missing"):
        made.bind("{}")


def test_a_hand_written_tool_gets_one_dict_that_is_its_own() -> None:
    def change(arguments: dict[str, Any]) -> Any:
        arguments["tags"].append("changed")
        return arguments

    schema: dict[str, Any] = {"limit": {"type": "number", "default": 10}, "tags": {"type": "array", "default": []}}
    made = Tool.from_schema("t", "", schema, change)
    call = made.bind("")
    assert call.invoke() == {"limit": 10, "tags": ["changed"]}
    assert call.parameters == {"limit": 10, "tags": []}
    assert made.bind("").invoke() == {"limit": 10, "tags": ["changed"]}
    assert made.bind('{"limit": 2}').parameters["limit"] == 2
    assert 'limit: expected a number, got the text "x"' in mistakes({"limit": "x"}, made)


@pytest.mark.parametrize(
    ("schema", "given_value", "said"),
    [
        ({"type": "string", "minLength": 2}, "a", "at least 2 characters"),
        ({"type": "string", "maxLength": 2}, "abc", "at most 2 characters"),
        ({"type": "string", "pattern": "^a+$"}, "b", "matches ^a+$"),
        ({"type": "integer", "minimum": 1}, 0, "at least 1, got the number 0"),
        ({"type": "integer", "maximum": 1}, 2, "at most 1"),
        ({"type": "number", "exclusiveMinimum": 1}, 1, "more than 1"),
        ({"type": "number", "exclusiveMaximum": 1}, 1, "less than 1"),
        ({"type": "integer", "multipleOf": 5}, 7, "a multiple of 5"),
        ({"type": "number", "multipleOf": 0.1}, 0.25, "a multiple of 0.1"),
        ({"type": "array", "items": {}, "maxItems": 1}, [1, 2], "at most 1 items"),
        ({"type": "array", "items": {}, "uniqueItems": True}, [1, 1], "twice"),
        ({"const": "a"}, "b", 'expected "a"'),
        ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, None, "text or a whole number, got null"),
        ({"allOf": [{"type": "string"}, {"minLength": 3}]}, "ab", "at least 3"),
        ({"type": ["string", "null"]}, 1, "text or null"),
        (False, 1, "not allowed"),
    ],
)
def test_the_limits_of_a_hand_written_schema_hold(schema: Any, given_value: Any, said: str) -> None:
    made = Tool.from_schema("t", "", {"type": "object", "properties": {"x": schema}, "required": ["x"]})
    assert said in mistakes({"x": given_value}, made)


def many(generic: Any, *arguments: Any) -> Any:
    """``generic[arguments]``, made where no type checker takes it for an annotation."""
    return generic[arguments]


SCALARS: list[Any] = [str, int, float, bool, Unit, (Literal["a", 1] | None), Place, Note, Box, Any, dt.date]
HINTS: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from(SCALARS),
    lambda inner: st.one_of(
        inner.map(lambda hint: many(list, hint)),
        inner.map(lambda hint: many(dict, str, hint)),
        inner.map(lambda hint: many(tuple, hint, ...)),
        st.tuples(inner, inner).map(lambda pair: many(tuple, *pair)),
        inner.filter(lambda hint: hint is not Any).map(lambda hint: hint | None),
        st.tuples(inner, inner).map(lambda pair: pair[0] | pair[1]),
    ),
    max_leaves=4,
)
TEXT = st.text(max_size=5) | st.sampled_from(["celsius", "a", "2026-12-01"])
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["city", "country", "text", "size", "x"]) | TEXT, inner, max_size=3)
    ),
    max_leaves=8,
)


def fitting(hint: Any) -> st.SearchStrategy[Any]:
    """JSON values, most of which fit ``hint``."""
    shapes = {
        str: TEXT,
        int: st.integers(),
        float: st.floats(allow_nan=False, allow_infinity=False),
        bool: st.booleans(),
        Unit: st.sampled_from(["celsius", "kelvin"]),
        Place: st.fixed_dictionaries({"city": TEXT, "country": TEXT | st.none()}),
        Note: st.fixed_dictionaries({"text": TEXT}),
        Box: st.fixed_dictionaries({"size": st.integers(max_value=120)}),
        dt.date: st.dates().map(str),
    }
    return shapes.get(hint, JSON) if isinstance(hint, type) else JSON


@given(data=st.data())
def test_bind_returns_what_was_given_or_raises_tool_input_error(data: st.DataObject) -> None:
    """The value, dumped again, equals the arguments; anything else is a ToolInputError."""
    hint = data.draw(HINTS)
    made = taking(hint)
    arguments = {"x": data.draw(fitting(hint))}
    try:
        call = made.bind(json.dumps(arguments))
    except ToolInputError as error:
        assert str(error)  # noqa: PT017 - both ways out are right
        return
    assert dump_again(call.invoke()) == without_absent(arguments["x"])
    assert without_absent(call.parameters["x"]) == without_absent(arguments["x"])
    # What fits in the loose form fits in the strict one, where both exist.
    assert made.bind(call.parameters).parameters == call.parameters


def dump_again(found: Any) -> Any:
    return without_absent(json.loads(dump_output(found)))


def without_absent(found: Any) -> Any:
    """Without the nulls that stand for what was left out."""
    if is_dict(found):
        return {key: without_absent(each) for key, each in found.items() if each is not None}
    return [without_absent(each) for each in found] if is_list(found) else found


@given(text=st.text() | JSON.map(json.dumps))
def test_any_text_is_bound_or_refused_in_words(text: str) -> None:
    for made in (search, now):
        try:
            made.bind(text)
        except ToolInputError as error:
            assert made.name in str(error)  # noqa: PT017 - both ways out are right


@given(fields=st.dictionaries(st.sampled_from("abcd"), HINTS, max_size=3), arguments=JSON)
def test_random_classes_are_filled_or_refused(fields: dict[str, Any], arguments: Any) -> None:
    for cls in (
        attrs.make_class("A", {name: attrs.field(type=hint) for name, hint in fields.items()}),
        dataclasses.make_dataclass("D", list(fields.items())),
    ):
        made = Tool(name="t", input=cls, execute=same)
        try:
            call = made.bind(json.dumps(arguments))
        except ToolInputError:
            continue
        assert isinstance(call.invoke(), cls)


class Stars(enum.IntEnum):
    ONE = 1
    TWO = 2


@pytest.mark.parametrize(
    ("hint", "sent", "received"),
    [
        (int, 4.0, 4),
        (int, 1e3, 1000),
        (int | None, 4.0, 4),
        (int | str, 4.0, 4),
        (float, 4.0, 4.0),
        (float | int, 4.0, 4.0),
        (list[int], [1.0, 2], [1, 2]),
        (Literal[1, 2], 2.0, 2),
        (Stars, 2.0, Stars.TWO),
    ],
)
def test_a_whole_number_may_be_written_with_a_point(hint: Any, sent: Any, received: Any) -> None:
    def take(x: Any) -> Any:
        return x

    take.__annotations__ = {"x": hint, "return": Any}
    value = tool(take).bind({"x": sent}).invoke()
    assert value == received
    assert type(value) is type(received)


def test_a_schema_counts_a_float_that_is_whole_as_an_integer() -> None:
    made = Tool.from_schema("t", "", {"n": {"type": "integer", "minimum": 2}}, lambda given: given)
    assert repr(made.bind({"n": 4.0}).invoke()) == "{'n': 4}"
    for wrong in (4.5, 1.0, "4"):
        with pytest.raises(ToolInputError, match="n: expected"):
            made.bind({"n": wrong})
