"""Seams in eight languages: no word that is new is ever lost, and hardly one is said twice (DESIGN D15)."""

from __future__ import annotations

from collections import Counter

from seam_corpus import Seam, corpus, words_of

from micdrop_agent.text.joining import LeadInFilter

CASES = list(corpus())
MOST_DOUBLED = 0.01


def heard(seam: Seam, *, letters: bool = False) -> str:
    joined = LeadInFilter(seam.partial)
    chunks = list(seam.reply) if letters else [seam.reply]
    return seam.partial + "".join([joined.feed(chunk) for chunk in chunks]) + joined.finish()


def lost(seam: Seam, text: str) -> list[str]:
    """New words of which letters are missing; a blank within a word loses nothing."""
    wanted = words_of(seam.new if seam.ideal is None else seam.ideal)
    letters = "".join(words_of(text))
    return [word for word in Counter(wanted) - Counter(words_of(text)) if word not in letters]


def doubled(seam: Seam, text: str) -> Counter[str]:
    return Counter() if seam.ideal is None else Counter(words_of(text)) - Counter(words_of(seam.ideal))


def test_the_corpus_is_as_large_as_it_says() -> None:
    assert len(CASES) >= 2_000
    assert len({seam.language for seam in CASES}) == 8
    assert list(corpus()) == CASES, "the same in every run"


def test_no_new_word_is_lost() -> None:
    wrong = [(seam, found) for seam in CASES if (found := lost(seam, heard(seam)))]
    assert wrong == []


def test_hardly_a_word_is_said_twice() -> None:
    told = [seam for seam in CASES if seam.ideal is not None]
    total = sum(len(words_of(seam.ideal or "")) for seam in told)
    twice = sum(sum(doubled(seam, heard(seam)).values()) for seam in told)
    assert twice / total < MOST_DOUBLED


def test_any_cutting_of_a_reply_gives_the_same() -> None:
    for seam in CASES[::23]:
        assert heard(seam, letters=True) == heard(seam)
