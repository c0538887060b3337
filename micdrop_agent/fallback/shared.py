"""``SharedHealth``: what one worker learns of a provider, all workers know a moment later.

    answers ──▶ SharedHealth (decides, at once, from what it knows) ◀──┐
                     └──▶ queue ──▶ bus ──▶ the other workers ─────────┘

Invariants, pinned in tests/test_shared_health.py:

1. A call never waits for the bus: every decision is local and synchronous.
2. News hold durations, never times: the clocks of two machines need not agree.
3. A child that was out is tried by one worker at a time, as long as the bus is there.
4. Without a bus each worker decides for itself; that is logged once.
5. How often all workers together report the times of first chunks does not grow with their number.
"""

from __future__ import annotations

import logging
import math
import uuid
from collections import deque
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final, cast

import anyio

from micdrop_agent._core.log import SafeLog
from micdrop_agent._interrupts import defer_interrupts, start_soon
from micdrop_agent.errors import ProviderError
from micdrop_agent.fallback.bus import RedisBus
from micdrop_agent.fallback.health import HealthChanged, HealthRegistry

if TYPE_CHECKING:
    from typing import Self

    from micdrop_agent.fallback.bus import HealthBus, News
    from micdrop_agent.fallback.health import HealthState

__all__ = ["SharedHealth"]

logger: Final = SafeLog(logging.getLogger("micdrop_agent.health"))

QUEUE: Final = 1000
"""News that wait for a bus; of more, the oldest are dropped: the next change says it again."""

SAMPLES_EVERY: Final = 1.0
"""Seconds between two reports of how long first chunks took, while the workers are few."""

SAMPLES_PER_SECOND: Final = 10.0
"""Reports of all workers together: each reaches every worker, so more workers report less often (as in RFC 3550, 6.2)."""

SAMPLES: Final = 5
"""How many of them a worker reports: enough for a 95th percentile of all, however many workers there are."""

PROBE: Final = 10.0
"""Seconds for which one worker alone may try a child that was out."""

ASK_AGAIN: Final = 0.5
"""Seconds between two requests for that right, where the first one got no reply."""

ROUNDING: Final = 0.001
"""Seconds by which a sleep may end early."""

SLACK: Final = 1.0
"""Seconds by which two workers may differ on when the time of a child is over."""

RECONNECT: Final = 1.0
"""Seconds before a bus that was gone is tried again."""


