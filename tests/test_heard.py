"""How much of a text was heard: counts, texts, and texts as a speech service tells them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from micdrop_agent._heard import heard_length

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
    ],
)
def test_what_was_heard(heard: Any, received: str, kept: str) -> None:
    assert received[: heard_length(heard, received)] == kept


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


@given(received=TEXTS, length=st.integers(0, 30))
def test_white_space_and_case_make_no_difference_to_the_words_kept(received: str, length: int) -> None:
    told = " ".join(received[:length].casefold().split())
    kept = received[: heard_length(told, received)]
    assert "".join(kept.casefold().split()) == "".join(told.split())
