"""The narration filter: a tool call that came as text is not spoken, and is handed over where it is one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from micdrop_agent.text import NarrationFilter, WrittenCall
from micdrop_agent.text.blocks import BLOCKS, CALL_MARKS

if TYPE_CHECKING:
    from collections.abc import Collection

TEXT = {"type": "string"}
TOOLS: dict[str, Any] = {
    "get_weather": {"properties": {"city": TEXT, "days": {"type": ["integer", "null"]}}},
    "get_time": None,
    "get": {},
}
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
        "</function>",
        "<|tool_call_begin|>",
        "<|tool_call_end|>",
    ],
)
TEXTS = st.lists(PIECES, max_size=12).map("".join)
CALLED = st.sets(st.sampled_from(sorted(TOOLS)))


def read(chunks: list[str], *called: str, tools: dict[str, Any] | None = None) -> tuple[str, list[WrittenCall], int]:
    narration = NarrationFilter(TOOLS if tools is None else tools)
    spoken = "".join([narration.feed(chunk) for chunk in chunks]) + narration.finish(called=called)
    return spoken, narration.written, len(narration.dropped)


def at_each_cut(text: str, *called: str, tools: dict[str, Any] | None = None) -> tuple[str, list[WrittenCall], int]:
    whole = read([text], *called, tools=tools)
    assert read(list(text), *called, tools=tools) == whole
    for place in range(1, len(text)):
        assert read([text[:place], text[place:]], *called, tools=tools) == whole
    return whole


@given(text=TEXTS, called=CALLED, place=st.integers(0, 100), tools=st.sampled_from([TOOLS, {}]))
def test_any_cutting_gives_the_same(text: str, called: set[str], place: int, tools: dict[str, Any]) -> None:
    whole = read([text], *called, tools=tools)
    assert read(list(text), *called, tools=tools) == whole
    assert read([text[:place], text[place:]], *called, tools=tools) == whole


@given(text=st.text(alphabet="ab ge_t.,!?é字\n'", max_size=40), called=CALLED)
def test_clean_text_is_spoken_unchanged(text: str, called: set[str]) -> None:
    assert read(list(text), *called) == (text, [], 0)


@given(text=st.text(alphabet="abo .,!?é字", min_size=1, max_size=20))
def test_the_first_chunk_of_clean_text_does_not_wait(text: str) -> None:
    assert NarrationFilter(TOOLS).feed(text) == text


@given(text=st.text(alphabet="ge_time w<|tool_ca[`{( \n", max_size=60))
def test_nothing_longer_than_a_mark_is_held_back_before_a_call_begins(text: str) -> None:
    narration = NarrationFilter(TOOLS)
    fed = spoken = ""
    for char in text:
        fed, spoken = fed + char, spoken + narration.feed(char)
        if narration._block or narration._guess or narration._queue:
            return  # a call, or something like it, has begun
        assert len(fed) - len(spoken) <= CALL_MARKS.longest + 20


ARGUMENTS = {"city": "Oslo", "days": 2}
JSON = json.dumps(ARGUMENTS)
CALL = json.dumps({"name": "get_weather", "arguments": ARGUMENTS})
FORMS = {
    "hermes": f"<tool_call>\n{CALL}\n</tool_call>",
    "kimi": f"<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{JSON}"
    "<|tool_call_end|><|tool_calls_section_end|>",
    "kimi without a section": f"<|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{JSON}<|tool_call_end|>",
    "qwen coder": "<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n<parameter=days>\n2\n"
    "</parameter>\n</function>\n</tool_call>",
    "a bare function": f"<function=get_weather>{JSON}</function>",
    "glm": "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Oslo</arg_value>\n<arg_key>days</arg_key>\n"
    "<arg_value>2</arg_value>\n</tool_call>",
    "minimax": '<minimax:tool_call>\n<invoke name="get_weather">\n<parameter name="city">Oslo</parameter>\n'
    '<parameter name="days">2</parameter>\n</invoke>\n</minimax:tool_call>',
    "deepseek": "<\uff5ctool\u2581calls\u2581begin\uff5c><\uff5ctool\u2581call\u2581begin\uff5c>function<\uff5ctool\u2581sep\uff5c>"
    f"get_weather\n```json\n{JSON}\n```<\uff5ctool\u2581call\u2581end\uff5c><\uff5ctool\u2581calls\u2581end\uff5c>",
    "deepseek 3.1": "<\uff5ctool\u2581calls\u2581begin\uff5c><\uff5ctool\u2581call\u2581begin\uff5c>get_weather<\uff5ctool\u2581sep\uff5c>"
    f"{JSON}<\uff5ctool\u2581call\u2581end\uff5c><\uff5ctool\u2581calls\u2581end\uff5c>",
    "dsml": '<\uff5cDSML\uff5cfunction_calls>\n<\uff5cDSML\uff5cinvoke name="get_weather">\n<\uff5cDSML\uff5cparameter name="city" '
    'string="true">Oslo</\uff5cDSML\uff5cparameter>\n<\uff5cDSML\uff5cparameter name="days" string="false">2</\uff5cDSML\uff5cparameter>'
    "\n</\uff5cDSML\uff5cinvoke>\n</\uff5cDSML\uff5cfunction_calls>",
    "gemma 4": '<|tool_call>call:get_weather{city:<|"|>Oslo<|"|>,days:2}<tool_call|>',
    "gemma 3": '```tool_code\nprint(get_weather(city="Oslo", days=2))\n```',
    "llama 4": "<|python_start|>[get_weather(city='Oslo', days=2)]<|python_end|>",
    "llama 3": f"<|python_tag|>{CALL}",
    "mistral": f"[TOOL_CALLS][{CALL}]",
    "mistral 11": f"[TOOL_CALLS]get_weather[ARGS]{JSON}",
    "mistral 13": f"[TOOL_CALLS]get_weather{JSON}",
    "cohere": f'<|START_ACTION|>[{{"tool_call_id":"0","tool_name":"get_weather","parameters":{JSON}}}]<|END_ACTION|>',
    "lm studio": f"[TOOL_REQUEST]{CALL}[END_TOOL_REQUEST]",
    "phi": f"<|tool_call|>[{CALL}]<|/tool_call|>",
    "an object": CALL,
    "an object of a function": json.dumps({"type": "function", "function": {"name": "get_weather", "arguments": JSON}}),
    "a fence": f"```json\n{CALL}\n```",
    "a list": f"[{CALL}]",
    "a name and its arguments": f"get_weather({JSON})",
    "a name and an object": f"get_weather {JSON}",
}


@pytest.mark.parametrize("form", FORMS)
def test_a_call_in_each_known_form_is_taken_out_and_handed_over(form: str) -> None:
    for before, after in (("", ""), ("One moment. ", ""), ("", " So."), ("One moment. ", " So.")):
        spoken, written, dropped = at_each_cut(before + FORMS[form] + after)
        assert spoken == (before + after if not before or not after else "One moment. So.").lstrip()
        assert [(call.name, json.loads(call.arguments)) for call in written] == [("get_weather", ARGUMENTS)]
        assert dropped == 0


@pytest.mark.parametrize("form", FORMS)
def test_beside_the_real_call_it_is_only_taken_out(form: str) -> None:
    text = f"One moment. {FORMS[form]}"
    assert at_each_cut(text, "get_weather") == ("One moment. ", [], 0)
    assert at_each_cut(text, "get_time") == ("One moment. ", [], 1)


@pytest.mark.parametrize("form", [form for form in FORMS if not form.startswith(("an ", "a "))])
def test_a_marked_call_of_no_tool_is_not_spoken(form: str) -> None:
    spoken, written, dropped = at_each_cut(f"One moment. {FORMS[form]}", tools={})
    assert (spoken, written, dropped) == ("One moment. ", [], 1)


@pytest.mark.parametrize("form", FORMS)
def test_half_of_a_call_is_neither_spoken_nor_run(form: str) -> None:
    text = FORMS[form]
    for end in range(text.rindex("Oslo"), text.rindex("2")):
        spoken, written, _ = read([text[:end]])
        assert (spoken, written) == ("", []), text[:end]


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("A get_weather(1) B get_weather(2) C", "A B C"),
        ('{"name": "get_weather", "arguments": Oslo}', ""),
        ("get_weather", "get_weather"),
        ("my_get_weather(x)", "my_get_weather(x)"),
        ("get_weathers (x)", "get_weathers (x)"),
        ('{"name": "Jo"}', '{"name": "Jo"}'),
        ('{"name": "get_weather", "age": 3}', ""),
        ('{"user": {"name": "get_weather"}}', '{"user": {"name": "get_weather"}}'),
        ("get_time()", "get_time()"),
        ('```json\n{"name": "Jo"}\n```', '```json\n{"name": "Jo"}\n```'),
        ("a < b [1] `c`", "a < b [1] `c`"),
        ("</tool_call> Hi", "Hi"),
    ],
)
def test_what_is_spoken_when_get_weather_was_called(text: str, spoken: str) -> None:
    assert at_each_cut(text, "get_weather")[0] == spoken


@pytest.mark.parametrize(
    "text",
    [
        "You may use get_weather(city) for that.",
        "get_time() tells the time.",
        '{"name": "get_weather", "age": 3}',
        '{"name": "Jo"}',
        "a < b [1] `c` ```bash\nls\n```",
        "get_weather(",
    ],
)
def test_what_only_looks_like_a_call_is_spoken_when_none_came(text: str) -> None:
    assert at_each_cut(text) == (text, [], 0)


def test_values_that_came_as_bare_text_are_read_by_the_schema() -> None:
    tools = {"note": {"properties": {"phone": TEXT, "days": {"anyOf": [{"type": "integer"}, {"type": "null"}]}}}}
    text = (
        "<tool_call><function=note><parameter=phone>0123</parameter><parameter=days>3</parameter>"
        "<parameter=other>true</parameter><parameter=more>x y</parameter></function></tool_call>"
    )
    _, written, _ = at_each_cut(text, tools=tools)
    assert json.loads(written[0].arguments) == {"phone": "0123", "days": 3, "other": True, "more": "x y"}


def test_several_calls_keep_their_order() -> None:
    text = f"[TOOL_CALLS][{CALL}, {CALL}]" + '<tool_call>{"name": "get_time", "arguments": {}}</tool_call>'
    spoken, written, _ = at_each_cut(text)
    assert spoken == ""
    assert [call.name for call in written] == ["get_weather", "get_weather", "get_time"]


def test_a_mark_in_prose_is_no_call() -> None:
    text = "The tag <tool_call> is what models of that family write in front of a call, and nothing else is here."
    assert at_each_cut(text) == (text.replace("<tool_call> ", ""), [], 0)
    assert at_each_cut("Use <tool_call> for it.") == ("Use  for it.", [], 0)


def test_an_argument_that_runs_code_runs_nothing() -> None:
    spoken, written, dropped = at_each_cut('```tool_code\nget_weather(city=open("x").read())\n```')
    assert (spoken, written, dropped) == ("", [], 1)


def test_words_beside_a_call_are_spoken_at_once() -> None:
    narration = NarrationFilter({"get_weather": None})
    assert narration.feed("One moment. ") == "One moment. "
    assert narration.feed("I ge") == "I "
    assert narration.feed("t it") == "get it"
    assert narration.feed(' {"a": 1} ok ') == ' {"a": 1} ok '
    assert narration.feed('<tool_call>{"name": "get_weather"}</tool_call>') == ""
    assert narration.feed("So.") == "So."
    assert narration.feed("get_weather(") == ""
    assert narration.finish() == "get_weather("


def test_a_mark_waits_only_until_it_is_clear_that_no_call_follows() -> None:
    narration = NarrationFilter({"get_weather": None})
    assert narration.feed("<tool") == ""
    assert narration.feed("_box> is") == "<tool_box> is"
    assert narration.feed(" it ```") == " it "
    assert narration.feed("json\n") == ""
    assert narration.feed("[1]") == "```json\n[1]"


def test_a_clean_chunk_comes_back_itself() -> None:
    for narration in (NarrationFilter({}), NarrationFilter(TOOLS)):
        chunk = "One moment."
        assert narration.feed(chunk) is chunk
        assert narration.finish(called=["get_weather"]) == ""


def test_a_mark_far_before_a_name_is_no_mark_of_a_call() -> None:
    text = "```" + " " * 200 + "look"
    narration = NarrationFilter({"look": None})
    assert narration.feed(text) + narration.feed(" around.") + narration.finish() == text + " around."


def test_each_character_of_a_long_block_is_looked_at_a_bounded_number_of_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked: list[int] = []
    look = NarrationFilter._look

    def counting(self: NarrationFilter, text: str) -> str:
        looked.append(len(self._held) + len(text))
        return look(self, text)

    monkeypatch.setattr(NarrationFilter, "_look", counting)
    narration = NarrationFilter(TOOLS)
    narration.feed("<tool_call>{")
    for _ in range(2_000):
        narration.feed("x" * 200)
    assert sum(looked) <= 400_012
    assert narration.finish() == ""
    assert len(narration.dropped) == 1


def _closers() -> Collection[str]:
    return BLOCKS.values()


def test_every_mark_is_in_small_letters_and_none_begins_another() -> None:
    marks = {*BLOCKS, *(_closers())} - {"```"}
    assert all(mark == mark.lower() for mark in marks)
    assert not [(one, other) for one in marks for other in marks if one != other and other.startswith(one)]
