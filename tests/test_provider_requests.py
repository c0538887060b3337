"""Request bodies: the cases of group B, and any conversation at all, before a strict provider."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import strict_rules
from hypothesis import given
from hypothesis import strategies as st

from micdrop_agent import Message, Tool, ToolCall, ToolResult
from micdrop_agent.model.protocol import Request
from micdrop_agent.providers.chat import chat_builder
from micdrop_agent.providers.quirks import MISTRAL, OPENAI, TEMPLATE_FORM
from micdrop_agent.providers.requests.body import BodyBuilder
from micdrop_agent.providers.requests.responses_dialect import ResponsesDialect
from micdrop_agent.providers.settings import check_settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from micdrop_agent import Item

CASES = Path(__file__).parent / "cases"


CHAT_SERVERS = {
    "openai_chat": OPENAI,
    "template": attrs.evolve(OPENAI, **TEMPLATE_FORM),
    "mistral": MISTRAL,
}


def builder(name: str, **options: Any) -> BodyBuilder:
    if name in CHAT_SERVERS:
        return chat_builder(attrs.evolve(CHAT_SERVERS[name], stream_usage=False), "m", **options)
    return BodyBuilder("m", ResponsesDialect(), "input", "responses", **options)


DIALECTS = ["openai_chat", "template", "mistral", "openai_responses", "deepseek_responses"]


def body_of(name: str, items: Sequence[Item], tools: Sequence[Tool] = (), **options: Any) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(builder(name, **options).build(Request(items=items, tools=tools)))
    return body


def history_of(body: dict[str, Any]) -> list[dict[str, Any]]:
    history: list[dict[str, Any]] = body.get("messages") or body["input"]
    return history


def item_of(raw: dict[str, str]) -> Item:
    if raw["role"] == "tool_call":
        return ToolCall(raw["tool_call_id"], raw["tool_name"], raw["parameters"])
    if raw["role"] == "tool_result":
        return ToolResult(raw["tool_call_id"], raw["tool_name"], raw["output"])
    return Message(raw["role"], raw["content"])  # type: ignore[arg-type]


def cases() -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for folder in sorted(CASES.glob("b-*")):
        dialects: dict[str, Any] = json.loads((folder / "request.json").read_text())["dialects"]
        found += [(folder.name, dialect) for dialect in dialects]
    return found


@pytest.mark.parametrize(("case", "dialect"), cases())
def test_a_conversation_becomes_the_request_of_its_case(case: str, dialect: str) -> None:
    data = json.loads((CASES / case / "request.json").read_text())
    items = [item_of(raw) for raw in data["given"]["conversation"]]
    tools = [Tool.from_schema(**tool) for tool in data["given"]["tools"]]
    body = body_of(dialect, items, tools)
    expected = data["dialects"][dialect]
    bound: dict[str, str] = {}
    assert strict_rules.DIALECTS[dialect](body) == []
    if "exact" in expected:
        assert strict_rules.PROVIDER.match(expected["exact"], history_of(body), bound), history_of(body)
    names = expected.get("distinct", [])
    assert len({bound[name] for name in names}) == len(names)
    declared = [tool.get("function", tool) for tool in body["tools"]]
    for name, checks in expected.get("tool_checks", {}).items():
        assert [tool["strict"] for tool in declared if tool["name"] == name] == [checks["strict"]]


IDS = st.sampled_from(["", "call_0", "call_1", "Ab3Df6Hi9", "x" * 80])
TEXTS = st.sampled_from(["Hi.", "So?", "", " \n", "\u200b", "Ålesund 日本"])
ITEMS: st.SearchStrategy[Item] = st.one_of(
    st.builds(Message, st.sampled_from(["user", "assistant", "system"]), TEXTS),
    st.builds(ToolCall, IDS, st.sampled_from(["w", "no name!"]), st.sampled_from(["{}", "", '{"a":1}', "[1", '"{}"'])),
    st.builds(ToolResult, IDS, st.just("w"), st.sampled_from(['"sun"', "null", ""])),
)
CONVERSATIONS = st.lists(ITEMS, max_size=12).map(lambda items: [Message("system", "You are the desk."), *items])


@pytest.mark.parametrize("dialect", DIALECTS)
@given(items=CONVERSATIONS)
def test_a_strict_provider_takes_any_conversation(dialect: str, items: list[Item]) -> None:
    assert strict_rules.DIALECTS[dialect](body_of(dialect, items)) == []


@pytest.mark.parametrize("dialect", DIALECTS)
@given(items=CONVERSATIONS, steps=st.lists(st.integers(1, 12), max_size=4), dropped=st.integers(0, 12))
def test_a_body_is_the_same_whatever_was_encoded_before(
    dialect: str, items: list[Item], steps: list[int], dropped: int
) -> None:
    kept = builder(dialect)
    for step in steps:
        kept.build(Request(items=items[:step]))
    kept.build(Request(items=items[:dropped] + items[dropped + 1 :]))
    assert kept.build(Request(items=items)) == builder(dialect).build(Request(items=items))


@given(items=CONVERSATIONS)
def test_no_word_that_was_said_is_lost_and_the_conversation_is_left_alone(items: list[Item]) -> None:
    before = list(items)
    said = [i.content for i in items if isinstance(i, Message) and i.role == "user" and i.content.strip(" \n\u200b")]
    for dialect in DIALECTS:
        sent = "\n".join(m["content"] for m in history_of(body_of(dialect, items)) if m.get("role") == "user")
        position = 0
        for text in said:
            position = sent.index(text, position) + len(text)
    assert all(one is other for one, other in zip(before, items, strict=True))


SYSTEM = Message("system", "SYS")
WEATHER = Tool.from_schema("w", "Weather", {"city": {"type": "string"}})


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_first_message_of_a_call_sends_no_tools(dialect: str) -> None:
    body = body_of(dialect, [SYSTEM], [WEATHER], settings={"tool_choice": "auto", "temperature": 0.5})
    assert "tools" not in body
    assert "tool_choice" not in body
    assert body["temperature"] == 0.5
    assert strict_rules.DIALECTS[dialect](body) == []
    later = body_of(dialect, [SYSTEM, Message("user", "hi")], [WEATHER], settings={"tool_choice": "auto"})
    assert later["tool_choice"] == "auto"
    assert len(later["tools"]) == 1


def test_settings_come_last_and_win_over_the_model() -> None:
    body = body_of("openai_responses", [SYSTEM], settings={"model": "m2", "max_output_tokens": 9})
    assert body == {
        "model": "m2",
        "input": [{"role": "system", "content": "SYS"}],
        "stream": True,
        "max_output_tokens": 9,
    }


@pytest.mark.parametrize("name", ["stream", "input", "messages"])
def test_settings_that_the_agent_owns_are_refused_by_name(name: str) -> None:
    with pytest.raises(ValueError, match=f"'{name}'"):
        check_settings({name: 1})


@pytest.mark.parametrize("settings", [[1], {"a": object()}, {"a": float("nan")}, {1: 2}])
def test_settings_that_are_no_json_are_refused(settings: Any) -> None:
    with pytest.raises(TypeError):
        check_settings(settings)


def test_a_late_result_stands_behind_its_call_and_before_what_was_said_meanwhile() -> None:
    items: list[Item] = [
        SYSTEM,
        ToolCall("a", "w", "{}"),
        Message("user", "Hello?"),
        ToolCall("b", "w", "{}"),
        ToolResult("b", "w", "2"),
        ToolResult("a", "w", "1"),
    ]
    kinds = [(m.get("type") or m["role"], m.get("output")) for m in history_of(body_of("openai_responses", items))]
    assert kinds == [
        ("system", None),
        ("function_call", None),
        ("function_call_output", "1"),
        ("user", None),
        ("function_call", None),
        ("function_call_output", "2"),
    ]


def test_what_a_tool_says_while_it_runs_stands_behind_its_result() -> None:
    items: list[Item] = [SYSTEM, ToolCall("a", "w", "{}"), Message("assistant", "Done."), ToolResult("a", "w", "1")]
    roles = [m["role"] for m in history_of(body_of("openai_chat", items))]
    assert roles == ["system", "assistant", "tool", "assistant"]


def test_a_continued_answer_is_asked_for_in_the_dialect_of_its_provider() -> None:
    items: list[Item] = [SYSTEM, Message("user", "Tell me.")]
    request = Request(items=items, continue_from="Once upon")
    prefix = json.loads(builder("mistral").build(request))["messages"][-1]
    assert prefix == {"role": "assistant", "content": "Once upon", "prefix": True}
    for dialect in DIALECTS:
        body = json.loads(builder(dialect).build(request))
        assert {"role": "assistant", "content": "Once upon"}.items() <= history_of(body)[
            -1 if dialect == "mistral" else -2
        ].items()
    plain = json.loads(builder("template").build(Request(items=items)))
    assert history_of(plain)[-1] == {"role": "user", "content": "Tell me."}


def test_letters_stay_letters_and_half_an_emoji_is_no_reason_to_fall_silent() -> None:
    sent = builder("openai_chat").build(Request(items=[SYSTEM, Message("user", "Ålesund \ud83d!")]))
    assert "Ålesund ?!".encode() in sent


def test_a_long_call_is_encoded_once() -> None:
    items: list[Item] = [SYSTEM]
    for number in range(400):
        items += [Message("user", f"q{number}"), Message("assistant", f"a{number}")]
    items.append(Message("user", "last"))
    kept = builder("openai_chat")
    kept.build(Request(items=items))
    encoder = kept._encoder
    before = bytes(encoder._bytes)
    kept.build(Request(items=[*items, Message("assistant", "x"), Message("user", "y")]))
    assert encoder._bytes.startswith(before)
    assert len(encoder._items) == len(items) + 1


def test_mistral_gets_the_schema_as_it_was_meant_and_no_strict_member() -> None:
    tool = Tool.from_schema("w", "W", {"city": {"type": "string"}, "lang": {"type": "string", "optional": True}})
    function = body_of("mistral", [SYSTEM, Message("user", "hi")], [tool])["tools"][0]["function"]
    assert set(function) == {"name", "description", "parameters"}
    assert function["parameters"]["required"] == ["city"]
