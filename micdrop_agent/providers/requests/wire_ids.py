"""Ids of tool calls as they go over the wire: never empty, never used twice, in the form asked for.

Local servers count their ids from zero in every answer, some send none, and Mistral takes nothing but
nine letters and digits. The stored ids stay as they are; the mapping is the same in every request.
"""

from __future__ import annotations

import re
from collections import ChainMap
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping

__all__ = ["WireIds", "as_made", "letters_and_digits", "nine_alphanumerics", "up_to_40", "up_to_64"]

_OPENAIS: Final = ("call_", "fc_")
_PLAIN: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_NINE: Final = re.compile(r"[a-zA-Z0-9]{9}")
_ALPHABET: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
_MAX_ID: Final = 64
_MAX_CHAT_ID: Final = 40


def as_made(call_id: str) -> str:
    """The id as its server made it: Moonshot's models, for one, read the name of the tool in it.

    Only a long one of OpenAI's is shortened: it comes from another server, and copies of OpenAI's API may
    have its limit.
    """
    return up_to_40(call_id) if call_id.startswith(_OPENAIS) else call_id or "call"


def letters_and_digits(call_id: str) -> str:
    """The form that Anthropic asks for: letters, digits, ``_`` and ``-``."""
    if _PLAIN.fullmatch(call_id):
        return call_id
    return "call_" + _digest(call_id)[:16].hex() if call_id else "call"


def nine_alphanumerics(call_id: str) -> str:
    """The form that Mistral asks for; an id that has it stays."""
    if _NINE.fullmatch(call_id):
        return call_id
    number = int.from_bytes(_digest(call_id)[:8])
    digits: list[str] = []
    for _ in range(9):
        number, digit = divmod(number, len(_ALPHABET))
        digits.append(_ALPHABET[digit])
    return "".join(digits)


def up_to_64(call_id: str) -> str:
    """The limit of the Responses API; other providers sign their ids, and reach some hundred characters."""
    return _up_to(_MAX_ID, call_id)


def up_to_40(call_id: str) -> str:
    """The limit of Chat Completions, which is shorter than ids of the Responses API are."""
    return _up_to(_MAX_CHAT_ID, call_id)


def _up_to(limit: int, call_id: str) -> str:
    if len(call_id) <= limit:
        return call_id or "call"
    return "call_" + _digest(call_id)[:16].hex()


def _digest(call_id: str) -> bytes:
    import hashlib

    return hashlib.sha256(call_id.encode("utf-8", "replace")).digest()


class WireIds:
    """Gives every call of a conversation its id on the wire; ask once per call, in order.

    Args:
        form: Brings an id into the form that the provider takes.
    """

    __slots__ = ("_form", "_parent", "_taken", "_uses")

    def __init__(self, form: Callable[[str], str]) -> None:
        self._form = form
        self._parent: WireIds | None = None
        """Whose ids are to be known too, until the first one is asked for: most requests have no calls."""
        self._taken: MutableMapping[str, bool] = {}
        self._uses: MutableMapping[str, int] = {}

    def next(self, call_id: str) -> str:
        """The id on the wire of the next call, whose stored id is ``call_id``."""
        if self._parent is not None:
            self._taken = ChainMap({}, self._parent._taken)
            self._uses = ChainMap({}, self._parent._uses)
            self._parent = None
        while True:
            use = self._uses.get(call_id, 0) + 1
            self._uses[call_id] = use
            made = self._form(call_id if use == 1 and call_id else f"{call_id or 'call'}_{use}")
            if made not in self._taken:
                self._taken[made] = True
                return made

    def fork(self) -> WireIds:
        """A copy for the part of a conversation that may still change."""
        copy = WireIds(self._form)
        copy._parent = self
        return copy
