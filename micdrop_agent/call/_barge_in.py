"""A sound of the caller that may be no interruption: what was being said is held, and goes on after a "mhm".

    StartSpeaking ──▶ hold() ──▶ transcript is a backchannel, or none ──▶ resume()
                                 transcript is anything else          ──▶ give_way(): it was a barge-in

While it is held nothing of it is sent (C1). The client has dropped what it had not played, so that
is sent again. Only with the options ``backchannel`` or ``min_words``.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import anyio
import attrs

from micdrop_agent.call._outbox import AudioFrame

if TYPE_CHECKING:
    from micdrop_agent.call._mouth import Mouth
    from micdrop_agent.call._options import Options

__all__ = ["BargeIn", "Held"]


@attrs.define(eq=False)
class Held:
    """What was being said when the caller made a sound, until it is clear what that was."""

    position: int
    """How far it was heard."""

    frames: list[AudioFrame]
    """What was not, in order."""

    size: int
    """Bytes of that."""

    decided: anyio.Event = attrs.field(factory=anyio.Event)


class BargeIn:
    """Holds what the assistant was saying, for one call."""

    def __init__(self, mouth: Mouth, options: Options) -> None:
        self._mouth = mouth
        self._active = options.is_backchannel is not None
        self._recent: deque[tuple[int, AudioFrame]] = deque()
        """Audio that was sent and may not have been played, with its end in the playback."""
        self.held: Held | None = None

    def note_sent(self, frame: AudioFrame, now: float) -> None:
        """``frame`` was sent; it may be needed again."""
        if not self._active:
            return
        played = self._mouth.playback.played(now)
        while self._recent and self._recent[0][0] <= played:
            self._recent.popleft()
        self._recent.append((self._mouth.playback.total, frame))

    def hold(self) -> None:
        """Stop sending what is being said; it may go on."""
        if self.held is not None:
            return
        mouth = self._mouth
        position = mouth.playback.flush(mouth.clock())
        frames = self._unplayed(position)
        for speaking in mouth.audible:
            frames += mouth.outbox.drop(speaking)
            speaking.marks.rewind(position)
        self.held = Held(position, frames, sum(len(frame.pcm) for frame in frames))

    def _unplayed(self, position: int) -> list[AudioFrame]:
        """What the client has received and not played."""
        frames: list[AudioFrame] = []
        for end, frame in self._recent:
            missing = min(len(frame.pcm), end - position)
            if missing > 0:
                frames.append(AudioFrame(frame.pcm[-missing:], frame.owner, frame.stretch))
        self._recent.clear()
        return frames

    def resume(self) -> None:
        """It was not an interruption: what was not heard is sent again, and the rest follows."""
        held, self.held = self.held, None
        if held is None:
            return
        mouth = self._mouth
        now = mouth.clock()
        for frame in held.frames:
            if not frame.owner.voice.fenced:
                mouth.outbox.put_audio(frame, now)
        held.decided.set()
        if mouth.current is None and not mouth.outbox.audio_bytes:
            mouth.release()

    def give_way(self) -> int | None:
        """It was an interruption: how far what was said has been heard; ``None`` if nothing is held."""
        held, self.held = self.held, None
        self._recent.clear()
        if held is None:
            return None
        held.decided.set()
        return held.position
