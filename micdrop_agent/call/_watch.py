"""The clocks of one call in one task: transcripts, voices, a client that waits, silence, the end.

Who sets a deadline calls ``arm(at)``; the task sleeps until the earliest one, and looks at all of
them when it wakes. A deadline that has moved away in the meantime costs one look.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import anyio

if TYPE_CHECKING:
    from micdrop_agent.call._session import Session

__all__ = ["Watch"]

TAIL: Final = 0.25
"""Seconds after the last audio for which a call that is to leave waits: the way to the client takes time too."""


class Watch:
    """Runs the clocks of ``session``."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._until = -math.inf
        """What the task sleeps until; it looks at everything before it sleeps for the first time."""
        self._wake: anyio.Event | None = None
        self._said_idle = 0
        self._active_at = 0.0
        """When the caller, or the silence, began."""
        self.leaving = False
        """The call is to end with this turn."""

    def arm(self, at: float) -> None:
        """Look at the clocks at ``at``, or before."""
        if at < self._until and self._wake is not None:
            self._wake.set()

    def active(self) -> None:
        """The caller has spoken: silence begins again."""
        self._said_idle = 0

    def leave(self) -> None:
        """End the call as soon as its turn is over."""
        self.leaving = True
        self.arm(0.0)

    async def run(self) -> None:
        """The task."""
        while True:
            now = self._session.clock()
            self._timers(now)
            self._wake = anyio.Event()
            self._until = self._next(self._session.clock())
            with anyio.CancelScope(deadline=self._until):
                await self._wake.wait()

    def _next(self, now: float) -> float:
        session = self._session
        at = min(session.mouth.next_timer(now), session.ear.next_timer(), self._idle_at(now))
        return min(at, self._over_at(now)) if self.leaving else at

    def _timers(self, now: float) -> None:
        session = self._session
        session.ear.timers(now)
        session.mouth.timers(now)
        if now >= self._idle_at(now):
            self._idle()
        if self.leaving and now >= self._over_at(now):
            session.stop()

    def _over_at(self, now: float) -> float:
        """When the turn is over: nobody speaks, nobody waits, and everything was sent and heard."""
        ear, mouth = self._session.ear, self._session.mouth
        if ear.is_busy or mouth.is_busy or mouth.hung_up or not mouth.outbox.is_idle:
            return math.inf
        return mouth.playback.ends_at(now) + TAIL

    def _idle_at(self, now: float) -> float:
        """When the silence has lasted long enough."""
        session, idle = self._session, self._session.options.idle
        if idle is None or self._said_idle > idle.times or not session.ear.is_silent:
            return math.inf
        mouth = session.mouth
        if mouth.current is not None or mouth.texts or mouth.held is not None or mouth.end_due:
            return math.inf
        quiet_since = max(mouth.quiet_since, session.ear.quiet_since, mouth.playback.ends_at(now))
        return quiet_since + idle.after

    def _idle(self) -> None:
        session, idle = self._session, self._session.options.idle
        assert idle is not None
        self._said_idle += 1
        if self._said_idle <= idle.times:
            session.mouth.quiet_since = self._session.clock()
            if idle.say is not None:
                session.say_and_store(idle.say)
        elif idle.end:
            session.end_call()
