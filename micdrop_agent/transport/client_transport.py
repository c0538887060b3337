"""Posting through a client that the user made: ``httpx2.AsyncClient``, or ``httpx.AsyncClient``.

Neither package is imported here: both clients have the same interface.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio

from micdrop_agent.options import CLOSE_TIMEOUT
from micdrop_agent.transport.client_home import client_home
from micdrop_agent.transport.client_send import ClientSender
from micdrop_agent.transport.draining import Draining
from micdrop_agent.transport.parser import MAX_RESPONSE_BYTES
from micdrop_agent.transport.request_head import with_defaults
from micdrop_agent.transport.url import BaseUrl

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from micdrop_agent.transport.base import Response

__all__ = ["ClientTransport"]


class ClientTransport:
    """Posts through the user's client, which is never closed by us.

    Args:
        client: An ``httpx2.AsyncClient`` or ``httpx.AsyncClient``.
        base_url: ``http://`` or ``https://``, with an optional path and query.
        connect_timeout: Seconds until a connection stands.
        owned: Close the client in ``aclose()``.
        max_response_bytes: Largest response.

    Raises:
        ValueError: ``base_url`` is not such a URL.
    """

    def __init__(
        self,
        client: Any,
        base_url: str,
        *,
        connect_timeout: float | None = 2.0,
        owned: bool = False,
        max_response_bytes: int = MAX_RESPONSE_BYTES,
    ) -> None:
        self._client = client
        self._url = BaseUrl.parse(base_url)
        self._owned = Draining() if owned else None
        self._sender = ClientSender(client, connect_timeout, max_response_bytes)

    def __repr__(self) -> str:
        return f"ClientTransport({str(self._url)!r})"

    @property
    def needs_spare(self) -> bool:
        """Never: the client has a pool of its own."""
        return False

    async def prewarm(self) -> None:
        """Nothing: a request of ours only to open a connection would reach the user's hooks and logs."""

    async def post(
        self,
        path: str,
        headers: Mapping[str, str],
        body: bytes,
        while_waiting: Callable[[], None] | None = None,  # noqa: ARG002 - the client does not tell when that is
    ) -> Response:
        """See ``Transport.post``."""
        draining = self._owned or client_home(self._client).draining
        if draining.active:
            await draining.wait_a_moment()
        url = self._url
        every = self._headers(headers)
        target = f"{'https' if url.tls else 'http'}://{url.authority}{url.target(path)}"
        return await self._sender.send(
            lambda: self._client.build_request("POST", target, content=body, headers=every), draining
        )

    def _headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        """The headers of a request; what the user has set on the client survives our defaults."""
        every = with_defaults(headers)
        own: Mapping[str, str] = self._client.headers
        if not own.get("user-agent", "python-httpx").startswith("python-httpx"):
            del every["user-agent"]
        if own.get("accept", "*/*") != "*/*":
            del every["accept"]
        if self._url.authorization is not None:
            every.setdefault("authorization", self._url.authorization)
        return every

    async def aclose(self) -> None:
        """Close the client if it is ours."""
        if self._owned is not None:
            with anyio.move_on_after(CLOSE_TIMEOUT, shield=True):
                await self._client.aclose()
