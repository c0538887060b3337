"""Cancel scopes that keep their count of cancellations in the task that they cancelled.

    host's task ── task group ──▶ task ── AnyIO's own scope ── task_scope() ── what the task does

On asyncio a scope counts how often it has cancelled its task, to take that back at its end
(``Task.uncancel``). One that ends while a scope around it is cancelled hands its count outwards. Out of a
task that was started in a group it reaches the group, whose host is another task: that task then takes
back more than it was cancelled, and a native cancellation of its own is swallowed (AnyIO 4.16;
docs/design.md, "The host's own cancellation"). A task that is about to end needs to take back nothing,
so its outermost scope keeps the count. Pinned in tests/test_hosts_native.py and by invariant 14.
"""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Any, cast

import anyio

if TYPE_CHECKING:
    import asyncio

__all__ = ["deliver_again", "task_scope", "task_scope_class"]


def task_scope_class() -> type[anyio.CancelScope]:
    """The class of ``task_scope()`` on this event loop; it is the same for every call on a loop."""
    plain: Any = type(anyio.CancelScope())
    if not hasattr(plain, "_pending_uncancellations"):
        found: type[anyio.CancelScope] = plain  # Trio cancels by level alone, and counts nothing
        return found
    return _keeping_its_count(plain)


def task_scope(*, shield: bool = False) -> anyio.CancelScope:
    """The scope to open first in a task that runs in a group of somebody else."""
    return task_scope_class()(shield=shield)


@cache
def _keeping_its_count(plain: Any) -> type[anyio.CancelScope]:
    class TaskScope(plain):  # type: ignore[misc]  # the class of a loop is found when it runs
        __slots__ = ()

        def __exit__(self, *error: object) -> bool | None:
            outer = self._parent_scope
            counted = outer._pending_uncancellations
            try:
                return cast("bool | None", plain.__exit__(self, *error))
            finally:
                outer._pending_uncancellations = counted

    mended: type[anyio.CancelScope] = TaskScope
    return mended


def deliver_again(loop: asyncio.AbstractEventLoop, task: asyncio.Task[Any], before: int) -> None:
    """Let ``task`` see a native cancellation that came with an error of its own, and was lost to it.

    Args:
        loop: The loop of ``task``.
        task: The current task; an error is on its way through it.
        before: How often it had been cancelled when that error was raised.
    """
    counted = task.cancelling()
    if counted <= before or anyio.current_effective_deadline() == -math.inf:
        return  # nothing came, or a scope that is cancelled will say so itself

    def again() -> None:
        # Not if it was taken back in the meantime, as ``asyncio.timeout`` does with its own.
        if not task.done() and task.cancelling() == counted:
            task.uncancel()
            task.cancel()

    loop.call_soon(again)
