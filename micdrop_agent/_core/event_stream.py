"""The events of an agent as an async stream that may be dropped at any time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
from anyio.abc import ObjectReceiveStream

from micdrop_agent._interrupts import defer_interrupts
from micdrop_agent.events import Event

if TYPE_CHECKING:
    from micdrop_agent._core.event_hub import Inbox

__all__ = ["EventStream"]


@defer_interrupts
class EventStream(ObjectReceiveStream[Event]):
    """What ``agent.events()`` returns; ends when the agent is closed.

    Leaving it unread or leaving its loop early is legal and warns of nothing.
    """

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox

    async def receive(self) -> Event:
        """The next event; none is lost when a reader is cancelled here.

        Raises:
            anyio.EndOfStream: The agent was closed, and every event before that was read.
            anyio.ClosedResourceError: ``aclose()`` was called.
        """
        await anyio.lowlevel.checkpoint()
        inbox = self._inbox
        while not inbox.dropped:
            if inbox.waiting:
                return inbox.waiting.popleft()
            if inbox.ended:
                raise anyio.EndOfStream
            await inbox.wait()
        raise anyio.ClosedResourceError

    async def aclose(self) -> None:
        """Stop listening."""
        self._drop()

    def _drop(self) -> None:
        self._inbox.dropped = True
        self._inbox.waiting.clear()
        self._inbox.changed()

    def __del__(self) -> None:
        self._drop()
