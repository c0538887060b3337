"""How much of a text was heard: counts, texts, and texts as a speech service tells them."""

from __future__ import annotations

import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from micdrop_agent._core.playback import _letters, heard_length, heard_since

TEXTS = st.text(alphabet=st.sampled_from("abAB ßẞİi\u0131ﬁ é\n\t,.😀字\u0301"), max_size=30)


@pytest.mark.parametrize(
    ("heard", "received", "kept"),
    [
        (None, "Hello there.", "Hello there."),
        (None, "", ""),
        (0, "Hello", ""),
        (3, "Hello", "Hel"),
        (99, "Hello", "Hello"),
        ("", "Hello", ""),
        ("Hello", "Hello there.", "Hello"),
        ("hello  THERE", "Hello there.", "Hello there"),
        ("Hellothere", "Hello  there.", "Hello  there"),
        (" Hello ", "Hello there.", "Hello"),
        ("Hello you", "Hello there.", "Hello"),
        ("Goodbye", "Hello there.", ""),
        ("Hello there. And more", "Hello there.", "Hello there."),
        ("grüsse aus der strasse", "Grüße aus der Straße!", "Grüße aus der Straße"),
        ("gros", "Groß und klein", "Gro"),
        ("x", "", ""),
        # Marks that are missing, added or others.
        ("We open at nine", "We open, at nine. And", "We open, at nine"),
        ("We open, at nine!", "We open at nine. And", "We open at nine"),
        ("hello world!", "Hello, world! Bye", "Hello, world!"),
        ("hello world .", "Hello, world. Bye", "Hello, world."),
        ("don't go", "don\u2019t go there", "don\u2019t go"),
        ('"We open"', "\u201cWe open\u201d at nine", "\u201cWe open\u201d"[:-1]),
        ("We open", "**We open** at nine", "**We open"),
        ("Hello world", "Hello \U0001f600 world again", "Hello \U0001f600 world"),
        ("Well... so", "Well\u2026 so be it", "Well\u2026 so"),
        ("We open at ten", "We open, at nine.", "We open, at"),
        ("...", "We open", ""),
        ("Hello there, and more", "Hello there.", "Hello there."),
        # Other code points for the same letters.
        ("Cafe\u0301", "Caf\u00e9 Central", "Caf\u00e9"),
        ("Caf\u00e9", "Cafe\u0301 Central", "Cafe\u0301"),
        ("Caf\u00e9, open", "Cafe\u0301 open", "Cafe\u0301 open"),
        ("\uff11\uff12", "12 o'clock", "12"),
        ("\u1112\u1161\u11ab", "\ud55c\uad6d", "\ud55c"),
        ("We\u200b open", "We open at nine", "We open"),
        # Numbers, abbreviations and digits as a speech service says them.
        (
            "Your total is forty two dollars and fifty cents, due March third.",
            "Your total is $42.50, due March 3rd.",
            "Your total is $42.50, due March 3rd.",
        ),
        (
            "Your total is forty two dollars and fifty cents, due",
            "Your total is $42.50, due March 3rd.",
            "Your total is $42.50, due",
        ),
        ("Your total is forty two", "Your total is $42.50, due March 3rd.", "Your total is"),
        ("Doctor Smith", "Dr. Smith will see you.", "Dr. Smith"),
        ("Doctor", "Dr. Smith will see you.", ""),
        (
            "\u0661\u0662 \u0637\u0627\u0648\u0644\u0629",
            "12 \u0637\u0627\u0648\u0644\u0629 now",
            "12 \u0637\u0627\u0648\u0644\u0629",
        ),
        (
            "12 \u0637\u0627\u0648\u0644\u0629",
            "\u0661\u0662 \u0637\u0627\u0648\u0644\u0629 now",
            "\u0661\u0662 \u0637\u0627\u0648\u0644\u0629",
        ),
        ("Um das macht drei Euro f\u00fcnfzig", "Das macht 3,50 \u20ac bis Freitag", "Das macht"),
        ("It opens at nine a m on Main Street", "It opens at 9 a.m. on Main St. today", "It opens at 9 a.m. on Main"),
        ("See example dot com for more", "See example.com for more details", "See example.com for more"),
        ("It is twenty percent and rising", "It is 20% and rising fast", "It is 20% and rising"),
        ("I cannot say no", "I can not say yes", "I can not say"),
        (
            "\u4eca\u65e5\u306f\u5341\u4e8c\u5ea6\u3067\u3059",
            "\u4eca\u65e5\u306f12\u5ea6\u3067\u3059\u3002\u660e\u65e5",
            "\u4eca\u65e5\u306f12\u5ea6\u3067\u3059",
        ),
        # Nothing is made up: words that only happen to come later were not heard.
        ("We open at ten", "We open at nine. Ten of us", "We open at"),
        ("Goodbye", "Hello there. Some day we say goodbye", "Hello there. Some day we say goodbye"[:0]),
    ],
)
def test_what_was_heard(heard: Any, received: str, kept: str) -> None:
    assert received[: heard_length(heard, received)] == kept


