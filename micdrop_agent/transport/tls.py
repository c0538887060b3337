"""The TLS context: made once per process, because loading the trusted certificates takes 25 to 60 ms."""

from __future__ import annotations

import os
import ssl
import sys
from typing import Final

import anyio.to_thread

from micdrop_agent.errors import ProviderError

__all__ = ["advice_for", "default_context", "make_default_context"]

_VARIABLES: Final = ("SSL_CERT_FILE", "SSL_CERT_DIR")

_NOT_TLS: Final = frozenset(
    {"WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE"}
)
"""OpenSSL's words for bytes that are not TLS."""


def advice_for(error: ssl.SSLError) -> str:
    """What to do about a TLS error that the next try will meet again; empty for any other."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            "; if the server is the right one, name the certificate of its authority in SSL_CERT_FILE, "
            "or pass a client= of your own"
        )
    if error.reason in _NOT_TLS:
        return "; the server does not speak TLS at this port: base_url may have to begin with http://"
    return ""


_context: ssl.SSLContext | None = None


async def default_context() -> ssl.SSLContext:
    """The context that all agents of the process share. The first call makes it, in a thread."""
    if _context is None:
        # Abandoned when cancelled: the thread only computes, and the next call finds its result.
        return await anyio.to_thread.run_sync(make_default_context, abandon_on_cancel=True)
    return _context


def make_default_context() -> ssl.SSLContext:
    """The same, at once: blocks for those 25 to 60 ms the first time."""
    global _context  # noqa: PLW0603 - one per process is the point
    if _context is None:
        context = _from_system()
        context.set_alpn_protocols(["http/1.1"])
        _context = context
    return _context


def _from_system() -> ssl.SSLContext:
    """The system's trusted certificates, or those of ``SSL_CERT_FILE`` / ``SSL_CERT_DIR``."""
    file, directory = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    if file or directory:
        try:
            return ssl.create_default_context(cafile=file or None, capath=directory or None)
        except OSError as error:
            named = " and ".join(name for name in _VARIABLES if os.environ.get(name))
            raise ProviderError(
                f"the certificates that {named} names cannot be loaded: {error}", kind="connection", retryable=False
            ) from error
    if sys.platform in {"darwin", "win32"}:
        try:
            # OpenSSL cannot read the stores of these systems; httpx2 brings what can.
            import truststore
        except ImportError:
            pass
        else:
            return truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return ssl.create_default_context()
