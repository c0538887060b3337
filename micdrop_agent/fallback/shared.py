"""``SharedHealth``: what one worker learns of a provider, all workers know a moment later.

    answers ──▶ SharedHealth (decides, at once, from what it knows) ◀──┐
                     └──▶ queue ──▶ bus ──▶ the other workers ─────────┘

Invariants, pinned in tests/test_shared_health.py:

1. A call never waits for the bus: every decision is local and synchronous.
2. News hold durations, never times: the clocks of two machines need not agree.
3. A child that was out is tried by one worker at a time, as long as the bus is there.
4. Without a bus each worker decides for itself; that is logged once.
"""

from __future__ import annotations

import logging
import math
import uuid
from collections import deque
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final

import anyio

from micdrop_agent._core.log import SafeLog
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
"""Seconds between two reports of how long first chunks took."""

SAMPLES: Final = 5
"""How many of them a worker reports: enough for a 95th percentile of all, however many workers there are."""

PROBE: Final = 10.0
"""Seconds for which one worker alone may try a child that was out."""

ASK_AGAIN: Final = 0.5
"""Seconds between two requests for that right."""

RECONNECT: Final = 1.0


class SharedHealth(HealthRegistry):
    """A ``HealthRegistry`` for the workers of many machines; give it to each ``FallbackAgent`` as ``health``.

    Use it with ``async with``, once for each worker, around its agents. When one worker takes a child out, or
    has to wait, the others leave it alone as well; when its time is over one of them tries it, and
    if that works all use it again. Times to the first chunk are shared for ``hedge_after="p95"``.

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
        tasks.start_soon(self._listen)
        tasks.start_soon(self._send)
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
        if now >= self._wanted.get(key, -math.inf) + ASK_AGAIN:
            self._wanted[key] = now
            self._put({"key": key, "try": True})
        return "open"

    def succeeded(self, key: str, first_chunk: float | None = None) -> None:
        """An attempt answered, its first chunk after that many seconds."""
        was_out = self._child(key).until is not None
        super().succeeded(key, first_chunk)
        self._mine.pop(key, None)
        if was_out:
            self._put({"key": key, "in": True})
        if first_chunk is not None:
            self._samples.setdefault(key, deque(maxlen=SAMPLES)).append(first_chunk)

    def failed(self, key: str, error: Exception) -> None:
        """An attempt failed with ``error``."""
        child = self._child(key)
        before = child.until
        super().failed(key, error)
        self._mine.pop(key, None)
        if child.until is not None and child.until != before:
            kind = error.kind if isinstance(error, ProviderError) else "server"
            seconds = None if child.until == math.inf else child.until - self._clock()
            self._put({"key": key, "out": seconds, "kind": kind, "opened": child.opened})

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
        key = str(news["key"])
        child = self._child(key)
        was_out = child.until is not None and child.until > self._clock()
        if "out" in news:
            until = math.inf if news["out"] is None else self._clock() + float(news["out"])
            child.until = until if child.until is None else max(child.until, until)
            child.opened = max(child.opened, int(news.get("opened", 1)))
            child.trying = False
            child.error = ProviderError("another worker found it unavailable", kind=news.get("kind", "server"))
            if not was_out:
                self._tell(HealthChanged(key, "open", child.error))
        elif "in" in news:
            was_out = child.until is not None
            child.failures = child.opened = 0
            child.until, child.trying = None, False
            if was_out:
                self._tell(HealthChanged(key, "closed", None))
        elif "seen" in news:
            child.history.extend(float(seconds) for seconds in news["seen"])

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
        while True:
            with anyio.move_on_after(SAMPLES_EVERY):
                await self._wake.wait()
            self._wake = anyio.Event()
            if not self._queue:
                owed, self._owed = self._owed, set()
                for key in owed:
                    self._put(self._as_it_is(key))
                self._queue.extend(
                    {"key": key, "seen": list(times), "from": self._name} for key, times in self._samples.items()
                )
                self._samples.clear()
            while self._queue:
                news = self._queue.popleft()
                try:
                    await self._deliver(news)
                    self._reached, self._warned = True, False
                except Exception as error:  # noqa: BLE001 - foreign code: a bus that is gone ends no call
                    self._lost(error)
                    if "out" in news or "in" in news:
                        self._owed.add(news["key"])

    def _as_it_is(self, key: str) -> News:
        """What was not delivered, with the time that is left now."""
        child = self._child(key)
        if child.until is None:
            return {"key": key, "in": True}
        seconds = None if child.until == math.inf else max(0.0, child.until - self._clock())
        return {"key": key, "out": seconds, "opened": child.opened}

    async def _deliver(self, news: News) -> None:
        key = news["key"]
        if "try" not in news:
            await self._bus.send(news)
        elif await self._bus.lease(key, PROBE):
            self._mine[key] = self._clock() + PROBE

    def _lost(self, error: BaseException) -> None:
        self._reached = False
        if not self._warned:
            self._warned = True
            logger.warning(
                "the health of providers is not shared at the moment: %s", str(error) or type(error).__name__
            )
