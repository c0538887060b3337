"""What the caller has heard: the clock of the loudspeaker, and the text that its audio says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from micdrop_agent.call._marks import Marks, word_start
from micdrop_agent.call._playback import Playback

SECOND = 32_000


def test_it_plays_after_100_ms_of_audio() -> None:
    clock = Playback()
    clock.sent(0.0, 3200)
    assert [clock.played(at) for at in (0.0, 0.05, 0.1, 9.0)] == [0, 1600, 3200, 3200]
    assert clock.ends_at(0.0) == pytest.approx(0.1)


def test_less_plays_after_600_ms_of_quiet() -> None:
    clock = Playback()
    clock.sent(1.0, 640)
    assert clock.ends_at(1.0) == pytest.approx(1.62)
    assert [clock.played(at) for at in (1.5, 1.61, 1.7)] == [0, 320, 640]


def test_a_gap_is_silence_and_what_comes_in_time_has_none() -> None:
    clock = Playback()
    clock.sent(0.0, SECOND)
    clock.sent(0.5, SECOND)
    assert clock.played(1.5) == 1.5 * SECOND
    clock.sent(5.0, SECOND)
    assert clock.played(5.5) == 2.5 * SECOND


def test_a_flush_forgets_what_was_not_played() -> None:
    clock = Playback()
    clock.sent(0.0, 10 * SECOND)
    assert clock.flush(1.0) == SECOND == clock.total
    assert clock.played(9.0) == SECOND
    clock.sent(9.0, SECOND)
    assert clock.played(9.5) == 1.5 * SECOND


@given(sent=st.lists(st.tuples(st.floats(0, 2), st.integers(1, 4000).map(lambda n: 2 * n), st.booleans()), max_size=20))
def test_no_sample_is_played_before_it_was_sent_or_faster_than_time(sent: list[tuple[float, int, bool]]) -> None:
    """Positions only grow, never beyond what was sent, and at most by the seconds that have passed."""
    clock, now, position = Playback(), 0.0, 0
    for wait, count, flush in sent:
        before = now
        now += wait
        played = clock.played(now)
        assert position <= played <= clock.total
        assert played - position <= (now - before) * SECOND + 2
        position = played
        if flush:
            assert clock.flush(now) == position == clock.total
        clock.sent(now, count)
    assert clock.played(clock.ends_at(now) + 0.001) == clock.total


# ---------------------------------------------------------------------------------- text and audio


def _marks(*pieces: tuple[str, int]) -> Marks:
    marks, position = Marks(), 0
    for text, count in pieces:
        marks.take(text)
        marks.audio(count).note_sent(position, count)
        position += count
    marks.finish()
    return marks


def test_a_complete_sentence_counts_and_half_of_one_up_to_a_word() -> None:
    marks = _marks(("One two. ", 900), ("Three four five.", 1600))
    assert [marks.heard(at) for at in (0, 899, 900, 900 + 800, 2500)] == [0, 8, 9, 9 + 6, 25]


def test_a_stamp_counts_when_it_was_played_to_its_end() -> None:
    marks = Marks()
    marks.take("Hello, dear world!")
    for position, word in ((0, "Hello,"), (100, "dear"), (200, "world!")):
        marks.audio(100, word).note_sent(position, 100)
    marks.finish()
    assert [marks.heard(at) for at in (99, 100, 199, 200, 300)] == [0, 6, 7, 11, 18]


def test_a_stamp_that_is_not_in_the_text_takes_its_length() -> None:
    marks = Marks()
    marks.take("Hello world")
    marks.audio(100, "HELLO").note_sent(0, 100)
    marks.audio(100, "WORLD").note_sent(100, 100)
    marks.finish()
    assert [marks.heard(at) for at in (100, 200)] == [5, 11]


def test_the_end_of_an_unfinished_sentence_is_not_known_and_the_usual_speed_counts() -> None:
    marks = Marks()
    marks.take("One two three four five six seven eight nine ten.")
    marks.audio(SECOND).note_sent(0, SECOND)
    assert marks.heard(SECOND) == 14  # fifteen characters a second, and a word that is not complete


def test_a_text_that_is_taken_at_once_is_one_stretch() -> None:
    marks = Marks()
    marks.take("One. ")
    marks.take("Two.")
    marks.audio(900).note_sent(0, 900)
    marks.finish()
    assert len(marks.stretches) == 1
    assert marks.heard(900) == 9


@pytest.mark.parametrize(
    ("text", "cut", "expected"),
    [
        ("one two", 5, 4),
        ("one two", 3, 3),
        ("one two", 2, 0),
        ("word", 2, 0),
        ("word", 4, 4),
        ("今日は良い天気です", 4, 4),
        ("", 0, 0),
    ],
)
def test_a_cut_is_between_words_where_they_are_written_apart(text: str, cut: int, expected: int) -> None:
    assert word_start(text, cut) == expected


@given(
    pieces=st.lists(
        st.tuples(st.sampled_from(["One two. ", "Ja. ", "今日は。", "a"]), st.integers(1, 500).map(lambda n: 2 * n)),
        min_size=1,
        max_size=6,
    ),
    positions=st.lists(st.integers(0, 8000), min_size=2),
)
def test_more_audio_is_never_less_text(pieces: list[tuple[str, int]], positions: list[int]) -> None:
    marks = _marks(*pieces)
    heard = [marks.heard(position) for position in sorted(positions)]
    assert heard == sorted(heard)
    assert marks.heard(sum(count for _, count in pieces)) == sum(len(text) for text, _ in pieces) == marks.voiced()
