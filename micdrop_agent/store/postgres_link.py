"""Connections to a PostgreSQL server, each used by one worker thread at a time; a server that hangs holds nobody.

    await link.ask(sql, values) ──▶ thread ──▶ connection ──▶ server
                └── cancelled, or too late: the thread is left to itself, and its socket is shut down

psycopg runs on Trio only as a blocking library. A thread cannot be cancelled, a socket can be closed under it:
so the task leaves at once, and the thread ends when the socket does.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.to_thread

from micdrop_agent.store import postgres_functions
from micdrop_agent.store.protocol import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    import psycopg

    Connection = psycopg.Connection[tuple[Any, ...]]

__all__ = ["REQUEST_TIMEOUT", "Link"]

REQUEST_TIMEOUT: Final = 5.0
"""Seconds that one request may take; the call does not wait for it."""


class Job:
    """One request in a thread: what it has in hands, so that others can end it.

    Args:
        late: Is given the answer if it comes when nobody waits for it any more; runs in the thread.
    """

    def __init__(self, late: Callable[[Connection, Any], object] | None) -> None:
        self._late = late
        # Held for moments only. A socket is shut down while its connection is certainly the job's own: a moment
        # later the number of its file may be that of another one.
        self._guard = threading.Lock()
        self._connection: Connection | None = None
        self._left = False
        self._cut = False
        self.answer: Any = None
        self.done = False
        """Whether the answer is here."""
        self.over = False
        """Whether the thread has ended."""

    def hold(self, connection: Connection) -> None:
        """The request is sent over ``connection`` from now on."""
        with self._guard:
            self._connection = connection
        if self._cut:
            self.cut()

    @property
    def left(self) -> bool:
        """Whether nobody waits any more."""
        return self._left

    def finish(self, connection: Connection, answer: Any) -> None:
        """The answer is here."""
        with self._guard:
            self.answer, self.done = answer, True
            left = self._left
        if left and self._late is not None:
            self._late(connection, answer)

    def let_go(self) -> None:
        """The connection is no longer this job's."""
        with self._guard:
            self._connection = None

    def leave(self) -> bool:
        """Nobody waits any more: the thread has a little time to end well; whether the answer was here already."""
        with self._guard:
            self._left = True
            if self.done or self.over:
                return self.done
        timer = threading.Timer(REQUEST_TIMEOUT, self.cut)
        timer.daemon = True
        timer.start()
        return False

    def cut(self) -> None:
        """Shut the socket down: whatever waits for it fails at once."""
        with self._guard, contextlib.suppress(Exception):
            self._cut = True
            if self._connection is not None:
                with socket.socket(fileno=os.dup(self._connection.fileno())) as twin:
                    twin.shutdown(socket.SHUT_RDWR)


