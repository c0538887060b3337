"""Sentences out of a stream of text, each as soon as it is certain to be one.

    chunk ──> feed ──> pieces that are decided
                └── from the last undecided mark on: held back until what follows it is known

Guarantees, each one pinned in tests/test_speech_sentences.py:

1. The pieces joined are the text.
2. The pieces are the same for every way of cutting the text: each is decided at one character of the text, and
   only by what stands before that character.
3. At most ``max_letters`` characters and a window behind them are ever held back.
4. No piece begins with a small letter, except behind a blank line, a clause or a cut by ``max_letters``.
"""

from __future__ import annotations

import re
from typing import Final

from micdrop_agent.speech._dots import Dots
from micdrop_agent.speech._extra import sentencex_segment
from micdrop_agent.speech._look import Look, NotYetError
from micdrop_agent.speech._marks import (
    CLAUSE,
    HARD,
    MARK,
    OPENERS,
    TERMINATORS,
    WINDOW,
    has_blank_line,
    has_case,
    is_lower,
    is_unspaced,
    letters,
    splits_character,
)
from micdrop_agent.speech._words import SAID

__all__ = ["Sentences"]

_SHORTEST: Final = 8
"""Letters that a piece which ends in a dot has at least: "Dr.", "1." and "Nr. 7." belong to what follows."""

_LONGEST: Final = 400
"""Characters of a piece without any end: about 25 seconds of speech."""

_SAYS: Final = re.compile("[说问答喊叫告說問]|(?<![知味街人车報报])道(?![路理歉德士])")
"""What Chinese puts behind a quotation that belongs to its sentence."""

_SAYS_WITHIN: Final = 5
_MARKS_THAT_GO_ON: Final = frozenset(",;:，、；：،؛")
"""What never begins a sentence."""

_AROUND: Final = " .,:;!?।؟"

_OPENING: Final = {")": "(", "）": "（", "]": "[", "】": "【", "》": "《", "〉": "〈", "〕": "〔"}


