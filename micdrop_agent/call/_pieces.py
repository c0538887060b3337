"""How the text of an answer is cut for the voice. No I/O.

``micdrop_agent.speech`` does it in sentences, without what is only for the eye; it needs an extra.
"""

from __future__ import annotations

import functools
from importlib.util import find_spec
from typing import TYPE_CHECKING, Protocol

from micdrop_agent.speech import Speech

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["AsItComes", "Splitter", "splitter_factory"]


class Splitter(Protocol):
    """Cuts one text that comes in chunks; ``SpeechFilter`` is one."""

    def feed(self, text: str, /) -> Iterable[str]:
        """The pieces that are complete with this chunk."""
        ...

    def finish(self) -> Iterable[str]:
        """The rest, at the end of the text."""
        ...

    def original(self, spoken: int, /) -> int:
        """How many characters of the text the first ``spoken`` characters of the pieces stand for."""
        ...


class AsItComes:
    """Hands each chunk over as it is, for voices that cut texts themselves: ``Call(speech=AsItComes)``."""

    def feed(self, text: str, /) -> Iterable[str]:
        """The chunk."""
        return (text,) if text else ()

    def finish(self) -> Iterable[str]:
        """Nothing."""
        return ()

    def original(self, spoken: int, /) -> int:
        """The same."""
        return spoken


def splitter_factory(speech: Speech | Callable[[], Splitter] | None) -> Callable[[], Splitter]:
    """What makes the splitter of one text, for the option ``speech`` of a call."""
    if isinstance(speech, Speech):
        return speech.filter
    if speech is not None:
        return speech
    return Speech().filter if _has_sentences() else AsItComes


@functools.cache
def _has_sentences() -> bool:
    return find_spec("sentencex") is not None
