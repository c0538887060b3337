"""Where a text-to-speech puts its audio, and where it takes its text from.

answer ──▶ TextFeed ──▶ TextToSpeech ──write(pcm)──▶ Voice ──▶ the call ──▶ client
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

import anyio
from anyio.abc import ObjectReceiveStream

from micdrop_agent._core.parking import parking_lot
from micdrop_agent.call._rival import Rival
from micdrop_agent.options import check_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from micdrop_agent._core.race import Race

__all__ = ["TextFeed", "Voice", "VoiceSink"]


class VoiceSink(Protocol):
    """Who takes the audio."""

    def say(self, pcm: bytes, text: str | None) -> None:
        """As ``Voice.write``, with whole samples."""
        ...

    async def wait_for_room(self) -> None:
        """Wait until the client has taken enough of it."""
        ...


class Voice(Rival):
    """Takes the audio of one answer.

    It is fenced when the caller interrupts, when another answer begins, or when another
    text-to-speech has taken over; from then on nothing it is given has an effect.
    """

    __slots__ = ("_odd", "_sink")

    def __init__(
        self,
        sink: VoiceSink,
        scope: anyio.CancelScope,
        parent: Voice | None = None,
        race: Race[Voice] | None = None,
    ) -> None:
        super().__init__(scope, parent, race)
        self._sink = sink
        self._odd = b""

    async def write(self, pcm: bytes, text: str | None = None) -> None:
        """Send audio to the caller; waits while the client does not keep up.

        Args:
            pcm: PCM16, little endian, mono, 16 kHz, of any length.
            text: The words that this audio says, if the service tells; with them the stored text
                of an interrupted answer is exact to the word.
        """
        if not isinstance(pcm, bytes | bytearray | memoryview):
            raise TypeError(f"audio is written as bytes of PCM16, not {type(pcm).__name__}")
        if text is not None:
            check_text("text", text)
        if pcm and not self.fenced and self.claim():
            whole = self._odd + bytes(pcm)
            even = len(whole) & ~1
            self._odd = whole[even:]
            if even:
                self._sink.say(whole[:even], text)
        await anyio.lowlevel.checkpoint()
        if not self.fenced:
            await self._sink.wait_for_room()

    # -- for a supervisor of several voices

    def pass_on(self, pcm: bytes, text: str | None) -> None:
        """Send audio that a voice of an attempt has written: whole samples, already claimed."""
        if not self.fenced:
            self._sink.say(pcm, text)

    async def wait_for_room(self) -> None:
        """Wait while the client does not keep up."""
        await self._sink.wait_for_room()


class TextFeed(ObjectReceiveStream[str]):
    """The text for one text-to-speech, piece by piece.

    Args:
        took: Called with each piece when it is taken.
        loop: The asyncio loop; ``None`` on Trio.
    """

    __slots__ = ("_ended", "_pieces", "_reader", "_reading", "_took", "on_more")

    def __init__(self, took: Callable[[str], None], loop: Any) -> None:
        self._pieces: deque[str] = deque()
        self._took = took
        self._ended = False
        self._reader = parking_lot(loop)
        self._reading = False
        self.on_more: Callable[[], object] | None = None
        """Called when a piece was added, and at the end."""

    @property
    def waiting(self) -> int:
        """Pieces that nobody has taken yet."""
        return len(self._pieces)

    @property
    def ended(self) -> bool:
        """Whether no piece follows."""
        return self._ended

    def put(self, piece: str) -> None:
        """Add a piece."""
        self._pieces.append(piece)
        self._changed()

    def end(self) -> None:
        """No piece follows."""
        self._ended = True
        self._changed()

    async def receive(self) -> str:
        """The next piece.

        Raises:
            anyio.EndOfStream: The text is complete.
        """
        await anyio.lowlevel.checkpoint()
        while not self._pieces:
            if self._ended:
                raise anyio.EndOfStream
            self._reading = True
            await self._reader.park()
        piece = self._pieces.popleft()
        self._took(piece)
        return piece

    async def aclose(self) -> None:
        """Nothing more is taken."""
        self._pieces.clear()
        self._ended = True
        await anyio.lowlevel.checkpoint()

    def _changed(self) -> None:
        if self._reading:
            self._reading = False
            self._reader.unpark_all()
        if self.on_more is not None:
            self.on_more()
