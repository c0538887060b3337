"""Ids for tool calls that came without one."""

from __future__ import annotations

import random
from typing import Final

__all__ = ["new_call_id"]

_RANDOM: Final = random.SystemRandom()  # as `secrets` has it, whose HMAC costs 4 ms of import
_ALPHABET: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"


def new_call_id() -> str:
    """A new id: nine alphanumerics, which every provider accepts."""
    return "".join(_RANDOM.choices(_ALPHABET, k=9))
