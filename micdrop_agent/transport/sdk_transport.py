"""Posting through a user's ``openai.AsyncOpenAI`` or ``AsyncAzureOpenAI``, of openai 2 and later.

    SDK ── its request: URL, credentials, headers ──▶ _StandIn.send() ──▶ ClientSender ──▶ the SDK's HTTP client

The SDK adds what makes it worth handing in: its credentials, Azure's URLs and tokens, its proxies and
hooks. Its request transform, retries and typed events are gone around: body and stream are bytes. Its HTTP
client is stood in for, so that the response is ours before the SDK has read the body of an error, and
follows no redirect.
"""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

from micdrop_agent.errors import ProviderError
from micdrop_agent.transport.client_errors import map_error, response_in
from micdrop_agent.transport.client_home import client_home
from micdrop_agent.transport.client_response import wrap_response
from micdrop_agent.transport.client_send import ClientSender
from micdrop_agent.transport.parser import MAX_RESPONSE_BYTES
from micdrop_agent.transport.request_head import with_defaults

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from micdrop_agent.transport.base import Response
    from micdrop_agent.transport.draining import Draining

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
        import openai

        if not isinstance(client, openai.AsyncOpenAI):
            raise TypeError(f"client must be an openai.AsyncOpenAI or AsyncAzureOpenAI, not {type(client).__name__}")
        self._client: Any = client
        # Azure takes the deployment out of the body, so there the body has to be a mapping.
        self._reads_body = isinstance(client, openai.AsyncAzureOpenAI)
        self._error = openai.OpenAIError
        self._stream_cls = openai.AsyncStream[object]
        own: Mapping[str, str] = getattr(client, "_custom_headers", {})
        self._own = frozenset(name.lower() for name in own) | {"authorization", "user-agent"}
        self._sender = ClientSender(self._client._client, connect_timeout, max_response_bytes)
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
        while_waiting: Callable[[], None] | None = None,  # noqa: ARG002 - the SDK does not tell when that is
    ) -> Response:
        """See ``Transport.post``."""
        client = self._client
        draining = client_home(client._client).draining
        if draining.active:
            await draining.wait_a_moment()
        every = {name: value for name, value in with_defaults(headers).items() if name not in self._own}
        content = {"body": json.loads(body)} if self._reads_body else {"content": body}
        stood_in = copy.copy(client)
        stood_in._client = _StandIn(self._sender, draining, given_out=_reads_responses(client))
        try:
            response = await stood_in.post(
                path,
                **content,
                options={"headers": every, "max_retries": 0, "timeout": None},
                cast_to=_response_class(client._client),
                stream=True,
                stream_cls=self._stream_cls,
            )
        except _Arrived as arrived:
            came, failure = arrived.response, arrived.failure
        except self._error as error:
            return _refused(error)
        except Exception as error:
            raise map_error(error, in_body=False) from error
        else:
            return wrap_response(response, draining, self._max_response_bytes)
        finally:
            # Looked up once, in a thread; the copy is thrown away.
            client._platform = stood_in._platform
        if failure is not None:
            raise failure
        return came

    async def aclose(self) -> None:
        """Nothing: the client is the user's."""


def _reads_responses(client: Any) -> bool:
    """Whether the SDK itself has to see responses: to renew a token, or to read those of another cloud."""
    return any(getattr(client, name, None) is not None for name in ("_workload_identity_auth", "_provider_runtime"))


def _response_class(client: Any) -> Any:
    """The class of responses of the HTTP client that the SDK runs on."""
    import sys

    home = next(cls.__module__.partition(".")[0] for cls in type(client).__mro__ if cls.__name__ == "AsyncClient")
    return sys.modules[home].Response


class _Arrived(BaseException):
    """The response is there, or has failed to come; the SDK has no part in what follows."""

    def __init__(self, response: Any, failure: ProviderError | None) -> None:
        super().__init__()
        self.response: Response = response
        self.failure = failure


class _StandIn:
    """In the place of an SDK's HTTP client for one request.

    Args:
        sender: Sends through the HTTP client itself.
        draining: Of that client.
        given_out: Hand the raw response to the SDK, which has to look at it.
    """

    def __init__(self, sender: ClientSender, draining: Draining, *, given_out: bool) -> None:
        self._sender = sender
        self._draining = draining
        self._given_out = given_out

    if not TYPE_CHECKING:
        # The SDK asks with isinstance() which package its client is of.
        __class__ = property(lambda self: type(self._sender.client))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sender.client, name)

    async def send(self, request: Any, **options: Any) -> Any:
        """Send ``request``; gives nothing back, but ends the SDK's part with ``_Arrived``."""
        if self._given_out:
            return await self._sender.client.send(request, **{**options, "follow_redirects": False})
        try:
            response = await self._sender.send(lambda: request, self._draining, **options)
        except ProviderError as error:
            raise _Arrived(None, error) from None
        raise _Arrived(response, None)


def _refused(error: Exception) -> Response:
    """A status of 400 and more that the SDK has read as a response, anything else as our error."""
    response = response_in(error)
    if response is not None:
        return response
    if isinstance(error.__cause__, Exception):
        response = response_in(error.__cause__)
        if response is not None:
            return response
        raise map_error(error.__cause__, in_body=False) from error
    raise ProviderError(f"the openai client failed: {type(error).__name__}: {error}", kind="auth") from error
