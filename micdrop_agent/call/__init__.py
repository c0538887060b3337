"""A whole voice call: the protocol of the Micdrop browser client, on the agent's own concurrency.

    link ──▶ Call ──▶ SpeechToText ──▶ Agent ──▶ TextToSpeech ──▶ link

The names are loaded when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from micdrop_agent._late import late_names

if TYPE_CHECKING:
    from micdrop_agent.call._backchannels import backchannels
    from micdrop_agent.call._call import Call
    from micdrop_agent.call._drain import Drain
    from micdrop_agent.call._fallback_stt import FallbackSTT
    from micdrop_agent.call._fallback_tts import FallbackTTS
    from micdrop_agent.call._hearing import Hearing
    from micdrop_agent.call._options import Idle
    from micdrop_agent.call._params import CallRefusedError, params
    from micdrop_agent.call._pieces import AsItComes, Splitter
    from micdrop_agent.call._protocol import Classifier, Link, SpeechToText, TextToSpeech, TurnDetector
    from micdrop_agent.call._result import CallResult, CallTurn
    from micdrop_agent.call._starlette import starlette_link
    from micdrop_agent.call._voice import Voice

__all__ = [
    "AsItComes",
    "Call",
    "CallRefusedError",
    "CallResult",
    "CallTurn",
    "Classifier",
    "Drain",
    "FallbackSTT",
    "FallbackTTS",
    "Hearing",
    "Idle",
    "Link",
    "SpeechToText",
    "Splitter",
    "TextToSpeech",
    "TurnDetector",
    "Voice",
    "backchannels",
    "params",
    "starlette_link",
]

_HOME: Final = {
    "_backchannels": ("backchannels",),
    "_call": ("Call",),
    "_drain": ("Drain",),
    "_fallback_stt": ("FallbackSTT",),
    "_fallback_tts": ("FallbackTTS",),
    "_hearing": ("Hearing",),
    "_options": ("Idle",),
    "_params": ("CallRefusedError", "params"),
    "_pieces": ("AsItComes", "Splitter"),
    "_protocol": ("Classifier", "Link", "SpeechToText", "TextToSpeech", "TurnDetector"),
    "_result": ("CallResult", "CallTurn"),
    "_starlette": ("starlette_link",),
    "_voice": ("Voice",),
}

__getattr__ = late_names(__name__, {name: f".{module}" for module, names in _HOME.items() for name in names})


def __dir__() -> list[str]:
    return sorted(__all__)
