"""The narration filter: a written-out tool call is not spoken beside the real one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from micdrop_agent.text import NarrationFilter

TOOLS = ["get_weather", "get_time", "get"]
PIECES = st.sampled_from(
    [
        "get_weather",
        "get_time",
        "get",
        "(",
        ")",
        "{",
        "}",
        '"',
        '"name"',
        ":",
        '{"name":"get_time"}',
        '{"a":1}',
        " ",
        "Hi",
        "\n",
        "get_weather({})",
        "_",
        "\\",
        ",",
        " " * 17,
        "x",
        "<tool_call>",
        "</tool_call>",
        "<tool_",
        "```json\n",
        "```",
        "`",
        "<",
        "[TOOL_CALLS]",
        "[",
        "]",
        "<function=get_time>",
    ],
)
TEXTS = st.lists(PIECES, max_size=12).map("".join)
CALLED = st.sets(st.sampled_from(TOOLS))


def run(chunks: list[str], *called: str, tools: list[str] = TOOLS) -> str:
    narration = NarrationFilter(tools)
    return "".join([narration.feed(chunk) for chunk in chunks]) + narration.finish(called=called)


@given(text=TEXTS, called=CALLED, place=st.integers(0, 100))
def test_any_cutting_gives_the_same_speech(text: str, called: set[str], place: int) -> None:
    whole = run([text], *called)
    assert run(list(text), *called) == whole
    assert run([text[:place], text[place:]], *called) == whole


@given(text=TEXTS)
def test_without_a_call_everything_is_spoken(text: str) -> None:
    assert run(list(text)) == text
    assert run([text], "other") == text


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ('get_weather({"city":"Oslo"})', ""),
        ('get_weather {"city":"O}slo"}', ""),
        ('One moment. get_weather({"city":"Oslo"})', "One moment. "),
        ('get_weather({"city":"Oslo"})\nOne moment.', "One moment."),
        ("A get_weather(1) B get_weather(2) C", "A B C"),
        ('{"name": "get_weather", "arguments": {}}', ""),
        ('{"type":"function","function":{"name":"get_weather"}}', ""),
        ('get_weather({"city":', ""),
        ('{"name": "get_weather"', ""),
        ('{"name": "get_weather", "arguments": Oslo}', ""),
        ("get_weather", "get_weather"),
        ("my_get_weather(x)", "my_get_weather(x)"),
        ("get_weathers (x)", "get_weathers (x)"),
        ('{"name": "Jo"}', '{"name": "Jo"}'),
        ('{"user": {"name": "get_weather"}}', '{"user": {"name": "get_weather"}}'),
        ("get_time()", "get_time()"),
        ('<tool_call>\n{"name": "get_weather", "arguments": {}}\n</tool_call>', ""),
        (
            'Hm. <tool_call>{"name": "get_weather"}</tool_call>\n<tool_call>{"name": "get_weather"}</tool_call> So.',
            "Hm. So.",
        ),
        ('Hm. ```json\n{"name": "get_weather"}\n``` So.', "Hm. So."),
        ("```tool_code\nget_weather(1)\n```", ""),
        ('[TOOL_CALLS][{"name": "get_weather"}, {"name": "get_weather"}]', ""),
        ('<|python_tag|>{"name": "get_weather"}', ""),
        ('<function=get_weather>{"city":"Oslo"}</function>', ""),
        ('<function=get_time>{"city":"Oslo"}</function>', '<function=get_time>{"city":"Oslo"}</function>'),
        ('```json\n{"name": "Jo"}\n```', '```json\n{"name": "Jo"}\n```'),
        ('<tool_call>{"name": "get_time"}</tool_call>', '<tool_call>{"name": "get_time"}</tool_call>'),
        ("a < b [1] `c`", "a < b [1] `c`"),
        ('get_weather({"a":1})]', "]"),
    ],
)
def test_what_is_spoken_when_get_weather_was_called(text: str, spoken: str) -> None:
    assert run([text], "get_weather") == run(list(text), "get_weather") == spoken


def test_words_beside_a_call_are_spoken_at_once() -> None:
    narration = NarrationFilter(["get_weather"])
    assert narration.feed("One moment. ") == "One moment. "
    assert narration.feed("I ge") == "I "
    assert narration.feed("t it") == "get it"
    assert narration.feed(' {"a": 1} ok ') == ' {"a": 1} ok '
    assert narration.feed("get_weather(") == ""
    assert narration.finish() == "get_weather("


def test_a_mark_waits_only_until_it_is_clear_that_no_call_follows() -> None:
    narration = NarrationFilter(["get_weather"])
    assert narration.feed("<tool") == ""
    assert narration.feed("_box> is") == "<tool_box> is"
    assert narration.feed(" it ```") == " it "
    assert narration.feed("json\n") == ""
    assert narration.feed("[1]") == "```json\n[1]"


def test_without_tools_the_chunk_itself_comes_back() -> None:
    narration = NarrationFilter([])
    chunk = "get_weather({})"
    assert narration.feed(chunk) is chunk
    assert narration.finish(called=["get_weather"]) == ""


def test_a_mark_far_before_a_name_is_no_mark_of_a_call() -> None:
    text = "```" + " " * 200 + "look"
    narration = NarrationFilter(["look"])
    assert narration.feed(text) + narration.feed(" around.") + narration.finish() == text + " around."
