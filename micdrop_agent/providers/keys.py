"""API keys: from the option or the environment, checked before any request, never shown."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, Final

from micdrop_agent.errors import ProviderError
from micdrop_agent.options import check_text

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["credential_of", "find_key", "has_credentials"]

_PRINTABLE: Final = re.compile(r"[\x21-\x7e]+")


def find_key(api_key: str | None, variable: str, *, provider: str, required: bool = True) -> str | None:
    """The key to use: ``api_key``, else the environment ``variable``.

    Raises:
        ProviderError: There is none, and one is required (kind ``auth``); the message names the variable.
        TypeError: ``api_key`` is not a string.
        ValueError: The key has characters that no key has; it is not shown.
    """
    if api_key is not None:
        check_text_hidden(api_key)
    found = (os.environ.get(variable, "") if api_key is None else api_key).strip()
    if found:
        if _PRINTABLE.fullmatch(found) is None:
            source = f"the environment variable {variable}" if api_key is None else "api_key"
            raise ValueError(f"{source} holds characters that no API key has (spaces, line breaks or letters of text)")
        return found
    if not required:
        return None
    raise ProviderError(
        f"no API key for {provider}: set the environment variable {variable}, or pass api_key= or client=",
        kind="auth",
        provider=provider,
    )


def check_text_hidden(value: object) -> None:
    """As ``check_text``, without the value in the message: it may be a key in a wrapper."""
    if not isinstance(value, str):
        raise TypeError(f"api_key must be a string, not {type(value).__name__}")
    check_text("api_key", value)


_CREDENTIAL_HEADERS: Final = ("authorization", "api-key", "x-api-key", "x-goog-api-key")


def credential_of(client: Any) -> str | None:
    """The key or token that a client of the user's own sends, if it can be seen: to keep it out of messages."""
    key = getattr(client, "api_key", None)
    if isinstance(key, str) and key:
        return key
    headers: Any = getattr(client, "headers", None)
    for name in _CREDENTIAL_HEADERS:
        value = headers.get(name) if callable(getattr(headers, "get", None)) else None
        if isinstance(value, str) and value:
            return value.rpartition(" ")[2]
    return None


def has_credentials(client: Any) -> bool:
    """Whether a client of the user's own brings its credentials along."""
    if client is None:
        return False
    if callable(getattr(client, "build_request", None)) and callable(getattr(client, "send", None)):
        headers: Mapping[str, str] = getattr(client, "headers", {})
        return any(name in headers for name in _CREDENTIAL_HEADERS) or getattr(client, "auth", None) is not None
    return True  # an SDK client was made with a key or a token of its own