@defer_interrupts
class SharedHealth(HealthRegistry):
    """A ``HealthRegistry`` for the workers of many machines; give it to each ``FallbackAgent`` as ``health``.

    Use it with ``async with``, once for each worker, around its agents. When one worker takes a child out, or
    has to wait, the others leave it alone as well; when its time is over one of them tries it, and
    if that works all use it again. Times to the first chunk are shared for ``hedge_after="p95"``; many workers
    report them less often, so that all together send about 10 reports a second.

    Args:
        bus: The URL of a Redis or Valkey server (extra ``redis``), or a ``HealthBus`` of your own.
        options: Those of ``HealthRegistry``.

    Raises:
        ImportError: The extra is missing; the message has the command that installs it.
    """

    def __init__(self, bus: str | HealthBus, **options: Any) -> None:
        super().__init__(**options)
        self._bus: HealthBus = RedisBus(bus) if isinstance(bus, str) else bus
        self._name = uuid.uuid4().hex
        self._queue: deque[News] = deque(maxlen=QUEUE)
        self._samples: dict[str, deque[float]] = {}
        self._every = SAMPLES_EVERY
        self._report_at = self._reported_at = -math.inf
        self._heard = 0.0
        """Intervals of all reports that came since the last one of ours: divided by that time, the number of workers."""
        self._told: set[str] = set()
        """Children that are out because another worker said so."""
        self._wake = anyio.Event()
        self._owed: set[str] = set()
        self._wanted: dict[str, float] = {}
        self._mine: dict[str, float] = {}
        self._reached = True
        self._warned = False
        self._stack = AsyncExitStack()

    @property
    def connected(self) -> bool:
        """Whether the bus was reached when it was used last."""
        return self._reached

    async def __aenter__(self) -> Self:
        tasks = await self._stack.enter_async_context(anyio.create_task_group())
        start_soon(tasks, self._listen)
        start_soon(tasks, self._send)
        self._stack.callback(tasks.cancel_scope.cancel)
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self._stack.aclose()

    # -- asked by a supervisor: nothing here waits

    def state(self, key: str) -> HealthState:
        """The state of a child; ``"half_open"`` for the one worker that may try it."""
        state = super().state(key)
        if state != "half_open" or not self._reached or self._mine.get(key, -math.inf) > self._clock():
            return state
        # The first call that would try it has the others go on as before, and asks for the right to.
        now = self._clock()
        if now >= self._wanted.get(key, -math.inf):
            self._wanted[key] = now + ASK_AGAIN
            self._put({"key": key, "try": True})
        return "open"

    def succeeded(self, key: str, first_chunk: float | None = None) -> None:
        """An attempt answered, its first chunk after that many seconds."""
        child = self._child(key)
        was_out = child.until is not None
        super().succeeded(key, first_chunk)
        if was_out and child.until is None:
            self._put({"key": key, "in": True})
            self._decided(key)
        if first_chunk is not None:
            self._samples.setdefault(key, deque(maxlen=SAMPLES)).append(first_chunk)

    def failed(self, key: str, error: Exception) -> None:
        """An attempt failed with ``error``."""
        child = self._child(key)
        before = child.until
        super().failed(key, error)
        if child.until is not None and child.until != before:
            kind = error.kind if isinstance(error, ProviderError) else "server"
            seconds = None if child.until == math.inf else child.until - self._clock()
            self._put({"key": key, "out": seconds, "kind": kind, "opened": child.opened})
            self._decided(key)

    def _decided(self, key: str) -> None:
        """What is known of a child is ours now; the right to try it is given back, after the others were told."""
        self._told.discard(key)
        self._wanted.pop(key, None)
        if self._mine.pop(key, None) is not None:
            self._put({"key": key, "tried": True})

    def reset(self, key: str | None = None) -> None:
        """Take a child (or all) back in, in all workers."""
        super().reset(key)
        for name in tuple(self._children) if key is None else (key,):
            self._put({"key": name, "in": True})

    # -- the bus

    def _put(self, news: News) -> None:
        self._queue.append({**news, "from": self._name})
        self._wake.set()

    def _receive(self, news: News) -> None:
        if news.get("from") == self._name:
            return
        try:
            self._learn(news)
        except (KeyError, TypeError, ValueError, AttributeError):
            logger.debug("news that cannot be read are ignored: %.100r", news)

    def _learn(self, news: News) -> None:
        if "known" in news:
            self._compare(dict(news["known"]))
        elif "out" in news:
            self._goes_out(str(news["key"]), news)
        elif "in" in news:
            self._comes_in(str(news["key"]))
        elif "seen" in news:
            self._heard += float(news["every"])
            for key, times in news["seen"].items():
                self._child(str(key)).history.extend(float(seconds) for seconds in times)

    def _compare(self, known: dict[str, float | None]) -> None:
        """The bus tells all that are out."""
        self._reached, self._warned = True, False
        for key, seconds in known.items():
            self._goes_out(key, {"out": seconds})
        # News may be lost while a connection is made again: who would be out for longer, and is not, is in
        # again. One whose time is over is still to be tried by one worker.
        for key in self._told - known.keys():
            if self.seconds_until_retry(key) > SLACK:
                self._comes_in(key)

    def _goes_out(self, key: str, news: News) -> None:
        until = math.inf if news["out"] is None else self._clock() + float(news["out"])
        opened = int(news.get("opened", 1))
        error = ProviderError("another worker found it unavailable", kind=news.get("kind", "server"))
        child = self._child(key)
        was_out = child.until is not None and child.until > self._clock()
        if was_out and child.until is not None and until <= child.until:
            return  # known, or we are to wait for longer anyway
        if not was_out:
            child.since = self._clock()
        child.until, child.opened, child.trying, child.error = until, max(child.opened, opened), False, error
        self._told.add(key)
        self._wanted.pop(key, None)
        if not was_out:
            self._tell(HealthChanged(key, "open", error))

    def _comes_in(self, key: str) -> None:
        child = self._child(key)
        was_out = child.until is not None
        child.failures = child.opened = 0
        child.until, child.trying = None, False
        self._told.discard(key)
        self._wanted.pop(key, None)
        if was_out:
            self._tell(HealthChanged(key, "closed", None))

    async def _listen(self) -> None:
        while True:
            try:
                await self._bus.listen(self._receive)
            except BaseExceptionGroup as errors:
                # The client's own tasks fail in groups; a cancellation among them is raised again by the sleep.
                self._lost(errors)
            except Exception as error:  # noqa: BLE001 - foreign code: a bus that is gone ends no call
                self._lost(error)
            await anyio.sleep(RECONNECT)

    async def _send(self) -> None:
        self._reported_at = self._clock()
        self._report_at = self._reported_at + self._every * (0.5 + self._chance())
        while True:
            pause = RECONNECT if self._owed else self._report_at - self._clock()
            with anyio.move_on_after(max(0.0, pause)):
                await self._wake.wait()
            if not self._queue:
                self._repeat()
            self._report()
            self._wake = anyio.Event()  # after these two, which set it
            while self._queue:
                news = self._queue.popleft()
                try:
                    await self._deliver(news)
                    self._reached, self._warned = True, False
                except Exception as error:  # noqa: BLE001 - foreign code: a bus that is gone ends no call
                    self._lost(error)
                    if "out" in news or "in" in news:
                        self._owed.add(news["key"])

    def _repeat(self) -> None:
        """What was not delivered is said again, as it is now."""
        owed, self._owed = self._owed, set()
        for key in owed:
            self._put(self._as_it_is(key))

    def _report(self) -> None:
        """Report the times of the last answers, if it is time to, and find out when the next report is due."""
        now = self._clock()
        if now < self._report_at - ROUNDING:
            return
        workers = 1 + self._heard / max(now - self._reported_at, SAMPLES_EVERY / 2)
        self._heard = 0.0
        self._every = max(SAMPLES_EVERY, workers / SAMPLES_PER_SECOND)
        self._reported_at = now
        self._report_at = now + self._every * (0.5 + self._chance())  # not all at once
        if self._samples:
            self._put({"seen": {key: list(times) for key, times in self._samples.items()}, "every": self._every})
            self._samples.clear()

    def _as_it_is(self, key: str) -> News:
        """What was not delivered, with the time that is left now."""
        child = self._child(key)
        if child.until is None:
            return {"key": key, "in": True}
        seconds = None if child.until == math.inf else max(0.0, child.until - self._clock())
        return {"key": key, "out": seconds, "opened": child.opened}

    async def _deliver(self, news: News) -> None:
        if "tried" in news:
            await self._bus.release(news["key"], self._name)
        elif "try" not in news:
            await self._bus.send(news)
        elif await self._bus.lease(news["key"], PROBE, self._name):
            self._mine[news["key"]] = self._clock() + PROBE
        else:
            # Another worker tries it, and will say what came of that; only if it dies have we to ask again.
            self._wanted[news["key"]] = self._clock() + PROBE

    def _lost(self, error: BaseException) -> None:
        while isinstance(error, BaseExceptionGroup):
            error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
        self._reached = False
        if not self._warned:
            self._warned = True
            logger.warning(
                "the health of providers is not shared at the moment: %s", str(error) or type(error).__name__
            )
