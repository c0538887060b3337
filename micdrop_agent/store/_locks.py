"""One writer for each call: a lock that dies with the process that held it.

A row in the database would survive ``kill -9`` and lock its call for ever, or until a time-out that
is too short for a suspended laptop and too long for a restarted server. The kernel knows better: a
lock on one byte of a file beside the database, the byte of that call's number, goes when its process
goes. (WAL needs one machine anyway, so no lock has to reach further.)

POSIX locks belong to the process and vanish when any descriptor of the file is closed; so each
process has one descriptor for each file, and knows by itself which calls it holds.
"""

from __future__ import annotations

import os
import threading
from typing import Final

import attrs

__all__ = ["CallLocks"]


@attrs.define(eq=False)
class _LockFile:
    descriptor: int | None = None
    held: set[int] = attrs.field(factory=set[int])


_files: Final[dict[str, _LockFile]] = {}
_guard: Final = threading.Lock()


class CallLocks:
    """The locks of the calls in one database.

    Args:
        path: The lock file; ``None`` for a database in memory, which nobody else can see.
    """

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._key = f"memory {id(self)}" if path is None else os.path.realpath(path)

    def acquire(self, number: int) -> bool:
        """Take the call of that number; ``False`` if somebody has it, also in this process.

        Raises:
            OSError: The lock file cannot be opened.
        """
        with _guard:
            file = _files.setdefault(self._key, _LockFile())
            if number in file.held:
                return False
            if self._path is not None:
                if file.descriptor is None:
                    file.descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                if not _lock_byte(file.descriptor, number):
                    self._forget_if_unused(file)
                    return False
            file.held.add(number)
            return True

    def release(self, number: int) -> None:
        """Give the call back; nothing happens if it is not held."""
        with _guard:
            file = _files.get(self._key)
            if file is None or number not in file.held:
                return
            file.held.discard(number)
            if file.descriptor is not None:
                _unlock_byte(file.descriptor, number)
            self._forget_if_unused(file)

    def _forget_if_unused(self, file: _LockFile) -> None:
        if file.held:
            return
        if file.descriptor is not None:
            os.close(file.descriptor)
        del _files[self._key]


def _lock_byte(descriptor: int, number: int) -> bool:
    import fcntl

    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, number)
    except (BlockingIOError, PermissionError):  # POSIX allows either for "somebody else has it"
        return False
    return True


def _unlock_byte(descriptor: int, number: int) -> None:
    import fcntl

    fcntl.lockf(descriptor, fcntl.LOCK_UN, 1, number)
