"""What waits to be sent to the client, in the order of the changes that it reports (C3).

    events, voices ──▶ Outbox ──▶ writer ──▶ link

Audio belongs to the voice that said it. When a voice is fenced its audio is taken out in the same
synchronous step, so nothing of a cancelled answer can be sent afterwards (C1). Pinned in
tests/test_call_invariants.py.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

import anyio
import attrs

from micdrop_agent._core.parking import parking_lot

if TYPE_CHECKING:
    from collections.abc import Callable

    from micdrop_agent.call._marks import Stretch
    from micdrop_agent.call._speaking import Speaking

__all__ = ["AudioFrame", "Outbox"]

MAX_TEXT: Final = 4 * 1024 * 1024
"""Characters of text frames that may wait for a client that does not read; then its call ends (C7)."""


@attrs.define(eq=False)
class AudioFrame:
    """One binary frame.

    Args:
        pcm: The audio.
        owner: What it is part of; the audio of that is taken back together.
        stretch: The text that this audio says.
    """

    pcm: bytes
    owner: Speaking
    stretch: Stretch


class Outbox:
    """The queue between everything that reports something and the one task that sends.

    Args:
        loop: The asyncio loop; ``None`` on Trio.
        clock: Seconds on its clock.
        on_overflow: Called when a client has not read for so long that its call must end.
    """

    def __init__(self, loop: Any, clock: Callable[[], float], on_overflow: Callable[[], None]) -> None:
        self._frames: deque[str | AudioFrame] = deque()
        self._clock = clock
        self._reader = parking_lot(loop)
        self._writers = parking_lot(loop)
        self._reading = self._writing = False
        """Whether somebody waits there."""
        self._on_overflow = on_overflow
        self._text = 0
        self._leaving = False
        """A frame is being sent."""
        self.audio_bytes = 0
        """Audio that waits."""
        self.moved_at = 0.0
        """When a frame last left, or began to wait in an empty queue."""

    def __len__(self) -> int:
        return len(self._frames)

    @property
    def is_idle(self) -> bool:
        """Whether everything was handed to the link."""
        return not self._frames and not self._leaving

    def put(self, frame: str) -> None:
        """Add a text frame."""
        self._text += len(frame)
        self._frames.append(frame)
        self._changed()
        if self._text > MAX_TEXT:
            self._on_overflow()

    def put_latest(self, prefix: str, frame: str) -> None:
        """Add a text frame that replaces the one before it, if that has the same name and still waits."""
        last = self._frames[-1] if self._frames else None
        if isinstance(last, str) and last.startswith(prefix):
            self._text -= len(last)
            self._frames.pop()
        self.put(frame)

    def put_audio(self, frame: AudioFrame, now: float) -> None:
        """Add audio."""
        if not self._frames:
            self.moved_at = now
        self.audio_bytes += len(frame.pcm)
        self._frames.append(frame)
        self._changed()

    def drop(self, owner: object) -> list[AudioFrame]:
        """Take all audio of ``owner`` out, in one step, and return it."""
        if not self.audio_bytes:
            return []
        taken = [frame for frame in self._frames if isinstance(frame, AudioFrame) and frame.owner is owner]
        if taken:
            gone = set(map(id, taken))
            self._frames = deque(frame for frame in self._frames if id(frame) not in gone)
            self.audio_bytes -= sum(len(frame.pcm) for frame in taken)
            self._moved()
        return taken

    async def next(self) -> str | AudioFrame:
        """Wait for the next frame and take it."""
        while not self._frames:
            self._reading = True
            await self._reader.park()
        frame = self._frames.popleft()
        self._leaving = True
        if isinstance(frame, AudioFrame):
            self.audio_bytes -= len(frame.pcm)
        else:
            self._text -= len(frame)
        return frame

    def sent(self, now: float) -> None:
        """The frame that was taken is on its way."""
        self._leaving = False
        self.moved_at = now
        self._moved()

    async def wait_for_room(self, limit: int, patience: float) -> bool:
        """Wait until at most ``limit`` bytes of audio wait; ``False`` if nothing moved for ``patience`` seconds."""
        while self.audio_bytes > limit:
            self._writing = True
            with anyio.CancelScope(deadline=self.moved_at + patience):
                await self._writers.park()
                continue
            if self.audio_bytes > limit and self._clock() >= self.moved_at + patience:
                return False
        return True

    def _changed(self) -> None:
        if self._reading:
            self._reading = False
            self._reader.unpark_all()

    def _moved(self) -> None:
        if self._writing:
            self._writing = False
            self._writers.unpark_all()
