"""A side that may have an effect until it is fenced: what ``Hearing`` and ``Voice`` have in common with ``Turn``.

A rival is fenced when what it works for was cut off, or when its attempt failed or lost. Nothing
done through a fenced rival has any effect, whatever task it runs in and whether or not the
cancellation has been delivered. The first effect claims the work for it, and fences the others of
its race in the same step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import anyio

    from micdrop_agent._core.race import Race

__all__ = ["Rival"]


class Rival:
    """One side of the work.

    Args:
        scope: Cancels the work; the rival has no effect once that was called.
        parent: The rival on whose behalf this one works.
        race: Those that try the same.

    Attributes:
        fenced: Whether this side has lost its effect: cut off, failed, or out of the race.
        claimed: Whether it has had an effect.
    """

    __slots__ = ("_children", "_parent", "_race", "claimed", "fenced", "scope")

    def __init__(self, scope: anyio.CancelScope, parent: Rival | None = None, race: Race[Any] | None = None) -> None:
        self.scope = scope
        self._parent = parent
        self._race = race
        self._children: list[Rival] = []
        self.fenced = False
        self.claimed = False
        if parent is not None:
            parent._children.append(self)
            self.fenced = parent.fenced
        if race is not None:
            race.rivals.append(self)

    def fence(self) -> None:
        """Take all effect from this rival and from those that work for it."""
        self.fenced = True
        for child in self._children:
            child.fence()

    def stop(self) -> None:
        """Cancel the work."""
        self.scope.cancel()

    def claim(self) -> bool:
        """Make this rival the one that counts; ``False`` if it may not have any effect."""
        if self.claimed:
            return not self.fenced
        if not self._alive():
            return False
        rival: Rival | None = self
        while rival is not None and not rival.claimed:
            rival.claimed = True
            if rival._race is not None:
                rival._race.won_by(rival)
                rival._race.tell()
            rival = rival._parent
        return not self.fenced

    def _alive(self) -> bool:
        rival: Rival | None = self
        while rival is not None:
            if rival.fenced or rival.scope.cancel_called:
                return False
            rival = rival._parent
        return True
