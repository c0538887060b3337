"""What speech services, transports and models of turns have to be able to do for a call.

    audio ──▶ SpeechToText.transcribe ──▶ Hearing
    text  ──▶ TextToSpeech.synthesize ──▶ Voice
    Link     receives and sends the frames of one client

All follow one idea, that of ``Agent.generate_answer``: failure is an exception, cancellation is the
scope around the call, and what comes too late has no effect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from array import array
    from collections.abc import Awaitable

    from anyio.abc import ObjectReceiveStream

    from micdrop_agent.call._hearing import Hearing
    from micdrop_agent.call._voice import Voice

__all__ = ["Classifier", "Link", "SpeechToText", "TextToSpeech", "TurnDetector"]


class SpeechToText(Protocol):
    """Turns speech into text."""

    async def transcribe(self, audio: ObjectReceiveStream[bytes], hearing: Hearing) -> None:
        """Report what is said in ``audio`` to ``hearing``, until the audio ends.

        Called when the user starts to speak. Returns when everything was reported, which may be
        after the end of the audio.

        Args:
            audio: PCM16, little endian, mono, 16 kHz; ends when the user stops.
            hearing: Takes the text.
        """
        ...


class TextToSpeech(Protocol):
    """Turns text into speech."""

    async def synthesize(self, text: ObjectReceiveStream[str], voice: Voice) -> None:
        """Say all of ``text`` through ``voice``, until the text ends.

        Called with the first piece of text. Cancelled when the caller interrupts.

        Args:
            text: The text, in sentences or in the pieces in which it comes.
            voice: Takes the audio.
        """
        ...


class Link(Protocol):
    """The connection to one client: text frames are commands, binary frames are audio."""

    async def receive(self) -> str | bytes:
        """The next frame.

        Raises:
            anyio.EndOfStream: The client has gone.
        """
        ...

    async def send(self, frame: str | bytes) -> None:
        """Send a frame; waits while the client does not take it.

        Raises:
            anyio.BrokenResourceError: The client has gone.
        """
        ...

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """Close the connection with a WebSocket close code."""
        ...


class TurnDetector(Protocol):
    """Tells by the sound of the voice whether the user has finished.

    Source: Micdrop ``TurnDetector``.
    """

    def push(self, samples: array[int]) -> None:
        """More audio of the user: samples of 16 bits at 16 kHz."""
        ...

    def predict(self) -> bool | Awaitable[bool]:
        """Whether the sentence sounds finished; sync or async.

        If not, the client is told to listen (``SkipAnswer``), and answered after ``turn_max_wait`` anyway.
        """
        ...

    def reset(self) -> None:
        """A new turn begins."""
        ...


class Classifier(Protocol):
    """Answers questions about each turn of the user, beside the agent.

    Source: Micdrop ``Classifier``.
    """

    async def classify(self, text: str) -> Any:
        """The result for what the user said, as JSON values."""
        ...
