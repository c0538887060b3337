"""Tools themselves: options, names, outputs, control tools, sets; and what importing them costs."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import functools
import gc
import json
import subprocess
import sys
import uuid
import weakref
from typing import TYPE_CHECKING, Any, TypedDict, assert_type

import attrs
import pytest

from micdrop_agent.errors import ToolInputError
from micdrop_agent.tools import Tool, ToolSet, control_tools, dump_output, tool

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


@tool
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@tool(name="slow-add", description="Slowly.", skip_answer=True, emit_output=True, timeout=2.5, on_cancel="finish")
async def slow_add(a: int) -> int:
    """Not this."""
    return a


def test_a_decorated_function_is_a_tool_and_still_a_function() -> None:
    assert_type(add(1, b=2), int)
    assert add(1, b=2) == 3
    assert isinstance(add, Tool)
    assert (add.name, add.description, add.control, add.is_async) == ("add", "Add two numbers.", False, False)
    assert (add.skip_answer, add.emit_output, add.timeout, add.on_cancel, add.thread, add.kind) == (
        False,
        False,
        None,
        "cancel",
        False,
        "plain",
    )


def test_options_are_carried() -> None:
    assert (slow_add.name, slow_add.description) == ("slow-add", "Slowly.")
    assert (slow_add.skip_answer, slow_add.control, slow_add.emit_output) == (True, True, True)
    assert (slow_add.timeout, slow_add.on_cancel, slow_add.is_async) == (2.5, "finish", True)


async def test_an_async_tool_is_awaited_by_its_caller() -> None:
    assert await slow_add.bind('{"a": 3}').invoke() == 3
    assert await slow_add(4) == 4


def test_what_a_tool_declares_is_the_same_object_each_time() -> None:
    assert add.declaration is add.declaration
    assert add.declaration["parameters"] is add.parameters
    assert set(add.declaration) == {"name", "description", "parameters", "strict"}
    add.encoded["test"] = "kept"
    assert add.encoded.pop("test") == "kept"


def test_tools_are_compared_by_identity_and_frozen() -> None:
    def f(x: int) -> None: ...

    assert tool(f) != tool(f)
    assert len({add, slow_add, add}) == 2
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        add.name = "x"  # type: ignore[misc] # pyright: ignore[reportAttributeAccessIssue]


def test_a_tool_does_not_keep_the_locals_of_the_function_that_defined_it() -> None:
    class Large:
        pass

    def define() -> tuple[Tool, weakref.ref[Large]]:
        large = Large()

        @attrs.frozen
        class Local:
            x: int | None = None

        @tool
        def f(a: Local | int) -> Any:
            return a

        return f, weakref.ref(large)

    made, large = define()
    gc.collect()
    assert large() is None
    assert made.bind('{"a": {"x": 1}}').invoke().x == 1


@pytest.mark.parametrize("name", ["", "a b", "ä", "a" * 65, "a.b", "a\n"])
def test_a_bad_name_is_refused(name: str) -> None:
    def f() -> None: ...

    with pytest.raises(ValueError, match="cannot be named"):
        Tool(name=name)
    with pytest.raises(ValueError, match="cannot be named"):
        tool(f, name=name)
    with pytest.raises(ValueError, match="cannot be named"):
        Tool.from_schema(name, "", {})


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"timeout": 0}, ValueError, "timeout"),
        ({"timeout": -1}, ValueError, "timeout"),
        ({"timeout": float("inf")}, ValueError, "timeout"),
        ({"timeout": float("nan")}, ValueError, "timeout"),
        ({"timeout": "1"}, TypeError, "timeout"),
        ({"timeout": True}, TypeError, "timeout"),
        ({"on_cancel": "stop"}, ValueError, "on_cancel"),
        ({"skip_answer": 1}, TypeError, "skip_answer"),
        ({"emit_output": "yes"}, TypeError, "emit_output"),
        ({"thread": None}, TypeError, "thread"),
        ({"kind": "other"}, ValueError, "kind"),
        ({"execute": 3}, TypeError, "execute"),
        ({"description": None}, TypeError, "description"),
        ({"input": int}, TypeError, "input"),
        ({"name": 3}, TypeError, "name"),
    ],
)
def test_a_bad_option_is_refused_by_name(options: dict[str, Any], error: type[Exception], said: str) -> None:
    make: Any = Tool
    with pytest.raises(error, match=said):
        make(**({"name": "t"} | options))


def test_thread_is_for_blocking_functions() -> None:
    assert tool(add.execute or print, thread=True).thread

    async def f() -> None: ...

    @functools.wraps(f)
    def wrapped() -> Any:
        return f()

    functions: list[Any] = [f, functools.partial(f), wrapped]
    for each in functions:
        with pytest.raises(ValueError, match="thread=True"):
            tool(each, name="f", thread=True)


class _Holder:
    def method(self, x: int) -> None: ...


def _generator(x: int) -> Iterator[int]:
    yield x


async def _async_generator(x: int) -> AsyncIterator[int]:
    yield x


NOT_TOOLS: list[tuple[Any, type[Exception], str]] = [
    (lambda: None, ValueError, "has no name of its own"),
    (_Holder.method, TypeError, "is not bound yet"),
    (_generator, TypeError, "yields"),
    (_async_generator, TypeError, "yields"),
    (_Holder, TypeError, "a tool is made of a function"),
    (3, TypeError, "a tool is made of a function"),
    (add, TypeError, "is a tool already"),
]


@pytest.mark.parametrize(("function", "error", "said"), NOT_TOOLS)
def test_what_cannot_be_a_tool_says_why(function: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        tool(function)


def test_a_signature_that_the_model_cannot_fill_is_refused() -> None:
    def stars(*args: int) -> None: ...
    def keywords(**kwargs: int) -> None: ...
    def positional(x: int, /) -> None: ...
    def untyped(x: Any) -> None: ...
    def two(agent: Any, a: Any) -> None: ...

    untyped.__annotations__ = {}
    two.__annotations__ = {"a": "Agent"}
    refused: list[tuple[Any, str]] = [
        (stars, r"takes \*args"),
        (keywords, r"takes \*\*kwargs"),
        (positional, "takes x by position only"),
        (untyped, "the parameter x has no type; write for example x: str"),
        (two, "agent and a would both get the agent"),
    ]
    for function, said in refused:
        with pytest.raises(TypeError, match=said):
            tool(function)

    @attrs.frozen
    class One:
        x: int

    def greedy(one: One, more: int) -> None: ...

    with pytest.raises(TypeError, match="has no use for more"):
        Tool(name="t", input=One, execute=greedy)


def test_a_class_without_a_type_is_refused() -> None:
    with pytest.raises(TypeError, match="x has no type"):
        Tool(name="t", input=attrs.make_class("One", ["x"]))


def test_control_tools_are_those_switched_on_in_a_fixed_order() -> None:
    assert control_tools() == []
    assert control_tools(auto_end_call=None, auto_semantic_turn="", auto_ignore_user_noise=False) == []
    tools = control_tools(auto_ignore_user_noise=True, auto_semantic_turn="unfinished?", auto_end_call=True)
    assert [each.name for each in tools] == ["end_call", "semantic_turn", "ignore_user_noise"]
    assert [each.kind for each in tools] == ["end_call", "semantic_turn", "ignore_user_noise"]
    assert [each.skip_answer for each in tools] == [False, True, True]
    assert all(each.control and each.strict and each.description for each in tools)
    assert tools[1].description == "unfinished?"
    assert tools[0].parameters == {"type": "object", "properties": {}, "required": [], "additionalProperties": False}


def test_a_control_option_of_the_wrong_type_is_named() -> None:
    with pytest.raises(TypeError, match="auto_end_call"):
        control_tools(auto_end_call=1)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("arguments", ["", '{"reason": "bye"}', "{broken", None])
def test_a_control_tool_takes_whatever_the_model_adds(arguments: str | None) -> None:
    (end_call,) = control_tools(auto_end_call=True)
    call = end_call.bind(arguments)
    assert call.parameters == {}
    assert call.invoke() is None


class Color(enum.Enum):
    RED = "red"


@attrs.frozen
class Point:
    x: int
    _y: int


@dataclasses.dataclass
class Line:
    points: list[Point]


class Entry(TypedDict):
    a: int


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        ("é", '"é"'),
        ("\ud800", '"\\ud800"'),
        ({"t": 1.5, "u": [True]}, '{"t":1.5,"u":[true]}'),
        (Line([Point(1, 2)]), '{"points":[{"x":1,"y":2}]}'),
        (Entry(a=1), '{"a":1}'),
        (Color.RED, '"red"'),
        (dt.datetime(2026, 12, 1, 18, 30, tzinfo=dt.UTC), '"2026-12-01T18:30:00+00:00"'),
        (dt.date(2026, 12, 1), '"2026-12-01"'),
        (dt.timedelta(minutes=1), "60.0"),
        (uuid.UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
        ({2, 1}, "[1,2]"),
        ((1, "a"), '[1,"a"]'),
        ({1: "a"}, '{"1":"a"}'),
    ],
)
def test_outputs_have_a_json_text(value: Any, text: str) -> None:
    assert dump_output(value) == text
    assert json.loads(text) is not ...


def test_an_output_that_is_not_json_is_told() -> None:
    circle: list[Any] = []
    circle.append(circle)
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    for value in (object(), float("nan"), circle, b"\xff", {(1, 2): 3}, deep, Color, {Color}):
        with pytest.raises(ToolInputError, match="output is not JSON"):
            dump_output(value)


def test_a_tool_set_is_ordered_and_has_each_name_once() -> None:
    def third(x: int) -> None:
        """Third."""

    tools = ToolSet([slow_add, add])
    version = tools.version
    added = tools.add(third)
    assert isinstance(added, Tool)
    assert tools.version > version
    assert [each.name for each in tools] == ["slow-add", "add", "third"]
    assert tools.get("add") is add
    assert tools.get("nope") is None
    assert add in tools
    assert "third" in tools
    assert tool(third) not in tools
    version = tools.version
    with pytest.raises(ValueError, match="a tool named 'add' already"):
        tools.add(add)
    tools.remove("nope")
    assert tools.version == version
    tools.remove("add")
    assert tools.version > version
    assert len(tools) == 2
    assert "add" not in repr(tools).replace("slow-add", "")
    for each in tools:
        tools.remove(each.name)
    assert len(tools) == 0


def test_importing_tools_leaves_cattrs_alone_until_a_call_needs_it() -> None:
    code = (
        "import sys; from micdrop_agent.tools import tool\n"
        "def f(x: int) -> int: return x\n"
        "t = tool(f)\n"
        "assert not {'cattrs', 'pydantic', 'trio'} & set(sys.modules)\n"
        "t.prepare(); t.prepare()\n"
        "assert 'cattrs' in sys.modules and t.bind('{\"x\": 1}').invoke() == 1\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
