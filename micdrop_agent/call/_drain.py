"""``Drain``: how a worker stops without cutting anybody off, and refuses what it could only serve late.

    SIGTERM ─▶ start() ─▶ no new call ─▶ each call ends with its turn ─▶ deadline: the rest is cut ─▶ the server stops

Invariants, pinned in tests/test_drain.py:

1. From ``start()`` on no call is admitted.
2. Before the deadline no call is ended inside a turn.
3. No call outlives the deadline; foreign code that does not let go keeps nobody for longer than ``CLEAN_UP``.
4. A call that is ended so is closed with 1001, the code after which the client comes back.
"""

from __future__ import annotations

import math
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

import anyio

from micdrop_agent._core.groups import lone_error_unwrapped
from micdrop_agent.call._lag import LoopLag
from micdrop_agent.call._params import GOING_AWAY, CallRefusedError
from micdrop_agent.call._seats import Seat, current_seat, log
from micdrop_agent.options import check_count, check_seconds, check_text

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Generator

    from anyio.abc import TaskGroup

    from micdrop_agent.call._call import Call
    from micdrop_agent.call._drain_asgi import AsgiApp
    from micdrop_agent.call._result import CallResult

__all__ = ["Drain"]

FORCE_AFTER: Final = 1.0
"""Seconds that a call has to end when it is cut; then its connection is closed from outside."""

CLEAN_UP: Final = 3.0
"""Seconds after the deadline in which calls close their agents and store what is left."""

CLOSE_TIMEOUT: Final = 1.0
"""Seconds that the close frame may take to a client that does not read."""

WaitFor = Literal["turn", "call"]


