"""The head of a request, made once per set of headers; no I/O."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from micdrop_agent.transport.url import BaseUrl

__all__ = ["Headers", "RequestBytes", "RequestHead", "with_defaults"]

_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_NOT_IN_A_VALUE: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_NOT_IN_A_TARGET: Final = re.compile(r"[^!-~]")
_OURS: Final = frozenset({"connection", "content-length", "transfer-encoding"})
"""Headers that say how the bytes go over this connection; nobody else can know."""

_DEFAULTS: Final = {
    "accept": "text/event-stream, application/json",
    # A compressed stream comes in lumps: the compressor holds text back.
    "accept-encoding": "identity",
    "content-type": "application/json",
    "user-agent": "micdrop-agent",
}


class Headers(dict[str, str]):
    """Headers whose values are not shown: reports of errors often hold the local variables."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<headers {', '.join(self)}>"


class RequestBytes(bytes):
    """A request that is not shown, for the same reason: a key and a conversation are in it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<request of {len(self)} bytes>"


def with_defaults(headers: Mapping[str, str]) -> Headers:
    """The headers of a request: ours where the caller says nothing; names in lower case."""
    return Headers(_DEFAULTS | {name.lower(): value for name, value in headers.items()})


class RequestHead:
    """Makes request heads for one server and remembers the last one.

    An agent sends the same headers again and again: then only the length of the body is new.
    """

    __slots__ = ("_headers", "_made", "_path", "_url")

    def __init__(self, url: BaseUrl) -> None:
        self._url = url
        self._path: str | None = None
        self._headers: dict[str, str] = {}
        self._made = b""

    def make(self, path: str, headers: Mapping[str, str], body_bytes: int) -> bytes:
        """Request line and headers, up to the blank line.

        Raises:
            ValueError: A header cannot be sent. The message names it and hides its value.
        """
        if path != self._path or headers != self._headers:
            self._made = self._render(path, headers)
            self._path, self._headers = path, dict(headers)
        return b"%bcontent-length: %d\r\n\r\n" % (self._made, body_bytes)

    def _render(self, path: str, headers: Mapping[str, str]) -> bytes:
        target = self._url.target(path)
        if _NOT_IN_A_TARGET.search(target):
            raise ValueError("the path or the query of the request has characters that a URL cannot have")
        every = {"host": self._url.authority}
        if self._url.authorization is not None:
            every["authorization"] = self._url.authorization
        every |= with_defaults(headers)
        lines = [f"POST {target} HTTP/1.1".encode("ascii")]
        lines += [_line(name, value) for name, value in every.items() if name not in _OURS]
        return b"\r\n".join((*lines, b""))


def _line(name: str, value: str) -> bytes:
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} cannot be the name of a header")
    if _NOT_IN_A_VALUE.search(value):
        raise ValueError(f"the header {name!r} has a line break or a control character in its value")
    try:
        return f"{name}: {value.strip()}".encode("latin-1")
    except UnicodeEncodeError:
        pass
    # Raised outside of the handler: the encoding error holds the value, which may be a key.
    raise ValueError(f"the header {name!r} has characters in its value that HTTP cannot carry")
