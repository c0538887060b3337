"""Task groups that stay transparent: a lone error leaves them as itself (invariant 14)."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

import anyio

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["lone_error_unwrapped"]


@contextmanager
def lone_error_unwrapped() -> Generator[None]:
    """Let one error out as itself; a task group wraps even a single one in a group.

    On Trio the cancellation of a task by a scope further out is in the group as well. It is left out, as
    it would be if there were no task group: the error alone goes on, and that scope stays cancelled.

    Only the group that the task group made is opened: a group that the body raised on its own
    passes through as it was. The raise stands outside the ``except`` block, so that the error
    keeps the ``__cause__`` and ``__context__`` that its author gave it.
    """
    lone: BaseException | None = None
    try:
        yield
    except BaseExceptionGroup as group:
        errors = [error for error in group.exceptions if not _is_cancellation(error)]
        if len(errors) != 1:
            raise
        lone = errors[0]
    if lone is not None:
        raise lone


def _is_cancellation(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return all(map(_is_cancellation, group.exceptions))
    return isinstance(error, anyio.get_cancelled_exc_class())