SPOKEN = {
    "$42.50": "forty two dollars and fifty cents",
    "3rd": "third",
    "Dr.": "Doctor",
    "&": "and",
    "20%": "twenty percent",
    "9:30": "half past nine",
    "\u20ac5": "five euros",
}
WORDS = st.lists(
    st.sampled_from(["please", "table", "for", "the", "garden", "is", "open", "tonight", *SPOKEN]),
    min_size=1,
    max_size=14,
)


@given(words=WORDS, cut=st.integers(0, 14))
def test_words_that_are_said_otherwise_stop_the_count_only_at_the_end(words: list[str], cut: int) -> None:
    """At least everything up to the last word that was said as it is written, and no word too many."""
    received = " ".join(words)
    said = [SPOKEN.get(word, word) for word in words[:cut]]
    length = heard_length(" ".join(said), received)
    plain = [number for number, word in enumerate(words[:cut], 1) if word not in SPOKEN]
    most = len(" ".join(words[:cut]))
    least = len(" ".join(words[: plain[-1]])) if plain and cut < len(words) else 0
    number_left = len(words) == cut + 1 and words[-1] in SPOKEN  # what was said last may have been that number
    assert length <= most or number_left
    assert length >= least or words[plain[-1] - 1] in {"is", "for", "the"}


@pytest.mark.parametrize(
    ("bad", "error"), [(-1, ValueError), (True, TypeError), (1.0, TypeError), (b"x", TypeError), ([], TypeError)]
)
def test_what_is_neither_a_count_nor_a_text_is_refused(bad: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="heard must be"):
        heard_length(bad, "Hello")


@given(received=TEXTS, heard=st.one_of(st.none(), st.integers(0, 50), TEXTS))
def test_the_length_is_always_within_what_was_received(received: str, heard: Any) -> None:
    assert 0 <= heard_length(heard, received) <= len(received)


@given(received=TEXTS, length=st.integers(0, 30))
def test_a_prefix_told_to_the_letter_is_found_to_the_letter(received: str, length: int) -> None:
    assert heard_length(received[:length], received) == min(length, len(received))


@given(received=TEXTS, length=st.integers(0, 30), form=st.sampled_from(["NFC", "NFD", "NFKC", "NFKD"]))
def test_no_letter_is_lost_or_added_by_another_encoding(received: str, length: int, form: Any) -> None:
    told = unicodedata.normalize(form, received[:length])
    kept = received[: heard_length(told, received)]
    letters = [[letter for character in text for letter in _letters(character)] for text in (kept, told)]
    assert letters[0] == letters[1]


@given(received=TEXTS, length=st.integers(0, 30))
def test_words_without_their_marks_are_found(received: str, length: int) -> None:
    told = "".join(character if character.isalnum() else " " for character in received[:length])
    kept = received[: heard_length(told, received)]
    assert "".join(filter(str.isalnum, kept)) == "".join(filter(str.isalnum, told))


@given(received=TEXTS, length=st.integers(0, 30))
def test_white_space_and_case_make_no_difference_to_the_words_kept(received: str, length: int) -> None:
    told = " ".join(received[:length].casefold().split())
    kept = received[: heard_length(told, received)]
    assert "".join(kept.casefold().split()) == "".join(told.split())


@pytest.mark.parametrize(
    ("heard", "kept"),
    [
        ("We open at nine", "We are. We open at nine"),
        ("We are. We open at nine", "We are. We open at nine"),
        ("We are", "We are"),
        ("We", "We are. We"),
        ("", "We are. "),
        (6, "We are"),
        (None, "We are. We open at nine sharp."),
    ],
)
def test_a_text_may_begin_where_the_answer_was_restarted(heard: Any, kept: str) -> None:
    received = "We are. We open at nine sharp."
    assert received[: heard_since(8, heard, received)] == kept
