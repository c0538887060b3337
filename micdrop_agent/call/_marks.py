"""Which audio says which text, so that a barge-in knows how far the caller heard (C4). No I/O.

    take("One two. ")          the voice took a sentence
    audio(n)                   n bytes of it were written  ──▶ a Stretch
    audio(n, "One")            the same, stamped with its words
    heard(position)            characters of the text that were heard, cut at a word

Without stamps a stretch is a whole sentence, and the cut is proportional within it. Pinned in
tests/test_call_playback.py.
"""

from __future__ import annotations

import re
from typing import Final

from micdrop_agent.call._frames import BYTES_PER_SECOND

__all__ = ["Marks", "Stretch", "word_start"]

CHARACTERS_PER_SECOND: Final = 15
"""How fast voices speak, for a sentence whose audio is not complete yet."""


class Stretch:
    """Some text, and the audio that says it.

    Attributes:
        start: Where the text begins in all that is said.
        text: The text.
        written: Bytes of audio so far.
        sent: Bytes of it that were sent.
        at: Position in the playback of its first byte; ``None`` before that is sent.
        closed: No more audio of it comes.
    """

    __slots__ = ("at", "closed", "sent", "start", "text", "written")

    def __init__(self, start: int, text: str) -> None:
        self.start = start
        self.text = text
        self.written = 0
        self.sent = 0
        self.at: int | None = None
        self.closed = False

    def note_sent(self, position: int, count: int) -> None:
        """``count`` bytes went out; ``position`` is that of the first one in the playback."""
        if self.at is None:
            self.at = position
        self.sent += count

    def said(self, position: int) -> tuple[int, bool]:
        """Characters of the text that were said up to ``position``, and whether that is all."""
        if self.at is None:
            return 0, self.closed and not self.written
        return self.said_of(min(max(0, position - self.at), self.sent))

    def said_of(self, played: int) -> tuple[int, bool]:
        """The same when so many bytes of its own audio were played."""
        if self.closed and played >= self.written:
            return len(self.text), True
        whole = self.written
        if not self.closed:
            whole = max(whole, len(self.text) * BYTES_PER_SECOND // CHARACTERS_PER_SECOND)
        return word_start(self.text, len(self.text) * played // whole if whole else 0), False

    def rewind(self, position: int) -> None:
        """What was sent beyond ``position`` was not played, and is sent again."""
        if self.at is None or self.at >= position:
            self.at, self.sent = None, 0
        else:
            self.sent = min(self.sent, position - self.at)


class Marks:
    """The text of one voice and its audio, stretch by stretch."""

    __slots__ = ("_stamp_end", "_taken", "stretches")

    def __init__(self) -> None:
        self.stretches: list[Stretch] = [Stretch(0, "")]
        self._taken = ""
        """Everything that the voice has taken."""
        self._stamp_end: int | None = None
        """Where the words end that the last audio was stamped with."""

    def take(self, source: str) -> None:
        """The voice took the next piece of text; audio from now on says it."""
        if self.stretches[-1].written:
            self._next()
        self._taken += source
        last = self.stretches[-1]
        last.text = self._taken[last.start :]

    def audio(self, count: int, stamp: str | None = None) -> Stretch:
        """``count`` bytes were written; returns what they belong to."""
        words = "" if stamp is None else stamp.strip()
        if words:
            if self.stretches[-1].written:
                self._next()
            last = self.stretches[-1]
            found = self._taken.find(words, last.start)
            end = last.start + len(words) if found < 0 else found + len(words)
            self._stamp_end = min(end, len(self._taken))
            last.text = self._taken[last.start : self._stamp_end]
        self.stretches[-1].written += count
        return self.stretches[-1]

    def finish(self) -> None:
        """The voice has said everything that it took."""
        last = self.stretches[-1]
        last.text = self._taken[last.start :]
        last.closed = True

    def heard(self, position: int) -> int:
        """Characters of the text that have been said up to ``position`` of the playback."""
        heard = 0
        for stretch in self.stretches:
            count, complete = stretch.said(position)
            heard = max(heard, stretch.start + count)
            if not complete:
                break
        return heard

    def voiced(self) -> int:
        """Characters of the text for which audio was written, whether or not it was sent."""
        voiced = 0
        for stretch in self.stretches:
            count, complete = stretch.said_of(stretch.written)
            voiced = max(voiced, stretch.start + count)
            if not complete:
                break
        return voiced

    def rewind(self, position: int) -> None:
        """As that of each stretch."""
        for stretch in self.stretches:
            stretch.rewind(position)

    def is_heard(self, position: int) -> bool:
        """Whether everything that was written has been played."""
        return all(stretch.said(position)[1] for stretch in self.stretches)

    @property
    def written(self) -> int:
        """Bytes of audio so far."""
        return sum(stretch.written for stretch in self.stretches)

    def _next(self) -> None:
        """Close the last stretch; what it does not say begins a new one."""
        last = self.stretches[-1]
        end = len(self._taken) if self._stamp_end is None else self._stamp_end
        last.text, last.closed = self._taken[last.start : end], True
        self._stamp_end = None
        self.stretches.append(Stretch(end, self._taken[end:]))


def word_start(text: str, cut: int) -> int:
    """``cut``, moved back to the end of the last complete word before it.

    Chinese, Japanese, Thai and their like write words without blanks, so they are cut where it is.
    """
    cut = min(cut, len(text))
    if cut == len(text):
        return cut
    while cut and not (text[cut].isspace() or text[cut - 1].isspace() or _NO_BLANKS.match(text[cut - 1])):
        cut -= 1
    return cut


_NO_BLANKS: Final = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")
"""Letters of scripts without blanks between words."""
