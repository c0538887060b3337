"""Virtual time on both event loops: sleeping costs nothing, and every scheduling step can be watched.

    run_virtual("asyncio" | "trio", fn, ...)
        asyncio: a selector loop whose clock jumps to the next timer when nothing else can run
        trio:    a ``MockClock`` that does the same, and an instrument

Both give the same three things: an exact clock that starts at 0, ``on_step(k)`` between any two scheduling
steps (exactly where a foreign event handler would call ``agent.cancel()``), and an error in place of a hang.
"""

from __future__ import annotations

import asyncio
import random
import selectors
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar, cast

import anyio
import anyio.to_thread
import attrs

if TYPE_CHECKING:
    import contextvars

T = TypeVar("T")
Backend: TypeAlias = Literal["asyncio", "trio", "asyncio-native"]

BACKENDS: Final[tuple[Backend, ...]] = ("asyncio", "trio")
"""The two event loops that everything in the library runs on; use it to parametrize tests."""

_REAL_GRACE_S: Final = 10.0
"""Longest real wait for a worker thread or a socket before it counts as hung."""


class DeadlockError(Exception):
    """Nothing can run any more, or the run went on for too long; a real run would hang here.

    Attributes:
        waiting: What each unfinished task is waiting for, one line per task.
    """

    def __init__(self, message: str, waiting: tuple[str, ...] = ()) -> None:
        super().__init__("\n  ".join((message, *waiting)))
        self.waiting = waiting


@attrs.define(eq=False)
class _Steps:
    """Counts scheduling steps, tells the observer, and keeps the first error it raises."""

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
            except BaseException as error:  # noqa: BLE001  # the event loop would swallow it; it is raised after the run
                self.error = error
        return self.count <= self.max_steps


def run_virtual(
    backend: Backend,
    fn: Callable[..., Awaitable[T]],
    *args: Any,
    on_step: Callable[[int], object] | None = None,
    lag: float = 0.0,
    shuffle_seed: int | None = None,
    time_limit: float = 100_000.0,
    max_steps: int = 1_000_000,
    io_grace: float = 0.0,
) -> T:
    """Run ``await fn(*args)`` in virtual time and return its result.

    Works from plain tests and inside hypothesis; each call has an event loop and a clock of its own.

    Args:
        backend: ``"asyncio"``, ``"trio"``, or ``"asyncio-native"`` (asyncio as a host without AnyIO starts it).
        fn: The async function to run.
        *args: Its arguments.
        on_step: Called with 1, 2, … after every scheduling step, outside any task. An error it raises comes out at the end.
        lag: Seconds by which every sleep overshoots, so that deadlines and data fall into one batch, as on a busy machine.
        shuffle_seed: Run what is ready in an order drawn from this seed in place of the usual one.
        time_limit: Virtual seconds after which the run counts as hung.
        max_steps: Scheduling steps after which the run counts as a busy loop.
        io_grace: Real seconds to wait for sockets before the clock jumps; only for runs that use real ones.

    Raises:
        DeadlockError: Nothing can run any more, or a limit was reached.
    """
    steps = _Steps(on_step, max_steps)
    options = _Options(lag, shuffle_seed, time_limit, io_grace)
    if backend == "trio":
        result = _run_trio(fn, args, steps, options)
    else:
        result = _run_asyncio(fn, args, steps, options, native=backend == "asyncio-native")
    if steps.error is not None:
        raise steps.error
    return result


def count_steps(backend: Backend, fn: Callable[..., Awaitable[object]], *args: Any) -> int:
    """How many scheduling steps ``fn`` takes when nothing disturbs it."""
    seen = [0]

    def note(step: int) -> None:
        seen[0] = step

    run_virtual(backend, fn, *args, on_step=note)
    return seen[0]


@attrs.frozen
class _Options:
    lag: float
    shuffle_seed: int | None
    time_limit: float
    io_grace: float


def _threads_busy() -> bool:
    """Whether a worker thread may still wake the loop, so that the clock must not jump."""
    return anyio.to_thread.current_default_thread_limiter().borrowed_tokens > 0


# ------------------------------------------------------------------------------------------- asyncio