class Link:
    """Up to ``most`` connections, opened when they are needed and again when they broke.

    Args:
        dsn: The connection string.
        schema: Where the tables are; created when it is missing.
        most: Connections, and threads.
    """

    def __init__(self, dsn: str, schema: str, most: int) -> None:
        self._dsn = dsn
        self._schema = schema
        self._most = most
        self._threads: anyio.CapacityLimiter | None = None
        self._guard = threading.Lock()
        self._idle: list[Connection] = []
        self._ready = False
        self._closed = False

    async def ask(
        self,
        what: str,
        sql: str,
        values: Sequence[Any],
        late: Callable[[Connection, Any], object] | None = None,
    ) -> Any:
        """The rows that ``sql`` gives.

        Args:
            what: What for; for the text of errors.
            sql: One statement, which may be sent again when a connection turns out to be broken.
            values: Its parameters.
            late: Is given the connection and the rows if they come when nobody waits for them any more.

        Raises:
            StoreError: The server cannot be reached, took too long, or refused.
        """
        if self._threads is None:
            self._threads = anyio.CapacityLimiter(self._most)
        job = Job(late)
        rows: Any = None
        with anyio.move_on_after(REQUEST_TIMEOUT) as limit:
            try:
                rows = await anyio.to_thread.run_sync(
                    lambda: self._run(job, what, sql, values), abandon_on_cancel=True, limiter=self._threads
                )
            except anyio.get_cancelled_exc_class():
                # The answer may have come in the very moment of the cancellation.
                if job.leave() and late is not None:
                    with anyio.move_on_after(REQUEST_TIMEOUT, shield=True):
                        await anyio.to_thread.run_sync(self._too_late, late, job.answer, abandon_on_cancel=True)
                raise
        if limit.cancelled_caught:
            job.cut()
            raise StoreError(f"{what}: no answer within {REQUEST_TIMEOUT:g} seconds", retryable=True)
        return rows

    async def aclose(self) -> None:
        """Close what is idle; what is in use is closed by its thread."""
        self._closed = True
        with anyio.move_on_after(REQUEST_TIMEOUT, shield=True):
            await anyio.to_thread.run_sync(self._drop_idle, abandon_on_cancel=True, limiter=self._threads)

    # -- in a thread

    def execute(self, connection: Connection, sql: str, values: Sequence[Any]) -> list[Any]:
        """Run one statement."""
        cursor = connection.execute(sql.replace("{schema}", self._schema).encode(), values)
        return cursor.fetchall() if cursor.description is not None else []

    def _run(self, job: Job, what: str, sql: str, values: Sequence[Any]) -> list[Any]:
        try:
            with _errors(what):
                connection = self._idle_one()
                if connection is not None:
                    try:
                        return self._try(job, connection, sql, values)
                    except _stale():
                        # The server closed it long ago, or changed since. Every statement may be sent twice.
                        if job.left:
                            raise
                return self._try(job, self._connect(), sql, values)
        finally:
            job.over = True

    def _too_late(self, late: Callable[[Connection, Any], object], answer: Any) -> None:
        with contextlib.suppress(StoreError), _errors("an answer that came too late"):
            connection = self._idle_one() or self._connect()
            try:
                late(connection, answer)
            finally:
                connection.close()

    def _try(self, job: Job, connection: Connection, sql: str, values: Sequence[Any]) -> list[Any]:
        job.hold(connection)
        try:
            rows = self.execute(connection, sql, values)
            job.finish(connection, rows)
        except BaseException as error:
            job.let_go()
            self._give_back(connection, error)
            raise
        job.let_go()
        self._give_back(connection)
        return rows

    def _connect(self) -> Connection:
        import psycopg

        # One statement is one transaction, and none is prepared: a proxy between may share the connection.
        connection = psycopg.connect(
            self._dsn,
            autocommit=True,
            prepare_threshold=None,
            connect_timeout=int(REQUEST_TIMEOUT),
            client_encoding="utf8",
        )
        try:
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self, connection: Connection) -> None:
        if self._ready:
            return
        if connection.info.parameter_status("server_encoding") != "UTF8":
            raise StoreError("the database must have the encoding UTF8")
        # Asked first: the role may use the functions and be allowed to create nothing.
        if not self.execute(connection, postgres_functions.INSTALLED, ())[0][0]:
            with connection.transaction():
                connection.execute(postgres_functions.SCHEMA.replace("{schema}", self._schema).encode())
        self._ready = True

    def _idle_one(self) -> Connection | None:
        with self._guard:
            if self._closed:
                raise StoreError("the store was closed")
            return self._idle.pop() if self._idle else None

    def _give_back(self, connection: Connection, error: BaseException | None = None) -> None:
        stale = isinstance(error, _stale())
        if stale:
            self._ready = False  # somebody may have dropped the schema
        elif not connection.broken:
            with self._guard:
                if not self._closed:
                    self._idle.append(connection)
                    return
        connection.close()
        if stale:
            self._drop_idle()

    def _drop_idle(self) -> None:
        with self._guard:
            idle, self._idle = self._idle, []
        for connection in idle:
            with contextlib.suppress(Exception):
                connection.close()


def _stale() -> tuple[type[Exception], ...]:
    """Errors after which a new connection may do better.

    It is broken; the server has become a standby, and another one takes writes now; our schema is missing.
    """
    import psycopg
    from psycopg import errors

    missing = errors.UndefinedFunction, errors.UndefinedTable, errors.InvalidSchemaName
    return psycopg.OperationalError, psycopg.InterfaceError, errors.ReadOnlySqlTransaction, *missing


@contextlib.contextmanager
def _errors(what: str) -> Generator[None]:
    import psycopg

    try:
        yield
    except (psycopg.Error, OSError) as error:
        text = f"{what}: {str(error).strip() or type(error).__name__}"
        raise StoreError(text, retryable=isinstance(error, _stale())) from error
