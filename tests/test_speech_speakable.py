"""What is read aloud of Markdown: its words; at any cutting, without waiting, with a way back to the original."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from micdrop_agent.speech import Speakable

PIECES = st.sampled_from(
    [
        *"*_~`#>|[]()!<>&\\\n -=+:.\"'",
        "**",
        "__",
        "```",
        "~~~",
        "\n\n",
        "\n```",
        "\n# ",
        "\n- ",
        "\n| a | b |\n|---|---|\n| 1 | 2 |",
        "[a](b)",
        "![c](d)",
        "[^1]",
        "【4†s】",
        "[r]: x",
        "https://",
        "www.",
        "http",
        "a.example/x",
        "<b>",
        "</",
        "<!--",
        "-->",
        "&amp;",
        "😀",
        "👩\u200d🚒",
        "\u200d",
        "1\ufe0f\u20e3",
        "word",
        "h",
        "W",
        "3",
        "重",
        "é",
        "__init__",
        "    ",
        "---",
        "[x]",
    ]
)
TEXTS = st.one_of(st.lists(PIECES, max_size=20).map("".join), st.text(max_size=40))


def speak(text: str, places: list[int] | None = None, **options: str) -> str:
    speakable = Speakable(**options)
    ends = [0, *sorted(place % (len(text) + 1) for place in places or []), len(text)]
    return "".join([speakable.feed(text[start:end]) for start, end in pairwise(ends)] + [speakable.finish()])


CASES = [
    # Emphasis
    ("**Hello!** It is *very* _nice_ ***here***.", "Hello! It is very nice here."),
    ('**bold.** Then "**said**" (*so*).', 'bold. Then "said" (so).'),
    ("~~old~~ new, ~5 minutes", "old new, ~5 minutes"),
    ("这是**重点**内容", "这是重点内容"),
    # What only looks like it
    ("2 * 3 = 6, 2*3*4, 2**8", "2 * 3 = 6, 2*3*4, 2**8"),
    ("a | b\n--- | :--:\n1 | 2\n", "a | b\n1 | 2\n"),
    ("-- no table | here", "-- no table | here"),
    ("One line\\\nand another", "One line\nand another"),
    ("snake_case, __init__ and self.__dict__", "snake_case, __init__ and self.__dict__"),
    ("__really__ __my_hook__", "really __my_hook__"),
    ("a \\*star\\* and C# and #tag", "a *star* and C# and #tag"),
    ("x < y, y > z, a<b and c>d, 5 <6", "x < y, y > z, a<b and c>d, 5 <6"),
    # Lines
    ("# Title\n\nText", "Title\n\nText"),
    ("- one\n* two\n+ three\n1. four\n  - [x] five\n• six", "one\ntwo\nthree\n1. four\nfive\nsix"),
    ("> quoted **so**\n> - item", "quoted so\nitem"),
    ("above\n\n---\n\nbelow", "above\n\n\nbelow"),
    ("-5 degrees\n*so* cold", "-5 degrees\nso cold"),
    # Links, images, addresses
    ("See [the *menu*](https://a.example/x_(y)) now.", "See the menu now."),
    ("[one][ref] and [two][1]\n\n[ref]: https://a.example\nend", "one and two\n\nend"),
    ("![A cat](cat.png) [![badge](b.svg)](c)", "A cat badge"),
    ("[sic] (see) array[i]", "[sic] (see) array[i]"),
    ("Go to https://www.example.com/a_b?c=1. Then", "Go to example.com. Then"),
    ("(www.example.org/x) <https://b.example/y> <me@c.example>", "(example.org) b.example me@c.example"),
    ("https and www are words", "https and www are words"),
    # Code and tables
    ("Run `pip *x*` now", "Run pip *x* now"),
    ("Look:\n```python\nprint('**hi**')\n```\nDone.", "Look:\nCode block.\nDone."),
    ("Look:\n~~~\n```\n~~~\nDone.", "Look:\nCode block.\nDone."),
    ("never closed\n```\ncode", "never closed\nCode block.\n"),
    ("T:\n| a | b |\n|---|:-:|\n| 1 | 2 |\nDone.", "T:\nTable.\nDone."),
    ("|x| is a value\nand so on", "|x| is a value\nand so on"),
    # The rest
    ("Great 😀 work 👩\u200d🚒! 1\ufe0f\u20e3", "Great work ! 1"),
    ("क\u200dष", "क\u200dष"),
    ('<b class="x">bold</b><br/>line &amp; R&D <!-- no --> end', "bold\nline & R&D end"),
    ("A fact[^1] 【4†source】and another [2].\n\n[^1]: The note.", "A fact and another .\n\nThe note."),
]


@pytest.mark.parametrize(("text", "spoken"), CASES)
def test_what_is_spoken_of_markdown_cut_at_every_place(text: str, spoken: str) -> None:
    assert speak(text) == spoken
    assert speak(text, list(range(len(text)))) == spoken
    assert all(speak(text, [place]) == spoken for place in range(len(text)))


@given(text=TEXTS, places=st.lists(st.integers(0, 100), max_size=5))
@example(text="[a\n\nb](c)", places=[3])
@example(text="<b\n\n>", places=[3])
@settings(max_examples=400)
def test_any_cutting_gives_the_same_speech(text: str, places: list[int]) -> None:
    whole = speak(text)
    assert speak(text, places) == whole
    assert speak(text, list(range(len(text)))) == whole


@given(text=st.text(alphabet="abch wW.,;?éя我\u0915\u093f0", max_size=60))
def test_text_without_marks_is_spoken_as_it_comes(text: str) -> None:
    speakable = Speakable()
    spoken = ""
    for char in text:
        spoken += speakable.feed(char)
        # Only an address may begin with what is held back, or a line with its indentation.
        assert speakable.held.strip().lower() in {"", "h", "w", "ww", "www", "www."}
    assert spoken + speakable.finish() == text
    assert [speakable.original(place) for place in range(len(text) + 1)] == list(range(len(text) + 1))


@given(pieces=st.lists(PIECES, max_size=30))
def test_an_open_mark_holds_back_no_more_than_a_mark_can_be_long(pieces: list[str]) -> None:
    speakable = Speakable()
    for piece in [*pieces, *["word " * 100] * 12]:
        speakable.feed(piece)
        assert len(speakable.held) <= 4500
    assert len(speakable.held) < 10


def test_emphasis_code_and_headings_are_spoken_before_they_end() -> None:
    speakable = Speakable()
    assert speakable.feed("**Bold and `code and more") == "Bold and code and more"
    assert speakable.feed("\n\n# A title that is not") == "\n\nA title that is not"


@given(text=TEXTS, places=st.lists(st.integers(0, 100), max_size=3))
def test_the_way_back_grows_and_stays_in_the_text(text: str, places: list[int]) -> None:
    speakable = Speakable()
    spoken = speakable.feed(text)
    before_end = [speakable.original(place) for place in range(speakable.spoken + 1)]
    spoken += speakable.finish()
    assert speakable.spoken == len(spoken)
    way = [speakable.original(place) for place in range(len(spoken) + 1)]
    assert way == sorted(way)
    assert way[0] == 0 or not spoken
    assert way[-1] == len(text)
    assert before_end[:-1] == way[: len(before_end) - 1]
    for place, (start, end) in enumerate(pairwise(way)):
        # A character that is spoken as it stands comes from that place.
        assert spoken[place] in text[start:end] or end == start or spoken[place] in "CodeblckTa.\n &<>\"'"


@pytest.mark.parametrize(
    ("text", "heard", "original"),
    [
        ("**Ask** us", "Ask", "**Ask**"),
        ("**Ask** us", "As", "**As"),
        ("a **b** c", "a ", "a "),
        ("See [the menu](x) now", "See the menu", "See [the menu](x)"),
        ("See [the menu](x) now", "See the", "See [the"),
        ("At https://www.a.example/b now", "At a.exa", "At "),
        ("At https://www.a.example/b now", "At a.example", "At https://www.a.example/b"),
        ("- one\n- two", "one\n", "- one\n"),
        ("A\n```\nx\n```\nB", "A\n", "A\n"),
        ("A\n```\nx\n```\nB", "A\nCode block.\n", "A\n```\nx\n```\n"),
    ],
)
def test_what_was_heard_is_found_in_the_original(text: str, heard: str, original: str) -> None:
    speakable = Speakable()
    assert (speakable.feed(text) + speakable.finish()).startswith(heard)
    assert text[: speakable.original(len(heard))] == original


def test_stand_ins_are_an_option() -> None:
    text = "A\n```\nx\n```\n| a |\n|---|\n| 1 |\nB"
    assert speak(text, code="", table="") == "A\nB"
    assert speak(text, code="Siehe Bildschirm.", table="") == "A\nSiehe Bildschirm.\nB"
