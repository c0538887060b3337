"""Virtual time on both event loops: sleeping costs nothing, and every scheduling step can be watched.

    run_virtual("asyncio" | "trio", fn, ...)
        asyncio: a selector loop whose clock jumps to the next timer when nothing else can run
        trio:    a ``MockClock`` that does the same, and an instrument

Both give the same three things: an exact clock that starts at 0, ``on_step(k)`` between any two scheduling
steps (exactly where a foreign event handler would call ``agent.cancel()``), and an error in place of a hang.
"""

# Trio has no public way to seed the order of its tasks.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar, cast, get_args

import anyio
import anyio.to_thread

from micdrop_agent._core.threads import threads_at_work
from micdrop_agent._extras import install_command, installed
from micdrop_agent.errors import MicdropError
from micdrop_agent.testing._loop import (
    REAL_GRACE_S,
    RECORDING_GRACE_S,
    DeadlockError,
    Options,
    Steps,
    VirtualTimeLoop,
    records_now,
)
from micdrop_agent.testing._tape import CassetteError
from micdrop_agent.testing._wreck import forget_the_wreck, waiting_tasks, wreck_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Mapping

    import trio

T = TypeVar("T")
Backend: TypeAlias = Literal["asyncio", "trio", "asyncio-native"]

BACKENDS: Final[tuple[Backend, ...]] = ("asyncio", "trio") if installed("trio") else ("asyncio",)
"""The event loops that everything in the library runs on, as far as they are installed; use it to parametrize tests."""


def check_backend(backend: str) -> Backend:
    """``backend``, if it is one that can run here.

    Raises:
        ValueError: There is none of that name.
        MicdropError: It is Trio, which is not installed.
    """
    if backend not in get_args(Backend):
        raise ValueError(f'backend is "asyncio", "trio" or "asyncio-native", not {backend!r}')
    if backend == "trio" and not installed("trio"):
        raise MicdropError(f"Trio is not installed; run: {install_command('trio')}")
    return cast("Backend", backend)


