"""JSON Schema from signatures and classes, and its strict form."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import functools
import json
import pathlib
import uuid
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Annotated, Any, Literal, NewType, NotRequired, TypedDict

import attrs
import pytest
import strict_rules
from hypothesis import given
from hypothesis import strategies as st

from micdrop_agent.errors import ToolInputError
from micdrop_agent.tools import Tool, tool

if TYPE_CHECKING:
    # The package under test need not have it yet: only its name is looked at.
    from micdrop_agent._core.agent import Agent  # type: ignore[import-not-found, unused-ignore]

CASES = pathlib.Path(__file__).parent / "cases"


ALLOWED = {"type", "properties", "required", "additionalProperties", "items", "enum", "anyOf", "$ref", "$defs"}


def assert_strict(schema: Any) -> None:
    """What strict mode asks for, and no keyword that some server with strict mode refuses."""
    assert strict_rules.strict_schema(schema) == []

    def visit(node: dict[str, Any]) -> None:
        assert set(node) <= ALLOWED | {"description"}
        if "$ref" in node:
            assert set(node) == {"$ref"}
        for group in ("properties", "$defs"):
            for each in node.get(group, {}).values():
                visit(each)
        for each in [*node.get("anyOf", []), *([node["items"]] if "items" in node else [])]:
            visit(each)

    visit(schema)


class Unit(enum.Enum):
    CELSIUS = "celsius"
    FAHRENHEIT = "fahrenheit"


class Priority(enum.IntEnum):
    LOW = 1
    HIGH = 3


class Mixed(enum.Enum):
    NONE = ()
    SOME = (1,)


@attrs.frozen(kw_only=True)
class Place:
    """Where something is.

    Attributes:
        city: Name of the city.
    """

    city: str
    country: str | None = None
    _secret: int = attrs.field(default=1, metadata={"description": "A number."})
    computed: int = attrs.field(init=False, default=0)


@dataclasses.dataclass
class Stop:
    place: Place
    minutes: Annotated[float, "How long."] = 5
    notes: list[str] = dataclasses.field(default_factory=list[str])


class Filter(TypedDict):
    text: str
    limit: NotRequired[Annotated[int, "At most."]]


def no_children() -> list[Node]:
    return []


@attrs.frozen
class Node:
    name: str
    children: list[Node] = attrs.field(factory=no_children)


Kilometers = NewType("Kilometers", float)


def property_of(hint: Any) -> Any:
    def function(x: Any) -> None: ...

    function.__annotations__ = {"x": hint}
    made = tool(function)
    assert_strict(made.parameters)
    return made.parameters["properties"]["x"]


@pytest.mark.parametrize(
    ("hint", "schema"),
    [
        (str, {"type": "string"}),
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (bool, {"type": "boolean"}),
        (None, {"type": "null"}),
        (str | None, {"type": ["string", "null"]}),
        (int | str, {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
        (int | str | None, {"anyOf": [{"type": "integer"}, {"type": "string"}, {"type": "null"}]}),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        ((Literal["a"] | None), {"type": ["string", "null"], "enum": ["a", None]}),
        (Literal[1, "a", True], {"type": ["integer", "string", "boolean"], "enum": [1, "a", True]}),
        (Literal[Unit.CELSIUS], {"type": "string", "enum": ["celsius"]}),
        (Unit, {"type": "string", "enum": ["celsius", "fahrenheit"]}),
        (Unit | None, {"type": ["string", "null"], "enum": ["celsius", "fahrenheit", None]}),
        (Priority, {"type": "integer", "enum": [1, 3], "description": "1 = LOW, 3 = HIGH"}),
        (Mixed, {"type": "string", "enum": ["NONE", "SOME"]}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (set[str], {"type": "array", "items": {"type": "string"}}),
        (frozenset[str], {"type": "array", "items": {"type": "string"}}),
        (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}),
        (
            tuple[int, str],
            {
                "type": "array",
                "items": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
                "description": "At least 2 items. At most 2 items.",
            },
        ),
        (dt.date, {"type": "string", "description": "Date, such as 2026-12-01."}),
        (uuid.UUID, {"type": "string", "description": "A UUID."}),
        (Kilometers, {"type": "number"}),
        (Annotated[int, "How many"], {"type": "integer", "description": "How many"}),
    ],
)
def test_each_type_has_its_strict_schema(hint: Any, schema: dict[str, Any]) -> None:
    assert property_of(hint) == schema


@pytest.mark.parametrize(
    "hint", [Any, object, dict, dict[str, Any], dict[str, int], list, list[Any], Mapping[str, int] | None]
)
def test_what_is_free_form_turns_strict_mode_off_for_that_tool(hint: Any) -> None:
    def function(x: Any) -> None: ...

    function.__annotations__ = {"x": hint}
    made = tool(function)
    assert not made.strict
    assert made.declaration["strict"] is False
    assert made.parameters == made.loose_parameters


@pytest.mark.parametrize("hint", [bytes, complex, dict[int, str], type, enum.Flag("F", "A B"), list[Callable[[], int]]])
def test_a_type_that_json_cannot_give_is_refused_with_the_parameter_named(hint: Any) -> None:
    def function(x: Any) -> None: ...

    function.__annotations__ = {"x": hint}
    with pytest.raises(TypeError, match="x"):
        tool(function)


def test_defaults_are_optional_in_the_loose_form_and_nullable_in_the_strict_form() -> None:
    @tool
    def search(query: str, limit: int = 10, tags: list[str] = [], unit: Unit = Unit.CELSIUS) -> None:  # noqa: B006
        """Search."""

    assert search.loose_parameters["required"] == ["query"]
    assert search.loose_parameters["properties"]["limit"] == {"type": "integer", "default": 10}
    assert search.loose_parameters["properties"]["unit"]["default"] == "celsius"
    assert search.parameters["required"] == ["query", "limit", "tags", "unit"]
    assert search.parameters["properties"]["limit"] == {
        "type": ["integer", "null"],
        "description": "Default: 10.",
    }
    assert search.parameters["properties"]["unit"]["enum"] == ["celsius", "fahrenheit", None]
    assert_strict(search.parameters)


def test_a_default_that_is_not_json_stays_a_matter_of_the_function() -> None:
    marker: Any = object()

    @tool
    def f(x: int = marker) -> Any:
        return x

    assert "default" not in f.loose_parameters["properties"]["x"]
    assert f.bind("{}").invoke() is marker
    assert f.bind('{"x": null}').invoke() is marker


def test_classes_of_all_three_kinds_are_nested_closed_and_described() -> None:
    @tool
    def plan(stop: Stop, where: Filter) -> None: ...

    assert_strict(plan.parameters)
    stop = plan.parameters["properties"]["stop"]
    place = stop["properties"]["place"]
    assert stop["required"] == ["place", "minutes", "notes"]
    assert "description" not in stop
    assert place["description"] == "Where something is."
    assert place["properties"]["city"] == {"type": "string", "description": "Name of the city."}
    assert place["properties"]["secret"]["description"] == "A number. Default: 1."
    assert "computed" not in place["properties"]
    assert plan.loose_parameters["properties"]["where"]["required"] == ["text"]
    assert stop["properties"]["minutes"]["description"] == "How long. Default: 5."


def test_a_recursive_class_is_referred_to() -> None:
    @tool
    def add(node: Node) -> Any:
        return node

    assert_strict(add.parameters)
    assert add.parameters["properties"]["node"] == {"$ref": "#/$defs/Node"}
    call = add.bind('{"node": {"name": "a", "children": [{"name": "b", "children": null}]}}')
    assert call.invoke() == Node("a", [Node("b")])

    def same(node: Node) -> Node:
        return node

    made = Tool(name="add", input=Node, execute=same)
    assert_strict(made.parameters)
    assert made.bind('{"name": "a", "children": [{"name": "b"}]}').invoke() == Node("a", [Node("b")])


def test_descriptions_come_from_the_docstring_or_from_annotated() -> None:
    @tool
    def weather(city: Annotated[str, "Which city"], days: int, unit: str, plain: str) -> None:  # noqa: D417 - as users write
        """Tell the weather of a city.

        Costs nothing,
        nor is it

        slow.

        Args:
            city: Not this one.
            days (int): How many
                days ahead.
            unit: Of temperature.

        Returns:
            days: Nothing.
        """

    assert weather.description == "Tell the weather of a city.\n\nCosts nothing, nor is it\n\nslow."
    texts = {key: each.get("description") for key, each in weather.parameters["properties"].items()}
    assert texts == {"city": "Which city", "days": "How many days ahead.", "unit": "Of temperature.", "plain": None}


def test_names_of_the_enclosing_function_and_of_type_checkers_are_understood() -> None:
    @attrs.frozen
    class Inner:
        value: int

    @attrs.frozen
    class Outer:
        inner: Inner

    @tool
    def f(outer: Outer, agent: Agent) -> Any:
        return outer.inner.value, agent

    assert list(f.parameters["properties"]) == ["outer"]
    assert f.bind('{"outer": {"inner": {"value": 3}}}').invoke("the agent") == (3, "the agent")


def test_an_unknown_name_in_an_annotation_is_named() -> None:
    def f(x: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821 # pyright: ignore[reportUndefinedVariable, reportUnknownParameterType]

    with pytest.raises(TypeError, match=r"the type of x, 'Nowhere', does not exist at run time"):
        tool(f)  # pyright: ignore[reportUnknownArgumentType]


@pytest.mark.parametrize("name", ["Agent", "micdrop_agent.Agent", "Agent | None", "ModelAgent"])
def test_an_agent_that_only_type_checkers_know_is_the_context(name: str) -> None:
    def f(x: int, a: Any) -> Any:
        return x, a

    f.__annotations__ = {"x": "int", "a": name}
    made = tool(f)
    assert list(made.parameters["properties"]) == ["x"]
    assert made.bind({"x": 1}).invoke("agent") == (1, "agent")


def test_a_parameter_called_agent_with_a_type_is_an_argument() -> None:
    @tool
    def book(agent: str) -> str:
        return agent

    assert book.bind('{"agent": "Ann"}').invoke("not me") == "Ann"


HAND_WRITTEN = json.loads((CASES / "b-13-strict-schemas" / "request.json").read_text())["given"]["tools"]


def test_hand_written_schemas_are_made_strict_where_that_keeps_their_meaning() -> None:
    book, tag = [Tool.from_schema(t["name"], t["description"], t["parameters"]) for t in HAND_WRITTEN]
    assert book.strict
    assert_strict(book.parameters)
    assert not tag.strict
    call = book.bind('{"people": 2, "when": {"day": "Mon", "hour": null}, "notes": null}')
    assert call.parameters == {"people": 2, "when": {"day": "Mon", "hour": 19}, "notes": []}
    assert tag.bind('{"labels": {"a": "b"}}').parameters == {"labels": {"a": "b"}}


def test_the_neutral_form_of_properties_is_a_schema_too() -> None:
    made = Tool.from_schema(
        "search",
        "Search",
        {
            "query": {"type": "string", "description": "What"},
            "limit": {"type": "number", "nullable": True},
            "lang": {"type": "string", "optional": True},
        },
    )
    assert made.loose_parameters == {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "What"},
            "limit": {"anyOf": [{"type": "number"}, {"type": "null"}]},
            "lang": {"type": "string"},
        },
        "required": ["query", "limit"],
        "additionalProperties": False,
    }
    assert_strict(made.parameters)
    assert made.bind('{"query": "x", "limit": null, "lang": null}').parameters == {"query": "x", "limit": None}


@pytest.mark.parametrize(
    "schema",
    [
        {"x": {"type": "array"}},
        {"x": {"type": "object"}},
        {"x": {}},
        {"x": {"allOf": [{"type": "string"}]}},
        {"x": {"type": "object", "properties": {}, "patternProperties": {}}},
        {"x": {"$ref": "#/$defs/nowhere"}},
        {"type": "object", "properties": {"x": {"type": "string"}}, "additionalProperties": True},
    ],
)
def test_a_schema_without_a_strict_form_is_sent_as_it_is(schema: dict[str, Any]) -> None:
    assert not Tool.from_schema("t", "", schema).strict


def test_limits_are_said_in_words_in_strict_form() -> None:
    schema = {"x": {"type": "integer", "minimum": 1, "maximum": 9, "description": "Seats", "default": 2}}
    made = Tool.from_schema("t", "", schema)
    assert made.parameters["properties"]["x"] == {
        "type": ["integer", "null"],
        "description": "Seats. At least 1. At most 9. Default: 2.",
    }


@pytest.mark.parametrize(
    ("schema", "error"),
    [
        ({"type": "object", "properties": {"x": {"type": "text"}}}, ValueError),
        ({"x": {"type": "array", "items": {"type": "strings"}}}, ValueError),
        ({"x": {"type": "object", "required": "a"}}, ValueError),
        ({"x": "string"}, TypeError),
        ("no dict", TypeError),
        ({"x": {"$ref": "#/$defs/x"}, "type": "object", "$defs": {"x": {"$ref": "#/$defs/x"}}}, None),
    ],
)
def test_a_bad_hand_written_schema_is_refused_at_once(schema: Any, error: type[Exception] | None) -> None:
    if error is None:
        Tool.from_schema("t", "", schema)
        return
    with pytest.raises(error):
        Tool.from_schema("t", "", schema)


def test_a_schema_that_refers_to_itself_without_end_is_refused() -> None:
    loop = {"$ref": "#/$defs/a"}
    with pytest.raises(ValueError, match="without end"):
        Tool.from_schema("t", "", {"type": "object", "properties": {"x": loop}, "$defs": {"a": loop}})


def many(generic: Any, *arguments: Any) -> Any:
    """``generic[arguments]``, made where no type checker takes it for an annotation."""
    return generic[arguments]


SCALARS: list[Any] = [str, int, float, bool, Unit, Priority, dt.datetime, Literal["a", 1]]
HINTS: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from([*SCALARS, Stop, Filter, Node]),
    lambda inner: st.one_of(
        inner.map(lambda hint: many(list, hint)),
        inner.map(lambda hint: many(tuple, hint, ...)),
        st.tuples(inner, inner).map(lambda pair: many(tuple, *pair)),
        inner.map(lambda hint: hint | None),
        st.tuples(inner, inner).map(lambda pair: pair[0] | pair[1]),
    ),
    max_leaves=6,
)


@given(hints=st.dictionaries(st.sampled_from("abcdef"), HINTS, max_size=4), optional=st.booleans())
def test_whatever_the_types_a_strict_schema_is_accepted_by_a_strict_server(
    hints: dict[str, Any], optional: bool
) -> None:
    options: dict[str, Any] = {"default": None} if optional else {}
    cls = attrs.make_class("Input", {name: attrs.field(type=hint, **options) for name, hint in hints.items()})
    made = Tool(name="t", input=cls)
    assert made.strict
    assert_strict(made.parameters)


def test_decorators_partials_methods_and_callable_objects_can_be_tools() -> None:
    def twice(function: Callable[..., int]) -> Callable[..., int]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> int:
            return 2 * function(*args, **kwargs)

        return wrapper

    @tool
    @twice
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    assert add.name == "add"
    assert add.description == "Add."
    assert add.bind('{"a": 1, "b": 2}').invoke() == 6

    def scale(value: int, by: int) -> int:
        """Scale."""
        return value * by

    partial = tool(functools.partial(scale, by=3))
    assert (partial.name, partial.description) == ("scale", "Scale.")
    assert list(partial.parameters["properties"]) == ["value"]
    assert partial.bind('{"value": 2}').invoke() == 6

    class Shop:
        def price(self, of: str) -> str:
            """Price."""
            return f"{of}: 1"

        async def __call__(self, of: str) -> str:
            return of

    method = tool(Shop().price)
    assert method.name == "price"
    assert method.bind('{"of": "tea"}').invoke() == "tea: 1"
    assert tool(Shop(), name="shop").is_async


def test_sequences_are_lists() -> None:
    def f(x: Any) -> None: ...

    hints: list[Any] = [Sequence[int], AbstractSet[int], list[int]]
    for hint in hints:
        f.__annotations__ = {"x": hint}
        assert tool(f).parameters["properties"]["x"] == {"type": "array", "items": {"type": "integer"}}


TEXT = {"type": "string"}


@pytest.mark.parametrize(
    ("schema", "required"),
    [
        ({"properties": {"a": TEXT, "b": TEXT}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, []),
        ({"oneOf": [{"properties": {"a": TEXT}, "required": ["a"]}, {"properties": {"b": TEXT}}]}, []),
        ({"allOf": [{"properties": {"a": TEXT}, "required": ["a"]}, {"properties": {"b": TEXT}}]}, ["a"]),
        (
            {
                "anyOf": [{"$ref": "#/$defs/A"}, {"type": "null"}, {"anyOf": [{"$ref": "#/$defs/B"}]}],
                "$defs": {"A": {"type": "object", "properties": {"a": TEXT}}, "B": {"properties": {"b": TEXT}}},
            },
            [],
        ),
    ],
)
@pytest.mark.parametrize("root", [{}, {"type": "object"}])
def test_what_is_combined_at_the_root_becomes_one_object_which_servers_take(
    schema: dict[str, Any], required: list[str], root: dict[str, Any]
) -> None:
    tool = Tool.from_schema("t", "d", {**root, **schema}, lambda given: given)
    assert tool.strict
    assert set(tool.parameters) - {"$defs"} == {"type", "properties", "required", "additionalProperties"}
    assert set(tool.parameters["properties"]) == {"a", "b"}
    assert tool.loose_parameters["required"] == required
    assert tool.bind('{"a":"x","b":null}').parameters == {"a": "x"}


def test_two_forms_of_one_property_at_the_root_are_both_allowed() -> None:
    kinds = [{"properties": {"kind": {"const": name}}, "required": ["kind"]} for name in ("x", "y")]
    tool = Tool.from_schema("t", "d", {"oneOf": kinds}, lambda given: given)
    assert tool.bind('{"kind":"y"}').parameters == {"kind": "y"}
    with pytest.raises(ToolInputError):
        tool.bind('{"kind":"z"}')


def test_a_list_without_items_gets_them_where_strict_mode_is_off() -> None:
    tool = Tool.from_schema(
        "t", "d", {"a": {"type": "array"}, "b": {"type": "object", "properties": {"c": {"type": "array"}}}}
    )
    assert not tool.strict
    assert tool.parameters["properties"]["a"]["items"] == {}
    assert tool.parameters["properties"]["b"]["properties"]["c"]["items"] == {}
    assert "items" not in tool.loose_parameters["properties"]["a"]


def test_a_schema_beyond_the_limits_of_strict_mode_is_sent_without_it() -> None:
    deep: dict[str, Any] = TEXT
    for _ in range(11):
        deep = {"type": "object", "properties": {"p": deep}, "required": ["p"]}
    many = {"type": "object", "properties": {"a": {"type": "string", "enum": [f"v{n}" for n in range(1001)]}}}
    assert [Tool.from_schema("t", "d", schema).strict for schema in (deep, many, deep["properties"]["p"])] == [
        False,
        False,
        True,
    ]


def test_a_schema_that_no_json_can_hold_is_refused_when_the_tool_is_made() -> None:
    with pytest.raises(ValueError, match="t: parameters are nothing that JSON can hold"):
        Tool.from_schema("t", "d", {"a": {"type": "number", "maximum": float("inf")}})
