"""Which transport a provider gets: by what the user handed in, and by the proxies of the environment."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from micdrop_agent.transport.url import BaseUrl, proxy_for

if TYPE_CHECKING:
    from micdrop_agent.transport.base import ConnectFn, Transport

__all__ = ["check_client", "check_environment", "check_server", "open_transport"]

logger: Final = logging.getLogger("micdrop_agent.transport")
_advised: Final[list[bool]] = []
"""Not empty once it was said, in this process, what httpx does to cancelled answers."""


def open_transport(
    base_url: str,
    *,
    client: Any = None,
    connect: ConnectFn | None = None,
    connect_timeout: float | None = 2.0,
    keepalive: float = 60.0,
) -> Transport:
    """The transport for one agent. Nothing is opened yet.

    Args:
        base_url: Where the server is; an SDK client knows it itself, and it is ignored then.
        client: An ``openai.AsyncOpenAI``, ``httpx2.AsyncClient`` or ``httpx.AsyncClient`` of the user.
        connect: Opens connections in place of TCP; for tests.
        connect_timeout: Seconds until a connection stands.
        keepalive: Seconds for which an idle connection may be used again.

    Raises:
        ValueError: ``base_url`` is not an http(s) URL.
        TypeError: ``client`` is none of these.
    """
    if client is not None:
        if _speaks_http(client):
            from micdrop_agent.transport.client_transport import ClientTransport

            return ClientTransport(client, base_url, connect_timeout=connect_timeout)
        from micdrop_agent.transport.sdk_transport import SdkTransport

        return SdkTransport(client, connect_timeout=connect_timeout)
    proxy = None if connect is not None else proxy_for(BaseUrl.parse(base_url))
    if proxy is None:
        from micdrop_agent.transport.direct import DirectTransport

        return DirectTransport(base_url, connect=connect, connect_timeout=connect_timeout, keepalive=keepalive)
    return _through_proxy(base_url, proxy, connect_timeout, keepalive)


def check_server(base_url: str | None, client: Any) -> str | None:
    """The URL of the server that is asked: the option, or the one that the client was made for.

    Raises:
        ValueError: They differ, or one is not a URL: a key would go where it was not given for.
    """
    option = None if base_url is None else BaseUrl.parse(base_url)
    own = str(getattr(client, "base_url", "") or "").rstrip("/")
    if not own:
        return base_url
    url = BaseUrl.parse(own)
    if option is None:
        return own
    # Azure's client has a path of its own below its endpoint.
    same = option.origin == url.origin if _is_azure(client) else option.same_as(url)
    if not same:
        raise ValueError(
            f"base_url is {option}, but the client given as client= was made for {url}; leave one of them out"
        )
    return base_url


def check_environment(base_url: str) -> None:
    """Refuse proxies and certificates of the environment that cannot work, before the first call does.

    Raises:
        ValueError: The message names the variable.
    """
    url = BaseUrl.parse(base_url)
    proxy = proxy_for(url)
    if proxy is not None:
        _check_socks(proxy)
    if url.tls or (proxy is not None and proxy.startswith("https:")):
        _check_certificates()


def _check_certificates() -> None:
    for name, exists in (("SSL_CERT_FILE", Path.is_file), ("SSL_CERT_DIR", Path.is_dir)):
        place = os.environ.get(name)
        if place and not exists(Path(place)):
            raise ValueError(f"the environment variable {name} names {place!r}, which does not exist")


def _check_socks(proxy: str) -> None:
    from importlib.util import find_spec

    if proxy.startswith("socks") and find_spec("socksio") is None:
        raise ValueError("the environment names a SOCKS proxy, which needs `pip install 'httpx2[socks]'`")


def _is_azure(client: Any) -> bool:
    openai: Any = sys.modules.get("openai")
    return openai is not None and isinstance(client, openai.AsyncAzureOpenAI)


def check_client(client: Any) -> None:
    """Refuse what is not a client of one of the known kinds, without importing any of them.

    Raises:
        TypeError: It is none; the message says what it is, and nothing of what is in it.
    """
    if client is None:
        return
    # Whoever has made an SDK client has imported the SDK.
    openai: Any = sys.modules.get("openai")
    if not isinstance(client, type):
        if openai is not None and isinstance(client, openai.AsyncOpenAI):
            _advise(getattr(client, "_client", None))
            return
        if _speaks_http(client) and callable(getattr(client, "aclose", None)):
            _advise(client)
            return
    what = (
        f"the class {client.__name__}"
        if isinstance(client, type)
        else f"{type(client).__module__}.{type(client).__name__}"
    )
    raise TypeError(
        "client must be an openai.AsyncOpenAI, openai.AsyncAzureOpenAI, httpx2.AsyncClient or httpx.AsyncClient, "
        f"not {what}"
    )


def _advise(client: object) -> None:
    """Say once that the pool of httpx loses connections when answers are cancelled (docs/design.md, D11)."""
    if not _advised and any(cls.__module__.partition(".")[0] == "httpx" for cls in type(client).__mro__):
        _advised.append(True)
        logger.warning(
            "the client is an httpx.AsyncClient: cancelled answers can cost it connections of its pool until none is "
            "left (httpcore issue 830); an httpx2.AsyncClient has the same interface and does not lose them"
        )


def _speaks_http(client: Any) -> bool:
    return callable(getattr(client, "build_request", None)) and callable(getattr(client, "send", None))


def _through_proxy(base_url: str, proxy: str, connect_timeout: float | None, keepalive: float) -> Transport:
    import httpx2

    from micdrop_agent.transport.client_transport import ClientTransport
    from micdrop_agent.transport.tls import make_default_context

    _check_socks(proxy)
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=2, keepalive_expiry=keepalive)
    # The proxy was chosen by us, and so are the trusted certificates, which the environment may
    # name; a provider has no use for the credentials of a .netrc file.
    client = httpx2.AsyncClient(proxy=proxy, trust_env=False, verify=make_default_context(), limits=limits)
    return ClientTransport(client, base_url, connect_timeout=connect_timeout, owned=True)
