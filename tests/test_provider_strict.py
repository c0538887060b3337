"""Any conversation, encoded turn by turn, before rules that were written without a look at the library."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import pytest
import strict_block_rules
import strict_rules
from hypothesis import given, settings
from hypothesis import strategies as st

from micdrop_agent import Message, Tool, ToolCall, ToolResult
from micdrop_agent.model.protocol import Request
from micdrop_agent.providers.chat import chat_builder
from micdrop_agent.providers.quirks import MISTRAL, OPENAI, TEMPLATE_FORM
from micdrop_agent.providers.requests.body import BodyBuilder
from micdrop_agent.providers.requests.claude_dialect import ClaudeBuilder, ClaudeDialect
from micdrop_agent.providers.requests.gemini_dialect import GeminiBuilder, GeminiDialect
from micdrop_agent.providers.requests.pairing import _Repair, repair
from micdrop_agent.providers.requests.responses_dialect import ResponsesDialect
from micdrop_agent.testing.strategies import conversations

if TYPE_CHECKING:
    from collections.abc import Callable

    from micdrop_agent import Item
    from micdrop_agent.providers.http_provider import Builder

STRICT = attrs.evolve(OPENAI, mixed_strict=False)
MAKERS: dict[str, Callable[[], Builder]] = {
    "claude": lambda: ClaudeBuilder("m", ClaudeDialect(), "messages", "messages", {}, {"max_tokens": 9}),
    "gemini": lambda: GeminiBuilder(GeminiDialect()),
    "openai_chat": lambda: chat_builder(STRICT, "m"),
    "template": lambda: chat_builder(attrs.evolve(STRICT, **TEMPLATE_FORM), "m"),
    "mistral": lambda: chat_builder(MISTRAL, "m"),
    "openai_responses": lambda: BodyBuilder("m", ResponsesDialect(), "input", "responses"),
    "deepseek_responses": lambda: BodyBuilder("m", ResponsesDialect(typed=True), "input", "responses"),
}
RULES = {**strict_rules.RULES, **strict_block_rules.RULES}
TOOL = Tool.from_schema("w", "Weather", {"type": "object", "properties": {}}, lambda: "sun")
LABELS = {"type": "object", "additionalProperties": {"type": "string"}}
FREE = Tool.from_schema("free", "Labels", {"type": "object", "properties": {"labels": LABELS}}, lambda _: "ok")
TEXTS = st.sampled_from(
    ["Hi.", "So?", "", " \n", "\u200b", "Ålesund 日本", "half \ud83d", "\x00", '"\\', "\u2028"]
) | st.text(max_size=4)
IDS = st.sampled_from(
    ["", " ", "call_0", "call_1", "call_1_2", "Ab3Df6Hi9", "x" * 41, "y" * 90, "é/1", "functions.w:0"]
)
ARGUMENTS = st.sampled_from(
    [
        "{}",
        "",
        "null",
        " ",
        '{"a":1}',
        "[1",
        "[]",
        "1",
        '"{}"',
        '"x"',
        "{'a':1}",
        '{"a":NaN}',
        '{"a":1e999}',
        '{"a":-Infinity}',
        '{"a":"\\ud83d"}',
        '{"a":"' + chr(0xD83D) + '"}',
        '\ufeff{"a":1}',
        '{"a":1}{"a":1}',
        '{"a":"x\ny"}',
        "[" * 3000,
    ]
)
ODD: st.SearchStrategy[Item] = st.one_of(
    st.builds(Message, st.sampled_from(["user", "assistant", "system"]), TEXTS),
    st.builds(ToolCall, IDS, st.sampled_from(["w", "no name!", "", "n" * 70]), ARGUMENTS),
    st.builds(ToolResult, IDS, st.just("w"), st.sampled_from(['"sun"', "null", "", " ", "plain words", "\ud83d"])),
)
CONVERSATIONS = st.one_of(
    conversations(),
    st.builds(
        lambda prompt, items: [Message("system", prompt), *items], st.sampled_from(["Be kind.", ""]), st.lists(ODD)
    ),
)


@pytest.mark.parametrize("dialect", MAKERS)
@settings(max_examples=150)
@given(
    items=CONVERSATIONS,
    steps=st.lists(st.integers(0, 9), max_size=3),
    spoken=st.sampled_from([None, None, "It is ", " x"]),
    tools=st.sampled_from([(), (TOOL,), (TOOL, FREE)]),
    may_call=st.booleans(),
)
def test_every_request_of_a_call_is_one_that_strict_servers_take(
    dialect: str, items: list[Item], steps: list[int], spoken: str | None, tools: tuple[Tool, ...], may_call: bool
) -> None:
    builder = MAKERS[dialect]()
    offered = tools if may_call else ()
    bodies = [builder.build(Request(items=items[:step], tools=offered, declared=tools)) for step in sorted(steps)]
    bodies.append(builder.build(Request(items=items, tools=offered, declared=tools, continue_from=spoken)))
    for body in bodies:
        value: Any = strict_rules.strict_json(body)
        assert RULES[dialect](value) == [], value


@given(st.lists(st.builds(Message, st.sampled_from(["system", "user", "assistant"]), st.sampled_from(["a", " ", "b"]))))
def test_a_conversation_without_calls_is_repaired_by_the_short_way_as_by_the_long_one(items: list[Message]) -> None:
    assert repair(items) == _Repair(items).run()
