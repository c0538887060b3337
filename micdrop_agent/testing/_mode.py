"""The mode of cassettes that say nothing of it. Apart, since pytest sets it in every project of an environment."""

from __future__ import annotations

from typing import Literal, TypeAlias

__all__ = ["CassetteMode", "DefaultMode"]

CassetteMode: TypeAlias = Literal["once", "replay", "record"]
"""``once`` records if there is no file yet, ``replay`` never records, ``record`` always does."""


class DefaultMode:
    """One setting for the process; ``pytest --cassette-mode`` sets it."""

    mode: CassetteMode | None = None
