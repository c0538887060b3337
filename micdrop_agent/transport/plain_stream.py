"""Connecting over TCP where no loop of asyncio runs: all addresses of a name, the quickest wins (RFC 8305).

As ``anyio.connect_tcp``, whose tasks begin with a function of AnyIO: on Trio a Ctrl-C raised in there leaves the socket
that is being connected open. Everything here defers it (``_interrupts``).
"""

from __future__ import annotations

import errno
import os
import socket
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Any, Final

import anyio
from anyio.abc import SocketStream

from micdrop_agent._interrupts import defer_interrupts, start_soon

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["connect"]

NEXT_AFTER_S: Final = 0.25
"""Seconds before the next address is tried beside the one that has not answered."""

_UNDER_WAY: Final = frozenset({errno.EINPROGRESS, errno.EWOULDBLOCK, errno.EINTR})


@defer_interrupts
async def connect(host: str, port: int) -> SocketStream:
    """Connect to ``host``, a name or an address.

    Raises:
        OSError: No address of it can be reached.
    """
    found: Any = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    targets = _interleaved([(entry[0], entry[4]) for entry in found])
    raw = await (_attempt(*targets[0]) if len(targets) == 1 else _Race(targets).run())
    try:
        return await SocketStream.from_socket(raw)
    except BaseException:
        raw.close()
        raise


def _interleaved(targets: Sequence[tuple[int, Any]]) -> list[tuple[int, Any]]:
    """The families in turn, beginning with that of the first: one may be broken as a whole."""
    first = [target for target in targets if target[0] == targets[0][0]]
    others = [target for target in targets if target[0] != targets[0][0]]
    return [target for target in chain.from_iterable(zip_longest(first, others)) if target is not None]


@defer_interrupts
async def _attempt(family: int, address: Any) -> socket.socket:
    raw = socket.socket(family, socket.SOCK_STREAM)
    try:
        raw.setblocking(False)
        await _connect(raw, address)
    except BaseException:
        raw.close()
        raise
    return raw


async def _connect(raw: socket.socket, address: Any) -> None:
    failed = raw.connect_ex(address)
    if failed in _UNDER_WAY:
        await anyio.wait_writable(raw)
        failed = raw.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if failed:
        raise OSError(failed, os.strerror(failed))


@defer_interrupts
class _Race:
    """Attempts at several addresses, each a moment after the one before it."""

    def __init__(self, targets: Sequence[tuple[int, Any]]) -> None:
        self._targets = targets
        self._won: socket.socket | None = None
        self._errors: list[OSError] = []

    async def run(self) -> socket.socket:
        try:
            async with anyio.create_task_group() as tasks:
                for family, address in self._targets:
                    failed = anyio.Event()
                    start_soon(tasks, self._try, tasks, family, address, failed)
                    with anyio.move_on_after(NEXT_AFTER_S):
                        await failed.wait()
        except BaseException:
            if self._won is not None:
                self._won.close()
            raise
        if self._won is None:
            raise OSError("no address of it can be reached") from ExceptionGroup("each of them", self._errors)
        return self._won

    async def _try(self, tasks: anyio.abc.TaskGroup, family: int, address: Any, failed: anyio.Event) -> None:
        try:
            raw = await _attempt(family, address)
        except OSError as error:
            self._errors.append(error)
            failed.set()
            return
        if self._won is None:
            self._won = raw
            tasks.cancel_scope.cancel()
        else:
            raw.close()
