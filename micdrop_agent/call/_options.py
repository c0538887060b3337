"""The options of a call, checked when it is made."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, TypedDict

import attrs

from micdrop_agent._core.agent import Agent
from micdrop_agent._core.core import core_of
from micdrop_agent.call._pieces import AsItComes, splitter_factory
from micdrop_agent.options import check_count, check_flag, check_seconds, check_text
from micdrop_agent.speech import Speech

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Required

    from micdrop_agent.call._pieces import Splitter
    from micdrop_agent.call._protocol import Classifier, SpeechToText, TextToSpeech, TurnDetector

__all__ = ["CallOptions", "Idle", "Options", "check_part"]


@attrs.frozen(kw_only=True)
class Idle:
    """What happens when nobody says anything.

    Raises:
        TypeError: An option has the wrong type.
        ValueError: An option is out of range; the message names it.
    """

    after: float = attrs.field()
    """Seconds of silence, from the moment at which the caller has heard everything."""

    say: str | None = attrs.field(default=None)
    """Said, and stored as a message of the assistant; ``None``: nothing."""

    times: int = attrs.field(default=1)
    """How often, until the caller speaks again."""

    end: bool = attrs.field(default=False)
    """After that, end the call: ``EndCall`` is sent."""

    def __attrs_post_init__(self) -> None:
        check_seconds("after", self.after, zero=False)
        if self.say is not None:
            check_text("say", self.say, empty=False)
        check_count("times", self.times, least=0)
        check_flag("end", self.end)


class CallOptions(TypedDict, total=False):
    """The options of ``Call`` for type checkers; ``Options`` has their defaults."""

    agent: Agent | None
    stt: Required[SpeechToText]
    tts: TextToSpeech | None
    first_message: str | None
    generate_first_message: bool
    speech: Speech | Callable[[], Splitter] | None
    partial_messages: bool
    send_tools: bool
    send_system: bool
    turn_detector: TurnDetector | None
    turn_max_wait: float
    classifier: Classifier | None
    send_classification: bool
    idle: Idle | None
    backchannel: Callable[[str], bool] | None
    min_words: int
    speculate: bool
    failure_text: str | None
    end_on_failure: bool
    transcript_timeout: float
    first_audio_timeout: float
    audio_gap_timeout: float
    reply_timeout: float
    max_turn: float
    audio_buffer: float


@attrs.frozen(kw_only=True)
class Options:
    """The options of ``Call``, which documents them."""

    agent: Agent | None = None
    stt: SpeechToText
    tts: TextToSpeech | None = None
    first_message: str | None = None
    generate_first_message: bool = False
    speech: Speech | Callable[[], Splitter] | None = None
    partial_messages: bool = False
    send_tools: bool = False
    send_system: bool = False
    turn_detector: TurnDetector | None = None
    turn_max_wait: float = 4.0
    classifier: Classifier | None = None
    send_classification: bool = True
    idle: Idle | None = None
    backchannel: Callable[[str], bool] | None = None
    min_words: int = 0
    speculate: bool = False
    failure_text: str | None = None
    end_on_failure: bool = False
    transcript_timeout: float = 10.0
    first_audio_timeout: float = 5.0
    audio_gap_timeout: float = 5.0
    reply_timeout: float = 30.0
    max_turn: float = 120.0
    audio_buffer: float = 10.0

    def __attrs_post_init__(self) -> None:
        self._check_parts()
        for name in ("first_message", "failure_text"):
            if getattr(self, name) is not None:
                check_text(name, getattr(self, name))
        for name in _FLAGS:
            check_flag(name, getattr(self, name))
        for name in _SECONDS:
            check_seconds(name, getattr(self, name), zero=False)
        check_count("min_words", self.min_words, least=0)
        if self.idle is not None and not isinstance(self.idle, Idle):
            raise TypeError(f"idle must be an Idle(after=...), not {self.idle!r}")
        if self.first_message is not None and self.generate_first_message:
            raise ValueError("first_message and generate_first_message exclude each other")

    def _check_parts(self) -> None:
        agent: object = self.agent
        if agent is not None and not isinstance(agent, Agent):
            raise TypeError(f"agent must be an Agent, not {agent!r}")
        check_part("stt", self.stt, "transcribe")
        if self.tts is not None:
            check_part("tts", self.tts, "synthesize")
        if self.turn_detector is not None:
            check_part("turn_detector", self.turn_detector, "push", "predict", "reset")
        if self.classifier is not None:
            check_part("classifier", self.classifier, "classify")
        if self.speech is not None and not callable(self.speech) and not isinstance(self.speech, Speech):
            raise TypeError(f"speech must be a Speech, or a function that makes a splitter, not {self.speech!r}")
        predicate: object = self.backchannel
        if predicate is not None and (not callable(predicate) or inspect.iscoroutinefunction(predicate)):
            raise TypeError(f"backchannel must be a plain function of a text, not {predicate!r}")

    @property
    def is_backchannel(self) -> Callable[[str], bool] | None:
        """Whether a text is only a sound of agreement; ``None``: every sound interrupts."""
        if self.backchannel is None and not self.min_words:
            return None
        return self._matches_backchannel

    def _matches_backchannel(self, text: str) -> bool:
        if len(text.split()) < self.min_words:
            return True
        return self.backchannel is not None and self.backchannel(text)

    @property
    def voice_keeps_time(self) -> bool:
        """Whether the text-to-speech has clocks of its own, as a supervisor of several has."""
        return getattr(self.tts, "keeps_time", False) is True

    @property
    def hearing_keeps_time(self) -> bool:
        """Whether the speech-to-text has clocks of its own."""
        return getattr(self.stt, "keeps_time", False) is True

    def new_splitter(self) -> Splitter:
        """What cuts one text for the voice."""
        if self.speech is None and self.agent is not None and core_of(self.agent).options.speech is not None:
            return AsItComes()  # the agent's answers come in sentences
        return splitter_factory(self.speech)()


_FLAGS = (
    "generate_first_message",
    "partial_messages",
    "send_tools",
    "send_system",
    "send_classification",
    "speculate",
    "end_on_failure",
)
_SECONDS = (
    "turn_max_wait",
    "transcript_timeout",
    "first_audio_timeout",
    "audio_gap_timeout",
    "reply_timeout",
    "max_turn",
    "audio_buffer",
)


def check_part(name: str, value: Any, *methods: str) -> None:
    """Refuse ``value`` unless it is an object with these methods."""
    if isinstance(value, type) or not all(callable(getattr(value, method, None)) for method in methods):
        wanted = " and ".join(f"{method}()" for method in methods)
        raise TypeError(f"{name} must be an object with {wanted}, not {value!r}")
