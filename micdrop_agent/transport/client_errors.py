"""The errors of a user's HTTP client as ours, told apart by class names: those of httpx2 and httpx are the same."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from micdrop_agent.errors import ProviderError
from micdrop_agent.transport.base import ReadResponse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from micdrop_agent.errors import FailureKind

__all__ = ["map_error", "response_in"]

_STATUS: Final = re.compile(r"[45]\d\d\b")

_PROXY_KINDS: Final[dict[int, FailureKind]] = {401: "auth", 403: "auth", 407: "auth", 404: "not_found"}
"""What a proxy's refusal to open a tunnel means; any other is a failed connection."""

_SETTINGS: Final = {"LocalProtocolError", "UnsupportedProtocol", "InvalidURL", "TooManyRedirects", "CookieConflict"}
"""What will fail in the same way next time."""


def map_error(error: Exception, *, in_body: bool) -> ProviderError:
    """``error`` of a client as ours.

    Raises:
        Exception: ``error`` itself, if it is a bug on this side (a closed client, a broken hook).
    """
    names = {cls.__name__ for cls in type(error).__mro__}
    if "ProxyError" in names and (status := _STATUS.match(str(error))):
        code = int(status[0])
        return ProviderError(
            f"the proxy refused the connection: {error}",
            kind=_PROXY_KINDS.get(code, "connection"),
            status=code,
            retryable=code not in _PROXY_KINDS,
        )
    kind = _kind(names, error, in_body=in_body)
    if kind is None:
        raise error
    advice = _tls_advice(error)
    text = f"the HTTP client failed: {type(error).__name__}: {_describe(error)}{advice}"
    return ProviderError(text, kind=kind, retryable=False if advice else None)


def _tls_advice(error: Exception) -> str:
    import ssl  # loaded long ago, where it matters

    from micdrop_agent.transport.tls import advice_for

    return next((advice_for(each) for each in _chain(error) if isinstance(each, ssl.SSLError)), "")


def _kind(names: set[str], error: Exception, *, in_body: bool) -> FailureKind | None:
    if names & {"TimeoutException", "TimeoutError"}:
        return "timeout"
    if "RemoteProtocolError" in names:
        if "Transfer-Encoding" in str(error):
            return "protocol"  # a coding that the client cannot undo; the next response has it too
        return "truncated" if in_body else "connection"
    if names & _SETTINGS:
        return "protocol"
    if names & {"TransportError", "OSError", "StreamError"}:
        return "connection"
    return "protocol" if names & {"RequestError", "HTTPError"} else None


def response_in(error: Exception) -> ReadResponse | None:
    """The response for whose status a hook of the client raised ``error``, as far as it was read."""
    response: Any = getattr(error, "response", None)
    status = getattr(response, "status_code", None)
    if not isinstance(status, int):
        return None
    try:
        body: bytes = response.content
    except Exception:  # noqa: BLE001 - of one of two packages: the body was not read
        body = b""
    return ReadResponse(status, read_headers(response), body)


def read_headers(response: Any) -> dict[str, str]:
    """The headers of a client's response whose body is decoded."""
    headers = dict(response.headers.items())
    headers.pop("content-encoding", None)
    return headers


def _chain(error: BaseException) -> Iterator[BaseException]:
    """``error`` and what led to it; the clients raise theirs from within the handler, some without ``from``."""
    seen: set[int] = set()
    each: BaseException | None = error
    while each is not None and id(each) not in seen:
        seen.add(id(each))
        yield each
        each = each.__cause__ or each.__context__


def _describe(error: BaseException) -> str:
    """What an error says, or what its cause says: on Trio the clients' own errors are mostly without words."""
    return next((text for each in _chain(error) if (text := str(each))), "no reason given")
