"""A model server behind HTTP: posts requests, turns refusals into errors, hands out streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import anyio
import attrs

from micdrop_agent.errors import ProviderError
from micdrop_agent.providers.failures import status_error
from micdrop_agent.providers.responses.http_stream import HttpStream

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from micdrop_agent.model.protocol import ProviderStream, Request
    from micdrop_agent.providers.responses.translator import Translator
    from micdrop_agent.transport import Response, Transport

__all__ = ["Builder", "HttpProvider"]

_ERROR_BODY_S: Final = 1.0
"""Longest wait for the body of an error: the status alone says most, and the caller waits."""

_GOOD: Final = range(200, 300)


class Builder(Protocol):
    """Makes the bodies of one agent's requests."""

    def build(self, request: Request) -> bytes:
        """The body for ``request``."""
        ...


@attrs.define(eq=False)
class HttpProvider:
    """A ``Provider`` over a transport.

    Args:
        name: Its name in errors and logs.
        path: Where requests go, below the base URL.
        transport: The way there.
        builder: Makes the bodies.
        headers: Of every request; names in lower case.
        translator: Makes the translation of one response.
        secret: The key in use, kept out of errors.
    """

    name: str
    path: str
    transport: Transport = attrs.field(repr=False)
    builder: Builder = attrs.field(repr=False)
    translator: Callable[[], Translator] = attrs.field(repr=False)
    headers: Mapping[str, str] = attrs.field(factory=dict[str, str], repr=False)
    secret: str | None = attrs.field(default=None, repr=False)

    async def open(self, request: Request) -> ProviderStream:
        """See ``Provider.open``."""
        made: list[Translator] = []
        try:
            body = self.builder.build(request)
            # The translator is not needed before the response is there, and made while the server thinks.
            response = await self.transport.post(self.path, self.headers, body, lambda: made.append(self.translator()))
        except ProviderError as error:
            error.provider = error.provider or self.name
            raise
        if response.status in _GOOD:
            return HttpStream(response, made[-1] if made else self.translator(), self.name)
        raise await self._refused(response)

    async def _refused(self, response: Response) -> ProviderError:
        body = b""
        try:
            with anyio.move_on_after(_ERROR_BODY_S):
                body = await response.read()
        finally:
            await response.aclose()
        return status_error(response.status, response.headers, body, provider=self.name, secret=self.secret)

    async def prewarm(self) -> None:
        """See ``Provider.prewarm``."""
        await self.transport.prewarm()

    async def aclose(self) -> None:
        """See ``Provider.aclose``."""
        await self.transport.aclose()
