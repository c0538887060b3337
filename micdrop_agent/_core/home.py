"""Where an open agent lives: its thread, its event loop, and how that loop cancels."""

from __future__ import annotations

import math
import sys
import threading
from typing import TYPE_CHECKING, Any

import anyio

from micdrop_agent._core.scopes import deliver_again, task_scope_class
from micdrop_agent._event_loop import running_loop
from micdrop_agent._interrupts import know_trio

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["Home", "cancel_soon", "cancelled_from_outside"]


class Home:
    """Where an open agent lives: its thread, its event loop, and that loop's clock.

    Attributes:
        loop: The asyncio loop; ``None`` on Trio.
        clock: Seconds on the loop's clock, as ``anyio.current_time()`` gives them.
        new_scope: Makes a cancel scope: the class that ``anyio.CancelScope()`` looks up each time.
        task_scope: Makes the outermost scope of a task; see ``scopes``.
    """

    __slots__ = ("_mark", "_running", "_thread", "clock", "loop", "new_scope", "task_scope")

    def __init__(self) -> None:
        loop: Any = running_loop()
        if loop is None:
            know_trio()
        self.loop: Any = loop
        self.clock: Callable[[], float] = anyio.current_time if loop is None else loop.time
        self.new_scope: type[anyio.CancelScope] = type(anyio.CancelScope())
        self.task_scope: type[anyio.CancelScope] = task_scope_class()
        self._thread = threading.get_ident()
        # Looked up once: cancel() is waited for.
        self._running: Any = None if loop is None else sys.modules["asyncio"]._get_running_loop
        sniffio: Any = sys.modules.get("sniffio")
        self._mark: Any = None if sniffio is None else sniffio.current_async_library_cvar

    def check(self, what: str) -> None:
        """Refuse a call from another thread or another event loop than the agent's."""
        if self.loop is not None and self._running() is self.loop:  # and so in its thread
            if self._mark is not None and self._mark.get() is None:
                self._make_known()
            return
        if threading.get_ident() != self._thread:
            raise RuntimeError(
                f"{what} was called from another thread than the agent's event loop; use "
                "anyio.from_thread.run_sync, or loop.call_soon_threadsafe"
            )
        if running_loop() is not self.loop:
            raise RuntimeError(
                f"{what} was called from another event loop than the one in which the agent was "
                "opened; an agent belongs to one event loop"
            )

    def cancellations(self) -> int:
        """How often the current task was cancelled natively; always 0 on Trio."""
        task = None if self.loop is None else sys.modules["asyncio"].current_task()
        return 0 if task is None else task.cancelling()

    def deliver_lost(self, before: int) -> None:
        """An error leaves a block; a native cancellation that came after ``before`` must not be lost to it."""
        if self.loop is not None and self.cancellations() > before:
            deliver_again(self.loop, sys.modules["asyncio"].current_task(), before)

    def _make_known(self) -> None:
        """Let AnyIO recognise an asyncio loop that was not started by it from within a bare callback.

        With sniffio installed (Trio brings it) AnyIO sees only tasks: ``loop.call_soon(agent.cancel)``, a
        signal handler or a protocol's ``data_received`` would fail. The mark stays in their own context.
        """
        if sys.modules["asyncio"].current_task() is None:
            self._mark.set("asyncio")


def cancelled_from_outside() -> bool:
    """Whether a cancellation that was just caught was asked for, by a scope or of this very task.

    On asyncio an awaited future that somebody else cancelled raises ``CancelledError`` too: for
    the code that awaits it this is an error like any other.
    """
    if running_loop() is None or anyio.current_effective_deadline() == -math.inf:
        return True
    task = sys.modules["asyncio"].current_task()
    return task is None or task.cancelling() > 0


def cancel_soon(home: Home, scope: anyio.CancelScope, streams: Iterable[object]) -> None:
    """Hang up ``streams`` and cancel ``scope`` before any task runs that is not on its way yet.

    A caller waits for this: on asyncio AnyIO describes the cancelling task in words, which costs more
    than the rest of a barge-in, so it is done as the loop's next callback. What a fenced turn still does
    until then has no effect, as with every cancellation that was not delivered yet.
    """

    def release() -> None:
        for stream in streams:
            # A hint that not every stream can follow: the server stops at once, closing comes later.
            hang_up = getattr(stream, "abort", None)
            if hang_up is not None:
                hang_up()
        scope.cancel()

    if home.loop is None:
        release()
    else:
        home.loop.call_soon(release)
