"""``Drain`` around an ASGI application: its lifespan, its WebSockets, and the signal that stops the server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import anyio
import attrs

from micdrop_agent.call._params import GOING_AWAY
from micdrop_agent.call._seats import current_seat, log

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from micdrop_agent.call._drain import Drain
    from micdrop_agent.call._seats import Seat
    from micdrop_agent.call._stop_signal import StopSignal

__all__ = ["AsgiApp", "Drained", "Inside"]

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
AsgiApp: TypeAlias = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

CLOSE_TIMEOUT: Final = 1.0
"""Seconds that the close frame may take to a client that does not read."""

RETRY_AFTER: Final = b"1"
"""Seconds that a refused client or balancer is asked to wait; the browser client waits as long."""


@attrs.frozen(kw_only=True)
class Inside:
    """What of a ``Drain`` only this module needs."""

    take: Callable[[Callable[[], object]], AbstractContextManager[Seat]]
    """Takes the seat of a connection, given what closes that."""

    spawn: Callable[[Callable[[], Coroutine[Any, Any, None]]], None]
    """Runs something beside the drain."""

    signal: StopSignal | None
    """Takes SIGTERM from the server; ``None``: it stays there."""


class Drained:
    """An ASGI application; see ``Drain.wrap``."""

    def __init__(self, drain: Drain, app: AsgiApp, inside: Inside) -> None:
        self._drain = drain
        self._app = app
        self._inside = inside

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Serve one connection, or the lifespan."""
        if scope["type"] == "websocket":
            await self._websocket(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._lifespan(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _websocket(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        drain = self._drain
        socket = _Socket(scope, send)
        if drain.refuses is not None:
            drain.refused += 1
            if (await receive())["type"] == "websocket.connect":
                await socket.refuse()
            return
        with self._inside.take(lambda: self._inside.spawn(socket.close)) as seat:
            token = current_seat.set(seat)
            try:
                await self._app(scope, receive, socket.send)
            finally:
                current_seat.reset(token)

    async def _lifespan(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        signal = self._inside.signal
        life = _Life(receive, send, anyio.Event() if signal is None else signal.stopping)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._drain)
            if signal is not None:
                await stack.enter_async_context(signal)
            try:
                await self._app(scope, life.receive, life.send)
            except Exception:  # foreign code: the application
                if life.answered:
                    raise
                # As the specification has it, such an application is served without a lifespan.
                log.debug("the application has no lifespan", exc_info=True)
                await life.serve()
        await life.end()


class _Life:
    """The lifespan messages of the server, on their way to the application; sets ``stopping`` when it stops."""

    def __init__(self, receive: Receive, send: Send, stopping: anyio.Event) -> None:
        self._receive = receive
        self._send = send
        self._asked = False
        self.answered = False
        """The application has said whether it could start."""
        self._last: Message | None = None
        self._stopping = stopping

    async def receive(self) -> Message:
        """The next message of the server."""
        message = await self._receive()
        self._asked = True
        if message["type"] == "lifespan.shutdown":
            self._stopping.set()
        return message

    async def send(self, message: Message) -> None:
        """An answer of the application."""
        self.answered = True
        if message["type"].startswith("lifespan.shutdown."):
            self._last = message
        else:
            await self._send(message)

    async def end(self) -> None:
        """Tell the server that it may end, after which hypercorn cancels what it finds still running."""
        if self._last is not None:
            await self._send(self._last)

    async def serve(self) -> None:
        """Answer in place of an application that cannot."""
        if not self._asked:
            await self.receive()
        await self.send({"type": "lifespan.startup.complete"})
        await self.receive()
        await self.send({"type": "lifespan.shutdown.complete"})


class _Socket:
    """The way from the application to one client; a drain may close it."""

    def __init__(self, scope: MutableMapping[str, Any], send: Send) -> None:
        self._scope = scope
        self._send = send
        self._accepted = self._over = self._closed = False

    async def send(self, message: Message) -> None:
        """Send a message of the application.

        Raises:
            OSError: The drain has closed the connection.
        """
        kind = message["type"]
        if self._closed:
            if kind == "websocket.close":
                return
            raise OSError("the connection is closed: this worker stops")
        if kind == "websocket.accept":
            self._accepted = True
        elif kind != "websocket.send":  # it closes, or refuses
            self._over = True
        await self._send(message)

    async def close(self) -> None:
        """Close the connection so that the client comes back; nothing if the application has closed it."""
        if self._over or self._closed:
            return
        self._closed = True
        try:
            with anyio.move_on_after(CLOSE_TIMEOUT):
                if self._accepted:
                    await self._send({"type": "websocket.close", "code": GOING_AWAY, "reason": ""})
                else:
                    await self.refuse()
        except Exception:  # noqa: BLE001 - of any server: the client was faster
            log.debug("a connection was closed already", exc_info=True)

    async def refuse(self) -> None:
        """Refuse the connection: 503, which a balancer understands, or accepted and closed with 1001."""
        if "websocket.http.response" in (self._scope.get("extensions") or {}):
            headers = [(b"retry-after", RETRY_AFTER), (b"content-length", b"0"), (b"connection", b"close")]
            await self._send({"type": "websocket.http.response.start", "status": 503, "headers": headers})
            await self._send({"type": "websocket.http.response.body", "body": b""})
        else:
            await self._send({"type": "websocket.accept"})
            await self._send({"type": "websocket.close", "code": GOING_AWAY, "reason": ""})
