"""Writing a file completely or not at all."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from micdrop_agent.errors import MicdropError

__all__ = ["write_whole"]


def write_whole(text: str, file: Path, what: str) -> None:
    """Write ``text`` to ``file``: a reader sees the last complete state.

    A new file can be read by its owner only; it holds a conversation. What is not a plain file
    (a pipe, a device) is written to as it is.

    Raises:
        MicdropError: It cannot be written; the message says ``what`` that was.
    """
    target = file.resolve()  # a link stays a link
    temporary: str | None = None
    try:
        if target.exists() and not target.is_file():
            target.write_text(text, encoding="utf-8")
            return
        descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        with open(descriptor, "w", encoding="utf-8") as opened:  # noqa: PTH123 - a descriptor is not a path
            opened.write(text)
            opened.flush()
            os.fsync(descriptor)
        if target.exists():
            Path(temporary).chmod(stat.S_IMODE(target.stat().st_mode))
        Path(temporary).replace(target)
        temporary = None
    except OSError as error:
        raise MicdropError(f"cannot save {what} {str(file)!r}: {error.strerror}") from error
    finally:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
