"""Sentences for a voice: cut where one ends, in eight languages, however the text comes."""

from __future__ import annotations

import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from speech_corpus import FRESH, HARD, LATER, PLAIN

from micdrop_agent._extras import install_command
from micdrop_agent.errors import MicdropError
from micdrop_agent.speech import Sentences

UNSEEN = Path(__file__).with_name("speech_unseen.txt")
CORPORA = {"plain": PLAIN, "hard": HARD, "fresh": FRESH, "later": LATER}
LANGUAGES = sorted(PLAIN)
PARAGRAPHS = [
    (language, "".join(sentences))
    for corpus in CORPORA.values()
    for language, paragraphs in corpus.items()
    for sentences in paragraphs
]
TEXTS = st.one_of(
    st.lists(
        st.sampled_from(
            # Everything that a rule looks at, so that marks meet in every order.
            [
                *"\n .…!?\"'“”«»‹„(),—-。！？」「、，।؟1aAI我は¿",
                "Dr",
                "etc",
                "U.S",
                "z.B",
                "3",
                "The",
                "the",
                "I",
                "word ",
                "Word ",
                "说",
                "と",
                "है",
                "e\u0301",
                "👩\u200d🚒",
                "\n\n",
                "  ",
                "\u202f",
                " long" * 9,
                "x" * 30,
            ]
        ),
        max_size=24,
    ).map("".join),
    st.text(max_size=60),
)


def cut(text: str, places: list[int], language: str = "en", **options: int) -> list[str]:
    """The pieces of a text that comes in chunks which end at ``places``."""
    sentences = Sentences(language, **options)
    ends = [0, *sorted(place % (len(text) + 1) for place in places), len(text)]
    pieces = [piece for start, end in pairwise(ends) for piece in sentences.feed(text[start:end])]
    return pieces + sentences.finish()


def by_fours(text: str, language: str = "en", **options: int) -> list[str]:
    return cut(text, list(range(0, len(text), 4)), language, **options)


def ends(pieces: list[str]) -> set[int]:
    places, position = set[int](), 0
    for piece in pieces[:-1]:
        position += len(piece)
        places.add(position)
    return places


@pytest.mark.parametrize("name", CORPORA)
def test_sentences_are_found_in_eight_languages(name: str) -> None:
    right = false = missed = 0
    for language, paragraphs in CORPORA[name].items():
        for wanted in paragraphs:
            found = ends(by_fours("".join(wanted), language))
            right += len(found & ends(wanted))
            false += len(found - ends(wanted))
            missed += len(ends(wanted) - found)
    assert sorted(CORPORA[name]) == LANGUAGES
    assert 2 * right / (2 * right + false + missed) >= 0.985, (right, false, missed)
    assert false <= 2


def test_sentences_are_found_in_sets_that_were_written_after_the_rules() -> None:
    right = false = missed = sentences = 0
    language = ""
    for line in UNSEEN.read_text(encoding="utf-8").splitlines():
        if line.startswith("# "):
            language = line[2:]
        elif line and not line.startswith(";"):
            wanted = line.split("|")
            text = "".join(wanted)
            found = ends(by_fours(text, language))
            assert found == ends(cut(text, [], language))
            right += len(found & ends(wanted))
            false += len(found - ends(wanted))
            missed += len(ends(wanted) - found)
            sentences += len(wanted)
    assert sentences > 1000
    assert 2 * right / (2 * right + false + missed) >= 0.985, (right, false, missed)
    assert false <= sentences / 40


@pytest.mark.parametrize(("language", "text"), PARAGRAPHS)
def test_a_paragraph_gives_the_same_pieces_cut_at_every_place(language: str, text: str) -> None:
    whole = cut(text, [], language)
    assert "".join(whole) == text
    assert cut(text, list(range(len(text))), language) == whole
    assert all(cut(text, [place], language) == whole for place in range(1, len(text), 3))


@given(
    text=TEXTS,
    places=st.lists(st.integers(0, 200), max_size=6),
    language=st.sampled_from([*LANGUAGES, "sv"]),
    first_words=st.sampled_from([0, 1, 3]),
    max_letters=st.sampled_from([1, 20, 400]),
)
@example(text="a" * 90 + ". B", places=[91], language="en", first_words=0, max_letters=20)
@settings(max_examples=250)
def test_pieces_are_the_text_and_the_same_for_every_cutting(
    text: str, places: list[int], language: str, first_words: int, max_letters: int
) -> None:
    options = {"first_words": first_words, "max_letters": max_letters}
    whole = cut(text, [], language, **options)
    assert "".join(whole) == text
    assert all(whole)
    assert cut(text, places, language, **options) == whole
    assert cut(text, list(range(len(text))), language, **options) == whole


@given(text=TEXTS, language=st.sampled_from(LANGUAGES))
def test_no_piece_begins_with_a_small_letter_unless_a_mark_or_a_blank_line_leaves_no_doubt(
    text: str, language: str
) -> None:
    pieces = cut(text, [], language)
    for before, piece in pairwise(pieces):
        certain = "\n" in before[len(before.rstrip()) :] or set("。！？।؟") & set(before) or len(before) >= 100
        assert certain or not (piece[0].islower() and piece[0].upper() != piece[0])


