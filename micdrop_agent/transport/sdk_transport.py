"""Posting through a user's ``openai.AsyncOpenAI`` or ``AsyncAzureOpenAI``.

The SDK adds what makes it worth handing in: its credentials, Azure's URLs and tokens, its proxies and
hooks. Its request transform, retries and typed events are gone around: body and stream are bytes.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import anyio

from micdrop_agent.errors import ProviderError
from micdrop_agent.transport.base import Response
from micdrop_agent.transport.client_home import check_home
from micdrop_agent.transport.client_transport import ClientResponse, mapped
from micdrop_agent.transport.parser import MAX_RESPONSE_BYTES
from micdrop_agent.transport.request_head import with_defaults

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["SdkTransport"]


class SdkTransport:
    """Posts through the user's SDK client, which is never closed by us.

    Args:
        client: An ``openai.AsyncOpenAI`` or ``openai.AsyncAzureOpenAI``. Its base URL and credentials
            are used; an ``authorization`` header of ours is not sent.
        connect_timeout: Seconds until a connection stands.
        max_response_bytes: Largest response.

    Raises:
        TypeError: ``client`` is none of these.
    """

    def __init__(
        self,
        client: Any,
        *,
        connect_timeout: float | None = 2.0,
        max_response_bytes: int = MAX_RESPONSE_BYTES,
    ) -> None:
        import httpx2
        import openai

        if not isinstance(client, openai.AsyncOpenAI):
            raise TypeError(f"client must be an openai.AsyncOpenAI or AsyncAzureOpenAI, not {type(client).__name__}")
        self._client: Any = client
        # Azure takes the deployment out of the body, so there the body has to be a mapping.
        self._reads_body = isinstance(client, openai.AsyncAzureOpenAI)
        self._error = openai.OpenAIError
        self._raw = {"stream": True, "stream_cls": openai.AsyncStream[object], "cast_to": httpx2.Response}
        self._timeout = httpx2.Timeout(None, connect=connect_timeout)
        self._max_response_bytes = max_response_bytes

    def __repr__(self) -> str:
        return f"SdkTransport({type(self._client).__name__})"

    @property
    def needs_spare(self) -> bool:
        """Never: the SDK has a pool of its own."""
        return False

    async def prewarm(self) -> None:
        """Nothing: the SDK's pool is the user's."""

    async def post(
        self,
        path: str,
        headers: Mapping[str, str],
        body: bytes,
        meanwhile: Callable[[], None] | None = None,  # noqa: ARG002 - the client does not tell when that is
    ) -> Response:
        """See ``Transport.post``."""
        check_home(self._client)
        every = with_defaults(headers)
        every.pop("authorization", None)
        every.pop("user-agent", None)
        content = {"body": json.loads(body)} if self._reads_body else {"content": body}
        options = {"headers": every, "max_retries": 0, "timeout": self._timeout}
        try:
            response = await self._client.post(path, **content, options=options, **self._raw)
        except self._error as error:
            return _failed(error)
        except Exception as error:
            raise mapped(error, in_body=False) from error
        return ClientResponse(response, self._max_response_bytes)

    async def aclose(self) -> None:
        """Nothing: the client is the user's."""


def _failed(error: Exception) -> Response:
    """A status of 400 and more as a response, anything else as our error."""
    response = getattr(error, "response", None)
    if response is not None:
        return _ReadResponse(response.status_code, dict(response.headers.items()), response.content)
    if error.__cause__ is not None and isinstance(error.__cause__, Exception):
        raise mapped(error.__cause__, in_body=False) from error
    raise ProviderError(f"the openai client failed: {type(error).__name__}: {error}", kind="auth") from error


class _ReadResponse(Response):
    """A response that the SDK has read already, because of its status."""

    __slots__ = ("_body",)

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self._body = body

    async def receive(self) -> bytes:
        """The whole body, once."""
        body, self._body = self._body, b""
        if not body:
            raise anyio.EndOfStream
        return body

    async def aclose(self) -> None:
        """Nothing is open."""
