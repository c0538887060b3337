"""One writer for each call: a file lock that ends with the process that held it.

A row in the database would survive ``kill -9`` and lock its call for ever, or until a time-out that is
too short for a suspended laptop and too long for a restarted server. The kernel knows better: a locked
file in a folder beside the database, one for each open call, is free when its process is gone.

    calls.db  calls.db-wal  calls.db-shm  calls.db-locks/3f0c…

Invariants, pinned in tests/test_store_locks.py:

1. The same call has the same lock file whatever the database is called: through symbolic links, and
   through hard links in one folder (``real_path``).
2. Nothing but ``release()`` or the end of the process gives a lock back: ``flock`` belongs to the open
   file, so other descriptors of the same file do not matter, and a forked child does not inherit it.
3. Every path out of an attempt that failed gives the lock back, also when the disk is full.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from micdrop_agent.store.protocol import StoreError

if TYPE_CHECKING:
    import filelock

__all__ = ["CallLock", "CallLocks", "real_path"]

FOLDER = "-locks"
"""What the name of the database gets to be the name of the folder of its locks."""


class CallLock:
    """The lock of one call, while it is held.

    Args:
        locks: Where it came from.
        call_id: The call.
        file: The locked file; ``None`` for a database in memory.
    """

    __slots__ = ("_call_id", "_file", "_locks")

    def __init__(self, locks: CallLocks, call_id: str, file: filelock.BaseFileLock | None) -> None:
        self._locks = locks
        self._call_id = call_id
        self._file = file

    def release(self) -> None:
        """Give the call back. Idempotent; raises nothing."""
        file, self._file = self._file, None
        if self._locks.held.get(self._call_id) is self:
            del self._locks.held[self._call_id]
        if file is None:
            return
        # Removed while it is still locked: whoever opened it before sees that it has no name any more
        # and tries again (filelock checks that), so two writers never hold two files of one name.
        with contextlib.suppress(OSError):
            Path(file.lock_file).unlink()
        with contextlib.suppress(OSError):
            file.release(force=True)


class CallLocks:
    """The locks of the calls in one database.

    Args:
        path: The real path of the database; ``None`` for one in memory, which no other process can see.
    """

    def __init__(self, path: str | None) -> None:
        self._folder = None if path is None else Path(path + FOLDER)
        self.held: dict[str, CallLock] = {}

    def acquire(self, call_id: str) -> CallLock | None:
        """Take a call; ``None`` if a writer has it, also one in this process.

        Raises:
            OSError: The lock cannot be made.
        """
        if call_id in self.held:
            return None
        file: filelock.BaseFileLock | None = None
        if self._folder is not None:
            file = self._lock_file(call_id)
            if file is None:
                return None
        lock = self.held[call_id] = CallLock(self, call_id, file)
        return lock

    def _lock_file(self, call_id: str) -> filelock.BaseFileLock | None:
        import filelock

        assert self._folder is not None
        self._folder.mkdir(mode=0o700, exist_ok=True)
        # A hash, because an id may have characters, or a length, that no file name can have.
        name = hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        file = filelock.FileLock(self._folder / name, timeout=0, mode=0o600, thread_local=False, fallback_to_soft=False)
        # Twice: the first attempt may have met a file that its holder was just removing.
        for _ in range(2):
            with contextlib.suppress(filelock.Timeout):
                file.acquire()
                return file
        return None


def real_path(path: str) -> str:
    """The one name under which a database file is used, whatever it was called.

    SQLite keeps what was not yet moved into the file in a second one of the same name (``-wal``). Two names
    of one file would be two such files, and would destroy it. So a symbolic link is followed; of hard
    links in one folder the one that was used first is taken; one in another folder cannot be found.

    Raises:
        StoreError: The file has another name in a folder that is not known.
        OSError: The file cannot be looked at.
    """
    real = Path(os.path.realpath(path))
    try:
        status = real.stat()
    except FileNotFoundError:
        return str(real)
    if stat.S_ISDIR(status.st_mode):  # SQLite only says that it cannot open it
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if status.st_nlink <= 1:
        return str(real)
    names = sorted(file for file in real.parent.iterdir() if file.is_file() and _is(file, status))
    # The folder of the locks stands beside the name under which the file was used first.
    used = [name for name in names if Path(f"{name}{FOLDER}").is_dir()]
    if used:
        return str(real if real in used else used[0])
    if len(names) < status.st_nlink:
        raise StoreError(
            f"{path} is a hard link to a file of another folder; open it there, or make a copy or a symbolic link"
        )
    return str(names[0])


def _is(file: Path, status: os.stat_result) -> bool:
    return os.path.samestat(file.lstat(), status)
