"""How the text of an answer is cut for the voice: a seam for ``micdrop_agent.speech``. No I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from micdrop_agent.call._voice import Piece

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["AsItComes", "Splitter"]


class Splitter(Protocol):
    """Cuts one text that comes in chunks; the sources of all pieces, joined, are the text."""

    def feed(self, chunk: str) -> Iterable[Piece]:
        """The pieces that are complete with ``chunk``."""
        ...

    def finish(self) -> Iterable[Piece]:
        """The rest, at the end of the text."""
        ...


class AsItComes:
    """Hands each chunk over as it is, for voices that cut texts themselves."""

    def feed(self, chunk: str) -> Iterable[Piece]:
        """The chunk."""
        return (Piece(chunk, chunk),) if chunk else ()

    def finish(self) -> Iterable[Piece]:
        """Nothing."""
        return ()
