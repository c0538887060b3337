"""The seam filter: joins the text of a second model to what a first one had already said.

    said:  "The capital is"          (heard by the caller, cannot be taken back)
    next:  "The capital is Paris."   ──> " Paris."
           "is Paris."               ──> " Paris."
           "Paris."                  ──> " Paris."

The second model was asked to go on. What it repeats of the first text, from its beginning or
only the last words of it, is cut, so that no word is said twice; then the space between the two
is put right. Words are compared without regard to capitals, marks and white space, and a first
text that broke off inside a word ("cap") is matched by the whole word ("capital").

The output is the same for every way of cutting the second text, except when ``flush`` is used.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

import attrs

from micdrop_agent.text.joining.joint import is_known, is_unspaced, is_word, needs_space, without_said_marks

__all__ = ["SeamFilter"]

_DOTS: Final = re.compile(r"\s*(?:\.{3,}|…)\s*(?=\w)")
_SENTENCE_END: Final = ".!?…"
_BEGUN: Final = 2
"""Words from which a text that is the beginning of what was said is a repetition of it; one may be an answer."""

_NAME: Final = 3
"""Letters from which a capitalised piece may be that of a name."""


@attrs.frozen
class _Word:
    raw: str
    key: str
    end: int


class SeamFilter:
    """Lets a continuation through from where it says something new.

    Args:
        partial: The text that has been said.
        max_chars: How much may be held back while undecided. Text that only repeats
            what was said is dropped, not held, and does not count.
        exact: The model really goes on from the last character (its API takes a prefix),
            so its white space is right as it is.
        before: What stands right before the continuation, if that is not ``partial``.
    """

    is_open: bool
    """Whether the seam has not been found or given up yet."""

    matched: int
    """Words before the seam that were said twice."""

    def __init__(self, partial: str, max_chars: int = 200, *, exact: bool = False, before: str | None = None) -> None:
        self._partial = partial
        self._before = partial if before is None else before
        self._max_chars = max_chars
        self._exact = exact
        self._said = _words_of(partial)
        self._broken = bool(self._said) and self._said[-1].end == len(partial) and not is_unspaced(partial[-1])
        self._alive = list(range(len(self._said)))
        self._text = ""
        self._position = 0
        self._word_from: int | None = None
        self._count = 0
        self._repeated = 0
        self.matched = 0
        self._skip = 0
        self._end: int | None = None
        self._cut: int | None = None
        self._aligned = False
        self.is_open = bool(partial)

    def feed(self, text: str) -> str:
        """Take the next chunk; return what may be spoken now (``""`` if nothing may)."""
        if not self.is_open:
            return text
        self._text += text
        if not self._aligned:
            self._align()
        return self._release() if self._ready() else ""

    def finish(self) -> str:
        """End the continuation; return what is still held."""
        return self._decide() if self.is_open else ""

    def flush(self) -> str:
        """Decide with what is there, because waiting longer would be heard.

        As long as the continuation only repeats what was said, nothing is released: there is
        nothing new to hear yet.
        """
        if not self.is_open or not self._text or (not self._aligned and (self._repeated or self._may_repeat())):
            return ""
        return self._decide()

    @property
    def said_words(self) -> int:
        """Words of the text that has been said."""
        return len(self._said)

    def _may_repeat(self) -> bool:
        """Whether the word that is still coming may be one that was said."""
        if self._word_from is None:
            return not any(map(is_word, self._text))
        begun = _key(self._text[self._word_from :])
        return any(self._said[first + self._count].key.startswith(begun) for first in self._alive)

    def _decide(self) -> str:
        if not self._aligned and self._word_from is not None:
            self._word(self._word_from, len(self._text))
        if self._cut is None and self._repeated > self._max_chars:
            self._skip = self._repeated
        if self._cut is None and self._count >= _BEGUN and 0 in self._alive:
            # It began again from the first word and ended before it came to the seam.
            self.is_open = False
            return ""
        return self._release()

    def _ready(self) -> bool:
        if not self._aligned:
            return False
        rest = self._text[self._skip if self._cut is None else self._cut :]
        # White space and marks behind an overlap are put right together with the word they lead to.
        return any(map(is_word, rest)) or len(rest) >= self._max_chars

    def _align(self) -> None:
        while self._position < len(self._text) and not self._aligned:
            position = self._position
            char = self._text[position]
            alone = is_unspaced(char)
            if self._word_from is not None and (alone or not is_word(char)):
                self._word(self._word_from, position)
                self._word_from = None
                continue
            self._position += 1
            if alone and is_word(char):
                self._word(position, position + 1)
            elif is_word(char) and self._word_from is None:
                self._word_from = position
            self._limit()

    def _limit(self) -> None:
        if self._position - self._repeated >= self._max_chars:
            self._aligned = True
            self._end = self._position

    def _word(self, start: int, end: int) -> None:
        """Compare one more whole word of the continuation with what was said."""
        raw = self._text[start:end]
        key = _key(raw)
        alive: list[int] = []
        for first in self._alive:
            index = first + self._count
            if index < len(self._said) - 1:
                if self._said[index].key == key:
                    alive.append(first)
            elif (length := self._last_match(raw, key, repeated=self._count)) is not None:
                # Where something else was said in between, half a word is said again in full.
                again = self._before is not self._partial and length < len(raw)
                self._cut, self.matched = start if again else start + length, self._count + 1
        if not alive and start > max(self._max_chars, self._cut or 0):
            # So much was repeated word for word that it is not a new sentence; only the rest is new.
            self._cut, self._skip = None, start
        if alive:
            self._repeated = end
        self._alive = alive
        self._count += 1
        self._aligned = not alive

    def _last_match(self, raw: str, key: str, *, repeated: int) -> int | None:
        """How much of ``raw`` is the last said word; ``None`` if it is another word."""
        last = self._said[-1]
        whole = repeated + 1 == len(self._said)
        if self._exact and not whole and repeated == 0:
            # One equal word right after itself is meant, when the model sees where it goes on.
            return None
        if repeated == 0 and not whole and is_unspaced(raw[0]):
            return None  # one sign is half a word: behind "は" comes "はい" too, and loses its beginning (D15)
        if repeated == 0 and not whole and raw[1:] and raw[0].isupper() and raw == last.raw.capitalize() != last.raw:
            return None  # a sentence of its own: "The pool is", and then "Is it closed? Yes."
        if key == last.key:
            return len(raw)
        if not self._broken or _key(raw[: len(last.raw)]) != last.key:
            return None
        # "is" and then "island" are two words, "cap" and then "capital" are one; so are "Par"
        # and "Paris", although "par" is a word too.
        if repeated == 0 and is_known(last.raw) and (last.raw[0].islower() or len(last.raw) < _NAME):
            return None
        return len(last.raw)

    def _release(self) -> str:
        self.is_open = False
        start = self._skip if self._cut is None else self._cut
        end = self._end
        if end is None and not any(map(is_word, self._text[start : start + self._max_chars])):
            end = start + self._max_chars
        # What came with the last chunk but behind the point of decision must not change the decision.
        rest, later = self._text[start:end], "" if end is None else self._text[end:]
        self._text = ""
        if self._cut is None:
            return (rest if self._exact and not start else _bridge(self._before, rest)) + later
        if self._before is not self._partial:
            return _bridge(self._before, rest) + later
        rest = without_said_marks(self._before, rest)
        return (rest.lstrip() if self._before[-1].isspace() else _one_space(rest)) + later


def _words_of(text: str) -> list[_Word]:
    words: list[_Word] = []
    start: int | None = None
    for position, char in enumerate(text):
        alone = is_unspaced(char)
        if start is not None and (alone or not is_word(char)):
            words.append(_made(text, start, position))
            start = None
        if alone and is_word(char):
            words.append(_made(text, position, position + 1))
        elif start is None and is_word(char):
            start = position
    if start is not None:
        words.append(_made(text, start, len(text)))
    return words


def _made(text: str, start: int, end: int) -> _Word:
    raw = text[start:end]
    return _Word(raw, _key(raw), end)


def _key(word: str) -> str:
    return unicodedata.normalize("NFKC", word).casefold()


def _bridge(partial: str, text: str) -> str:
    """``text``, joined to ``partial`` without an overlap."""
    text = without_said_marks(partial, text)
    said = partial.rstrip()
    if said and said[-1] not in _SENTENCE_END:
        # "… Paris": the dots say "going on", nothing else.
        text = _DOTS.sub("", text, count=1) if _DOTS.match(text) else text
    if not text:
        return ""
    if partial[-1].isspace():
        return text.lstrip()
    if text[0].isspace():
        return _one_space(text)
    return " " + text if needs_space(partial, text) else text


def _one_space(text: str) -> str:
    bare = text.lstrip(" ")
    return text if len(text) - len(bare) < 2 else " " + bare  # noqa: PLR2004 - a doubled space has two
