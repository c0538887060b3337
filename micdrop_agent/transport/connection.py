"""One connection: opening it within its time, telling whether it still lives, closing it for sure."""

from __future__ import annotations

import contextlib
import math
import os
import re
import select
import socket
from typing import TYPE_CHECKING, Any, Final, cast

import anyio
from anyio.abc import SocketAttribute

from micdrop_agent._event_loop import running_loop
from micdrop_agent.errors import ProviderError
from micdrop_agent.options import CLOSE_TIMEOUT

if TYPE_CHECKING:
    import ssl

    from anyio.abc import ByteStream

    from micdrop_agent.transport.base import ConnectFn

__all__ = ["Connection", "connect_direct", "hang_up", "open_connection", "promised_keepalive"]

_POLL_HANGUP: Final = getattr(select, "POLLRDHUP", 0)
"""Linux shows that the peer has closed even while unread bytes are waiting."""

_PROMISE: Final = re.compile(r"\btimeout=(\d{1,9})")


class Connection:
    """A byte stream and when it was last used.

    Attributes:
        stream: The TCP or TLS stream.
        idle_since: Time of the event loop's clock when it became idle, in seconds.
        closed: ``aclose()`` was called.
        broken: A request could not be sent completely on it.
        keepalive: Seconds for which the server promised to keep it while it is idle.
    """

    __slots__ = ("_quick", "_socket", "_tls", "broken", "closed", "idle_since", "keepalive", "stream")

    def __init__(self, stream: ByteStream, *, tls: bool) -> None:
        self.stream = stream
        self.idle_since = 0.0
        self.broken = False
        self.keepalive = math.inf
        self.closed = False
        self._tls = tls
        # A LoopStream, which can do more than its interface; the module is loaded on asyncio only.
        self._quick: Any = stream if hasattr(stream, "close_now") else None
        self._socket: Any = stream.extra(SocketAttribute.raw_socket, None)  # noqa: S610 - AnyIO's, not Django's

    def looks_dead(self) -> bool:
        """Whether the server has closed the connection while it was idle, as far as a look tells.

        Costs one system call at most, and saves the round trip in which a request on a dead connection fails.
        """
        if self._quick is not None:
            return bool(self._quick.disturbed)
        if self._socket is None or not hasattr(select, "poll"):
            return False
        poller = select.poll()
        try:
            # Over TLS unread bytes may be session tickets; over TCP they are an error or the end.
            poller.register(self._socket.fileno(), _POLL_HANGUP if self._tls else _POLL_HANGUP | select.POLLIN)
            return bool(poller.poll(0))
        except (OSError, ValueError):
            return True

    def abort(self) -> None:
        """Tell the server that this is over, now, without waiting for anything."""
        if self._socket is None or self.closed or hang_up(self._socket):
            return
        # Through a twin, which costs three system calls more; the errors: closed already.
        with (
            contextlib.suppress(OSError, ValueError),
            socket.socket(fileno=os.dup(self._socket.fileno())) as twin,
        ):
            twin.shutdown(socket.SHUT_RDWR)

    async def aclose(self) -> None:
        """Close without a farewell. Never hangs, and works inside a cancelled scope."""
        if self.closed:
            return
        self.closed = True
        if self._quick is not None:
            self._quick.close_now()
            await anyio.lowlevel.cancel_shielded_checkpoint()  # in which the loop closes the socket
            return
        # Our streams close at once and then give way once; aclose_forcefully() would cost twice the time.
        with (
            anyio.move_on_after(CLOSE_TIMEOUT, shield=True),
            contextlib.suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError),
        ):
            await self.stream.aclose()


def hang_up(raw: Any) -> bool:
    """Let the other end of a socket know at once that this is over; ``False`` if the object cannot do that."""
    try:
        raw.shutdown(socket.SHUT_RDWR)
    except OSError:
        return True  # it is over already
    except (AttributeError, NotImplementedError, TypeError):
        return False  # uvloop's
    return True


def promised_keepalive(headers: dict[str, str]) -> float:
    """Seconds for which the server keeps an idle connection, as ``keep-alive: timeout=5`` says; infinite if not.

    A little less than that: a request must not meet the close on its way.
    """
    match = _PROMISE.search(headers.get("keep-alive", ""))
    if match is None:
        return math.inf
    seconds = float(match[1])
    return max(seconds - 1, seconds / 2)


async def connect_direct(host: str, port: int, tls: bool, context: ssl.SSLContext | None) -> ByteStream:
    """Connect over TCP (all addresses of the host, the quickest wins), and speak TLS if asked to."""
    if tls and context is None:
        from micdrop_agent.transport.tls import default_context

        context = await default_context()
    if running_loop() is None:
        from micdrop_agent.transport import plain_stream

        stream: ByteStream = await plain_stream.connect(host, port)
    else:
        from micdrop_agent.transport import loop_stream

        stream = await loop_stream.connect(host, port)
    _send_at_once(stream)
    if not tls:
        return stream
    from anyio.streams.tls import TLSStream

    try:
        # Servers close TLS connections without the closing handshake; HTTP says itself where a body ends.
        return await TLSStream.wrap(
            stream, server_side=False, hostname=host, ssl_context=context, standard_compatible=False
        )
    except BaseException:  # a cancellation in the handshake too: nobody else has the stream yet
        await anyio.aclose_forcefully(stream)
        raise


def _send_at_once(stream: ByteStream) -> None:
    """No waiting for a fuller packet (asyncio sets this itself, Trio and uvloop mostly too)."""
    raw = stream.extra(SocketAttribute.raw_socket, None)  # noqa: S610 - AnyIO's, not Django's
    if raw is not None:
        with contextlib.suppress(OSError):
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


async def open_connection(connect: ConnectFn, host: str, port: int, *, tls: bool, within: float | None) -> Connection:
    """Open a connection.

    Raises:
        ProviderError: It took longer than ``within`` seconds (``timeout``), or failed (``connection``).
    """
    stream: ByteStream | None = None
    try:
        with anyio.move_on_after(within):
            stream = await connect(host, port, tls)
    except (OSError, anyio.BrokenResourceError, anyio.EndOfStream, anyio.ClosedResourceError) as error:
        # ssl.SSLError is an OSError; socket.gaierror too.
        advice = _tls_advice(error) if tls else ""
        raise ProviderError(
            f"cannot connect to {_show(host, port)}: {_reason(error)}{advice}",
            kind="connection",
            # A certificate that is not trusted now will not be in a second either.
            retryable=False if advice else None,
        ) from error
    if stream is None:
        raise ProviderError(f"no connection to {_show(host, port)} within {within} s", kind="timeout")
    return Connection(stream, tls=tls)


def _show(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _tls_advice(error: BaseException | None) -> str:
    import ssl

    from micdrop_agent.transport.tls import advice_for

    while error is not None:
        if isinstance(error, ssl.SSLError):
            return advice_for(error)
        error = error.__cause__
    return ""


def _reason(error: BaseException) -> str:
    """The innermost reason: AnyIO wraps what the system said once or twice."""
    while error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, ExceptionGroup):
        return "; ".join(sorted({str(each) for each in cast("ExceptionGroup[Exception]", error).exceptions}))
    return str(error) or type(error).__name__
