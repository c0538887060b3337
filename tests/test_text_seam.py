"""The seam filter: two models, one sentence, no word twice and no space missing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from micdrop_agent.text.joining import SeamFilter

HERE = Path(__file__).parent

WORDS = [
    "harbour",
    "Window",
    "purple",
    "montagne",
    "Köln",
    "fenêtre",
    "bridge",
    "river",
    "thunder",
    "Zürich",
    "velvet",
    "garden",
]
MARKS = ["", "", "", ",", ".", "!", ";"]


def joined(partial: str, *chunks: str, exact: bool = False) -> str:
    seam = SeamFilter(partial, exact=exact)
    return partial + "".join([seam.feed(chunk) for chunk in chunks]) + seam.finish()


def at_each_cut(partial: str, text: str, *, exact: bool = False) -> str:
    whole = joined(partial, text, exact=exact)
    assert joined(partial, *text, exact=exact) == whole
    for place in range(1, len(text)):
        assert joined(partial, text[:place], text[place:], exact=exact) == whole
    return whole


@pytest.mark.parametrize(
    ("partial", "text", "whole"),
    [
        # It goes on, with the space, without it, with two.
        ("The capital is", " Paris.", "The capital is Paris."),
        ("The capital is", "Paris.", "The capital is Paris."),
        ("The capital is ", "Paris.", "The capital is Paris."),
        ("The capital is ", " Paris.", "The capital is Paris."),
        ("The capital is", "  Paris.", "The capital is Paris."),
        ("The capital of France is", "known as Paris.", "The capital of France is known as Paris."),
        ("The capital", "known as Paris", "The capital known as Paris"),
        # It repeats the beginning, and that is all.
        ("The capital of France is ", "The capital", "The capital of France is "),
        ("The capital of France is ", "The capital of.", "The capital of France is "),
        ("The capital of France is ", "The", "The capital of France is The"),
        ("No, the answer is ", "no.", "No, the answer is no."),
        ("It is not open, it is ", "not open.", "It is not open, it is not open."),
        # It repeats all, or a tail.
        ("The capital is", "The capital is Paris.", "The capital is Paris."),
        ("The capital is", "the CAPITAL  is Paris.", "The capital is Paris."),
        ("The capital is ", "The capital is Paris.", "The capital is Paris."),
        ("The capital is", "is Paris.", "The capital is Paris."),
        ("The capital is", "capital is Paris.", "The capital is Paris."),
        ("The capital is", "...is Paris.", "The capital is Paris."),
        ("The capital is", "... Paris.", "The capital is Paris."),
        ("We open at ", "We open at nine.", "We open at nine."),
        ("It was very, very", "very good", "It was very, very good"),
        # It broke off inside a word.
        ("The cap", "ital is Paris.", "The capital is Paris."),
        ("The cap", "capital is Paris.", "The capital is Paris."),
        ("The cap", "The capital is Paris.", "The capital is Paris."),
        ("The capital is Par", "Paris.", "The capital is Paris."),
        ("The capital is Par", "is Paris.", "The capital is Paris."),
        ("We're goi", "ng home.", "We're going home."),
        ("The wea", "ther is fine.", "The weather is fine."),
        ("a connec", "tion to Berlin", "a connection to Berlin"),
        ("Down the str", "eet", "Down the street"),
        ("It costs 1", "15 euros", "It costs 15 euros"),
        ("in 20", "26", "in 2026"),
        # A well-known word is whole.
        ("I saw a", "apple", "I saw a apple"),
        ("This is", "island life", "This is island life"),
        ("So I", "It is", "So I It is"),
        # Marks at the seam.
        ("Hello", ", world", "Hello, world"),
        ("Hello,", ", world", "Hello, world"),
        ("Hello,", "Hello, world", "Hello, world"),
        ("Hello!", "Hello. How are you?", "Hello! How are you?"),
        ("Hello.", "How are you?", "Hello. How are you?"),
        ("Hello.", "Hello.", "Hello."),
        ("Well-", "known", "Well-known"),
        ("It is 3.", "14", "It is 3.14"),
        ("At 9:", "30", "At 9:30"),
        ("On the 2", "nd", "On the 2nd"),
        ("In room", "12", "In room 12"),
        ("It costs $", "5", "It costs $5"),
        ("It costs $", "It costs $5", "It costs $5"),
        ("The best", "(and only)", "The best (and only)"),
        ('He said "', 'yes"', 'He said "yes"'),
        ("He said (", '"yes")', 'He said ("yes")'),
        ("He said", '"yes"', 'He said "yes"'),
        ('"Yes"', "he said", '"Yes" he said'),
        ("don't you", "don\u2019t you know", "don't you know"),
        ("I don'", "t know", "I don't know"),
        # Scripts without spaces, and one with them.
        ("首都は", "東京です。", "首都は東京です。"),
        ("首都は", "首都は東京です。", "首都は東京です。"),
        ("首都は東", "東京です。", "首都は東東京です。"),  # one sign may be meant: in doubt it is said twice
        ("首都は東", "京です。", "首都は東京です。"),
        ("เมืองหลวงคือ", "กรุงเทพ", "เมืองหลวงคือกรุงเทพ"),
        ("수도는", "서울입니다", "수도는 서울입니다"),
        # A new sentence.
        ("Paris is nice.", "It is in France.", "Paris is nice. It is in France."),
        ("Paris is", "Sure! Paris is nice.", "Paris is Sure! Paris is nice."),
        ("Paris is", "", "Paris is"),
        ("Paris is", "Paris is", "Paris is"),
        ("", "Hello", "Hello"),
        ("...", "Hello", "... Hello"),
    ],
)
def test_the_two_texts_are_one(partial: str, text: str, whole: str) -> None:
    assert at_each_cut(partial, text) == whole


@given(
    words=st.permutations(WORDS),
    marks=st.lists(st.sampled_from(MARKS), min_size=len(WORDS), max_size=len(WORDS)),
    place=st.integers(1, 200),
    back=st.integers(1, len(WORDS)),
    size=st.integers(1, 9),
)
def test_a_repeated_tail_or_whole_is_cut_wherever_the_first_text_broke_off(
    words: list[str], marks: list[str], place: int, back: int, size: int
) -> None:
    text = " ".join(word + mark for word, mark in zip(words, marks, strict=True))
    place = 1 + place % (len(text) - 1)
    partial = text[:place]
    starts = [0] + [i + 1 for i in range(place - 1) if text[i] == " "]
    again = text[starts[max(0, len(starts) - back)] :]
    chunks = [again[i : i + size] for i in range(0, len(again), size)]
    assert joined(partial, *chunks) == text
    assert joined(partial, *[chunk.upper() for chunk in chunks]).upper() == text.upper()


@given(words=st.permutations(WORDS), place=st.integers(0, 200), size=st.integers(1, 9))
def test_a_model_that_goes_on_exactly_is_taken_as_it_is(words: list[str], place: int, size: int) -> None:
    text = " ".join(words)
    place %= len(text)
    chunks = [text[i : i + size] for i in range(place, len(text), size)]
    assert joined(text[:place], *chunks, exact=True) == text


@given(
    words=st.permutations(WORDS),
    number=st.integers(1, len(WORDS) - 1),
    before=st.booleans(),
    gap=st.sampled_from(["", " "]),
)
def test_one_space_stands_between_two_words(words: list[str], number: int, before: bool, gap: str) -> None:
    partial = " ".join(words[:number]) + " " * before
    assert joined(partial, *(gap + " ".join(words[number:]))) == " ".join(words)


@given(
    partial=st.text("ab cé東.,!?'\"-1 ", max_size=20),
    text=st.text("ab cé東.,!?'\"-1 ", max_size=30),
    size=st.integers(1, 5),
    limit=st.integers(1, 12),
    exact=st.booleans(),
)
def test_any_cutting_gives_the_same_text(partial: str, text: str, size: int, limit: int, exact: bool) -> None:
    def run(*chunks: str) -> str:
        seam = SeamFilter(partial, limit, exact=exact)
        return "".join([seam.feed(chunk) for chunk in chunks]) + seam.finish()

    assert run(*(text[i : i + size] for i in range(0, len(text), size))) == run(text)


def test_a_repetition_longer_than_the_limit_is_dropped_not_held() -> None:
    partial = " ".join(f"word{number}" for number in range(100))
    assert joined(partial, *(partial + " end")) == partial + " end"
    broken = partial[:400]
    assert joined(partial, *(broken + "x else")) == partial + " wordx else"
    assert joined(partial, *"".join(partial.partition("word50")[:2])) == partial


def test_undecided_text_is_held_only_up_to_the_limit() -> None:
    seam = SeamFilter("The capital is", max_chars=10)
    assert seam.feed("x" * 9) == ""
    assert seam.feed("xx") == " " + "x" * 11
    assert seam.feed("y") == "y"


def test_an_impatient_caller_gets_what_is_new_but_no_repetition() -> None:
    seam = SeamFilter("The capital is")
    assert seam.feed("The cap") == ""
    assert seam.flush() == ""
    assert seam.feed("ital is") == ""
    assert seam.feed(" Paris") == " Paris"
    seam = SeamFilter("The capital is")
    assert seam.feed("Par") == ""
    assert seam.flush() == " Par"
    assert seam.feed("is") + seam.finish() == "is"


def test_words_pass_as_soon_as_they_are_new() -> None:
    seam = SeamFilter("The capital is")
    assert [seam.feed(chunk) for chunk in ("The capital", " is", " P", "aris", ".")] == ["", "", " P", "aris", "."]


def test_an_exact_model_may_double_a_word_but_not_repeat_the_text() -> None:
    assert joined("It was very", " very good", exact=True) == "It was very very good"
    assert joined("It was very", "It was very good", exact=True) == "It was very good"
    assert joined("The cap", "ital", exact=True) == "The capital"
    assert joined("The isl", "and is", exact=True) == "The island is"


def test_the_recorded_seam_is_joined() -> None:
    vector = json.loads((HERE / "vectors/fallback/first-fails-after-output.json").read_text("utf-8"))
    first, second = (child["answers"][0] for child in vector["options"]["children"])
    said = "".join(op["text"] for op in first if op["op"] == "write")
    text = vector["right"]["expected"]["text"]["a1"]
    assert joined(said, *(op["text"] for op in second if op["op"] == "write")) == text


def test_case_c_17_says_each_word_once() -> None:
    assert at_each_cut("We open at ", "We open at nine.") == "We open at nine."


@pytest.mark.parametrize(
    ("partial", "reply"),
    [("The pool is", "Is it closed? Yes."), ("We know that", "That costs nine."), ("Es ist so", "So geht es nicht.")],
)
def test_a_sentence_that_begins_with_the_last_word_is_said(partial: str, reply: str) -> None:
    for cut in range(len(reply)):
        seam = SeamFilter(partial)
        assert (seam.feed(reply[:cut]) + seam.feed(reply[cut:]) + seam.finish()).strip() == reply
