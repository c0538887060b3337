"""Options and tools of the wrong type, range or name: refused when they are given, by name."""

from __future__ import annotations

import inspect
import json
import math
from typing import TYPE_CHECKING, Any, cast

import pytest

from micdrop_agent import (
    Agent,
    EchoAgent,
    ExtractJson,
    ExtractTag,
    Retry,
    Timeouts,
    ToolResult,
)
from micdrop_agent.testing import BACKENDS, Call, ScriptedAgent, run_virtual
from micdrop_agent.tools import Tool, tool

if TYPE_CHECKING:
    from micdrop_agent.testing import Backend

backends = pytest.mark.parametrize("backend", BACKENDS)

UNLIKELY: list[Any] = [None, "1", b"1", 1j, object()]


# -- options


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("system_prompt", [None, 5, b""]),
        ("auto_end_call", [5, 1, b"x", []]),
        ("auto_semantic_turn", [5]),
        ("auto_ignore_user_noise", [5]),
        ("extract", [5, "json", ExtractJson, {"start_tag": "x"}]),
        ("on_before_answer", [5, "x"]),
        ("tools", [5, None, "look", Tool(name="x")]),
        ("record_interrupted", [0, 1, None, "yes"]),
        ("raise_on_failure", [0, None]),
        ("parallel_tools", [1, None]),
        ("buffer_size", [-1, 1.5, True, "1", math.nan]),
        ("delay", [-1, True, None, "1", math.nan, math.inf]),
    ],
)
def test_an_option_of_the_wrong_type_or_range_is_named(name: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises((TypeError, ValueError), match=name) as caught:
            EchoAgent(**{name: value})
        assert "\n" not in str(caught.value)
        assert "Attribute(" not in str(caught.value)


@pytest.mark.parametrize(
    ("make", "name", "values"),
    [
        (Retry, "max_retries", [-1, 1.5, True, *UNLIKELY]),
        (Retry, "first_wait", [-1, math.nan, math.inf, True, *UNLIKELY]),
        (Retry, "factor", [0, 0.5, math.nan, math.inf, True, *UNLIKELY]),
        (Retry, "max_wait", [-1, math.nan, math.inf, *UNLIKELY]),
        (Retry, "jitter", [-0.1, 1.1, math.nan, True, *UNLIKELY]),
        *[
            (Timeouts, name, [0, -1, math.nan, math.inf, True, "1"])
            for name in ("connect", "first_chunk", "between_chunks", "total")
        ],
        (ExtractJson, "callback", [5, "x"]),
        (ExtractJson, "save_in_metadata", [1, None]),
    ],
)
def test_a_member_of_an_option_group_is_named_too(make: Any, name: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises((TypeError, ValueError), match=name) as caught:
            make(**{name: value})
        assert "Attribute(" not in str(caught.value)


def test_tags_are_texts_and_not_empty() -> None:
    for bad in (None, 5, ""):
        with pytest.raises((TypeError, ValueError), match="start_tag"):
            ExtractTag(start_tag=cast("Any", bad), end_tag="x")
        with pytest.raises((TypeError, ValueError), match="end_tag"):
            ExtractTag(start_tag="x", end_tag=cast("Any", bad))


def test_options_are_keyword_only_and_frozen() -> None:
    with pytest.raises(TypeError):
        EchoAgent(1)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    with pytest.raises(AttributeError):
        Retry().max_retries = 5  # type: ignore[misc] # pyright: ignore[reportAttributeAccessIssue]
    assert Retry(first_wait=1, factor=2, max_wait=3, jitter=0.5).wait_before(3, 1.0) == 1.5


def test_every_option_of_the_agent_is_checked_above() -> None:
    options = {
        name
        for name, parameter in inspect.signature(Agent).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    }
    marks = cast("Any", test_an_option_of_the_wrong_type_or_range_is_named).pytestmark
    assert options <= {name for name, _values in marks[0].args[1]}


# -- tools


@pytest.mark.parametrize("name", ["", "with space", "ü", "x" * 65, "a.b"])
def test_a_bad_tool_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="cannot be named"):
        Tool(name=name)


def test_a_tool_needs_a_name() -> None:
    with pytest.raises(TypeError):
        Tool()  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    with pytest.raises((TypeError, ValueError), match="name"):
        EchoAgent().add_tool(lambda: None)


def test_a_second_tool_of_one_name_is_refused_everywhere() -> None:
    first, second = Tool(name="look"), Tool(name="look")
    agent = EchoAgent(tools=[first])
    with pytest.raises(ValueError, match="a tool named 'look' already; remove it first"):
        agent.add_tool(second)
    with pytest.raises(ValueError, match="'look' already"):
        EchoAgent(tools=[first, second])
    with pytest.raises(ValueError, match="'end_call' already"):
        EchoAgent(auto_end_call=True, tools=[Tool(name="end_call")])
    agent.remove_tool("look")
    agent.remove_tool("look")
    agent.add_tool(second)
    assert agent.get_tool("look") is second
    assert agent.get_tool("none") is None
    assert agent.tools == (second,)


@backends
def test_the_model_reads_that_a_tool_ran_whose_output_is_no_json(backend: Backend) -> None:
    async def main() -> None:
        @tool
        def odd() -> Any:
            return object()

        @tool
        def infinite() -> float:
            return math.nan

        async with ScriptedAgent([Call("odd"), Call("infinite"), "ok"], tools=[odd, infinite]) as agent:
            assert [chunk async for chunk in agent.answer()] == ["ok"]
            outputs = [item.output for item in agent.conversation if isinstance(item, ToolResult)]
            assert len(outputs) == 2
            assert not any("error" in output for output in outputs)  # what ran, ran (D19)
            assert "the tool ran" in outputs[0]
            assert json.loads(outputs[1]) is not None

    run_virtual(backend, main)
