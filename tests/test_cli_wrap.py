"""Words wrap at the edge of the terminal, although they are shown before their end is known."""

from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from micdrop_agent.cli._wrap import Wrap

TEXT = st.text(alphabet="ab éو日本 \n", max_size=60)


def shown(written: str) -> list[str]:
    """The lines of a terminal after ``written``: a backspace moves, a letter overwrites."""
    lines, cursor = [""], 0
    for letter in written:
        if letter == "\n":
            lines.append("")
            cursor = 0
        elif letter == "\b":
            cursor -= 1
        else:
            lines[-1] = lines[-1][:cursor] + letter + lines[-1][cursor + 1 :]
            cursor += 1
    return [line.rstrip(" ") for line in lines]


def cells(line: str) -> int:
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in line)


@given(text=TEXT, columns=st.integers(min_value=3, max_value=12), cut=st.integers(min_value=0, max_value=60))
def test_every_word_is_shown_whole_within_the_terminal_however_the_text_is_cut(
    text: str, columns: int, cut: int
) -> None:
    wrap, whole = Wrap(columns), Wrap(columns)
    written = wrap.feed(text[:cut]) + wrap.feed(text[cut:])

    assert written == whole.feed(text)
    assert all(cells(line) < columns for line in shown(written))
    assert "".join("".join(shown(written)).split()) == "".join(text.split())


def test_a_word_that_does_not_fit_moves_to_the_next_line() -> None:
    assert shown(Wrap(11).feed("we open at nine")) == ["we open at", "nine"]
    assert shown(Wrap(10).feed("we open again")) == ["we open", "again"]