def run_virtual(
    backend: str,
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
        ValueError: There is no such backend.
        MicdropError: It is Trio, which is not installed.
    """
    backend = check_backend(backend)
    steps = Steps(on_step, max_steps)
    options = Options(lag, shuffle_seed, time_limit, io_grace)
    with _told_alone():
        if backend == "trio":
            result = _run_trio(fn, args, steps, options)
        else:
            result = _run_asyncio(fn, args, steps, options, native=backend == "asyncio-native")
    if steps.error is not None:
        raise steps.error
    return result


@contextmanager
def _told_alone() -> Generator[None]:
    """Raise the error of a cassette as itself: its message says all.

    Where in the transport it was raised is a page of frames, with the groups of the tasks around them.
    """
    told: CassetteError | None = None
    try:
        yield
    except BaseException as error:  # noqa: ASYNC103 - around the whole run: no scope is outside, and all else goes on
        told = _lone_cassette_error(error)
        if told is None:
            raise
    if told is not None:
        raise told.with_traceback(None)


def _lone_cassette_error(error: BaseException) -> CassetteError | None:
    """The error of a cassette that ``error`` is, or that all in it are."""
    if isinstance(error, CassetteError):
        return error
    if not isinstance(error, BaseExceptionGroup):
        return None
    group = cast("BaseExceptionGroup[BaseException]", error)
    _, others = group.split(CassetteError)
    first = group.exceptions[0] if others is None else None
    return None if first is None else _lone_cassette_error(first)


def count_steps(backend: str, fn: Callable[..., Awaitable[object]], *args: Any) -> int:
    """How many scheduling steps ``fn`` takes when nothing disturbs it."""
    seen = [0]

    def note(step: int) -> None:
        seen[0] = step

    run_virtual(backend, fn, *args, on_step=note)
    return seen[0]


def _threads_busy() -> bool:
    """Whether a worker thread may still wake the loop, so that the clock must not jump."""
    return bool(threads_at_work()) or anyio.to_thread.current_default_thread_limiter().borrowed_tokens > 0


def _real_wait(options: Options) -> float:
    """Real seconds for which Trio waits for threads and sockets before its clock jumps."""
    if records_now():
        return RECORDING_GRACE_S
    return REAL_GRACE_S if _threads_busy() else options.io_grace


def _run_asyncio(
    fn: Callable[..., Awaitable[T]], args: tuple[Any, ...], steps: Steps, options: Options, *, native: bool
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


def _run_trio(fn: Callable[..., Awaitable[T]], args: tuple[Any, ...], steps: Steps, options: Options) -> T:
    import trio
    from trio._core import _run as trio_internals

    guard = trio.CancelScope()
    clock = _trio_clock(options)
    watch = _trio_watch(guard, clock, steps, options)

    async def main() -> T:
        with guard:
            guard.deadline = trio.current_time() + options.time_limit
            try:
                result = await fn(*args)
            finally:
                watch.done = True
            return result
        reason = watch.reason or f"still running after {options.time_limit:g} virtual seconds"
        raise DeadlockError(reason, watch.waiting)

    if options.shuffle_seed is not None:
        # Trio shuffles every batch anyway; its generator has no public seed (hypothesis seeds the same one).
        trio_internals._r.seed(options.shuffle_seed)
    try:
        return trio.run(main, clock=clock, instruments=[watch])
    except trio.TrioInternalError as error:
        if not isinstance(error.__cause__, DeadlockError):
            raise
        reason = str(error.__cause__)
        # The frames of the error hold what the run has left.
        error.__cause__ = error.__context__ = error.__traceback__ = None
    closers = [] if watch.runner is None else wreck_of(watch.runner)
    watch.runner = None
    forget_the_wreck(closers)
    raise DeadlockError(reason, watch.waiting)


def _trio_watch(guard: trio.CancelScope, clock: Any, steps: Steps, options: Options) -> Any:
    """The instrument that counts the steps, and ends a run in which nothing can happen any more."""
    import trio
    from trio._core import _run as trio_internals

    class Watch(trio.abc.Instrument):
        reason = ""
        waiting: tuple[str, ...] = ()
        done = False
        runner: Any = None

        def after_task_step(self, task: trio.lowlevel.Task) -> None:
            del task
            clock.autojump_threshold = _real_wait(options)
            if not steps.step():
                self.stop(f"still running after {steps.max_steps} scheduling steps")
                if steps.count > 2 * steps.max_steps:
                    clock.broken = self.reason + ", and not even cancellation ends it"

        def stop(self, reason: str) -> None:
            self.runner = cast("Any", trio_internals).GLOBAL_RUN_CONTEXT.runner
            self.waiting = self.waiting or waiting_tasks(self.runner)
            self.reason = self.reason or reason
            guard.cancel()

        def before_io_wait(self, timeout: float) -> None:
            del timeout
            now = trio.lowlevel.current_statistics()
            # Nobody waits for the guard's own deadline; after it, there is none at all.
            limit = float("inf") if self.reason else guard.deadline - clock.current_time() - 1e-6
            waits_for_ever = not now.tasks_runnable and now.seconds_to_next_deadline >= limit
            if self.done or not waits_for_ever or clock.autojump_threshold:
                return
            if self.reason:
                clock.broken = self.reason + ", and not even cancellation ends it"
            else:
                self.stop("deadlock: nothing is scheduled and nothing can wake a task")

    return Watch()


def _trio_clock(options: Options) -> Any:
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


def backend_options(backend: str) -> Mapping[str, Any]:
    """Options for ``anyio.run`` that give an event loop virtual time, for code that starts its own loop."""
    if check_backend(backend) == "trio":
        return {"clock": _trio_clock(Options(0.0, None, float("inf"), 0.0))}
    return {"loop_factory": lambda: VirtualTimeLoop(Steps(None, 2**62), Options(0.0, None, float("inf"), 0.0))}
