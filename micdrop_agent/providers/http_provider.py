"""A model server behind HTTP: posts requests, turns refusals into errors, hands out streams."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Protocol

import attrs

from micdrop_agent.errors import ProviderError
from micdrop_agent.providers.failures import status_error, without_secrets
from micdrop_agent.providers.json_text import is_json
from micdrop_agent.providers.responses.http_stream import HttpStream

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from micdrop_agent.model.protocol import ProviderStream, Request
    from micdrop_agent.providers.responses.translator import Translator
    from micdrop_agent.transport.base import Response, Transport

__all__ = ["Builder", "HttpProvider"]

_ERROR_BODY_S: Final = 0.25
"""Longest wait for the body of an error that can say more than its status: 429 for an empty account."""

_SERVER_ERROR_BODY_S: Final = 0.02
"""The same for a status of 500 and more: another server is asked, whatever the body says."""

_SERVER_ERRORS: Final = 500
_NOT_FOUND: Final = 404

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
    where: Callable[[], str] | None = attrs.field(default=None, repr=False)
    """Tells where requests go, as a person may see it: asked when the server does not know that address."""

    async def open(self, request: Request) -> ProviderStream:
        """See ``Provider.open``."""
        try:
            body = self.builder.build(request)
        except ProviderError as error:
            error.provider = self.name  # a picture for a server that takes none
            raise
        made: list[Translator] = []
        response = await self._post(body, lambda: made.append(self.translator()))
        if response.status in _GOOD:
            return HttpStream(response, made[-1] if made else self.translator(), self.name, self.secret)
        raise await self._refused(response)

    async def _post(self, body: bytes, while_waiting: Callable[[], None]) -> Response:
        try:
            # The translator is not needed before the response is there, and made while the server thinks.
            return await self.transport.post(self.path, self.headers, body, while_waiting)
        except ProviderError as error:
            error.provider = error.provider or self.name
            failure = without_secrets(error, self.secret)
            if failure is error:
                del failure  # this frame would hold what holds it
                raise
        raise failure  # outside of the handler: the error that shows a key is not its context either

    async def _refused(self, response: Response) -> ProviderError:
        within = _ERROR_BODY_S if response.status < _SERVER_ERRORS else _SERVER_ERROR_BODY_S
        try:
            # An error that is complete is not waited on, though its body stays open.
            body = await response.read(within=within, until=is_json)
        finally:
            await response.aclose()  # noqa: ASYNC102 - it shields and bounds itself
        error = status_error(response.status, response.headers, body, provider=self.name, secret=self.secret)
        if error.status == _NOT_FOUND and self.where is not None:
            url = self.where()
            ends = "" if re.search(r"/v\d", url) else ", which ends in /v1 for most servers,"
            error.args = (f"{error} (asked {url}: look at base_url{ends} and at the name of the model)",)
        return error

    async def prewarm(self) -> None:
        """See ``Provider.prewarm``."""
        await self.transport.prewarm()

    async def aclose(self) -> None:
        """See ``Provider.aclose``."""
        await self.transport.aclose()
