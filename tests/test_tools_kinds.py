"""Schemas as generators and users write them, pydantic's models, and tools that take the agent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Optional

import pydantic
import pytest

from micdrop_agent import Agent, ToolInputError, tool
from micdrop_agent.tools import Tool

if TYPE_CHECKING:
    from hotel import Concierge, HotelAgent  # type: ignore[import-not-found]  # for type checkers only, on purpose


def of_schema(properties: dict[str, Any], **more: Any) -> Tool:
    return Tool.from_schema("t", "", {"type": "object", "properties": properties, **more}, lambda given: given)


def refused(made: Tool, given: Any) -> str:
    with pytest.raises(ToolInputError) as caught:
        made.bind(given)
    return str(caught.value)


# -- schemas


@pytest.mark.parametrize(
    ("pattern", "right", "wrong"),
    [
        (r"^\\p{L}+$".replace("\\\\", "\\"), "Zo\u00e9", "a1"),
        (r"^[\p{L} ]+$", "Zo\u00e9 M\u00fcller", "a1"),
        (r"^\P{L}+$", "12", "1a"),
        (r"^\p{Letter}\p{Nd}$", "\u00e91", "11"),
        (r"^(?<year>\d{4})-\k<year>$", "2026-2026", "2026-2027"),
    ],
)
def test_a_pattern_of_javascript_is_understood(pattern: str, right: str, wrong: str) -> None:
    made = of_schema({"x": {"type": "string", "pattern": pattern}})
    assert made.bind({"x": right}).invoke() == {"x": right}
    assert "matches" in refused(made, {"x": wrong})


@pytest.mark.parametrize("pattern", [r"^\p{Script=Greek}$", "(", r"[\P{L}]", 5])
def test_a_pattern_that_cannot_be_read_is_refused_when_the_tool_is_made(pattern: Any) -> None:
    with pytest.raises(ValueError, match="pattern"):
        of_schema({"x": {"type": "string", "pattern": pattern}})


def test_a_boolean_exclusive_limit_is_that_of_an_older_draft() -> None:
    made = of_schema(
        {"x": {"type": "number", "minimum": 0, "exclusiveMinimum": True, "maximum": 9, "exclusiveMaximum": False}}
    )
    assert made.bind({"x": 9}).invoke() == {"x": 9}
    assert "more than 0" in refused(made, {"x": 0})


@pytest.mark.parametrize("reference", ["#/properties/first", "#/definitions/Name", "#/$defs/Name", "#/x-types/Name"])
def test_a_reference_is_followed_wherever_in_the_schema_it_leads(reference: str) -> None:
    name = {"type": "string", "minLength": 2}
    made = of_schema(
        {"first": name, "last": {"$ref": reference}}, **{"definitions": {"Name": name}, "x-types": {"Name": name}}
    )
    assert made.bind({"first": "Ada", "last": "Lovelace"}).invoke()["last"] == "Lovelace"
    assert "last: expected at least 2" in refused(made, {"first": "Ada", "last": "L"})
    assert "#/properties" not in str(made.parameters)


def test_a_schema_may_refer_to_itself() -> None:
    made = of_schema(
        {"label": {"type": "string"}, "parts": {"type": "array", "items": {"$ref": "#"}}}, required=["label"]
    )
    tree = {"label": "a", "parts": [{"label": "b", "parts": [{"label": "c"}]}]}
    assert made.bind(tree).invoke() == tree
    assert "parts[0].parts[0].label: expected text" in refused(
        made, {"label": "a", "parts": [{"label": "b", "parts": [{"label": 3}]}]}
    )


@pytest.mark.parametrize("reference", ["https://example.com/name.json", "#/$defs/Missing", "#/properties/no"])
def test_a_reference_to_nothing_is_refused_when_the_tool_is_made(reference: str) -> None:
    with pytest.raises(ValueError, match=r"\$defs"):
        of_schema({"x": {"$ref": reference}})


# -- pydantic, by its protocol


class Guest(pydantic.BaseModel):
    """Who comes."""

    name: str = pydantic.Field(description="Full name", min_length=2)
    title: str | None = None


class Booking(pydantic.BaseModel):
    guest: Guest
    people: int = pydantic.Field(2, ge=1, le=8)


def test_a_pydantic_model_is_an_input() -> None:
    made = Tool(name="book", input=Booking, execute=lambda booking: booking)
    booking = made.bind({"guest": {"name": "Ada"}, "people": 4.0}).invoke()
    assert booking == Booking(guest=Guest(name="Ada"), people=4)
    assert made.bind({"guest": {"name": "Ada"}}).invoke().people == 2
    assert "people: expected at most 8" in refused(made, {"guest": {"name": "Ada"}, "people": 9})
    assert "Full name" in str(made.parameters)
    assert "title" in made.parameters["$defs"]["Guest"]["properties"]


def test_a_pydantic_model_is_the_type_of_a_parameter() -> None:
    @tool
    def book(guests: list[Guest], host: Guest | None = None) -> Any:
        return guests, host

    assert book.bind({"guests": [{"name": "Ada"}]}).invoke() == ([Guest(name="Ada")], None)
    assert "guests[0].name: expected at least 2" in refused(book, {"guests": [{"name": "A"}]})


class Even(pydantic.BaseModel):
    number: int

    @pydantic.field_validator("number")
    @classmethod
    def _even(cls, value: int) -> int:
        if value % 2:
            raise ValueError("must be even")
        return value


def test_what_a_model_checks_itself_is_told_with_its_place() -> None:
    made = Tool(name="t", input=Even, execute=lambda value: value)
    assert "number: Value error, must be even" in refused(made, {"number": 3})


def test_a_field_describes_a_parameter_and_gives_its_default() -> None:
    @tool
    def find(
        city: Annotated[str, pydantic.Field(description="Where")],
        kind: str = pydantic.Field("out", description="in or out"),
        tags: list[str] = pydantic.Field(default_factory=list),  # noqa: B008 - what users of pydantic write
        day: str = pydantic.Field(description="When"),
    ) -> Any:
        return city, kind, tags, day

    assert find.bind({"city": "Oslo", "day": "friday"}).invoke() == ("Oslo", "out", [], "friday")
    assert find.loose_parameters["properties"]["city"]["description"] == "Where"
    assert find.loose_parameters["properties"]["kind"] == {
        "type": "string",
        "description": "in or out",
        "default": "out",
    }
    assert find.loose_parameters["required"] == ["city", "day"]


def test_the_words_of_a_programs_own_error_stay_at_home() -> None:
    import attrs

    def look_up(_: Any, __: Any, value: str) -> None:
        raise {"lookup": LookupError("secret"), "value": ValueError("too late")}[value]

    @attrs.frozen
    class Day:
        day: str = attrs.field(validator=look_up)

    made = Tool(name="t", input=Day, execute=lambda value: value)
    assert "secret" not in refused(made, {"day": "lookup"})
    assert "too late" in refused(made, {"day": "value"})


# -- the agent


class FrontDesk(Agent):
    async def generate_answer(self, turn: Any) -> None: ...


def test_a_parameter_takes_the_agent_by_any_class_of_it() -> None:
    @tool
    def by_class(x: int, desk: FrontDesk) -> Any:
        return desk

    @tool
    def by_name_only(x: int, hotel: HotelAgent) -> Any:
        return hotel

    @tool
    def optional(x: int, hotel: HotelAgent | None = None) -> Any:
        return hotel

    @tool
    def named_agent(x: int, agent: Concierge) -> Any:
        return agent

    @tool
    def wrapped(x: int, desk: Optional[FrontDesk] = None) -> Any:  # noqa: UP045 - as users write it
        return desk

    for made in (by_class, by_name_only, optional, named_agent, wrapped):
        assert list(made.parameters["properties"]) == ["x"]
        assert made.bind({"x": 1}).invoke("the agent") == "the agent"


def test_another_class_that_is_not_there_at_run_time_is_still_refused() -> None:
    with pytest.raises(TypeError, match="TYPE_CHECKING"):

        @tool
        def guest(person: Concierge) -> None: ...
