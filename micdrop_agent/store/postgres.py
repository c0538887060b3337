"""``PostgresStore``: calls in a PostgreSQL database, for the workers of many machines.

    CallRecorder ─▶ LeasedCall ─▶ PostgresFunctions ─▶ one function of the server, one round trip, for each step

The invariants are those of ``store.lease``; what the server does is in ``store.postgres_functions``.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from micdrop_agent.options import check_count, check_flag, check_seconds, check_text
from micdrop_agent.store import postgres_functions as functions
from micdrop_agent.store.lease import LeasedCall, Owner, items_of, writer_name
from micdrop_agent.store.postgres_link import Link
from micdrop_agent.store.protocol import CallInUseError, UnknownCallError, check_call_id

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from micdrop_agent.messages import Item
    from micdrop_agent.store.protocol import Change

__all__ = ["PostgresStore"]


class PostgresStore:
    """Stores calls in a PostgreSQL database, which the workers of several machines share.

    Use it with ``async with``; it belongs to one event loop, asyncio or Trio. psycopg runs in worker threads.
    Tables and functions are created when they are missing, in a schema of their own. A writer owns its call
    for the time of a *lease*, as with ``RedisStore``; nothing is forgotten unless ``forget()`` is called.

    Args:
        dsn: For example ``"postgresql://user@localhost/calls"``, or ``"host=/run/postgresql dbname=calls"``.
        lease: Seconds after which the call of a worker that died is free.
        take_over: Open a call also while another worker has it, which then loses it: right where a
            client that connects again shows that the other worker is gone. ``False``: ``CallInUseError``.
        schema: The schema of the tables: lower-case letters, digits and underscores.
        connections: Most connections, and threads, at a time.

    Raises:
        ImportError: The extra is missing; the message has the command that installs it.
        TypeError: An option has the wrong type.
        ValueError: An option is out of range.
    """

    def __init__(
        self,
        dsn: str,
        *,
        lease: float = 10.0,
        take_over: bool = False,
        schema: str = "micdrop",
        connections: int = 4,
    ) -> None:
        try:
            import psycopg
            from psycopg.conninfo import conninfo_to_dict
        except ImportError as error:
            raise ImportError("PostgresStore needs psycopg: pip install 'micdrop-agent[postgres]'") from error
        check_seconds("lease", lease, zero=False)
        check_flag("take_over", take_over)
        check_count("connections", connections, least=1)
        if not re.fullmatch("[a-z_][a-z0-9_]{0,62}", schema):
            raise ValueError(f"schema must be lower-case letters, digits and underscores, not {schema!r}")
        check_text("dsn", dsn)
        place: dict[str, Any] | None = None
        with suppress(psycopg.Error, ValueError):
            place = conninfo_to_dict(dsn)
        # Raised outside of a handler: psycopg's words quote what it could not read, and that may be the password.
        if place is None:
            raise ValueError("dsn is not a connection string of PostgreSQL")
        self._take_over = take_over
        self._name = f"{place.get('host', 'localhost')}/{place.get('dbname', '')}"
        self._link = Link(dsn, schema, connections)
        self._functions = PostgresFunctions(self._link, self._name, lease)

    def __repr__(self) -> str:
        return f"PostgresStore({self._name!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections. Leave the agents first: what they have still to store is lost otherwise."""
        await self._link.aclose()

    async def open_call(self, call_id: str) -> LeasedCall:
        """See ``ConversationStore.open_call``; ``agent.attach()`` does it for you.

        Raises:
            CallInUseError: Another worker has the call open, and ``take_over`` is off.
            StoreError: The server cannot be reached.
        """
        check_call_id(call_id)
        return await self._functions.open(call_id, take_over=self._take_over)

    async def load(self, call_id: str) -> list[Item]:
        """The conversation of a call as it is now, also while a writer has it open.

        Raises:
            UnknownCallError: There is no such call.
            StoreError: The server cannot be reached, or the call is damaged.
        """
        rows = await self._link.ask(f"call {call_id!r} in {self._name}", functions.LOAD, [call_id])
        if not rows:
            raise UnknownCallError(call_id)
        return items_of(call_id, rows[0][0])

    async def forget(self, seconds: float) -> int:
        """Delete the calls that did not change for so long and that no worker has open; how many there were.

        Raises:
            StoreError: The server cannot be reached.
        """
        check_seconds("seconds", seconds)
        rows = await self._link.ask(f"old calls in {self._name}", functions.FORGET, [float(seconds)])
        return int(rows[0][0])


class PostgresFunctions:
    """The server as a ``LeasedCall`` sees it.

    Args:
        link: The connections.
        name: The server's address, for people.
        lease: Seconds.
    """

    def __init__(self, link: Link, name: str, lease: float) -> None:
        self.lease = lease
        self._link = link
        self._name = name

    async def open(self, call_id: str, *, take_over: bool) -> LeasedCall:
        """Open a call; one that is opened for a caller that is gone is given back."""
        writer = writer_name()

        def give_back(connection: Any, rows: list[Any]) -> None:
            if rows[0][0]:
                self._link.execute(connection, functions.RELEASE, [call_id, rows[0][2], writer])

        values = [call_id, writer, float(self.lease), take_over]
        ((granted, present, fence, previous, number, bodies),) = await self._ask(
            call_id, functions.OPEN, values, give_back
        )
        if not granted:
            raise CallInUseError(call_id, present)
        return LeasedCall(self, Owner(call_id, fence, writer, previous), number, list(bodies))

    async def apply(self, owner: Owner, changes: Sequence[tuple[Change, Sequence[str]]]) -> int:
        """See ``lease.Server``."""
        values = [
            *self._identity(owner),
            [change.number for change, _ in changes],
            [change.index for change, _ in changes],
            [change.gone for change, _ in changes],
            [len(bodies) for _, bodies in changes],
            [body for _, bodies in changes for body in bodies],
        ]
        return await self._outcome(owner, functions.APPLY, values)

    async def renew(self, owner: Owner, number: int) -> int:
        """See ``lease.Server``."""
        return await self._outcome(owner, functions.RENEW, [*self._identity(owner), number])

    async def restore(self, owner: Owner, number: int, bodies: Sequence[str]) -> int:
        """See ``lease.Server``."""
        return await self._outcome(owner, functions.RESTORE, [*self._identity(owner), number, list(bodies)])

    async def release(self, owner: Owner) -> None:
        """See ``lease.Server``."""
        await self._ask(owner.call_id, functions.RELEASE, [owner.call_id, owner.fence, owner.writer])

    def _identity(self, owner: Owner) -> list[Any]:
        return [owner.call_id, owner.fence, owner.writer, owner.previous, float(self.lease)]

    async def _outcome(self, owner: Owner, sql: str, values: Sequence[Any]) -> int:
        rows = await self._ask(owner.call_id, sql, values)
        return int(rows[0][0])

    async def _ask(self, call_id: str, sql: str, values: Sequence[Any], late: Any = None) -> list[Any]:
        rows: list[Any] = await self._link.ask(f"call {call_id!r} in {self._name}", sql, values, late)
        return rows
