"""Lines of standard input as they come, without a thread (but on Windows).

A thread that sits in ``input()`` cannot be cancelled, and one that is left behind holds the
lock of ``sys.stdin``, on which the interpreter aborts when it ends. Waiting for the file
descriptor can be cancelled like anything else. On a terminal it is the plain way, without ``prompt_toolkit``:
the system edits the line then, and cuts it at 4,095 characters.
"""

from __future__ import annotations

import os
import re
import sys
from typing import Final

import anyio
import anyio.lowlevel
import anyio.to_thread

__all__ = ["Lines"]

CHUNK_BYTES = 65536
# What a terminal sends for an arrow key, or around pasted text; a model would read it as words.
_KEYS: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O[ -~])|[\x00-\x08\x0b-\x1f\x7f]")


class Lines:
    """Reads a file descriptor line by line.

    Args:
        descriptor: Where to read; it stays open.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._buffer = bytearray()
        self._at_end = False

    async def next(self) -> str | None:
        """The next line without its end; ``None`` after the last one."""
        while b"\n" not in self._buffer and not self._at_end:
            read = await self._read()
            self._at_end = not read
            self._buffer += read
        if not self._buffer:
            return None
        line, _, rest = bytes(self._buffer).partition(b"\n")
        self._buffer = bytearray(rest)
        return _KEYS.sub("", line.decode(errors="replace").rstrip("\r"))

    async def _read(self) -> bytes:
        if sys.platform == "win32":
            # Only sockets can be waited for there. The thread holds no lock, so it may be left behind.
            return await anyio.to_thread.run_sync(os.read, self._descriptor, CHUNK_BYTES, abandon_on_cancel=True)
        await self._wait()
        return os.read(self._descriptor, CHUNK_BYTES)

    async def _wait(self) -> None:
        try:
            await anyio.wait_readable(self._descriptor)
        except PermissionError:
            # A plain file, or /dev/null: the system cannot wait for it because it never has to.
            await anyio.lowlevel.checkpoint()
