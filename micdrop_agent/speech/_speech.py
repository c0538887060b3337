"""Text for a voice: what is worth saying, in sentences, with the way back to the original.

answer ──chunks──> Speakable ──> Sentences ──> transform ──> pieces for a text to speech
└────────── original(n) ◀── characters of those pieces that were heard
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from typing import TYPE_CHECKING, Final

import attrs
from attrs import validators as v

from micdrop_agent.speech._sentences import Sentences
from micdrop_agent.speech._speakable import Speakable

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable

logger: Final = logging.getLogger("micdrop_agent")

__all__ = ["Speech", "SpeechFilter", "SpokenAnswer", "sentences"]

_CODE: Final = {
    "en": "Code block.",
    "de": "Programmcode.",
    "fr": "Extrait de code.",
    "es": "Fragmento de código.",
    "zh": "代码。",
    "ja": "コードです。",
    "hi": "कोड।",
    "ar": "نص برمجي.",
}
_TABLE: Final = {
    "en": "Table.",
    "de": "Tabelle.",
    "fr": "Tableau.",
    "es": "Tabla.",
    "zh": "表格。",
    "ja": "表です。",
    "hi": "तालिका।",
    "ar": "جدول.",
}


@attrs.frozen(kw_only=True)
class Speech:
    """How the text of an answer becomes text that a voice can say."""

    language: str = attrs.field(default="en", validator=v.matches_re(r"[A-Za-z]{2,8}([-_][A-Za-z0-9]{1,8})*"))
    """A language tag such as ``"en"`` or ``"pt-BR"``."""

    markdown: bool = True
    """Whether what is for the eye (Markdown, HTML tags, addresses, emoji) is taken out."""

    code: str | None = None
    """What is said in place of a block of code: ``""`` for nothing, None for two words in the language."""

    table: str | None = None
    """What is said in place of a table: ``""`` for nothing, None for a word in the language."""

    first_words: int = attrs.field(default=4, validator=v.ge(0))
    """The first piece may end at a comma or a dash once it has so many words; 0 waits for a whole sentence."""

    max_letters: int = attrs.field(default=400, validator=v.ge(1))
    """The longest piece, in characters."""

    transform: Callable[[str], str] | None = None
    """Makes the text that is said of a piece: numbers, dates, currencies in words. One that raises is logged, and the
    piece is said as it is."""

    def filter(self) -> SpeechFilter:
        """A new filter for the text of one answer.

        Raises:
            MicdropError: sentencex is not installed.
        """
        return SpeechFilter(self)

    def sentences(self, answer: AsyncIterable[str]) -> SpokenAnswer:
        """The pieces of an answer, or of any other stream of text, one after the other."""
        return SpokenAnswer(self.filter(), answer)


class SpeechFilter:
    """The text of one answer in, pieces for a text to speech out; without I/O.

    A piece is a sentence, or less where ``Speech`` says so, with the white space behind it. None is blank.
    """

    def __init__(self, speech: Speech) -> None:
        language = speech.language.replace("_", "-").split("-")[0].lower()
        self._speakable: Speakable | None = None
        if speech.markdown:
            self._speakable = Speakable(
                code=_CODE.get(language, _CODE["en"]) if speech.code is None else speech.code,
                table=_TABLE.get(language, _TABLE["en"]) if speech.table is None else speech.table,
            )
        self._sentences = Sentences(language, first_words=speech.first_words, max_letters=speech.max_letters)
        self._transform = speech.transform
        self._said = 0
        """Characters of the pieces handed out."""
        self._taken = 0
        """Characters of speakable text that these pieces, and blank ones, were made of."""
        self._said_end: list[int] = []
        self._start: list[int] = []
        self._end: list[int] = []

    def feed(self, text: str) -> list[str]:
        """Take the next chunk; return the pieces that are complete now."""
        speakable = self._speakable.feed(text) if self._speakable else text
        return self._made(self._sentences.feed(speakable)) if speakable else []

    def finish(self) -> list[str]:
        """End the text; return the pieces that were held back."""
        pieces = self._sentences.feed(self._speakable.finish()) if self._speakable else []
        return self._made([*pieces, *self._sentences.finish()])

    def original(self, spoken: int) -> int:
        """How many characters of the original text the first ``spoken`` characters of the pieces stand for.

        Inside a piece that ``transform`` changed the share of its characters decides, cut to a whole word.
        """
        speakable = self._speakable_at(spoken)
        return self._speakable.original(speakable) if self._speakable else speakable

    @property
    def spoken(self) -> int:
        """Characters of the pieces handed out so far."""
        return self._said

    def _made(self, pieces: Iterable[str]) -> list[str]:
        made: list[str] = []
        for piece in pieces:
            said = self._transformed(piece)
            start = self._taken
            self._taken += len(piece)
            if not said.strip():
                continue
            self._said += len(said)
            self._said_end.append(self._said)
            self._start.append(start)
            self._end.append(self._taken)
            made.append(said)
        return made

    def _transformed(self, piece: str) -> str:
        if self._transform is None:
            return piece
        try:
            return self._transform(piece)
        except Exception:
            logger.exception("the transform of Speech raised; its text is said as it is")
            return piece

    def _speakable_at(self, spoken: int) -> int:
        if spoken <= 0 or not self._said_end:
            return 0
        if spoken >= self._said:
            return self._taken
        entry = bisect_left(self._said_end, spoken)
        before = self._said_end[entry - 1] if entry else 0
        said, made_of = self._said_end[entry] - before, self._end[entry] - self._start[entry]
        if spoken == self._said_end[entry]:
            return self._end[entry]
        return self._start[entry] + (spoken - before) * made_of // said


class SpokenAnswer:
    """The pieces of one answer: ``async for piece in speech.sentences(answer)``.

    When the answer fails, what came of it is handed out before its error is raised. When it is cancelled, what was
    held back is dropped.
    """

    def __init__(self, text: SpeechFilter, answer: AsyncIterable[str]) -> None:
        self._filter = text
        self._answer = answer
        self._chunks: AsyncIterator[str] = aiter(answer)
        self._ready: list[str] = []
        self._ended = False
        self._stopped = False
        self._error: Exception | None = None

    def __aiter__(self) -> AsyncIterator[str]:
        return self

    async def __anext__(self) -> str:
        while not self._ready and not self._ended:
            await self._read()
        if self._ready and not self._cancelled():
            return self._ready.pop(0)
        error, self._error = self._error, None
        raise error or StopAsyncIteration

    def stop(self, spoken: int) -> int:
        """End this: no piece follows. Returns what to give ``agent.cancel(heard=…)``.

        Args:
            spoken: How many characters of the pieces the caller has heard.
        """
        self._ended = self._stopped = True
        self._ready.clear()
        return self._filter.original(spoken)

    @property
    def spoken(self) -> int:
        """Characters of the pieces that are complete so far."""
        return self._filter.spoken

    async def _read(self) -> None:
        try:
            chunk = await anext(self._chunks)
        except StopAsyncIteration:
            self._ended = True
        except Exception as error:  # noqa: BLE001 - whatever the source raised is raised again behind its text
            self._ended, self._error = True, error
        else:
            self._ready += self._filter.feed(chunk)
            return
        if not self._cancelled():
            self._ready += self._filter.finish()

    def _cancelled(self) -> bool:
        # Any stream of text will do; an answer says whether it was cut.
        return self._stopped or getattr(self._answer, "status", None) == "cancelled"


def sentences(answer: AsyncIterable[str], speech: Speech | None = None) -> SpokenAnswer:
    """The pieces of an answer, or of any other stream of text, one after the other.

        async for sentence in speech.sentences(agent.answer()):
            await voice.say(sentence)

    Args:
        answer: What comes in chunks.
        speech: How it is said; ``Speech()`` if left out.

    Raises:
        MicdropError: sentencex is not installed.
    """
    return (speech or Speech()).sentences(answer)
