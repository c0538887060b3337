"""A call over a WebSocket of Starlette (or FastAPI), under uvicorn and under hypercorn on Trio."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import anyio

from micdrop_agent._extras import install_command
from micdrop_agent.call._params import CallRefusedError, close_code, is_moved
from micdrop_agent.errors import MicdropError

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from starlette.websockets import WebSocket

__all__ = ["StarletteLink", "starlette_link"]

CLOSE_TIMEOUT = 1.0
"""Seconds that the close frame may take to a client that does not read."""


class StarletteLink:
    """A ``Link`` over ``websocket``; see ``starlette_link``."""

    def __init__(self, websocket: WebSocket) -> None:
        self._websocket = websocket
        self._closed = False

    async def __aenter__(self) -> Self:
        """Accept the connection."""
        await self._websocket.accept()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        """Close the connection with the code that says why; a refusal is not an error of the server."""
        code, reason = close_code(error)
        with anyio.move_on_after(CLOSE_TIMEOUT, shield=True):
            await self.close(code, reason)
        return isinstance(error, CallRefusedError | anyio.EndOfStream) or is_moved(error)

    async def receive(self) -> str | bytes:
        """The next frame.

        Raises:
            anyio.EndOfStream: The client has gone.
        """
        if self._closed:
            raise anyio.EndOfStream
        message: Any = await self._websocket.receive()
        if message["type"] == "websocket.disconnect":
            self._closed = True
            raise anyio.EndOfStream
        text = message.get("text")
        return message["bytes"] if text is None else text  # type: ignore[no-any-return]  # of an ASGI message

    async def send(self, frame: str | bytes) -> None:
        """Send a frame.

        Raises:
            anyio.BrokenResourceError: The client has gone.
        """
        from starlette.websockets import WebSocketDisconnect

        try:
            if isinstance(frame, str):
                await self._websocket.send_text(frame)
            else:
                await self._websocket.send_bytes(frame)
        except (WebSocketDisconnect, RuntimeError, OSError) as error:
            # Servers raise one of these once the connection is closed, and none before.
            raise anyio.BrokenResourceError from error

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """Close the connection; does nothing if it is closed already."""
        from starlette.websockets import WebSocketDisconnect

        if self._closed:
            return
        self._closed = True
        try:
            await self._websocket.close(code, reason)
        except (WebSocketDisconnect, RuntimeError, OSError):
            return  # the client was faster


def starlette_link(websocket: WebSocket) -> StarletteLink:
    """The link of a call over a WebSocket of Starlette.

        async def endpoint(websocket: WebSocket) -> None:
            async with starlette_link(websocket) as link:
                await Call(link, agent=agent, stt=stt, tts=tts).run()

    Entering it accepts the connection, leaving it closes the connection: with 1000 after a call,
    with the code of a ``CallRefusedError``, with 1001 if the server is shut down or another worker
    has the call (``CallMovedError``; the client reconnects), and with 1011 after any other error, which goes on.

    Raises:
        MicdropError: Starlette is not installed; the message has the command that installs it.
    """
    try:
        import_module("starlette.websockets")
    except ImportError as error:
        raise MicdropError(f"starlette_link needs Starlette; run: {install_command('call')}") from error
    return StarletteLink(websocket)
