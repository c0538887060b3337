"""How workers share the health of providers: a bus in memory, and one in Redis or Valkey."""

from __future__ import annotations

import importlib.util
import json
import math
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import anyio

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["HealthBus", "MemoryBus", "News", "RedisBus"]

News: TypeAlias = dict[str, Any]
"""``{"key", "out": seconds}``, ``{"key", "in": True}`` or ``{"key", "seen": [seconds, …]}``; JSON, with ``from``."""

REQUEST_TIMEOUT: Final = 2.0
"""Seconds after which the server counts as gone."""


OVER: Final = -2
FOR_EVER: Final = -1
"""What a server answers instead of the time that is left: there is no such key, or it has no end."""


class HealthBus(Protocol):
    """What ``SharedHealth`` needs of a bus; any error of it means that the bus is gone for now."""

    async def listen(self, receive: Callable[[News], None]) -> None:
        """Give ``receive`` what is known already, then all news, until it is cancelled."""
        ...

    async def send(self, news: News) -> None:
        """Give ``news`` to all workers."""
        ...

    async def lease(self, key: str, seconds: float) -> bool:
        """Take the right to try ``key``; ``False`` if another worker has it."""
        ...


class MemoryBus:
    """A bus within one event loop, for tests and simulations.

    Args:
        delay: Seconds that news are under way.

    Attributes:
        sent: How many messages and requests for a lease were sent.
        gone: Whether the bus fails at present.
    """

    def __init__(self, delay: float = 0.001) -> None:
        self.delay = delay
        self.sent = 0
        self.gone = False
        self._listeners: list[Callable[[News], None]] = []
        self._leases: dict[str, float] = {}

    async def listen(self, receive: Callable[[News], None]) -> None:
        """See ``HealthBus.listen``."""
        self._listeners.append(receive)
        try:
            await anyio.sleep_forever()
        finally:
            self._listeners.remove(receive)

    async def send(self, news: News) -> None:
        """See ``HealthBus.send``."""
        await self._reach()
        for receive in tuple(self._listeners):
            receive(news)

    async def lease(self, key: str, seconds: float) -> bool:
        """See ``HealthBus.lease``."""
        await self._reach()
        now = anyio.current_time()
        if self._leases.get(key, -math.inf) > now:
            return False
        self._leases[key] = now + seconds
        return True

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
                async with client.pubsub(channels=[self._prefix], ignore_subscribe_messages=True) as published:
                    self._client = client
                    for key in await client.smembers(f"{self._prefix}:out"):
                        left = await client.pttl(f"{self._prefix}:out:{key}")
                        if left != OVER:
                            receive({"key": key, "out": None if left == FOR_EVER else left / 1000})
                    async for message in published:
                        receive(json.loads(message["data"]))
            finally:
                self._client = None

    async def send(self, news: News) -> None:
        """See ``HealthBus.send``."""
        client, name = self._reach(), f"{self._prefix}:out:{news['key']}"
        with anyio.fail_after(REQUEST_TIMEOUT):
            await client.publish(self._prefix, json.dumps(news))
            if "in" in news:
                await client.delete([name])
            elif "out" in news:
                await client.sadd(f"{self._prefix}:out", [news["key"]])
                await client.set(name, "1", px=None if news["out"] is None else max(1, round(news["out"] * 1000)))

    async def lease(self, key: str, seconds: float) -> bool:
        """See ``HealthBus.lease``."""
        from coredis.tokens import PureToken

        client, taken = self._reach(), None
        with anyio.fail_after(REQUEST_TIMEOUT):
            taken = await client.set(
                f"{self._prefix}:try:{key}", "1", condition=PureToken.NX, px=max(1, round(seconds * 1000))
            )
        return bool(taken)

    def _reach(self) -> Any:
        if self._client is None:
            raise OSError("the server cannot be reached")
        return self._client
