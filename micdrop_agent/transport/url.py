"""Base URLs, and the proxies of the environment that apply to them; no I/O."""

from __future__ import annotations

import base64
import os
import re
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

import attrs

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["BaseUrl", "proxy_for", "shown_url"]

_NOT_IN_A_URL: Final = re.compile(r"[\x00-\x20\x7f]")
_HOST_FIRST: Final = re.compile(r"(?:[\w-]+(?:\.[\w-]+)*|\[[0-9a-fA-F:.]+\])(?::\d+)?(?:/[\w./-]*)?$")
_MAX_LABEL: Final = 63
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_PROXY_SCHEMES: Final = ("http", "https", "socks5", "socks5h")


@attrs.frozen(kw_only=True, eq=False)
class BaseUrl:
    """Where a server is, taken apart once.

    Attributes:
        tls: Whether it is ``https``.
        host: Host name or address, without the brackets of an IPv6 address.
        port: TCP port.
        authority: The value of the ``host`` header.
        prefix: Path before every request's path, without a slash at its end.
        query: Query that every request gets, without the ``?``.
        authorization: Basic credentials from the URL's user part; never shown.
    """

    tls: bool
    host: str
    port: int
    authority: str
    prefix: str
    query: str
    authorization: str | None = attrs.field(default=None, repr=False)

    @classmethod
    def parse(cls, url: str) -> BaseUrl:
        """Read a base URL such as ``https://api.example.com/v1``.

        Raises:
            ValueError: It is none. The message does not repeat the URL, which may hold a password.
        """
        url = url.strip()
        try:
            parts = urlsplit(url)
            port = parts.port
            host = _ascii_host(parts.hostname or "")
        except ValueError as error:
            raise ValueError(f"base_url is not a URL: {error}") from None
        if parts.scheme not in _DEFAULT_PORTS:
            raise ValueError(f"base_url must begin with http:// or https://{_with_scheme(url)}")
        if not host:
            raise ValueError("base_url names no host")
        if _NOT_IN_A_URL.search(url):
            raise ValueError("base_url has a space or a control character in it")
        shown = f"[{host}]" if ":" in host else host
        default = _DEFAULT_PORTS[parts.scheme]
        port = default if port is None else port
        return cls(
            tls=parts.scheme == "https",
            host=host,
            port=port,
            authority=shown if port == default else f"{shown}:{port}",
            prefix=_ascii_path(parts.path).rstrip("/"),
            query=_ascii_path(parts.query),
            authorization=_basic(parts.username, parts.password),
        )

    def target(self, path: str) -> str:
        """The request target: prefix, path and both queries."""
        path, _, query = path.partition("?")
        if path and not path.startswith("/"):
            path = "/" + path
        queries = "&".join(q for q in (self.query, query) if q)
        target = (self.prefix + path) or "/"
        return f"{target}?{queries}" if queries else target

    @property
    def origin(self) -> tuple[bool, str, int]:
        """Whether it speaks TLS, its host, and its port: where a key may go."""
        return self.tls, self.host.lower().rstrip("."), self.port

    def same_as(self, other: BaseUrl) -> bool:
        """Whether requests to both go to the same place."""
        return (self.origin, self.prefix, self.query) == (other.origin, other.prefix, other.query)

    def __str__(self) -> str:
        """The URL without credentials and query."""
        return f"{'https' if self.tls else 'http'}://{self.authority}{self.prefix}"


def _ascii_host(host: str) -> str:
    if not host.isascii():
        # The stdlib knows IDNA 2003 only, which is the same for nearly every name in use.
        return host.encode("idna").decode("ascii")
    if ":" not in host and any(len(label) > _MAX_LABEL for label in host.split(".")):
        raise ValueError("a part of the host name is too long")
    return host


def _ascii_path(text: str) -> str:
    if text.isascii():
        return text
    return "".join(c if c.isascii() else "".join(f"%{b:02X}" for b in c.encode()) for c in text)


def _basic(user: str | None, password: str | None) -> str | None:
    if user is None and password is None:
        return None
    pair = f"{unquote(user or '')}:{unquote(password or '')}"
    return "Basic " + base64.b64encode(pair.encode()).decode("ascii")


def proxy_for(url: BaseUrl, environ: Mapping[str, str] | None = None) -> str | None:
    """The proxy that the environment names for this host, or None.

    Reads ``HTTPS_PROXY`` or ``HTTP_PROXY`` (by the scheme), ``ALL_PROXY`` and ``NO_PROXY``, in lower
    case too, lower case first, as other clients do.

    Raises:
        ValueError: What it names cannot be a proxy. The message names the variable, and hides its value,
            which may hold a password.
    """
    env = os.environ if environ is None else environ
    for name in ("https_proxy" if url.tls else "http_proxy", "all_proxy"):
        proxy = _lookup(env, name)
        if proxy:
            if _bypassed(url, _lookup(env, "no_proxy")):
                return None
            proxy = proxy if "://" in proxy else f"http://{proxy}"
            _check_proxy(name.upper(), proxy)
            return proxy
    return None


def _check_proxy(variable: str, proxy: str) -> None:
    what = f"the environment variable {variable}"
    try:
        parts = urlsplit(proxy)
        port, host = parts.port, parts.hostname
    except ValueError as error:
        raise ValueError(f"{what} is not the URL of a proxy: {error}") from None
    if parts.scheme not in _PROXY_SCHEMES:
        known = ", ".join(_PROXY_SCHEMES)
        raise ValueError(f"{what} names a proxy with the scheme {parts.scheme!r}; known are {known}")
    if not host or port == 0:
        raise ValueError(f"{what} names a proxy without {'a host' if not host else 'a port that can be used'}")


def _lookup(env: Mapping[str, str], name: str) -> str:
    # In a CGI process HTTP_PROXY is a header that the client chose ("httpoxy").
    if name == "http_proxy" and "REQUEST_METHOD" in env:
        return env.get(name, "")
    return env.get(name) or env.get(name.upper(), "")


def _bypassed(url: BaseUrl, no_proxy: str) -> bool:
    host = url.host.lower().rstrip(".")
    for entry in no_proxy.split(","):
        name = entry.strip().lower()
        if name == "*":
            return True
        name = name.removeprefix("*").lstrip(".")
        if not name:
            continue
        for candidate in (host, f"{host}:{url.port}", f"[{host}]:{url.port}", f"[{host}]"):
            if candidate == name or (candidate.endswith("." + name) and not _is_address(host)):
                return True
        if "/" in name and _is_address(host) and _in_network(host, name):
            return True
    return False


def _is_address(host: str) -> bool:
    return ":" in host or re.fullmatch(r"[0-9.]+", host) is not None


def _in_network(host: str, network: str) -> bool:
    from ipaddress import ip_address, ip_network

    try:
        return ip_address(host) in ip_network(network, strict=False)
    except ValueError:
        return False


def shown_url(base_url: str, path: str) -> str:
    """Where requests go, as a person may see it: no credentials and no query."""
    base = BaseUrl.parse(base_url)
    return f"{'https' if base.tls else 'http'}://{base.authority}{base.prefix}{path}"


def _with_scheme(url: str) -> str:
    """What a URL without a scheme may have meant; nothing if it may hold a password."""
    if "@" in url or not _HOST_FIRST.match(url):
        return ""
    scheme = "http" if url.startswith(("localhost", "127.", "[::1]")) else "https"
    return f": did you mean {scheme}://{url} ?"