@given(chunks=st.lists(st.text(alphabet='ab .,!\n…"我。', max_size=30), max_size=30), most=st.sampled_from([1, 10, 50]))
def test_what_is_held_back_is_bounded(chunks: list[str], most: int) -> None:
    sentences = Sentences(max_letters=most)
    for chunk in chunks:
        pieces = sentences.feed(chunk)
        assert len(sentences.held) < most + 72
        assert all(len(piece) <= most + 72 for piece in pieces)


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("I met Dr. No. He was kind.", ["I met Dr. No. ", "He was kind."]),
        ("It is 3.14 exactly. Nice!", ["It is 3.14 exactly. ", "Nice!"]),
        ('Then she said "Stop." "Why?" he asked.', ['Then she said "Stop." ', '"Why?" he asked.']),
        ("Well, yes... of course. Good.", ["Well, yes... of course. ", "Good."]),
        ("See https://a.example/?q=1!x. Then call.", ["See https://a.example/?q=1!x. ", "Then call."]),
        ("First line\nSecond line\n\nthird", ["First line\n", "Second line\n\n", "third"]),
        ("one line\nthat goes on", ["one line\nthat goes on"]),
        ("Dr. Who", ["Dr. Who"]),
        ("1. Eggs for four", ["1. Eggs for four"]),
        ("He left (at 5 p.m.) Monday. Fine.", ["He left (at 5 p.m.) Monday. ", "Fine."]),
        ("It opens at 9 a.m. Monday. Fine, then.", ["It opens at 9 a.m. Monday. ", "Fine, then."]),
        ("It closes at 9 p.m. Bring a coat.", ["It closes at 9 p.m. ", "Bring a coat."]),
        ('"Is it true?" I asked. "It is."', ['"Is it true?" I asked. ', '"It is."']),
        ('"Is it true?" I know it is.', ['"Is it true?" ', "I know it is."]),
        ("", []),
    ],
)
def test_what_ends_a_sentence_and_what_does_not(text: str, pieces: list[str]) -> None:
    assert by_fours(text) == pieces


@pytest.mark.parametrize(
    ("language", "text", "first"),
    [
        ("en", "If you like, I can book a table. Shall I?", "If you like, "),
        ("en", "Yes, I can do that for you, of course. Shall I?", "Yes, I can do that for you, "),
        ("en", "We found 1,299 results for you today. More?", "We found 1,299 results for you today. "),
        ("en", "That will cost — hold on — nine euros. Fine?", "That will cost — "),
        ("zh", "如果您愿意，我可以预订。好吗？", "如果您愿意，"),
        ("ja", "よろしければ、予約します。いいですか？", "よろしければ、"),
    ],
)
def test_the_first_piece_may_end_at_a_clause(language: str, text: str, first: str) -> None:
    pieces = by_fours(text, language, first_words=3 if language == "en" else 2)
    assert pieces[0] == first
    assert len(pieces) >= 2
    again = by_fours(f"{text} {text}", language, first_words=3)
    assert again[1:][-1][-1] in "?？"
    assert not any(piece.rstrip().endswith((",", "，", "、")) for piece in again[1:])


def test_a_sentence_is_handed_over_when_the_next_word_is_whole() -> None:
    sentences = Sentences()
    assert sentences.feed("This is the first one.") == []
    assert sentences.feed(" Th") == []
    assert sentences.feed("is") == []
    assert sentences.feed(" is") == ["This is the first one. "]
    assert sentences.feed(" short! ") == []
    assert sentences.feed("A") == ["This is short! "]  # no word of any language ends in such a mark
    assert sentences.finish() == ["A"]
    assert sentences.finish() == []


def test_a_long_piece_is_cut_at_a_comma_or_a_space_and_never_inside_a_character() -> None:
    commas = "and more, " * 60
    assert all(len(piece) <= 400 and piece.endswith(", ") for piece in by_fours(commas))
    words = "word " * 120
    assert all(len(piece) <= 400 and piece.endswith(" ") for piece in by_fours(words))
    joined = "👩\u200d🚒" * 200
    assert {piece[0] for piece in by_fours(joined, max_letters=100)} == {"👩"}


def test_a_text_after_the_end_is_a_new_one() -> None:
    sentences = Sentences(first_words=2)
    first = sentences.feed("If so, then yes. And no") + sentences.finish()
    assert sentences.feed("If so, then yes. And no") + sentences.finish() == first


@pytest.mark.parametrize("options", [{"first_words": -1}, {"min_letters": -1}, {"max_letters": 0}])
def test_senseless_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="at least"):
        Sentences(**options)


def test_without_sentencex_the_error_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentencex", None)
    with pytest.raises(MicdropError, match=re.escape(install_command("speech"))):
        Sentences()


def test_sentencex_is_not_imported_before_it_is_used() -> None:
    code = "import sys, micdrop_agent.speech as s; assert 'sentencex' not in sys.modules; s.Sentences(); print('sentencex' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout.strip() == b"True"
