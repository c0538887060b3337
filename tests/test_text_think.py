"""The thinking filter: nothing between the marks is spoken, at any cutting."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from micdrop_agent.text import ThinkFilter

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
    ],
)
TEXTS = st.lists(PIECES, max_size=14).map("".join)


def run(chunks: list[str], *, inside: bool = False) -> str:
    think = ThinkFilter(inside=inside)
    return "".join([think.feed(chunk) for chunk in chunks]) + think.finish()


@given(text=TEXTS, inside=st.booleans(), place=st.integers(0, 100))
def test_any_cutting_gives_the_same_speech(text: str, inside: bool, place: int) -> None:
    whole = run([text], inside=inside)
    assert run(list(text), inside=inside) == whole
    assert run([text[:place], text[place:]], inside=inside) == whole


@given(text=TEXTS)
def test_a_text_without_marks_is_spoken_unchanged(text: str) -> None:
    plain = re.sub(r"(?i)think|thought", "thank", text).replace("|", "!")
    assert run(list(plain)) == plain


@given(before=st.sampled_from(["", "Hi. ", "Hi."]), thought=TEXTS, after=st.sampled_from(["", "Yes.", "No."]))
def test_no_thought_is_ever_spoken(before: str, thought: str, after: str) -> None:
    inner = re.sub(r"(?i)(<|\[)/think(ing)?(>|\])", "", thought)
    inner = inner.replace("/", "").replace("|", "")
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
    ],
)
def test_what_is_spoken(text: str, spoken: str) -> None:
    assert run([text]) == run(list(text)) == spoken


def test_a_text_that_begins_inside_the_thinking() -> None:
    assert run(["The user wants", " x</thi", "nk>\n\nHello"], inside=True) == "Hello"
    assert run(["never ends"], inside=True) == ""


def test_words_are_spoken_at_once() -> None:
    think = ThinkFilter()
    assert think.feed("Hi") == "Hi"
    assert think.feed(" <") == " "
    assert think.feed("b") == "<b"
    assert think.feed("<think>") == ""
    assert think.thinking
