"""Task groups that stay transparent: a lone error leaves them as itself (invariant 14)."""

from __future__ import annotations

from typing import cast

import anyio

__all__ = ["lone_error_unwrapped"]


class lone_error_unwrapped:  # noqa: N801 - read as a function, as those of contextlib are
    """Let one error out as itself; a task group wraps even a single one in a group.

    On Trio the cancellation of a task by a scope further out is in the group as well. It is left out, as
    it would be if there were no task group: the error alone goes on, and that scope stays cancelled.

    Only the group that the task group made is opened: a group that the body raised on its own
    passes through as it was. The error keeps the ``__cause__`` and ``__context__`` that its author gave it.

    A class without state, where a generator would be 400 bytes for each live call.
    """

    __slots__ = ()

    def __enter__(self) -> None:
        """Nothing to be done before."""

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if not isinstance(error, BaseExceptionGroup):
            return
        group = cast("BaseExceptionGroup[BaseException]", error)
        errors = [error for error in group.exceptions if not _is_cancellation(error)]
        if len(errors) != 1:
            return
        lone = errors[0]
        cause, context, hidden = lone.__cause__, lone.__context__, lone.__suppress_context__
        try:
            raise lone
        finally:
            # Raised here, it gets the group as its context, which holds the error itself: a cycle. So do the
            # names of this frame, which its traceback holds.
            lone.__context__, lone.__cause__, lone.__suppress_context__ = context, cause, hidden
            del lone, errors, group, error


def _is_cancellation(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return all(map(_is_cancellation, group.exceptions))
    return isinstance(error, anyio.get_cancelled_exc_class())
