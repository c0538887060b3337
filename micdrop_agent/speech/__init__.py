"""Text for a voice: sentences as soon as they are certain, without what is only for the eye.

    from micdrop_agent import speech

    async for sentence in speech.sentences(agent.answer()):   # pip install 'micdrop-agent[speech]'
        await voice.say(sentence)

``Sentences`` and ``Speakable`` are the two halves, without I/O; ``Speech`` says how both are used.
"""

from __future__ import annotations

from micdrop_agent.speech._sentences import Sentences
from micdrop_agent.speech._speakable import Speakable
from micdrop_agent.speech._speech import Speech, SpeechFilter, SpokenAnswer, sentences

__all__ = ["Sentences", "Speakable", "Speech", "SpeechFilter", "SpokenAnswer", "sentences"]
