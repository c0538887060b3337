"""An asyncio event loop whose clock jumps, and what it shares with the Trio side of virtual time."""

from __future__ import annotations

import asyncio
import random
import selectors
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, cast

import attrs

from micdrop_agent._core.threads import threads_at_work

if TYPE_CHECKING:
    import contextvars
    from collections.abc import Callable, Generator

    import anyio

REAL_GRACE_S: Final = 10.0
"""Longest real wait for a worker thread or a socket before it counts as hung."""


RECORDING_GRACE_S: Final = 300.0
"""Longest real wait for a server while a cassette records it: a model on a processor is slow to begin."""


class _StandingStill:
    """Counts who waits for a real server in virtual time."""

    waiting = 0


@contextmanager
def time_stands_still(really: bool) -> Generator[None]:
    """Let no virtual time pass inside, while a cassette waits for a server that lives in real time."""
    _StandingStill.waiting += really
    try:
        yield
    finally:
        _StandingStill.waiting -= really


def records_now() -> bool:
    """Whether a cassette waits for a real server."""
    return _StandingStill.waiting > 0


class DeadlockError(Exception):
    """Nothing can run any more, or the run went on for too long; a real run would hang here.

    Attributes:
        waiting: What each unfinished task is waiting for, one line per task.
    """

    def __init__(self, message: str, waiting: tuple[str, ...] = ()) -> None:
        super().__init__("\n  ".join((message, *waiting)))
        self.waiting = waiting


@attrs.define(eq=False)
class Steps:
    """Counts scheduling steps, informs the observer, and keeps the first error it raises."""

    on_step: Callable[[int], object] | None
    max_steps: int
    count: int = 0
    error: BaseException | None = None

    def step(self) -> bool:
        """Count one step; False once there were too many."""
        self.count += 1
        if self.on_step is not None and self.error is None:
            try:
                self.on_step(self.count)
            except BaseException as error:  # noqa: BLE001, ASYNC103 - the event loop would swallow it; it is raised after the run
                self.error = error
        return self.count <= self.max_steps


@attrs.frozen
class Options:
    """How time passes in one run; see ``run_virtual``."""

    lag: float
    shuffle_seed: int | None
    time_limit: float
    io_grace: float


class _VirtualSelector(selectors.DefaultSelector):
    """Turns the time-out of a wait into a jump of the loop's clock."""

    loop: VirtualTimeLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(0)
        if not events and timeout != 0:
            events = self._wait(timeout)
        self.loop.before_batch()
        return events

    def _wait(self, timeout: float | None) -> list[tuple[selectors.SelectorKey, int]]:
        loop = self.loop
        busy = loop.main_limiter_busy()
        if records_now():
            events = super().select(RECORDING_GRACE_S)
            if events:
                return events
        # One key is the loop's own wake-up pipe; more are sockets that somebody waits on. The loop's executor
        # resolves host names.
        sockets = len(self.get_map()) > 1 or cast("Any", loop)._default_executor is not None  # not public
        if busy or (sockets and (timeout is None or loop.options.io_grace > 0)):
            real = REAL_GRACE_S if busy or timeout is None else loop.options.io_grace
            events = super().select(real)
            if events:
                return events
        if timeout is None:
            raise loop.deadlock("deadlock: nothing is scheduled and nothing can wake a task")
        loop.jump(timeout)
        return []


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An asyncio event loop in virtual time; made by ``run_virtual``."""

    def __init__(self, steps: Steps, options: Options) -> None:
        selector = _VirtualSelector()
        selector.loop = self
        self.options = options
        self._steps = steps
        self._now = 0.0
        self._time_limit = options.time_limit
        self._step_limit = steps.max_steps
        self._random = None if options.shuffle_seed is None else random.Random(options.shuffle_seed)  # noqa: S311  # order only
        self.limiter: anyio.CapacityLimiter | None = None
        super().__init__(selector)

    def time(self) -> float:
        """Virtual seconds since the start of the run."""
        return self._now

    def jump(self, seconds: float) -> None:
        """Let time pass at once."""
        # Landing a hair short of the timer would make the loop ask again for a jump of 1e-17 s.
        self._now += max(seconds, 1e-9) + self.options.lag
        if self._now > self._time_limit:
            # What cleans up after the error gets as much again.
            self._time_limit += self.options.time_limit
            raise self.deadlock(f"still running after {self.options.time_limit:g} virtual seconds")

    def deadlock(self, message: str) -> DeadlockError:
        """The error that says which tasks wait."""
        tasks = sorted(asyncio.all_tasks(self), key=lambda task: task.get_name())
        return DeadlockError(message, tuple(f"{task.get_name()}: {where(task.get_coro())}" for task in tasks))

    def before_batch(self) -> None:
        """Check the step limit and shuffle what is ready."""
        if self._steps.count > self._step_limit:
            self._step_limit += self._steps.max_steps
            raise self.deadlock(f"still running after {self._steps.max_steps} scheduling steps")
        if self._random is not None:
            ready = cast("Any", self)._ready  # the queue has no public name
            order = list(ready)
            self._random.shuffle(order)
            ready.clear()
            ready.extend(order)

    def main_limiter_busy(self) -> bool:
        """Whether a worker thread of AnyIO, or that of a tool, is at work."""
        return bool(threads_at_work()) or (self.limiter is not None and self.limiter.borrowed_tokens > 0)

    def _counted(self, callback: Callable[..., object]) -> Callable[..., None]:
        def run(*args: Any) -> None:
            try:
                callback(*args)
            finally:
                self._steps.step()

        return run

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """As in asyncio, counted."""
        return super().call_soon(self._counted(callback), *args, context=context)

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """As in asyncio, counted."""
        return super().call_soon_threadsafe(self._counted(callback), *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """As in asyncio, counted."""
        return super().call_at(when, self._counted(callback), *args, context=context)


def where(coroutine: Any) -> str:
    """The innermost frame of a coroutine that waits."""
    waiter: Any = coroutine
    frame = None
    while (inner := getattr(waiter, "cr_frame", None)) is not None:
        frame, waiter = inner, waiter.cr_await
    if frame is None:
        return "finished"
    return f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_qualname}"
