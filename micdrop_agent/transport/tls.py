"""The TLS context: made once per process, because loading the trusted certificates takes 25 to 60 ms."""

from __future__ import annotations

import os
import ssl
import sys

import anyio.to_thread

__all__ = ["default_context", "make_default_context"]

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
        return ssl.create_default_context(cafile=file or None, capath=directory or None)
    if sys.platform in {"darwin", "win32"}:  # pragma: no cover
        try:
            # OpenSSL cannot read the stores of these systems; httpx2 brings what can.
            import truststore
        except ImportError:
            pass
        else:
            return truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return ssl.create_default_context()
