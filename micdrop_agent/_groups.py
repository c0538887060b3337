"""Task groups that stay transparent: a lone error leaves them as itself (invariant 14)."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["lone_error_unwrapped"]


@contextmanager
def lone_error_unwrapped() -> Generator[None]:
    """Let one error out as itself; a task group wraps even a single one in a group.

    Only the group that the task group made is opened: a group that the body raised on its own
    passes through as it was. The raise stands outside the ``except`` block, so that the error
    keeps the ``__cause__`` and ``__context__`` that its author gave it.
    """
    lone: BaseException | None = None
    try:
        yield
    except BaseExceptionGroup as group:
        if len(group.exceptions) != 1:
            raise
        lone = group.exceptions[0]
    if lone is not None:
        raise lone
