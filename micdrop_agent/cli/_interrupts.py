"""Ctrl-C as something to wait for, on every system and loop.

AnyIO asks the loop for it, and asyncio's loop on Windows has no way: there a handler of the process hands it on.
"""

from __future__ import annotations

import signal
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import anyio

from micdrop_agent._event_loop import running_loop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Generator

__all__ = ["forgive_accepting", "interrupts"]

_MANY = 16
"""Presses that wait to be read; of more than these at once, nobody means anything else."""


@contextmanager
def interrupts() -> Generator[AsyncIterator[signal.Signals]]:
    """Each Ctrl-C while the block runs; it raises no ``KeyboardInterrupt`` then."""
    with ExitStack() as stack:
        try:
            signals = stack.enter_context(anyio.open_signal_receiver(signal.SIGINT))
        except NotImplementedError:  # asyncio on Windows
            signals = stack.enter_context(_handed_on())
        yield signals


@contextmanager
def _handed_on() -> Generator[AsyncIterator[signal.Signals]]:
    loop: Any = running_loop()
    told, signals = anyio.create_memory_object_stream[signal.Signals](_MANY)

    def tell() -> None:
        with suppress(anyio.WouldBlock, anyio.BrokenResourceError, anyio.ClosedResourceError):
            told.send_nowait(signal.SIGINT)

    # The handler runs between any two instructions of the main thread: it only wakes the loop.
    before = signal.signal(signal.SIGINT, lambda _number, _frame: loop.call_soon_threadsafe(tell))
    try:
        with told, signals:
            yield signals
    finally:
        signal.signal(signal.SIGINT, before)


def forgive_accepting() -> None:
    """Keep asyncio from reporting a connection that came just when its server was cancelled.

    It hands the connection to a future that is cancelled already, which raises in a callback where nobody can
    catch it; whoever pressed Ctrl-C would see a traceback.
    """
    loop: Any = running_loop()
    if loop is None:
        return

    def report(loop: Any, context: dict[str, Any]) -> None:
        if type(context.get("exception")).__name__ != "InvalidStateError":
            loop.default_exception_handler(context)

    loop.set_exception_handler(report)
