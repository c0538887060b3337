"""One request through a user's HTTP client, whoever made it: no redirects, no cookies, no answer to another request.

    request ──▶ send() ──▶ client.send() ──▶ Response
                  ▲             │ a connection of the pool was dead, expired, or held bytes nobody asked for
                  └─────────────┘ at most three times, at once

Neither httpx2 nor httpx is imported: both clients have the same interface.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import attrs

from micdrop_agent._event_loop import running_loop
from micdrop_agent.errors import ProviderError
from micdrop_agent.transport.client_errors import map_error, response_in
from micdrop_agent.transport.client_response import wrap_response

if TYPE_CHECKING:
    from collections.abc import Callable

    from micdrop_agent.transport.base import Response
    from micdrop_agent.transport.draining import Draining

__all__ = ["ClientSender"]

_MAX_STALE: Final = 3
"""Dead connections of a pool that a request may meet before that is a failure."""

_EXPIRED: Final = 408
"""What a proxy answers to nobody when an idle connection expires."""


@attrs.frozen(eq=False)
class ClientSender:
    """Sends requests through a client.

    Args:
        client: An ``httpx2.AsyncClient`` or ``httpx.AsyncClient``.
        connect_timeout: Seconds until a connection stands. The client's other time-outs are
            switched off for our requests: the agent has clocks of its own.
        max_response_bytes: Largest response.
    """

    client: Any
    connect_timeout: float | None
    max_response_bytes: int

    async def send(self, make: Callable[[], Any], draining: Draining, **options: Any) -> Response:
        """Send the request that ``make`` makes, and wait for the head of its response.

        Args:
            make: Makes a request of the client's package; called for each try.
            draining: Of this client.
            options: Further arguments of ``client.send()``.

        Raises:
            ProviderError: No response came.
        """
        tries = 0
        while True:
            tries += 1
            watch = _Watch()
            response = await self._try(make(), watch, draining, options, last=tries > _MAX_STALE)
            if response is None:
                continue  # The server had given up a connection of the pool: no fault of this request.
            stale = watch.reused and (watch.sent_ahead or response.status == _EXPIRED)
            if not stale:
                return response
            if tries > _MAX_STALE and not watch.sent_ahead:
                return response
            await response.aclose()
            if tries > _MAX_STALE:
                raise ProviderError("the server sends responses that nobody asked for", kind="protocol")

    async def _try(
        self, request: Any, watch: _Watch, draining: Draining, options: dict[str, Any], *, last: bool
    ) -> Response | None:
        """One try; ``None`` if its connection was dead before."""
        seconds = {"connect": self.connect_timeout, "read": None, "write": None, "pool": None}
        request.extensions = {**request.extensions, "trace": watch, "timeout": seconds}
        kept = list(self.client.cookies.jar)
        try:
            # A redirected request would take the conversation, and perhaps a key, to another host.
            response = await self.client.send(request, **{**options, "stream": True, "follow_redirects": False})
        except Exception as error:  # of the user's client, whichever it is; named as ours
            read = response_in(error)
            if read is not None:
                return read
            failure = map_error(error, in_body=False)
            if failure.kind != "connection" or not watch.reused or last:
                raise failure from error
            return None
        _restore_cookies(self.client, response, kept)
        return wrap_response(response, draining, self.max_response_bytes)


class _Watch:
    """Told by a client what it does for a request: was a connection opened, or one of the pool used again?"""

    __slots__ = ("_before", "_connected", "_sent", "sent_ahead")

    def __init__(self) -> None:
        self._connected = self._sent = False
        self._before: Callable[[], bool] | None = None
        self.sent_ahead = False
        """The response lay in the client's buffer before the request was sent: it answers something else."""

    async def __call__(self, event: str, _: object) -> None:
        """Take the name of a step that begins or ends."""
        if event.startswith("connection.connect"):
            self._connected = True
        elif event.endswith(".send_request_headers.started"):
            self._sent = True
        elif event.endswith(".receive_response_headers.started"):
            self._before = _suspension_watch()
        elif event.endswith(".receive_response_headers.complete") and self._before is not None:
            # Without a read of the network, which is a suspension, there was nothing to wait for.
            self.sent_ahead = not self._before()

    @property
    def reused(self) -> bool:
        """Whether the request went out on a connection that stood before."""
        return self._sent and not self._connected


def _suspension_watch() -> Callable[[], bool]:
    """Tells, when called later, whether this task has let the event loop run since now."""
    loop: Any = running_loop()
    if loop is not None:
        turns: list[None] = []
        loop.call_soon(turns.append, None)  # runs before this task does again
        return lambda: bool(turns)
    import trio

    task = trio.lowlevel.current_task()
    # Trio counts this for its tests (`assert_checkpoints`); without the count nothing is known.
    points = getattr(task, "_schedule_points", None)
    return lambda: points is None or getattr(task, "_schedule_points", None) != points


def _restore_cookies(client: Any, response: Any, kept: list[Any]) -> None:
    """Leave the client's cookies as they were: what a model server sets would follow the user's other requests."""
    if "set-cookie" not in response.headers:
        return
    jar = client.cookies.jar
    for cookie in list(response.cookies.jar):
        place = (cookie.domain, cookie.path, cookie.name)
        old = next((each for each in kept if (each.domain, each.path, each.name) == place), None)
        if old is not None:
            jar.set_cookie(old)
        else:
            with suppress(KeyError):
                jar.clear(*place)
