"""What a broken run leaves behind: tasks of a loop that is gone, which complain when they are collected.

Looks into Trio: it ends in the middle of a step when its clock raises, and closes nothing.
"""

from __future__ import annotations

import gc
import logging
import sys
from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, cast

from micdrop_agent.testing._loop import where

if TYPE_CHECKING:
    from collections.abc import Callable

    import trio

__all__ = ["forget_the_wreck", "waiting_tasks", "wreck_of"]

_MOST_WAITS: Final = 100
"""How often the clean-up of a coroutine may wait for something that does not come."""


def forget_the_wreck(closers: list[Callable[[], object]] | None = None) -> None:
    """Collect what a broken run has left, in silence.

    Args:
        closers: Each ends one part of it; the list is emptied, so that nobody has them any more.
    """
    hook, disabled = sys.unraisablehook, logging.root.manager.disable
    sys.unraisablehook = lambda _: None
    logging.disable(logging.CRITICAL)
    try:
        while closers:
            with suppress(BaseException):
                closers.pop(0)()
        gc.collect()
    finally:
        sys.unraisablehook = hook
        logging.disable(disabled)


def wreck_of(runner: Any) -> list[Callable[[], object]]:
    """What ends all that a run of Trio has left, since Trio itself will not any more."""
    tasks = _tasks(runner)
    closers: list[Callable[[], object]] = [partial(_end_coroutine, task.coro) for task in reversed(tasks)]
    closers.append(partial(_abandon, runner.asyncgens))
    # A nursery complains of children that it still has.
    return closers + [cast("Any", nursery)._children.clear for task in tasks for nursery in task.child_nurseries]


def waiting_tasks(runner: Any) -> tuple[str, ...]:
    """What each task of a run of Trio waits for, but for Trio's own."""
    ours = [task for task in _tasks(runner) if not task.name.startswith(("trio.", "<"))]
    return tuple(sorted(f"{task.name}: {where(task.coro)}" for task in ours))


def _tasks(runner: Any) -> list[trio.lowlevel.Task]:
    """Every task that has not ended, the outer ones first."""
    found: list[trio.lowlevel.Task] = [runner.init_task]
    for task in found:  # grows as it goes
        found += [child for nursery in task.child_nurseries for child in nursery.child_tasks]
    return found


def _leave(_generator: object) -> None: ...


def _abandon(generators: Any) -> None:
    """Have nobody finalize the async generators of a runner that is gone: it would try, and complain."""
    generators.prev_hooks = SimpleNamespace(firstiter=None, finalizer=_leave)
    generators.foreign.update(map(id, generators.alive))


def _end_coroutine(coroutine: Any) -> None:
    for _ in range(_MOST_WAITS):
        try:
            coroutine.close()
        except RuntimeError:
            continue  # its clean-up waits for something
        return
