"""The pipe of an agent with ``speech``: the consumer gets sentences for a voice, the ledger counts the original text.

    push ──▶ [memory object stream] ──▶ SpeechFilter ──▶ pieces ──▶ receive
                                            └── characters of the original ──▶ took

What is held back of a sentence counts as received by nobody, so a barge-in stores what the pieces stand for that
the consumer has (invariant 5). The end is seen after the last piece, and a cut drops all of them (invariant 1).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from typing import TYPE_CHECKING, Any

import anyio.lowlevel

from micdrop_agent._core.pipe import Pipe
from micdrop_agent._core.playback import heard_length

if TYPE_CHECKING:
    from collections.abc import Callable

    from micdrop_agent.speech import Speech

__all__ = ["SpokenPipe"]


class SpokenPipe(Pipe):
    """As ``Pipe``, with text for a voice at the consumer's end.

    Args:
        took: As for ``Pipe``.
        loop: As for ``Pipe``.
        speech: How the text is said.
    """

    __slots__ = ("_fed", "_filter", "_finished", "_ready", "_said", "_spoken", "_told", "_took_original")

    def __init__(self, took: Callable[[int], None], loop: Any, speech: Speech) -> None:
        super().__init__(self._feed_counts, loop)
        self._took_original = took
        self._filter = speech.filter()
        self._ready: deque[str] = deque()
        self._said: list[str] = []
        self._spoken = 0
        """Characters of the pieces that were handed over."""
        self._fed = 0
        """Characters that the filter was given."""
        self._told = 0
        """Characters that count as received."""
        self._finished = False

    async def receive(self) -> str | None:
        """The next piece; ``None`` at the end, and after it was cut off."""
        while True:
            if self._ready and not self.paused:
                self.read = True
                await anyio.lowlevel.checkpoint()
                # Another reader, a cut or a pause may have come first.
                if not self._ready or self.paused:
                    continue
                return self._hand_over()
            chunk = await super().receive()
            if chunk is not None:
                self._fed += len(chunk)
                self._ready.extend(self._filter.feed(chunk))
            elif not self._ready:
                return None

    def cut_off(self) -> None:
        """As that of a pipe; pieces that nobody has taken are dropped."""
        super().cut_off()
        self._ready.clear()

    def count_all(self) -> None:
        """What is pending counts as received, and stays there to be read."""
        pending = self._uncounted
        super().count_all()
        self._tell(self._told + pending)

    def heard_in_original(self, heard: int | str | None) -> int | str | None:
        """What was heard of the pieces, as a length of the original text."""
        if heard is None or not self.read:
            return heard
        return self._filter.original(heard_length(heard, "".join(self._said)))

    def pause(self) -> None:
        """As that of a pipe; pieces that nobody has taken come first afterwards."""
        super().pause()
        self.put_first = bool(self._ready)

    def put_back(self, text: str) -> None:
        """As that of a pipe, in the form for the voice: from the place in the pieces where ``text`` begins."""
        said = "".join(self._said)
        upto = self._told - len(text)
        spoken = bisect_left(range(len(said)), upto, key=self._filter.original)
        self._said, self._spoken, self._told = [said[:spoken]], spoken, upto
        if said[spoken:]:
            self._ready.appendleft(said[spoken:])
            self.put_first = True
        self.drained = False

    def _feed_counts(self, _characters: int) -> None:
        """What only the filter has taken counts when its piece is handed over."""

    def _reached_end(self) -> None:
        if not self._finished:
            self._finished = True
            self._ready.extend(self._filter.finish())
        if not self._ready:
            self._tell(self._fed)
            super()._reached_end()

    def _hand_over(self) -> str:
        piece = self._ready.popleft()
        self.put_first = False
        self._said.append(piece)
        self._spoken += len(piece)
        self._tell(self._filter.original(self._spoken))
        self.moved()
        return piece

    def _tell(self, original: int) -> None:
        if original > self._told:
            self._took_original(original - self._told)
            self._told = original
