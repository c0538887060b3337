"""The thinking filter: nothing between the marks is spoken, at any cutting."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from micdrop_agent.text import ThinkFilter
from micdrop_agent.text.think import THINK_MARKS

PIECES = st.sampled_from(
    [
        "<think>",
        "</think>",
        "<THINK>",
        "<thinking>",
        "</thinking>",
        "[THINK]",
        "[/THINK]",
        "<",
        "[",
        "</",
        "think>",
        "a",
        "Hi.",
        " ",
        "\n\n",
        "<t",
        "<thin",
        "K",
        ">",
        "é",
        "<thought>",
        "</thought>",
        "<|channel|>",
        "<|message|>",
        "<|start|>",
        "<|end|>",
        "<|",
        "final",
        "analysis",
        "<|im_end|>",
        "</s>",
        "<s>",
        "<|im_start|>",
        "assistant\n",
        "user",
        "\u25c1think\u25b7",
        "\u25c1/think\u25b7",
        "<|channel>",
        "<channel|>",
        "<|message|>",
        "to=functions.w ",
        "{}",
        "<|call|>",
    ],
)
TEXTS = st.lists(PIECES, max_size=14).map("".join)


def run(chunks: list[str], **options: bool) -> str:
    think = ThinkFilter(**options)
    return "".join([think.feed(chunk) for chunk in chunks]) + think.finish()


OPTIONS = st.fixed_dictionaries({"inside": st.booleans(), "thoughts": st.booleans(), "pass_calls": st.booleans()})


@given(text=TEXTS, options=OPTIONS, place=st.integers(0, 100))
def test_any_cutting_gives_the_same_speech(text: str, options: dict[str, bool], place: int) -> None:
    whole = run([text], **options)
    assert run(list(text), **options) == whole
    assert run([text[:place], text[place:]], **options) == whole


@given(text=TEXTS)
def test_a_text_without_marks_is_spoken_unchanged(text: str) -> None:
    plain = re.sub(r"(?i)think|thought", "thank", text).replace("|", "!").replace("s>", "z>")
    assert run(list(plain)) == plain


@given(before=st.sampled_from(["", "Hi. ", "Hi."]), thought=TEXTS, after=st.sampled_from(["", "Yes.", "No."]))
def test_no_thought_is_ever_spoken(before: str, thought: str, after: str) -> None:
    inner = re.sub(r"(?i)(<|\[)/think(ing)?(>|\])", "", thought)
    inner = inner.replace("/", "").replace("|", "").replace("<s>", "")
    assert run(list(f"{before}<think>{inner}</think>{after}")) == before + after


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("<think>hm</think>\n\nHello", "Hello"),
        ("\n<think>hm</think>\n\nHello", "Hello"),
        ("<think></think>Hello", "Hello"),
        ("<think>never ends", ""),
        ("Hi. <think>hm</think> There", "Hi. There"),
        ("Hi.<think>hm</think> There", "Hi. There"),
        ("<think>a<think>b</think>Hello", "Hello"),
        ("<think>hm</think>  ", ""),
        ("a < b and [1] <thin", "a < b and [1] <thin"),
        ("So.\n</think>\n\nHello", "So.\nHello"),
        ("</think>\n\nHello", "Hello"),
        ("   ", "   "),
        ("<thought>hm</thought>Hello", "Hello"),
        ("<seed:think>hm</seed:think>Hello", "Hello"),
        ("<reasoning>hm</reasoning>\nHello", "Hello"),
        (
            "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>Hello<|return|>",
            "Hello",
        ),
        ("<|channel|>final<|message|>Hello", "Hello"),
        ("<|start|>assistant<|message|>Hello<|end|>", "Hello"),
        ('Hi. <|channel|>commentary to=functions.w <|constrain|>json<|message|>{"a":1}<|call|>', "Hi. "),
        ("<|channel|>analysis<|message|>never ends", ""),
        ("<|channel|>analysis", ""),
        ("a <| b |> c <|x|>", "a <| b |> c <|x|>"),
        # Tokens of the chat template, and what follows the end of a turn.
        ("Hello there.<|im_end|>", "Hello there."),
        ("Hello there.<|eot_id|>", "Hello there."),
        ("Hello there.</s>", "Hello there."),
        ("Hello there.<end_of_turn>\n", "Hello there."),
        ("Hello there.<|END_OF_TURN_TOKEN|>", "Hello there."),
        ("Hello there.<\uff5cend\u2581of\u2581sentence\uff5c>", "Hello there."),
        ("Hello there.<turn|>", "Hello there."),
        ("Hello there.<|im_end|>\n<|im_start|>user\nAnd you?<|im_end|>", "Hello there."),
        ("Hello there.<start_of_turn>user\nAnd you?", "Hello there."),
        ("Hello there.[INST] And you? [/INST]", "Hello there."),
        ("<s>Hello</s>", "Hello"),
        ("<|im_start|>assistant\nHello<|im_end|>", "Hello"),
        ("<|begin_of_text|><|start_header_id|>assistant<|end_header_id|>\n\nHello", "Hello"),
        ("<|im_end|>Hello", "Hello"),  # nothing was said before it
        ("No <s>ten</s> nine.", "No <s>ten</s> nine."),  # struck through, not the token
        # Other spellings of the thinking.
        ("<mm:think>hm</mm:think>\nHello", "Hello"),
        ("\u25c1think\u25b7hm\u25c1/think\u25b7Hello", "Hello"),
        ("<|begin_of_thought|>hm<|end_of_thought|>\n<|begin_of_solution|>Hello<|end_of_solution|>", "Hello"),
        ("<|START_THINKING|>hm<|END_THINKING|><|START_RESPONSE|>Hello<|END_RESPONSE|>", "Hello"),
        ("<|channel>thought\nhm<channel|>Hello<turn|>", "Hello"),
        ("<think>hm<|im_end|>", ""),
    ],
)
def test_what_is_spoken(text: str, spoken: str) -> None:
    assert run([text]) == run(list(text)) == spoken
    for place in range(1, len(text)):
        assert run([text[:place], text[place:]]) == spoken


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        (
            'Hi. <|channel|>commentary to=functions.w <|constrain|>json<|message|>{"a": 1}<|call|>',
            'Hi. <tool_call>{"name": "w", "arguments": {"a": 1}}</tool_call>',
        ),
        (
            "<|channel|>analysis to=functions.w code<|message|><|call|>",
            '<tool_call>{"name": "w", "arguments": {}}</tool_call>',
        ),
        ('<|channel|>commentary to=functions.w<|message|>{"a": ', "<tool_call>"),
        ("<|channel|>commentary to=functions.w<|message|>a city<|call|>", ""),
        ("<|channel|>commentary<|message|>I will look.<|end|>", ""),
    ],
)
def test_a_call_in_a_channel_is_passed_on_for_the_next_filter(text: str, spoken: str) -> None:
    for place in range(len(text)):
        assert run([text[:place], text[place:]], pass_calls=True) == spoken


def test_tokens_of_the_template_are_taken_out_where_thoughts_are_not() -> None:
    assert run(list("<think>hm</think> Hello<|im_end|>"), thoughts=False) == "<think>hm</think> Hello"


def test_it_says_that_the_thinking_began_in_the_prompt() -> None:
    for text, unopened in (("So.</think>Hello", True), ("</think>Hello", False), ("<think>a</think>b", False)):
        think = ThinkFilter()
        think.feed(text)
        assert think.unopened is unopened


@given(text=st.text(alphabet="abtk .,!?\u00e9\u5b57\n(){}", min_size=1, max_size=20).filter(str.strip))
def test_clean_text_comes_back_itself_and_at_once(text: str) -> None:
    assert ThinkFilter().feed(text) is text


@given(text=st.text(alphabet="<|/thinks[]>_im ", max_size=60))
def test_nothing_longer_than_a_mark_is_held_back(text: str) -> None:
    think = ThinkFilter()
    for char in text:
        think.feed(char)
        assert len(think._held) < THINK_MARKS.longest


def test_a_text_that_begins_inside_the_thinking() -> None:
    assert run(["The user wants", " x</thi", "nk>\n\nHello"], inside=True) == "Hello"
    assert run(["never ends"], inside=True) == ""


def test_words_are_spoken_at_once() -> None:
    think = ThinkFilter()
    assert think.feed("Hi") == "Hi"
    assert think.feed(" <") == " "
    assert think.feed("q") == "<q"
    assert think.feed("<think>") == ""
    assert think.thinking