class Sentences:
    """Cuts a text that comes in chunks into the pieces that a voice speaks one after the other.

    White space belongs to the piece before it, opening quotation marks to the piece after them. A chunk may hold
    any number of sentences and any part of one.

    Args:
        language: A language tag such as ``"en"`` or ``"pt-BR"``.
        first_words: The first piece may end at a comma or a dash once it has this many words, so that the voice
            starts early; 0 waits for a whole sentence. Two characters of Chinese or Japanese count as a word.
        min_letters: A piece that ends in a dot and has fewer letters is joined to what follows.
        max_letters: The longest piece, in characters. A longer one is cut at a comma, else at a space.

    Raises:
        MicdropError: sentencex is not installed.
    """

    def __init__(
        self,
        language: str = "en",
        *,
        first_words: int = 0,
        min_letters: int = _SHORTEST,
        max_letters: int = _LONGEST,
    ) -> None:
        if first_words < 0 or min_letters < 0 or max_letters < 1:
            raise ValueError("first_words and min_letters must be at least 0, max_letters at least 1")
        self._language = language.replace("_", "-").split("-")[0].lower()
        self._dots = Dots(self._language, sentencex_segment())
        self._first_words = first_words
        self._min_letters = min_letters
        self._max = max_letters
        self._first = True
        self._text = ""
        self._scan = 0
        """Where the first mark that is not decided stands, or text that was not looked at begins."""

    def feed(self, text: str) -> list[str]:
        """Take the next chunk; return the pieces that are complete now."""
        self._text += text
        return self._take(final=False)

    def finish(self) -> list[str]:
        """End the text; return the pieces that were held back. A new text may follow."""
        pieces = self._take(final=True)
        if self._text:
            pieces.append(self._text)
        self._text, self._scan, self._first = "", 0, True
        return pieces

    @property
    def held(self) -> str:
        """What came and is in no piece yet."""
        return self._text

    def _take(self, *, final: bool) -> list[str]:
        pieces: list[str] = []
        while cut := self._next_cut(final=final):
            pieces.append(self._text[:cut])
            self._text = self._text[cut:]
            self._scan, self._first = 0, False
        return pieces

    def _next_cut(self, *, final: bool) -> int:
        """Where the first piece of the text held ends; 0 if that is not certain yet."""
        # A mark decided behind this place comes too late: character by character, the cut by length was first.
        latest = self._max + WINDOW
        try:
            while (mark := self._next_mark()) is not None:
                kind, start = mark
                look = Look(self._text, final=final)
                cut, scan = self._at_clause(look, start) if kind else self._at_mark(look, start)
                if look.seen > latest:
                    break
                self._scan = scan
                if cut and (cut < len(self._text) or not final):
                    return cut
        except NotYetError:
            pass
        too_long = len(self._text) >= latest or (final and len(self._text) > self._max)
        return self._cut_by_length() if too_long else 0

    def _next_mark(self) -> tuple[bool, int] | None:
        """The next mark: whether it is one of a clause, and where it stands."""
        end = MARK.search(self._text, self._scan)
        if self._first and self._first_words:
            clause = CLAUSE.search(self._text, self._scan, end.start() if end else len(self._text))
            if clause:
                return True, clause.start()
        if end:
            return False, end.start()
        # Only whole characters were looked at, so the next search goes on behind them.
        self._scan = len(self._text)
        return None

    def _at_clause(self, look: Look, start: int) -> tuple[int, int]:
        """Where a first piece ends that a clause ends, else 0; and where to look on."""
        mark = self._text[start]
        space = look.space_end(start + 1)
        spaced = space > start + 1 and not (mark in "\u2013\u2014" and not self._text[start - 1 : start].isspace())
        if not spaced and mark not in "，、；：":
            return 0, start + 1
        return (space if _count_words(self._text[:start]) >= self._first_words else 0), start + 1

    def _at_mark(self, look: Look, start: int) -> tuple[int, int]:
        """Where a piece ends that the mark at ``start`` ends, else 0; and where to look on."""
        end = start if self._text[start] == "\n" else look.run_end(start, french=self._language == "fr")
        space_end = look.space_end(end)
        space = self._text[end:space_end]
        if "\n" in space and has_blank_line(space):
            return (space_end if self._text[:start].strip() else 0), space_end
        ends = self._ends(look, start, end, space_end)
        if ends and not self._text[start:end].strip(".…‥") and end > start:
            before = self._text[:start]
            ends = letters(before) >= self._min_letters or (
                bool(self._min_letters) and self._dots.is_plain_end(before, look.word(space_end))
            )
        return (space_end if ends else 0), max(space_end, end)

    def _ends(self, look: Look, start: int, end: int, space_end: int) -> bool:
        """Whether the marks from ``start`` to ``end``, and white space up to ``space_end``, end a sentence."""
        text, run = self._text, self._text[start:end]
        after = look.char(space_end)
        if not run:
            # A line ends without a mark: the next one is a sentence of its own unless it goes on in small letters.
            return bool(text[:start].strip()) and not is_lower(look.first_letter(space_end))
        if after in _MARKS_THAT_GO_ON or not self._brackets_close(start, run):
            return False
        if any(mark in HARD for mark in run):
            return not (self._quotation_goes_on(look, run, end) or self._says(look, run, space_end))
        if space_end == end and after and not self._touching(start, after):
            return False
        if "!" in run or "?" in run:
            return not is_lower(look.first_letter(space_end)) and not self._says(look, run, space_end)
        unspaced = is_unspaced(text[start - 1 : start]) or is_unspaced(after)
        if run[0] != "." and run[-1] in TERMINATORS and unspaced:
            return False  # the ellipsis of Chinese and Japanese is a pause
        if run[:2] in {"..", "……"} and run[-1] not in TERMINATORS and not has_case(after or text[start - 1]):
            return self._quotation_ends(look, run, end)
        return self._dots.end_sentence(text[:start], run, look.word(space_end))

    def _quotation_ends(self, look: Look, run: str, end: int) -> bool:
        """Whether the piece is a quotation that ends in an ellipsis, in a script whose next word tells nothing."""
        if self._text.lstrip()[:1] not in OPENERS:
            return False
        return not (self._quotation_goes_on(look, run, end) or self._says(look, run, look.space_end(end)))

    def _touching(self, start: int, after: str) -> bool:
        """Whether a sentence may begin right after the mark, without a space."""
        return (is_unspaced(after) and is_unspaced(self._text[start - 1 : start])) or after in "¿¡\u201c\u201e«「『"

    def _brackets_close(self, start: int, run: str) -> bool:
        """Whether a bracket that closes in ``run`` was opened where this piece begins, and not inside its sentence."""
        closing = next((mark for mark in run if mark in _OPENING), None)
        if closing is None or run[-1] in TERMINATORS:
            return True
        opened = self._text.rfind(_OPENING[closing], 0, start)
        return opened >= 0 and not self._text[:opened].strip(OPENERS + " \n\t")

    def _quotation_goes_on(self, look: Look, run: str, end: int) -> bool:
        """Whether what follows a closed quotation belongs to the sentence that it stands in."""
        if run[-1] in "」』" and self._language == "ja":
            return look.char(end) in {"と", "っ"}
        if run[-1] not in '\u201d」』"' or not is_unspaced(look.char(end)):
            return False
        phrase = look.phrase(end, _SAYS_WITHIN)
        # What a colon follows announces the next quotation.
        return _SAYS.search(phrase) is not None and look.char(end + len(phrase)) not in {"：", ":"}

    def _says(self, look: Look, run: str, start: int) -> bool:
        """Whether a quotation has closed, and its sentence goes on with who said it."""
        within, verbs = SAID.get(self._language, (0, frozenset[str]()))
        if run[-1] in TERMINATORS:
            return False
        for _ in range(within):
            word = look.word(start)
            if word.strip(_AROUND).casefold() in verbs:
                return word[-1:] not in {":", "："}  # a colon announces the next quotation
            if word[-1:] in TERMINATORS:
                return False
            start = look.space_end(start + len(word))
        return False

    def _cut_by_length(self) -> int:
        """The best place for a cut in a piece that is too long."""
        limit = min(self._max, len(self._text))
        self._scan = 0
        last = 0
        for clause in CLAUSE.finditer(self._text, limit // 4, limit - 1):
            if self._text[clause.end()].isspace():
                last = clause.end() + 1
            elif clause.group() in "，、；：":
                last = clause.end()
        last = last or max(self._text.rfind(space, 1, limit) + 1 for space in " \n\t\u3000")
        if not last:
            last = limit
            while splits_character(self._text, last) and limit - last < _SHORTEST:
                last -= 1
        return last or limit


def _count_words(text: str) -> int:
    unspaced = sum(map(is_unspaced, text))
    return len(text.split()) if not unspaced else unspaced // 2 + sum(word.isascii() for word in text.split())
