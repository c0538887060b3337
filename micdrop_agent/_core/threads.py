"""Blocking functions in threads that keep nobody waiting: neither each other nor the end of the process.

AnyIO's worker threads are not daemons on asyncio, so one that hangs keeps the process alive; and on Trio
an abandoned one holds its place among the forty until it ends, so hanging tools starve every other user
of threads. Here a thread is a daemon, and a place is held only while somebody waits for the result.
"""

from __future__ import annotations

import contextvars
import threading
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.from_thread
import anyio.lowlevel
import anyio.to_thread

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["MOST_THREADS", "run_in_thread", "threads_at_work"]

MOST_THREADS: Final = 40
"""Functions of tools that are waited for at a time, in one event loop; as many as AnyIO has for everything."""

_places: anyio.lowlevel.RunVar[anyio.CapacityLimiter] = anyio.lowlevel.RunVar("micdrop_agent.tool_threads")


_waited_for: Final[list[object]] = []


def threads_at_work() -> int:
    """Threads, in all event loops, whose result somebody waits for; virtual time stands still for them."""
    return len(_waited_for)


async def run_in_thread(function: Callable[[], Any]) -> Any:
    """What ``function`` returns; cancelled, its thread is left to itself.

    ``anyio.from_thread`` works inside. Its context variables are copies of the caller's.
    """
    places = _places.get(None)
    if places is None:
        places = anyio.CapacityLimiter(MOST_THREADS)
        _places.set(places)
    token = anyio.lowlevel.current_token()
    async with places:
        _waited_for.append(function)
        try:
            if "asyncio" in token.backend_class.__module__:
                return await _in_daemon(function, token)
            # Trio's threads are daemons; one place for this call alone, which nobody else waits for.
            place = anyio.CapacityLimiter(1)
            return await anyio.to_thread.run_sync(function, abandon_on_cancel=True, limiter=place)
        finally:
            _waited_for.remove(function)


async def _in_daemon(function: Callable[[], Any], token: anyio.lowlevel.EventLoopToken) -> Any:
    # The claim is what lets ``from_thread`` be called without a token, as in AnyIO's own workers.
    from anyio._core._eventloop import claim_worker_thread

    done = anyio.Event()
    result: list[Any] = []
    failed: list[BaseException] = []

    def work() -> None:
        with claim_worker_thread(token.backend_class, token.native_token):
            try:
                result.append(function())
            except BaseException as error:  # noqa: ASYNC103, BLE001 - raised again where it is waited for
                failed.append(error)
            try:
                anyio.from_thread.run_sync(done.set, token=token)
            except (anyio.RunFinishedError, RuntimeError):
                return  # abandoned, and the loop is gone

    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(work,), name="micdrop tool", daemon=True).start()
    await done.wait()
    if failed:
        raise failed.pop()
    return result.pop()
