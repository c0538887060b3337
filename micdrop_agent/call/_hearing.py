"""What a speech-to-text reports of one stretch of speech; its audio, and the record of it.

client ──push──▶ Listening ──audio──▶ SpeechToText ──final(text)──▶ Hearing ──▶ the call
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Protocol

import anyio

from micdrop_agent._core.scopes import task_scope
from micdrop_agent.call._rival import Rival
from micdrop_agent.options import check_text

if TYPE_CHECKING:
    from micdrop_agent._core.race import Race
    from micdrop_agent.call._result import TurnRecord

__all__ = ["Hearing", "Listening"]


class HearingSink(Protocol):
    """Who receives what was heard."""

    def heard_partial(self, text: str) -> None:
        """As ``Hearing.partial``."""
        ...

    def heard_final(self, text: str) -> None:
        """As ``Hearing.final``."""
        ...


class Hearing(Rival):
    """Takes the text of one stretch of speech, from ``StartSpeaking`` on.

    It stays valid when the user stops, and when the user speaks again: words that were said count.
    It is fenced when the call ends, when it took too long, or when another speech-to-text has
    taken over; from then on nothing it is given has an effect.
    """

    __slots__ = ("_sink",)

    def __init__(
        self,
        sink: HearingSink,
        scope: anyio.CancelScope,
        parent: Hearing | None = None,
        race: Race[Hearing] | None = None,
    ) -> None:
        super().__init__(scope, parent, race)
        self._sink = sink

    def partial(self, text: str) -> None:
        """What was understood so far of the words that are being said; may change."""
        check_text("text", text)
        if self.claim():
            self._sink.heard_partial(text)

    def final(self, text: str) -> None:
        """Words that are said and will not change; may be called for each sentence.

        The text becomes a message of the user. A blank one says that nothing was said.
        """
        check_text("text", text)
        if self.claim():
            self._sink.heard_final(text)


class Listening:
    """One stretch of speech of the user: from StartSpeaking to StopSpeaking or Mute.

    Args:
        sink: The call.
        record: Where its times are noted.
        max_bytes: Audio that is taken; more is dropped (C7).
    """

    __slots__ = (
        "_audio",
        "_max_bytes",
        "_sink",
        "audio",
        "bytes",
        "deadline",
        "error",
        "finals",
        "full",
        "hearing",
        "over",
        "record",
        "scope",
    )

    def __init__(self, sink: _ListeningSink, record: TurnRecord, max_bytes: int) -> None:
        self._sink = sink
        self._max_bytes = max_bytes
        self.record = record
        self.scope = task_scope()
        self.hearing = Hearing(self, self.scope)
        self._audio, self.audio = anyio.create_memory_object_stream[bytes](math.inf)
        self.bytes = 0
        self.finals = 0
        """Final texts since the user stopped."""
        self.deadline = math.inf
        """When the speech-to-text has to be done; from the end of the audio on."""
        self.over = False
        self.full = False
        """It had more audio than one turn may have."""
        self.error: Exception | None = None

    def push(self, pcm: bytes) -> bool:
        """More audio; ``False`` if the turn has too much already."""
        if self.bytes + len(pcm) > self._max_bytes:
            return False
        self.bytes += len(pcm)
        if not self.over:
            self._audio.send_nowait(pcm)
        return True

    def end_audio(self, deadline: float) -> None:
        """The user has stopped."""
        self._audio.close()
        self.deadline = deadline

    def stop(self) -> None:
        """Nothing more is wanted of it."""
        self.over = True
        self.hearing.fence()
        self.scope.cancel()
        self._audio.close()

    def close(self) -> None:
        """The speech-to-text is done: close both ends of the audio."""
        self.over = True
        self._audio.close()
        self.audio.close()

    def heard_partial(self, text: str) -> None:
        self._sink.on_partial(self, text)

    def heard_final(self, text: str) -> None:
        self._sink.on_final(self, text)


class _ListeningSink(Protocol):
    def on_partial(self, listening: Listening, text: str) -> None: ...
    def on_final(self, listening: Listening, text: str) -> None: ...
