"""``RedisStore``: calls in Redis or Valkey, for the workers of many machines.

    CallRecorder ─▶ LeasedCall ─▶ RedisScripts ─▶ one Lua script, one round trip, for each step

The invariants are those of ``store.lease``; what the server does is in ``store.redis_scripts``.
"""

from __future__ import annotations

import time
from contextlib import AsyncExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final

import anyio

from micdrop_agent.options import check_flag, check_seconds
from micdrop_agent.store import redis_scripts
from micdrop_agent.store.lease import LeasedCall, Owner, items_of, writer_name
from micdrop_agent.store.protocol import CallInUseError, StoreError, UnknownCallError, check_call_id

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from typing import Self

    from micdrop_agent.messages import Item
    from micdrop_agent.store.protocol import Change

__all__ = ["RedisStore"]

STREAM_TIMEOUT: Final = 5.0
"""Seconds that one request may take; the call does not wait for it."""


class RedisStore:
    """Stores calls in a Redis or Valkey server, which the workers of several machines share.

    Use it with ``async with``; it belongs to one event loop. A writer owns its call for the time of a
    *lease*, which is extended while it is attached. When another worker takes the call over, this one writes
    nothing more: its recorder reports ``CallMovedError`` to ``on_error``, where a server closes its connection.

    Args:
        url: For example ``"redis://localhost:6379/0"``.
        lease: Seconds after which the call of a worker that died is free.
        ttl: Seconds after its last change that a call is kept; ``None``: for ever.
        take_over: Open a call also while another worker has it, which then loses it: right where a
            client that connects again shows that the other worker is gone. ``False``: ``CallInUseError``.
        prefix: What the keys begin with.

    Raises:
        ImportError: The extra is missing; the message has the command that installs it.
        TypeError: An option has the wrong type.
        ValueError: An option is out of range.
    """

    def __init__(
        self,
        url: str,
        *,
        lease: float = 10.0,
        ttl: float | None = 7 * 86_400.0,
        take_over: bool = False,
        prefix: str = "micdrop",
    ) -> None:
        try:
            import coredis
        except ImportError as error:
            raise ImportError("RedisStore needs coredis: pip install 'micdrop-agent[redis]'") from error
        check_seconds("lease", lease, zero=False)
        check_seconds("ttl", ttl, zero=False, none=True)
        check_flag("take_over", take_over)
        self._take_over = take_over
        self._client: Any = coredis.Redis.from_url(
            url, decode_responses=True, stream_timeout=STREAM_TIMEOUT, connect_timeout=STREAM_TIMEOUT
        )
        self._name = url.rpartition("@")[2]  # without a password
        self._scripts = RedisScripts(self._client, self._name, prefix, lease, ttl)
        self._stack = AsyncExitStack()

    def __repr__(self) -> str:
        return f"RedisStore({self._name!r})"

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self._client)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()

    async def open_call(self, call_id: str) -> LeasedCall:
        """See ``ConversationStore.open_call``; ``agent.attach()`` does it for you.

        Raises:
            CallInUseError: Another worker has the call open, and ``take_over`` is off.
            StoreError: The server cannot be reached.
        """
        check_call_id(call_id)
        writer = writer_name()
        opened, answer = 0, list[Any]()
        # Shielded: a call that was taken for a caller that is gone would be locked until the lease ends.
        with anyio.CancelScope(shield=True):
            opened, *answer = await self._scripts.open(call_id, writer, take_over=self._take_over)
        if not opened:
            raise CallInUseError(call_id, answer[0])
        fence, previous, number, bodies = answer
        return LeasedCall(self._scripts, Owner(call_id, int(fence), writer, previous), int(number), list(bodies))

    async def load(self, call_id: str) -> list[Item]:
        """The conversation of a call as it is now, also while a writer has it open.

        Raises:
            UnknownCallError: There is no such call.
            StoreError: The server cannot be reached, or the call is damaged.
        """
        known, *bodies = await self._scripts.load(call_id)
        if not known:
            raise UnknownCallError(call_id)
        return items_of(call_id, bodies[0])


class RedisScripts:
    """The server as a ``LeasedCall`` sees it.

    Args:
        client: The client of coredis.
        name: The server's address, for people.
        prefix: What the keys begin with.
        lease: Seconds.
        ttl: Seconds, or ``None``.
    """

    def __init__(self, client: Any, name: str, prefix: str, lease: float, ttl: float | None) -> None:
        self.lease = lease
        self._client = client
        self._name = name
        self._prefix = prefix
        self._lease_ms = max(1, round(lease * 1000))
        self._ttl_ms = 0 if ttl is None else round(ttl * 1000)
        self._ready: dict[str, Any] = {}

    async def open(self, call_id: str, writer: str, *, take_over: bool) -> list[Any]:
        """See ``redis_scripts.OPEN``."""
        arguments = [writer, self._lease_ms, self._ttl_ms, time.time(), int(take_over)]
        return list(await self._run(redis_scripts.OPEN, call_id, arguments))

    async def load(self, call_id: str) -> list[Any]:
        """``[0]``, or ``[1, items]``."""
        return list(await self._run(redis_scripts.LOAD, call_id, []))

    async def apply(self, owner: Owner, changes: Sequence[tuple[Change, Sequence[str]]]) -> int:
        """See ``lease.Server``."""
        arguments = [*self._identity(owner), time.time()]
        for change, bodies in changes:
            arguments += [change.number, change.index, change.gone, len(bodies), *bodies]
        return int(await self._run(redis_scripts.APPLY, owner.call_id, arguments))

    async def renew(self, owner: Owner, number: int) -> int:
        """See ``lease.Server``."""
        return int(await self._run(redis_scripts.RENEW, owner.call_id, [*self._identity(owner), number]))

    async def restore(self, owner: Owner, number: int, bodies: Sequence[str]) -> int:
        """See ``lease.Server``."""
        arguments = [*self._identity(owner), time.time(), number, *bodies]
        return int(await self._run(redis_scripts.RESTORE, owner.call_id, arguments))

    async def release(self, owner: Owner) -> None:
        """See ``lease.Server``."""
        await self._run(redis_scripts.RELEASE, owner.call_id, [owner.fence, owner.writer])

    def _identity(self, owner: Owner) -> list[Any]:
        return [owner.fence, owner.writer, owner.previous, self._lease_ms, self._ttl_ms]

    async def _run(self, script: str, call_id: str, arguments: Sequence[Any]) -> Any:
        keys = [f"{self._prefix}:{{{call_id}}}:{name}" for name in ("head", "items", "owner")]
        ready = self._ready.get(script)
        if ready is None:
            ready = self._ready[script] = self._client.register_script(script)
        with _errors(f"call {call_id!r} in {self._name}"):
            return await ready(keys=keys, args=list(arguments))


@contextmanager
def _errors(what: str) -> Generator[None]:
    from coredis import exceptions

    try:
        yield
    except exceptions.ResponseError as error:
        # "OOM command not allowed": the server has no room, and may have it a moment later.
        raise StoreError(f"{what}: {error}", retryable="OOM" in str(error) or "LOADING" in str(error)) from error
    except (exceptions.RedisError, OSError, anyio.EndOfStream, anyio.BrokenResourceError) as error:
        raise StoreError(f"{what}: {str(error) or type(error).__name__}", retryable=True) from error
    except anyio.ClosedResourceError as error:
        raise StoreError(f"{what}: the store was closed", retryable=False) from error
