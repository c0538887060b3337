"""How workers share the health of providers: a bus in memory, and one in Redis or Valkey."""

from __future__ import annotations

import importlib.util
import json
import math
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, cast

import anyio

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["HealthBus", "MemoryBus", "News", "RedisBus"]

News: TypeAlias = dict[str, Any]
"""What one worker tells the others, as JSON; with ``from``, the name of the worker.

``{"key", "out": seconds}`` (``None``: until somebody mends it), ``{"key", "in": True}``, or
``{"seen": {key: [seconds, …]}, "every": seconds}``. A bus itself tells ``{"known": {key: seconds}}``: all that are out.
"""

REQUEST_TIMEOUT: Final = 2.0
"""Seconds after which the server counts as gone."""

LOOK_AGAIN: Final = 15.0
"""Seconds between two looks at who is out: the client connects again by itself, and news that came meanwhile are lost."""

OVER: Final = -2
FOR_EVER: Final = -1
"""What a server answers instead of the time that is left: there is no such key, or it has no end."""


class HealthBus(Protocol):
    """What ``SharedHealth`` needs of a bus; any error of it means that the bus is gone for now."""

    async def listen(self, receive: Callable[[News], None]) -> None:
        """Give ``receive`` what is known, from time to time again, and all news, until it is cancelled."""
        ...

    async def send(self, news: News) -> None:
        """Give ``news`` to all workers."""
        ...

    async def lease(self, key: str, seconds: float, worker: str) -> bool:
        """Take the right to try ``key`` for ``worker``; ``False`` if another one has it."""
        ...

    async def release(self, key: str, worker: str) -> None:
        """Give that right back; nothing if ``worker`` does not have it any more."""
        ...


class MemoryBus:
    """A bus within one event loop, for tests and simulations.

    Args:
        delay: Seconds that news are under way.

    Attributes:
        sent: How many messages and requests for a lease were sent.
        received: How many messages were handed to a worker.
        gone: Whether the bus fails at present.
    """

    def __init__(self, delay: float = 0.001) -> None:
        self.delay = delay
        self.sent = self.received = 0
        self.gone = False
        self._listeners: list[Callable[[News], None]] = []
        self._leases: dict[str, tuple[str, float]] = {}
        self._out: dict[str, float] = {}

    async def listen(self, receive: Callable[[News], None]) -> None:
        """See ``HealthBus.listen``."""
        await self._reach()
        self._listeners.append(receive)
        try:
            while True:
                receive({"known": self._known()})
                await anyio.sleep(LOOK_AGAIN)
                if self.gone:
                    raise OSError("the bus is gone")
        finally:
            self._listeners.remove(receive)

    async def send(self, news: News) -> None:
        """See ``HealthBus.send``."""
        await self._reach()
        if "in" in news:
            self._out.pop(news["key"], None)
        elif "out" in news:
            self._out[news["key"]] = math.inf if news["out"] is None else anyio.current_time() + news["out"]
        await self._hand_out(tuple(self._listeners), news)

    async def _hand_out(self, listeners: Sequence[Callable[[News], None]], news: News) -> None:
        """Give ``news`` to all; a simulation may take its time for that."""
        self.received += len(listeners)
        for receive in listeners:
            receive(news)

    async def lease(self, key: str, seconds: float, worker: str) -> bool:
        """See ``HealthBus.lease``."""
        await self._reach()
        now = anyio.current_time()
        if self._leases.get(key, ("", -math.inf))[1] > now:
            return False
        self._leases[key] = (worker, now + seconds)
        return True

    async def release(self, key: str, worker: str) -> None:
        """See ``HealthBus.release``."""
        await self._reach()
        if self._leases.get(key, ("", 0.0))[0] == worker:
            del self._leases[key]

    def _known(self) -> dict[str, float | None]:
        now = anyio.current_time()
        return {key: None if until == math.inf else until - now for key, until in self._out.items() if until > now}

    async def _reach(self) -> None:
        self.sent += 1
        await anyio.sleep(self.delay)
        if self.gone:
            raise OSError("the bus is gone")


class RedisBus:
    """A bus in a Redis or Valkey server. News are published; who is out is also kept, for workers that start later.

    Args:
        url: For example ``"redis://localhost:6379/0"``.
        prefix: What the keys and the channel begin with.

    Raises:
        ImportError: The extra is missing; the message has the command that installs it.
    """

    def __init__(self, url: str, prefix: str = "micdrop:health") -> None:
        if importlib.util.find_spec("coredis") is None:
            raise ImportError("SharedHealth needs coredis: pip install 'micdrop-agent[redis]'")
        self._url = url
        self._prefix = prefix
        self._client: Any = None

    async def listen(self, receive: Callable[[News], None]) -> None:
        """See ``HealthBus.listen``."""
        import coredis

        client: Any = coredis.Redis.from_url(
            self._url, decode_responses=True, connect_timeout=REQUEST_TIMEOUT, stream_timeout=REQUEST_TIMEOUT
        )
        async with client:
            try:
                async with (
                    client.pubsub(channels=[self._prefix], ignore_subscribe_messages=True) as published,
                    anyio.create_task_group() as tasks,
                ):
                    self._client = client
                    tasks.start_soon(self._look, receive)
                    async for message in published:
                        receive(_read(message["data"]))
            finally:
                self._client = None

    async def _look(self, receive: Callable[[News], None]) -> None:
        while True:
            client, known = self._reach(), {}
            with anyio.fail_after(REQUEST_TIMEOUT):
                for key in await client.smembers(f"{self._prefix}:out"):
                    left = await client.pttl(f"{self._prefix}:out:{key}")
                    if left != OVER:
                        known[key] = None if left == FOR_EVER else left / 1000
            receive({"known": known})
            await anyio.sleep(LOOK_AGAIN)

    async def send(self, news: News) -> None:
        """See ``HealthBus.send``. What is kept is changed first: who looks then sees no less than the news say."""
        client = self._reach()
        with anyio.fail_after(REQUEST_TIMEOUT):
            if "in" in news:
                await client.delete([f"{self._prefix}:out:{news['key']}"])
            elif "out" in news:
                time_left = None if news["out"] is None else max(1, round(news["out"] * 1000))
                await client.sadd(f"{self._prefix}:out", [news["key"]])
                await client.set(f"{self._prefix}:out:{news['key']}", "1", px=time_left)
            await client.publish(self._prefix, json.dumps(news))

    async def lease(self, key: str, seconds: float, worker: str) -> bool:
        """See ``HealthBus.lease``."""
        from coredis.tokens import PureToken

        client, taken = self._reach(), None
        with anyio.fail_after(REQUEST_TIMEOUT):
            taken = await client.set(
                f"{self._prefix}:try:{key}", worker, condition=PureToken.NX, px=max(1, round(seconds * 1000))
            )
        return bool(taken)

    async def release(self, key: str, worker: str) -> None:
        """See ``HealthBus.release``."""
        client, name = self._reach(), f"{self._prefix}:try:{key}"
        with anyio.fail_after(REQUEST_TIMEOUT):
            # Not one step: at worst a lease that another worker took in between is lost, and two try it at once.
            if await client.get(name) == worker:
                await client.delete([name])

    def _reach(self) -> Any:
        if self._client is None:
            raise OSError("the server cannot be reached")
        return self._client


def _read(data: Any) -> News:
    """One message; whatever else is published there is no news."""
    try:
        read: Any = json.loads(data)
    except (ValueError, TypeError):
        return {}
    return cast("News", read) if isinstance(read, dict) else {}
