"""The place of one live call in a worker, and what a drain does to it."""

from __future__ import annotations

import logging
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

from micdrop_agent._core.log import SafeLog

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Seat", "current_seat", "log"]

log: Final = SafeLog(logging.getLogger("micdrop_agent.drain"))

current_seat: ContextVar[Seat | None] = ContextVar("micdrop_seat", default=None)
"""The seat of the WebSocket that this task serves; set by ``Drain.wrap()``."""


class Seat:
    """One live call, or one WebSocket on which a call may come to be.

    Args:
        owner: The ``Drain`` that it counts for.
        force: Closes its connection whatever the call does; ``None`` if the call is all there is.

    Attributes:
        told: It was asked to leave, or was cut.
    """

    __slots__ = ("_cut", "_force", "_leave", "owner", "told")

    def __init__(self, owner: object, force: Callable[[], object] | None = None) -> None:
        self.owner = owner
        self.told = False
        self._force = force
        self._leave: Callable[[], object] | None = None
        self._cut: Callable[[], object] | None = None

    def bind(self, leave: Callable[[], object] | None, cut: Callable[[], object] | None) -> None:
        """``leave`` ends its call with the turn, ``cut`` at once."""
        self._leave, self._cut = leave, cut

    def leave(self) -> None:
        """Ask it to end with its turn; one that knows no turns has until the deadline."""
        self._do(self._leave)

    def cut(self) -> None:
        """End it now."""
        self._do(self._force if self._cut is None else self._cut)

    def force(self) -> None:
        """Close its connection: it did not end when it was cut."""
        self._do(self._force)

    def _do(self, what: Callable[[], object] | None) -> None:
        if what is None:
            return
        self.told = True
        try:
            what()
        except Exception:  # foreign code: one call that cannot leave must not keep the others
            log.exception("a call could not be told to leave")
