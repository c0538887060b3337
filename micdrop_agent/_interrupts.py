"""Ctrl-C on Trio, where it may raise ``KeyboardInterrupt`` between any two steps of any task.

    Ctrl-C ──▶ our code runs: Trio waits, and raises it in the main task's next wait
         └───▶ the application's code runs: Trio raises it there, at once

Raised in our code it would leave coroutines that nobody awaits, scopes that are half entered, and sockets
that nobody closes: no ``finally`` can be everywhere. Trio asks the innermost function on the stack that has an opinion
(``trio.lowlevel.enable_ki_protection``), so ours have one, and nothing is paid for it when they run. Tools,
hooks and ``generate_answer`` of the application are run through functions with the opposite one: code that computes for
ever can still be interrupted. asyncio cancels its main task instead, and needs none of this.

Pinned in tests/test_hosts_interrupt.py, at every step in which Python looks for signals.
"""

from __future__ import annotations

import inspect
import sys
from types import CoroutineType, FunctionType
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from anyio.abc import TaskGroup

__all__ = ["defer_interrupts", "interruptible", "interruptibly", "know_trio", "start_soon"]

F = TypeVar("F", bound="Callable[..., Any]")

_deferring: Final[list[Any]] = []
"""Functions that Trio does not know of yet."""


def defer_interrupts(what: F) -> F:
    """Decorates a function, or a class with all its functions: no Ctrl-C is raised in it, nor in what it calls."""
    made: object = what
    if isinstance(made, type):
        found = [getattr(value, "__func__", value) for value in vars(made).values()]
        _deferring.extend(inspect.unwrap(each) for each in found if isinstance(each, FunctionType))
    else:
        _deferring.append(inspect.unwrap(what))
    return what


def know_trio() -> None:
    """Tell Trio, if it is there, of the functions that it does not know yet."""
    if not _deferring:
        return
    trio: Any = sys.modules.get("trio")
    if trio is None:
        return
    for function in _deferring:
        trio.lowlevel.enable_ki_protection(function)
    _deferring.clear()
    for function in (_run, interruptibly):
        trio.lowlevel.disable_ki_protection(function)


def start_soon(tasks: TaskGroup, work: Callable[..., Coroutine[Any, Any, None]], *args: Any, name: str = "") -> None:
    """As ``tasks.start_soon``. ``work`` defers interrupts itself, so it is the first frame of its task on Trio.

    AnyIO puts one of its own around it, in which a Ctrl-C could be raised before the work has begun.
    """
    # Not public. Without it AnyIO's way is as good, but for that moment.
    nursery: Any = getattr(tasks, "_nursery", None)
    (tasks if nursery is None else nursery).start_soon(work, *args, name=name or None)


async def interruptible(work: Awaitable[Any]) -> Any:
    """Await what the application's code has made: a Ctrl-C is raised in it again."""
    try:
        return await _run(work)
    finally:
        # Interrupted before its first step it would complain that nobody has awaited it.
        if isinstance(work, CoroutineType):
            work.close()


async def _run(work: Awaitable[Any]) -> Any:
    return await work


def interruptibly(function: Callable[..., Any], /, *args: Any, **more: Any) -> Any:
    """Call a function of the application, which makes no coroutine: a Ctrl-C is raised in it again.

    A coroutine that has just been made would be lost, not yet awaited, to one that comes as it is returned.
    """
    return function(*args, **more)


defer_interrupts(interruptible)
