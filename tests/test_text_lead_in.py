"""The lead-in filter: a model that apologises before it goes on, and is not heard to say a word twice."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from micdrop_agent.text.joining import LeadInFilter, SeamFilter
from micdrop_agent.text.joining.lead_in import MAX_CHARS, PATIENCE
from micdrop_agent.text.joining.lead_words import LEAD_INS


def joined(partial: str, *chunks: str) -> str:
    seam = LeadInFilter(partial)
    return partial + "".join([seam.feed(chunk) for chunk in chunks]) + seam.finish()


def at_each_cut(partial: str, text: str) -> str:
    whole = joined(partial, text)
    assert joined(partial, *text) == whole
    for place in range(1, len(text)):
        assert joined(partial, text[:place], text[place:]) == whole
    return whole


@pytest.mark.parametrize(
    ("partial", "text", "whole"),
    [
        ("We open at ", "Sorry about that. We open at nine.", "We open at nine."),
        ("We open at", "I apologize for the interruption. We open at nine.", "We open at nine."),
        ("We open at ", "I\u2019m sorry \u2014 we open at nine.", "We open at nine."),
        ("We open at ", '"Sure! We open at nine.', "We open at nine."),
        ("We open at ", "Sure, we open at nine", "We open at nine"),
        ("We open at", "Of course! Here's the continuation: we open at nine.", "We open at nine."),
        # What stands between a lead-in and the repetition was never said: nothing is lost.
        (
            "We open at ",
            "As I was saying: at nine, we open at nine.",
            "We open at As I was saying: at nine, we open at nine.",
        ),
        (
            "Please",
            "Okay. Do not take this medicine with alcohol. Please call us.",
            "Please Okay. Do not take this medicine with alcohol. Please call us.",
        ),
        (
            "Yes",
            "Sorry for the interruption. The pool is closed today, yes, and the sauna too.",
            "Yes Sorry for the interruption. The pool is closed today, yes, and the sauna too.",
        ),
        ("Turn", "Sure, turn left.", "Turn Sure, turn left."),
        ("Please", "Okay. Please call us.", "Please call us."),
        ("We open at ", "Sorry about that we open at nine.", "We open at nine."),
        ("We open at ", "Sorry, I was cut off. As I was saying, we open at nine.", "We open at nine."),
        ("Abrimos a las ", "Perd\u00f3n por la interrupci\u00f3n. Abrimos a las nueve.", "Abrimos a las nueve."),
        ("Apriamo alle ", "Mi scusi per l'interruzione. Apriamo alle nove.", "Apriamo alle nove."),
        ("Abrimos \u00e0s ", "Desculpe pela interrup\u00e7\u00e3o. Abrimos \u00e0s nove.", "Abrimos \u00e0s nove."),
        (
            "\uc800\ud76c\ub294 \uc544\ud649 \uc2dc\uc5d0 ",
            "\uc8c4\uc1a1\ud569\ub2c8\ub2e4. \uc800\ud76c\ub294 \uc544\ud649 \uc2dc\uc5d0 \uc5fd\ub2c8\ub2e4.",
            "\uc800\ud76c\ub294 \uc544\ud649 \uc2dc\uc5d0 \uc5fd\ub2c8\ub2e4.",
        ),
        (
            "\u6211\u4eec\u4e5d\u70b9",
            "\u62b1\u6b49\uff0c\u521a\u624d\u88ab\u6253\u65ad\u4e86\u3002\u6211\u4eec\u4e5d\u70b9\u5f00\u95e8\u3002",
            "\u6211\u4eec\u4e5d\u70b9\u5f00\u95e8\u3002",
        ),
        ("We open at ni", "Okay\nWe open at nine.", "We open at nine."),
        ("Yes, we do. We open at ", "Sorry. We open at nine.", "Yes, we do. We open at nine."),
        ("We ", "Sure! We open at nine.", "We open at nine."),
        ("Nous ouvrons à ", "Désolé pour ça. Nous ouvrons à neuf heures.", "Nous ouvrons à neuf heures."),
        ("Wir öffnen um ", "Entschuldigung, wir öffnen um neun.", "Wir öffnen um neun."),
        ("今日は", "すみません。今日は晴れです。", "今日は晴れです。"),
        # It is what the first said too.
        ("Sorry, we are ", "Sorry, we are closed.", "Sorry, we are closed."),
        # No lead-in, or no seam behind it: as the seam filter alone has it.
        ("We open at ", "Sorry about that. Nine.", "We open at Sorry about that. Nine."),
        ("We open at ", "sorrel at nine.", "We open at sorrel at nine."),
        ("We open at ", "nine, I am sorry, we open at nine.", "We open at nine, I am sorry, we open at nine."),
        ("He said ", "sorry, I am late.", "He said sorry, I am late."),
        ("It is open", "OK", "It is open OK"),
        ("We open at ", "", "We open at "),
        # One word alone may be meant.
        ("The answer is no, ", "sorry, no.", "The answer is no, sorry, no."),
    ],
)
def test_what_leads_in_is_dropped_where_a_seam_is_behind_it(partial: str, text: str, whole: str) -> None:
    assert at_each_cut(partial, text) == whole


def test_a_lead_in_without_an_end_is_not_held_for_ever() -> None:
    seam = LeadInFilter("We open at ")
    text = "Sorry " + "so long " * 40
    released = [len(seam.feed(char)) for char in text]
    assert released[MAX_CHARS - 1] > 0
    assert sum(released) == len(text)


def test_flushed_it_waits_for_the_seam_a_little_but_not_for_ever() -> None:
    seam = LeadInFilter("We open at ")
    assert seam.flush() == ""
    assert seam.feed("Sorry about that. ") == ""
    assert [seam.flush() for _ in range(PATIENCE - 1)] == [""] * (PATIENCE - 1)
    assert seam.feed("We open at nine.") == "nine."
    assert seam.flush() == ""
    late = LeadInFilter("We open at ")
    assert late.feed("Sorry about that. ") == ""
    assert [late.flush() for _ in range(PATIENCE)] == [""] * PATIENCE
    assert late.flush() == "Sorry about that."
    assert late.feed("We open at ten.") == " ten."  # said after all, and the seam is still found
    slow = LeadInFilter("We open at ")
    assert slow.feed("Sorry ab") == ""
    assert [slow.flush() for _ in range(PATIENCE)] == [""] * PATIENCE
    assert slow.flush() == "Sorry ab"
    assert slow.feed("out that.") == "out that."
    assert slow.feed(" We open at ten.") == " ten."


@pytest.mark.parametrize("style", ["{} ", " {}"])
@pytest.mark.parametrize(
    "reply",
    ["We open at nine.", "Sorry about that. We open at nine.", "I apologize for the interruption. We open at nine."],
)
@pytest.mark.parametrize("partial", ["We open at", "We open at ", "We open at ni"])
def test_a_backup_that_sends_a_word_at_a_time_is_not_doubled(partial: str, reply: str, style: str) -> None:
    """A word every 0.2 s: more than one flush comes between two words."""
    seam = LeadInFilter(partial)
    spoken = partial
    for word in reply.split():
        spoken += seam.feed(style.format(word).removeprefix(" " if word == reply.split(maxsplit=1)[0] else ""))
        spoken += seam.flush()
        spoken += seam.flush()
    spoken += seam.finish()
    assert [word for word in spoken.split() if word in {"We", "open", "at"}] == ["We", "open", "at"]
    assert spoken.rstrip().endswith("nine.")


WORDS = st.lists(
    st.sampled_from(
        [
            "sorry",
            "Sorry,",
            "sure",
            "ok",
            "we",
            "We",
            "open",
            "at",
            "nine",
            "Nine.",
            "no",
            "as",
            "I",
            "was",
            "saying",
            "—",
            "!",
        ]
    ),
    max_size=14,
)


@given(said=WORDS.filter(bool), words=WORDS, cuts=st.sets(st.integers(0, 60)), blank=st.sampled_from(["", " "]))
def test_every_way_of_cutting_gives_the_same(said: list[str], words: list[str], cuts: set[int], blank: str) -> None:
    partial, text = " ".join(said) + blank, " ".join(words)
    places = [0, *sorted(cut for cut in cuts if cut < len(text)), len(text)]
    pieces = [text[start:end] for start, end in itertools.pairwise(places)]
    assert joined(partial, *pieces) == joined(partial, text)


@given(words=WORDS, said=st.sampled_from(["purple garden", "a ", "b"]))
def test_nothing_is_lost_without_a_repetition(words: list[str], said: str) -> None:
    text = " ".join(words)
    plain = SeamFilter(said)
    assert joined(said, text) == said + plain.feed(text) + plain.finish()


@pytest.mark.parametrize("language", LEAD_INS)
def test_assent_that_says_something_is_said(language: str) -> None:
    """It is made of an assent and of words of apologies, and is neither."""
    words = LEAD_INS[language]
    blank = "" if language in {"ja", "zh"} else " "
    partial = {"ja": "電話番号は", "zh": "我们的电话是"}.get(language, "Zebra quilt")
    for assent in words.alone:
        for first, second in itertools.pairwise(sorted(words.tails)):
            reply = f"{assent}{blank}{first}{blank}{second}. {partial} 9."
            if any(
                f"{assent}{blank}{first}{blank}".startswith(head)
                for head in (*words.heads, *words.alone)
                if head != assent
            ):
                continue
            lead_in = LeadInFilter(partial)
            assert (lead_in.feed(reply) + lead_in.finish()).strip() == reply


@pytest.mark.parametrize(
    "reply",
    [
        "Of course it was your mistake. Please call us back.",
        "My last answer was right. Please call us back.",
        "It seems I was there. Please call us back.",
        "Here is the mistake. Please call us back.",
        "Sure I left it there. Please call us back.",
    ],
)
def test_a_clause_of_known_words_that_says_something_is_said(reply: str) -> None:
    lead_in = LeadInFilter("Please call us")
    assert (lead_in.feed(reply) + lead_in.finish()).strip() == reply
