"""SIGTERM for a worker that drains first: taken from the server, and handed on to it when the drain is over.

    SIGTERM ──▶ drain.start() ──▶ … drained … ──▶ the server's own handler, as if the signal had come now

Uvicorn closes its WebSockets with 1012 as soon as it sees the signal, after which the browser client does
not come back; hypercorn gives them seconds that it counts itself. So neither may see it earlier.
"""

from __future__ import annotations

import signal
import sys
import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import anyio

from micdrop_agent._core.groups import lone_error_unwrapped
from micdrop_agent._event_loop import running_loop
from micdrop_agent.call._seats import log

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable

    from micdrop_agent.call._drain import Drain

__all__ = ["StopSignal"]

BY_ITSELF: Final = 2.0
"""Seconds in which a server that handles no signal in this process stops by itself, because its parent was told."""


class StopSignal(anyio.AsyncContextManagerMixin):
    """SIGTERM starts ``drain`` while the block runs.

    Args:
        drain: What is started.
        over: Waits until the drain is over, and tells whether the server has to be stopped.

    Attributes:
        stopping: To be set when the server stops.
    """

    def __init__(self, drain: Drain, over: Callable[[], Awaitable[bool]]) -> None:
        self._drain = drain
        self._over = over
        self.stopping = anyio.Event()
        self._loop: Any = None
        self._before: Any = None
        self._received = anyio.Event()

    @asynccontextmanager
    async def __asynccontextmanager__(self) -> AsyncGenerator[StopSignal]:
        if sys.platform == "win32" or threading.current_thread() is not threading.main_thread():
            log.info("on Windows, or not in the main thread: SIGTERM does not start the drain here")
            yield self
            return
        loop: Any = running_loop()
        self._loop = loop
        # A handler of the loop's (hypercorn) is not to be had back: then SIGINT stops the server instead.
        of_loop = loop is not None and loop.remove_signal_handler(signal.SIGTERM)
        self._before = None if of_loop else signal.getsignal(signal.SIGTERM)
        try:
            with lone_error_unwrapped(), anyio.open_signal_receiver(signal.SIGTERM) as signals:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._listen, signals)
                    tasks.start_soon(self._hand_on)
                    try:
                        yield self
                    finally:
                        tasks.cancel_scope.cancel()
        finally:
            if callable(self._before):
                signal.signal(signal.SIGTERM, self._before)

    async def _listen(self, signals: AsyncIterator[signal.Signals]) -> None:
        async for _ in signals:
            # The second one says that whoever sent it does not want to wait.
            self._drain.start(0.0 if self._drain.draining else None)
            self._received.set()

    async def _hand_on(self) -> None:
        """Stop the server, once a signal has come and the drain is over."""
        await self._received.wait()
        if not await self._over() or self.stopping.is_set():
            return
        if callable(self._before):
            self._before(int(signal.SIGTERM), None)
        elif callable(signal.getsignal(signal.SIGINT)):
            self._soon(lambda: signal.raise_signal(signal.SIGINT))
        else:
            # A worker process of hypercorn's handles no signal: its parent tells it to stop.
            with anyio.move_on_after(BY_ITSELF):
                await self.stopping.wait()
                return
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.raise_signal(signal.SIGTERM)

    def _soon(self, what: Callable[[], object]) -> None:
        """Run it outside of any task: Trio would raise KeyboardInterrupt in this one, and not where the server waits."""
        if self._loop is None:
            sys.modules["trio"].lowlevel.current_trio_token().run_sync_soon(what)
        else:
            self._loop.call_soon(what)
