"""A client without a network, and speech services that follow a script, for tests of calls.

link, client = memory_link()
tasks.start_soon(Call(link, agent=agent, stt=ScriptedSTT("Hello?"), tts=ScriptedTTS()).run)
client.speak(0.5)
"""

# The kit looks inside on purpose.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import math
import struct
from collections import deque
from typing import TYPE_CHECKING, Final, TypeAlias

import anyio
import anyio.lowlevel
import attrs

from micdrop_agent.testing._scripted import HANG

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from anyio.abc import ObjectReceiveStream

    from micdrop_agent.call import Hearing, Voice
    from micdrop_agent.testing._scripted import _Hang

__all__ = [
    "AUDIO_END",
    "MemoryClient",
    "MemoryLink",
    "Partial",
    "ScriptedSTT",
    "ScriptedTTS",
    "VoiceFault",
    "memory_link",
]

INBOX: Final = 32
"""Frames that wait for the server before the client has to wait, as in uvicorn."""

FRAME: Final = bytes(3200)
"""100 ms of silence, one frame of the browser client."""


class MemoryLink:
    """The server's end of ``memory_link()``."""

    def __init__(self, client: MemoryClient) -> None:
        self._client = client

    async def receive(self) -> str | bytes:
        """The next frame that the client has sent."""
        return await self._client._taken()

    async def send(self, frame: str | bytes) -> None:
        """Hand a frame to the client."""
        await self._client._given(frame)

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """Close the connection."""
        client = self._client
        if client.closed is None:
            client.closed = (code, reason)
            client._changed()
        await anyio.lowlevel.checkpoint()


class MemoryClient:
    """The client's end of ``memory_link()``.

    Attributes:
        frames: Everything that was received, in order.
        times: When each of them was received.
        closed: Close code and reason, once either side has closed.
        stalled: It reads nothing while this is true (see ``stall()``).
    """

    def __init__(self) -> None:
        self.frames: list[str | bytes] = []
        self.times: list[float] = []
        self.closed: tuple[int, str] | None = None
        self.stalled = False
        self.on_frame: Callable[[str | bytes], object] | None = None
        """Called with each frame that the server sends."""
        self.on_taken: Callable[[str | bytes], object] | None = None
        """Called with each frame that the server takes."""
        self._sent: deque[str | bytes] = deque()
        self._event = anyio.Event()

    # -- what a client does

    def put(self, frame: str | bytes) -> None:
        """Send a frame, whether or not the server keeps up."""
        if self.closed is None:
            self._sent.append(frame)
            self._changed()

    async def send(self, frame: str | bytes) -> None:
        """Send a frame; waits while the server does not read."""
        while len(self._sent) >= INBOX and self.closed is None:
            await self._event.wait()
        self.put(frame)
        await anyio.lowlevel.checkpoint()

    def speak(self, seconds: float = 0.1) -> None:
        """Say something: StartSpeaking, audio, StopSpeaking, all at once."""
        self.put("StartSpeaking")
        for _ in range(max(1, round(seconds * 10))):
            self.put(FRAME)
        self.put("StopSpeaking")

    def close(self) -> None:
        """Hang up."""
        if self.closed is None:
            self.closed = (1000, "")
        self._changed()

    def stall(self, stalled: bool = True) -> None:
        """Stop reading, or go on."""
        self.stalled = stalled
        self._changed()

    async def until(self, ready: Callable[[], object]) -> None:
        """Wait until ``ready()``; looked at with every frame.

        Raises:
            AssertionError: The connection was closed before.
        """
        while not ready():
            assert self.closed is None, f"closed with {self.closed}; received {self.names}"
            await self._event.wait()

    async def receives(self, name: str, count: int = 1) -> None:
        """Wait for the ``count``-th text frame of that name, or of ``"audio"``."""
        await self.until(lambda: self.names.count(name) >= count)

    @property
    def names(self) -> list[str]:
        """The names of the frames; ``"audio"`` for a binary one."""
        return [frame.partition(" ")[0] if isinstance(frame, str) else "audio" for frame in self.frames]

    @property
    def texts(self) -> list[str]:
        """The text frames."""
        return [frame for frame in self.frames if isinstance(frame, str)]

    @property
    def audio(self) -> bytes:
        """All audio that was received."""
        return b"".join(frame for frame in self.frames if isinstance(frame, bytes))

    # -- the link's side

    async def _taken(self) -> str | bytes:
        await anyio.lowlevel.checkpoint()
        while not self._sent:
            if self.closed is not None:
                raise anyio.EndOfStream
            await self._event.wait()
        frame = self._sent.popleft()
        if self.on_taken is not None:
            self.on_taken(frame)
        if len(self._sent) == INBOX - 1:
            self._changed()
        return frame

    async def _given(self, frame: str | bytes) -> None:
        if self.closed is not None:
            raise anyio.BrokenResourceError
        self.frames.append(frame)
        self.times.append(anyio.current_time())
        if self.on_frame is not None:
            self.on_frame(frame)
        self._changed()
        await anyio.lowlevel.checkpoint()
        while self.stalled and self.closed is None:
            await self._event.wait()

    def _changed(self) -> None:
        event, self._event = self._event, anyio.Event()
        event.set()


