"""The events of an agent as an async stream that may be dropped at any time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anyio.abc import ObjectReceiveStream

from micdrop_agent.events import Event

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream

__all__ = ["EventStream"]


class EventStream(ObjectReceiveStream[Event]):
    """What ``agent.events()`` returns; ends when the agent is closed.

    Leaving it unread or leaving its loop early is legal and warns of nothing.
    """

    def __init__(self, inbox: MemoryObjectReceiveStream[Event]) -> None:
        self._inbox = inbox

    async def receive(self) -> Event:
        """The next event.

        Raises:
            anyio.EndOfStream: The agent was closed.
        """
        return await self._inbox.receive()

    async def aclose(self) -> None:
        """Stop listening."""
        self._inbox.close()

    def __del__(self) -> None:
        self._inbox.close()