class _VirtualSelector(selectors.DefaultSelector):  # type: ignore[valid-type, misc]  # the class depends on the platform
    """Turns the time-out of a wait into a jump of the loop's clock."""

    loop: VirtualTimeLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(0)
        if not events and timeout != 0:
            events = self._wait(timeout)
        self.loop.before_batch()
        return cast("list[tuple[selectors.SelectorKey, int]]", events)

    def _wait(self, timeout: float | None) -> list[tuple[selectors.SelectorKey, int]]:
        loop = self.loop
        busy = loop.main_limiter_busy()
        # One key is the loop's own wake-up pipe; more are sockets that somebody waits on. The loop's executor
        # resolves host names.
        sockets = len(self.get_map()) > 1 or cast("Any", loop)._default_executor is not None
        if busy or (sockets and (timeout is None or loop.options.io_grace > 0)):
            real = _REAL_GRACE_S if busy or timeout is None else loop.options.io_grace
            events = super().select(real)
            if events:
                return cast("list[tuple[selectors.SelectorKey, int]]", events)
        if timeout is None:
            raise loop.deadlock("deadlock: nothing is scheduled and nothing can wake a task")
        loop.jump(timeout)
        return []


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An asyncio event loop in virtual time; made by ``run_virtual``."""

    def __init__(self, steps: _Steps, options: _Options) -> None:
        selector = _VirtualSelector()
        selector.loop = self
        self.options = options
        self._steps = steps
        self._now = 0.0
        self._over = False
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
        if self._now > self.options.time_limit and not self._over:
            raise self.deadlock(f"still running after {self.options.time_limit:g} virtual seconds")

    def deadlock(self, message: str) -> DeadlockError:
        """The error that says which tasks wait; later ones are for the clean-up, which may take its time."""
        self._over = True
        tasks = sorted(asyncio.all_tasks(self), key=lambda task: task.get_name())
        return DeadlockError(message, tuple(f"{task.get_name()}: {_where(task)}" for task in tasks))

    def before_batch(self) -> None:
        """Check the step limit and shuffle what is ready."""
        if self._steps.count > self._steps.max_steps and not self._over:
            raise self.deadlock(f"still running after {self._steps.max_steps} scheduling steps")
        if self._random is not None:
            ready = cast("Any", self)._ready
            order = list(ready)
            self._random.shuffle(order)
            ready.clear()
            ready.extend(order)

    def main_limiter_busy(self) -> bool:
        """Whether a worker thread of AnyIO is at work."""
        return self.limiter is not None and self.limiter.borrowed_tokens > 0

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


def _where(task: asyncio.Task[Any]) -> str:
    """The innermost frame of a waiting task."""
    waiter: Any = task.get_coro()
    frame = None
    while (inner := getattr(waiter, "cr_frame", None)) is not None:
        frame, waiter = inner, waiter.cr_await
    if frame is None:
        return "finished"
    return f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_qualname}"


def _run_asyncio(
    fn: Callable[..., Awaitable[T]], args: tuple[Any, ...], steps: _Steps, options: _Options, *, native: bool
) -> T:
    loops: list[VirtualTimeLoop] = []

    def new_loop() -> VirtualTimeLoop:
        loops.append(VirtualTimeLoop(steps, options))
        return loops[-1]

    async def main() -> T:
        loops[-1].limiter = anyio.to_thread.current_default_thread_limiter()
        return await fn(*args)

    if native:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            return runner.run(main())
    return anyio.run(main, backend="asyncio", backend_options={"loop_factory": new_loop})


# ---------------------------------------------------------------------------------------------- Trio


def _run_trio(fn: Callable[..., Awaitable[T]], args: tuple[Any, ...], steps: _Steps, options: _Options) -> T:
    import trio
    from trio._core import _run as trio_internals

    guard = trio.CancelScope()
    clock = _trio_clock(options)

    class Watch(trio.abc.Instrument):
        def __init__(self) -> None:
            self.reason = ""

        def after_task_step(self, task: trio.lowlevel.Task) -> None:
            clock.autojump_threshold = _REAL_GRACE_S if _threads_busy() else options.io_grace
            if not steps.step():
                self.stop(f"still running after {steps.max_steps} scheduling steps")

        def stop(self, reason: str) -> None:
            self.reason = self.reason or reason
            guard.cancel()

        def before_io_wait(self, timeout: float) -> None:
            now = trio.lowlevel.current_statistics()
            # The guard's own deadline is no reason to wait for; after it, there is none at all.
            limit = float("inf") if self.reason else guard.deadline - clock.current_time() - 1e-6
            waits_for_ever = not now.tasks_runnable and now.seconds_to_next_deadline >= limit
            if state == ["done"] or not waits_for_ever or clock.autojump_threshold:
                return
            if self.reason:
                clock.broken = self.reason + ", and not even cancellation ends it"
            else:
                self.stop("deadlock: nothing is scheduled and nothing can wake a task")

    watch = Watch()
    state: list[str] = []

    async def main() -> T:
        with guard:
            guard.deadline = trio.current_time() + options.time_limit
            try:
                result = await fn(*args)
            finally:
                state.append("done")
        if guard.cancelled_caught:
            raise DeadlockError(watch.reason or f"still running after {options.time_limit:g} virtual seconds")
        return result

    if options.shuffle_seed is not None:
        # Trio shuffles every batch anyway; its generator has no public seed (hypothesis seeds the same one).
        trio_internals._r.seed(options.shuffle_seed)
    try:
        return trio.run(main, clock=clock, instruments=[watch])
    except trio.TrioInternalError as error:
        if isinstance(error.__cause__, DeadlockError):
            raise error.__cause__ from None
        raise


def _trio_clock(options: _Options) -> Any:
    """A ``MockClock`` that overshoots and can be broken; the run loop asks for this very class, which is final."""
    import trio.testing

    clock: Any = trio.testing.MockClock(autojump_threshold=options.io_grace)
    jump, current_time = clock.jump, clock.current_time
    clock.broken = None

    def lagging_jump(seconds: float) -> None:
        jump(seconds + options.lag)

    def guarded_time() -> float:
        if clock.broken is not None:
            # An error in the clock is the only thing that ends a run whose tasks are all shielded.
            raise DeadlockError(clock.broken)
        return cast("float", current_time())

    clock.jump, clock.current_time = lagging_jump, guarded_time
    return clock


def backend_options(backend: Backend) -> Mapping[str, Any]:
    """Options for ``anyio.run`` that give an event loop virtual time, for code that starts its own loop."""
    if backend == "trio":
        return {"clock": _trio_clock(_Options(0.0, None, float("inf"), 0.0))}
    return {"loop_factory": lambda: VirtualTimeLoop(_Steps(None, 2**62), _Options(0.0, None, float("inf"), 0.0))}