def memory_link() -> tuple[MemoryLink, MemoryClient]:
    """The two ends of a connection without a network."""
    client = MemoryClient()
    return MemoryLink(client), client


@attrs.frozen
class Partial:
    """An act of ``ScriptedSTT``: report text that may still change."""

    text: str


@attrs.frozen
class _AudioEnd:
    """An act of ``ScriptedSTT``: read the audio to its end."""


AUDIO_END: Final = _AudioEnd()
"""What follows in the script comes when the caller has stopped; without it in a script, all of it does."""

Heard: TypeAlias = "str | float | Partial | BaseException | _Hang | _AudioEnd"
"""A final text, seconds to wait, a partial text, an error to raise, ``HANG``, or ``AUDIO_END``."""


class ScriptedSTT:
    """Hears what its script says, whatever the audio.

        ScriptedSTT("Hello?", ["I have", AUDIO_END, "a question"], [ConnectionError("down")])

    Args:
        *turns: For each StartSpeaking a text, or acts (see ``Heard``). The last one is repeated.

    Attributes:
        audio: Bytes of audio of each turn.
    """

    def __init__(self, *turns: str | Sequence[Heard]) -> None:
        self._turns = turns
        self.audio: list[int] = []

    async def transcribe(self, audio: ObjectReceiveStream[bytes], hearing: Hearing) -> None:
        """Play the script of the next turn."""
        number = len(self.audio)
        self.audio.append(0)
        script = self._turns[min(number, len(self._turns) - 1)] if self._turns else ()
        acts: list[Heard] = [script] if isinstance(script, str) else list(script)
        if AUDIO_END not in acts:
            acts.insert(0, AUDIO_END)
        for act in acts:
            await self._play(act, number, audio, hearing)

    async def _play(self, act: Heard, number: int, audio: ObjectReceiveStream[bytes], hearing: Hearing) -> None:
        if isinstance(act, str):
            hearing.final(act)
        elif isinstance(act, Partial):
            hearing.partial(act.text)
        elif isinstance(act, int | float):
            await anyio.sleep(act)
        elif isinstance(act, BaseException):
            raise act.with_traceback(None)
        elif act is HANG:
            await anyio.sleep_forever()
        else:
            async for pcm in audio:
                self.audio[number] += len(pcm)


@attrs.frozen(kw_only=True)
class VoiceFault:
    """What goes wrong in one synthesis of ``ScriptedTTS``."""

    error: BaseException | None = None
    """Raised; ``None``: it hangs."""

    after: int = 0
    """Frames of audio before that."""


class ScriptedTTS:
    """Says silence of the right length.

    Args:
        *faults: For each synthesis what goes wrong, or ``None``; those after the last are good.
        audio_bytes: Bytes for each piece of text, in one frame; without, as long as it takes to say it.
        characters_per_second: How fast it speaks.
        delay: Seconds before the audio of each piece.
        stamps: Tell with each frame which word it says.
        label: The samples of synthesis ``n`` are all ``label + n``, which distinguishes their audio.

    Attributes:
        said: The pieces of text of each synthesis.
    """

    def __init__(
        self,
        *faults: VoiceFault | None,
        audio_bytes: int | None = None,
        characters_per_second: float = 16.0,
        delay: float = 0.0,
        stamps: bool = False,
        label: int = 1,
    ) -> None:
        self._faults = faults
        self._bytes = audio_bytes
        self._rate = characters_per_second
        self._delay = delay
        self._stamps = stamps
        self.label = label
        self.said: list[list[str]] = []

    async def synthesize(self, text: ObjectReceiveStream[str], voice: Voice) -> None:
        """Say the next text."""
        number = len(self.said)
        said: list[str] = []
        self.said.append(said)
        fault = self._faults[number] if number < len(self._faults) else None
        left = math.inf if fault is None else fault.after
        async for piece in text:
            said.append(piece)
            if self._delay:
                await anyio.sleep(self._delay)
            for pcm, words in self._frames(piece, struct.pack("<h", self.label + number)):
                if left <= 0:
                    await self._fail(fault)
                left -= 1
                await voice.write(pcm, words)
        if left <= 0:
            await self._fail(fault)

    def heal(self) -> None:
        """Nothing goes wrong from now on."""
        self._faults = ()

    async def _fail(self, fault: VoiceFault | None) -> None:
        if fault is None or fault.error is None:
            await anyio.sleep_forever()
        else:
            raise fault.error.with_traceback(None)

    def _frames(self, piece: str, sample: bytes) -> list[tuple[bytes, str | None]]:
        if self._bytes is not None:
            return [(sample * (self._bytes // 2), piece if self._stamps else None)]
        if self._stamps:
            return [(sample * self._samples(word + " "), word) for word in piece.split()]
        whole = self._samples(piece)
        frame = len(FRAME) // 2
        return [(sample * min(frame, whole - at), None) for at in range(0, whole, frame)]

    def _samples(self, text: str) -> int:
        return round(len(text) / self._rate * 16_000)
