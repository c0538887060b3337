"""``RedisStore``: calls in Redis or Valkey, for the workers of many machines.

    CallRecorder ─▶ RedisCall.apply ─▶ one Lua script: is it still mine? then store, and extend the lease
                └─▶ RedisCall.hold  ─▶ the same without changes, each third of the lease

Invariants, pinned in tests/test_store_redis.py:

1. Two owners never write: each opening gets a higher fence, and the script compares it.
2. A writer that was paused for longer than its lease writes nothing more, also if nobody took the call.
3. A server that is away, or has forgotten everything, ends no call: the call is stored again when it is back.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from contextlib import AsyncExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.lowlevel

from micdrop_agent import wire
from micdrop_agent.options import check_flag, check_seconds
from micdrop_agent.store import redis_scripts
from micdrop_agent.store.encode import encoded
from micdrop_agent.store.protocol import CallInUseError, CallMovedError, StoreError, UnknownCallError, check_call_id

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from typing import Self

    from micdrop_agent.messages import Item
    from micdrop_agent.store.protocol import Change

__all__ = ["RedisStore"]

STREAM_TIMEOUT: Final = 5.0
"""Seconds that one request may take; the call does not wait for it."""

MOVED: Final = -1
FORGOTTEN: Final = -2


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
        self.lease = lease
        self._ttl = 0 if ttl is None else round(ttl * 1000)
        self._take_over = take_over
        self._prefix = prefix
        self._client: Any = coredis.Redis.from_url(
            url, decode_responses=True, stream_timeout=STREAM_TIMEOUT, connect_timeout=STREAM_TIMEOUT
        )
        self._name = url.rpartition("@")[2]  # without a password
        self._scripts: dict[str, Any] = {}
        self._stack = AsyncExitStack()

    def __repr__(self) -> str:
        return f"RedisStore({self._name!r})"

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self._client)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()

    async def open_call(self, call_id: str) -> RedisCall:
        """See ``ConversationStore.open_call``; ``agent.attach()`` does it for you.

        Raises:
            CallInUseError: Another worker has the call open, and ``take_over`` is off.
            StoreError: The server cannot be reached.
        """
        check_call_id(call_id)
        writer = f"{socket.gethostname()} process {os.getpid()}, {uuid.uuid4().hex[:12]}"
        arguments = [writer, self.lease_ms, self._ttl, time.time(), int(self._take_over)]
        # Shielded: a call that was taken for a caller that is gone would be locked until the lease ends.
        opened, answer = 0, list[Any]()
        with anyio.CancelScope(shield=True):
            opened, *answer = await self.run(redis_scripts.OPEN, call_id, arguments)
        if not opened:
            raise CallInUseError(call_id, answer[0])
        fence, number, bodies = answer
        return RedisCall(self, call_id, writer, int(fence), int(number), list(bodies))

    async def load(self, call_id: str) -> list[Item]:
        """The conversation of a call as it is now, also while a worker has it open.

        Raises:
            UnknownCallError: There is no such call.
            StoreError: The server cannot be reached, or the call is damaged.
        """
        known, *bodies = await self.run(redis_scripts.LOAD, call_id, [])
        if not known:
            raise UnknownCallError(call_id)
        return items_of(call_id, bodies[0])

    @property
    def lease_ms(self) -> int:
        """The lease in milliseconds, as the server counts."""
        return max(1, round(self.lease * 1000))

    @property
    def ttl_ms(self) -> int:
        """How long a call is kept, likewise; 0 for ever."""
        return self._ttl

    async def run(self, script: str, call_id: str, arguments: Sequence[Any]) -> Any:
        """Run a script on the keys of a call; for ``RedisCall``."""
        keys = [f"{self._prefix}:{{{call_id}}}:{name}" for name in ("head", "items", "owner")]
        ready = self._scripts.get(script)
        if ready is None:
            ready = self._scripts[script] = self._client.register_script(script)
        with _errors(f"call {call_id!r} in {self._name}"):
            return await ready(keys=keys, args=list(arguments))


class RedisCall:
    """A call that is open for writing; made by ``RedisStore.open_call``.

    Args:
        store: Where it is.
        call_id: The call.
        writer: The name of this writer.
        fence: Its number; a later writer has a higher one.
        number: Number of the last stored change.
        bodies: The items as they are stored.
    """

    def __init__(
        self, store: RedisStore, call_id: str, writer: str, fence: int, number: int, bodies: list[str]
    ) -> None:
        self._store = store
        self._call_id = call_id
        self._writer = writer
        self._fence = fence
        self._bodies = bodies
        """What the server has, to give it again to one that was restarted without it."""
        self._stored = number
        self._awake: float | None = None
        """When ``hold()`` last ran: a process that was paused notices by it."""
        self._closed = False
        self.number = number
        self.items: Sequence[Item] = items_of(call_id, bodies)

    async def apply(self, changes: Sequence[Change]) -> None:
        """See ``CallLog.apply``.

        Raises:
            CallMovedError: Another worker took the call over, or this one was paused for too long.
            StoreError: The server cannot be reached, or has no room.
            RuntimeError: The call was closed.
        """
        if self._closed:
            raise RuntimeError("this call was closed; open it again to write it")
        self._check_awake()
        new = [(change, [encoded(item) for item in change.come]) for change in changes]
        arguments: list[Any] = [*self._identity(), time.time()]
        for change, bodies in new:
            arguments += [change.number, change.index, change.gone, len(bodies), *bodies]
        if await self._run(redis_scripts.APPLY, arguments) == FORGOTTEN:
            await self._restore()
            await self._run(redis_scripts.APPLY, arguments)
        for change, bodies in new:
            if change.number > self._stored:
                self._bodies[change.index : change.index + change.gone] = bodies
                self._stored = change.number

    async def hold(self) -> None:
        """Extend the lease again and again; see ``LeasedCallLog.hold``.

        Raises:
            CallMovedError: Another worker took the call over, or this one was paused for too long.
        """
        pause = self._store.lease / 3
        while not self._closed:
            self._check_awake()
            self._awake = anyio.current_time()
            # A server that is away is waited for: the lease is lost to another worker only.
            with anyio.move_on_after(pause):
                try:
                    if await self._run(redis_scripts.RENEW, self._identity()) == FORGOTTEN:
                        await self._restore()
                except CallMovedError:
                    raise
                except StoreError:
                    pass  # reported when there is something to store
            self._check_awake()
            self._awake = anyio.current_time()
            await anyio.sleep(pause)

    async def aclose(self) -> None:
        """See ``CallLog.aclose``.

        Raises:
            StoreError: The server cannot be reached; the call is free when the lease ends.
        """
        if self._closed:
            await anyio.lowlevel.checkpoint()
            return
        self._closed = True
        with anyio.CancelScope(shield=True):
            await self._store.run(redis_scripts.RELEASE, self._call_id, [self._fence, self._writer])

    def _identity(self) -> list[Any]:
        return [self._fence, self._writer, self._store.lease_ms, self._store.ttl_ms]

    def _check_awake(self) -> None:
        # Invariant 2: the clock goes on while a process is stopped, and nothing of it ran since then.
        if self._awake is not None and anyio.current_time() - self._awake > self._store.lease:
            raise CallMovedError(self._call_id, "this process was paused for longer than its lease")

    async def _run(self, script: str, arguments: Sequence[Any]) -> int:
        outcome = int(await self._store.run(script, self._call_id, arguments))
        if outcome == MOVED:
            raise CallMovedError(self._call_id)
        return outcome

    async def _restore(self) -> None:
        await self._run(redis_scripts.RESTORE, [*self._identity(), time.time(), self._stored, *self._bodies])


def items_of(call_id: str, bodies: Sequence[str]) -> list[Item]:
    """The items that are stored as ``bodies``."""
    try:
        return wire.loads("[" + ",".join(bodies) + "]")
    except (wire.WireError, RecursionError) as error:
        raise StoreError(f"call {call_id!r} is damaged: {error}") from error


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
