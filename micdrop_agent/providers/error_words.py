"""Codes for errors whose meaning stands in their words only; no I/O.

A kind follows from a code or a status, never from words, which change and are translated. The exception is a
conversation that is too long: Anthropic, Gemini, vLLM and Bedrock have no code for it, only
``invalid_request_error`` and the like, and a call can go on if it is known (the request is shortened).
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["codes_of_words"]

_TOO_LONG: Final = re.compile(
    r"prompt is too long|exceed context limit"  # Anthropic
    r"|input token count.{0,60}exceeds|exceeds the maximum number of tokens allowed"  # Gemini
    r"|maximum context length"  # OpenAI, vLLM, Mistral, OpenRouter
    r"|input is too long for",  # Bedrock
    re.IGNORECASE,
)


def codes_of_words(message: str) -> tuple[str, ...]:
    """The code that ``message`` stands for, if it is one of those."""
    return ("context_length_exceeded",) if _TOO_LONG.search(message[:2000]) else ()