class Drain(anyio.AsyncContextManagerMixin):
    """Counts the calls of a worker, refuses those it cannot serve, and lets the worker stop in peace.

        drain = Drain(grace=25, capacity=200)

        async def talk(websocket):
            async with starlette_link(websocket) as link:
                await drain.run(Call(link, agent=agent, stt=stt, tts=tts))

        app = drain.wrap(Starlette(routes=[WebSocketRoute("/call", talk), Mount("/fleet", drain.endpoint)]))

    On SIGTERM the worker takes no new calls: a new WebSocket is answered with 503, or closed with 1001 where
    the server cannot do that. Each live call ends with its turn: when nobody speaks, no text is awaited and
    everything that was said has been heard. What is left after ``grace`` seconds is cut. All of them are
    closed with 1001, so that the browser client comes back, to another worker; then the server stops.

    One for each worker. ``wrap()`` opens it with the application; without it, use ``async with``.

    Args:
        grace: Seconds from the signal to the deadline. Closing what is left takes up to 3 more.
        capacity: Calls at a time; ``None``: no limit.
        max_lag: Seconds that timers of the event loop may be late, smoothed over about a second, before
            new calls are refused; ``None``: no limit.
        wait_for: What a live call may end on its own before the deadline: its ``"turn"``, or the whole ``"call"``.
        token: What a request to ``endpoint`` has to bring to start the drain
            (``Authorization: Bearer ...``); ``None``: no request can.

    Raises:
        TypeError: An option has the wrong type.
        ValueError: An option is out of range; the message names it.
    """

    def __init__(
        self,
        *,
        grace: float = 25.0,
        capacity: int | None = None,
        max_lag: float | None = 0.1,
        wait_for: WaitFor = "turn",
        token: str | None = None,
    ) -> None:
        check_seconds("grace", grace)
        check_seconds("max_lag", max_lag, zero=False, none=True)
        if capacity is not None:
            check_count("capacity", capacity, least=1)
        if wait_for not in get_args(WaitFor):
            raise ValueError(f"wait_for is one of {', '.join(map(repr, get_args(WaitFor)))}, not {wait_for!r}")
        if token is not None:
            check_text("token", token, empty=False)
        self.grace = grace
        self.capacity = capacity
        self.max_lag = max_lag
        self.wait_for = wait_for
        self.token = token
        self.refused = 0
        """Calls that were refused."""
        self._lag = LoopLag()
        self._seats: set[Seat] = set()
        self._begun = anyio.Event()
        self._over = anyio.Event()
        self._freed = anyio.Event()
        self._deadline = math.inf
        self._patience: anyio.CancelScope | None = None
        self._tasks: TaskGroup | None = None
        self._waiting = 0
        self._awaited = False
        """Somebody waited for the end of the drain, and stops the server."""

    # -- what a balancer wants to know

    @property
    def calls(self) -> int:
        """Live calls, and WebSockets on which one may begin."""
        return len(self._seats)

    @property
    def loop_lag(self) -> float:
        """Seconds that timers of the event loop are late at present."""
        return self._lag.seconds

    @property
    def load(self) -> float:
        """How much of what this worker can do it does: 1 is full. The larger of calls and lag, each of its limit."""
        calls = 0.0 if self.capacity is None else self.calls / self.capacity
        return max(calls, 0.0 if self.max_lag is None else self.loop_lag / self.max_lag)

    @property
    def draining(self) -> bool:
        """Whether the drain has begun."""
        return self._begun.is_set()

    @property
    def drained(self) -> bool:
        """Whether it is over: the server may stop."""
        return self._over.is_set()

    @property
    def refuses(self) -> Literal["draining", "full", "late"] | None:
        """Why a new call would be refused; ``None`` if it would not."""
        if self.draining:
            return "draining"
        if self.capacity is not None and self.calls >= self.capacity:
            return "full"
        if self.max_lag is not None and self.loop_lag > self.max_lag:
            return "late"
        return None

    # -- the calls

    async def run(self, call: Call) -> CallResult:
        """``await call.run()`` for a call that this worker may have to give away.

        Raises:
            CallRefusedError: The worker takes no calls at present; the client is told to come back (1001).
        """
        seat = current_seat.get()
        if seat is None or seat.owner is not self:
            with self._take() as seat:
                return await self._run(seat, call)
        if self.draining:  # it began while the call was being prepared
            raise self._refusal("draining")
        return await self._run(seat, call)

    async def _run(self, seat: Seat, call: Call) -> CallResult:
        seat.bind(lambda: call.stop(after_turn=True), call.stop)
        try:
            result = await call.run()
        finally:
            seat.bind(None, None)
        if seat.told:
            # A client that was asked to hang up must not come back.
            code = 1000 if call.hanging_up else GOING_AWAY
            with anyio.move_on_after(CLOSE_TIMEOUT, shield=True):
                await call.link.close(code)
        return result

    @contextmanager
    def seat(self, *, cut: Callable[[], object], leave: Callable[[], object] | None = None) -> Generator[None]:
        """Count something else than a ``Call`` as one, while the block runs.

        Args:
            cut: Ends it at the deadline; called from another task. A cancel scope's ``cancel``, for example.
            leave: Asks it to end with its turn when the drain begins; ``None``: it has until the deadline.

        Raises:
            CallRefusedError: The worker takes no calls at present.
        """
        with self._take() as seat:
            seat.bind(leave, cut)
            yield

    @contextmanager
    def _take(self, force: Callable[[], object] | None = None) -> Generator[Seat]:
        """The seat of one connection; ``force`` closes it whatever the application does."""
        reason = self.refuses
        if reason is not None:
            raise self._refusal(reason)
        seat = Seat(self, force)
        self._seats.add(seat)
        try:
            yield seat
        finally:
            self._seats.discard(seat)
            if not self._seats:
                self._freed.set()

    def _refusal(self, reason: str) -> CallRefusedError:
        self.refused += 1
        return CallRefusedError(GOING_AWAY, reason)

    # -- the drain

    def start(self, grace: float | None = None) -> None:
        """Begin: no new calls, and the live ones leave. Again: only to shorten the time.

        Args:
            grace: Seconds to the deadline; those of the constructor if left out.

        Raises:
            RuntimeError: It is not open.
        """
        if self._tasks is None:
            raise RuntimeError("the Drain is not open; serve its wrap(app), or use async with")
        deadline = anyio.current_time() + (self.grace if grace is None else grace)
        self._deadline = deadline = min(self._deadline, deadline)
        if self._patience is not None:
            self._patience.deadline = deadline
        if self.draining:
            return
        self._begun.set()
        log.info("draining: %d calls have %g seconds to leave", self.calls, deadline - anyio.current_time())
        if self.wait_for == "turn":
            for seat in tuple(self._seats):
                seat.leave()

    async def wait(self) -> None:
        """Wait until a drain is over. Whoever waits stops the server; nobody else does it then.

        For servers that are started by a program: ``serve(app, config, shutdown_trigger=drain.wait)``.
        """
        self._waiting += 1
        try:
            await self._over.wait()
        finally:
            self._waiting -= 1

    async def _let_go(self) -> bool:
        """Wait until a drain is over; whether the server has to be stopped then, because nobody ``wait()``s."""
        await self._over.wait()
        return not self._awaited

    def _spawn(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if self._tasks is not None:
            self._tasks.start_soon(work)

    async def _drain(self) -> None:
        await self._begun.wait()
        with anyio.CancelScope(deadline=self._deadline) as self._patience:
            await self._empty()
        for after, what in ((FORCE_AFTER, Seat.cut), (CLEAN_UP - FORCE_AFTER, Seat.force)):
            for seat in tuple(self._seats):
                what(seat)
            with anyio.move_on_after(after):
                await self._empty()
        if self._seats:
            log.warning("%d calls do not end; the server is stopped all the same", self.calls)
        self._awaited = self._waiting > 0
        self._over.set()

    async def _empty(self) -> None:
        while self._seats:
            self._freed = anyio.Event()
            await self._freed.wait()

    # -- being open

    @asynccontextmanager
    async def __asynccontextmanager__(self) -> AsyncGenerator[Drain]:
        if self._tasks is not None or self.draining:
            raise RuntimeError("a Drain is opened once, in one worker")
        with lone_error_unwrapped():
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                tasks.start_soon(self._lag.run, anyio.current_time)
                tasks.start_soon(self._drain)
                try:
                    yield self
                finally:
                    self._tasks = None
                    tasks.cancel_scope.cancel()

    # -- under an ASGI server

    def wrap(self, app: AsgiApp, *, signals: bool = True) -> AsgiApp:
        """The outermost ASGI application of a worker: ``app``, counted, refused and drained.

        Args:
            app: The application, of Starlette, FastAPI or anything else.
            signals: Start to drain on SIGTERM, and hand the signal on to the server when that is over. A
                second SIGTERM ends the grace at once.
        """
        from micdrop_agent.call._drain_asgi import Drained, Inside
        from micdrop_agent.call._stop_signal import StopSignal

        signal = StopSignal(self, self._let_go) if signals else None
        return Drained(self, app, Inside(take=self._take, spawn=self._spawn, signal=signal))

    async def endpoint(self, scope: Any, _receive: Any, send: Any) -> None:
        """An ASGI application with the state of this worker, to be mounted where the outside cannot reach it.

        The last part of the path tells what is asked for: ``live`` (200), ``ready`` (200, or 503 while calls are
        refused), ``load`` (JSON), ``metrics`` (text for Prometheus), and ``drain``, which starts the drain
        and answers when it is over; that needs the ``token``.
        """
        from micdrop_agent.call._drain_endpoint import respond

        await respond(self, self._let_go, scope, send)
