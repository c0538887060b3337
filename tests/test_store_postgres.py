"""Calls in PostgreSQL: the contract of a store, leases, and a server that hangs, crashes and loses what it had."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import pytest
from lease_support import check_take_over, until
from postgres_support import Postgres, needs_postgres

from micdrop_agent import CallInUseError, CallMovedError, Message, StoreError
from micdrop_agent.store import CallLog, Change, LeasedCallLog, PostgresStore
from micdrop_agent.testing import ScriptedAgent, check_store

if TYPE_CHECKING:
    from collections.abc import Generator

pytestmark = needs_postgres

HELLO = Message("user", "Hello!")


@pytest.fixture(scope="module")
def server() -> Generator[Postgres]:
    server = Postgres()
    yield server
    server.close()


async def say(agent: ScriptedAgent, text: str) -> None:
    agent.add_user_message(text)
    await agent.answer().wait()


async def test_the_postgres_store_keeps_the_contract(server: Postgres, anyio_backend_name: str) -> None:
    with anyio.fail_after(60):
        await check_store(lambda: PostgresStore(server.dsn, schema=f"check_{anyio_backend_name}"))


async def test_a_call_that_is_taken_over_is_lost_to_its_old_writer_at_once(server: Postgres) -> None:
    async with PostgresStore(server.dsn, lease=0.6) as old, PostgresStore(server.dsn, take_over=True) as new:
        await check_take_over(old, new)


async def test_a_call_is_free_when_the_lease_of_a_dead_worker_has_ended(
    server: Postgres, anyio_backend_name: str
) -> None:
    call_id = f"dead {anyio_backend_name}"
    async with PostgresStore(server.dsn, lease=0.3) as dead, PostgresStore(server.dsn) as alive:
        await dead.open_call(call_id)  # and nothing holds it
        with pytest.raises(CallInUseError, match="process"):
            await alive.open_call(call_id)
        with anyio.fail_after(10):
            log = await open_when_free(alive, call_id)
        await log.aclose()


async def open_when_free(store: PostgresStore, call_id: str) -> CallLog:
    while True:
        try:
            return await store.open_call(call_id)
        except CallInUseError:
            await anyio.sleep(0.05)


async def test_a_database_that_crashes_gets_what_it_missed(server: Postgres, anyio_backend_name: str) -> None:
    call_id, reported = f"crash {anyio_backend_name}", list[Exception]()
    async with PostgresStore(server.dsn, lease=3) as store:
        async with ScriptedAgent(["Yes."] * 9) as agent:
            recorder = await agent.attach(store, call_id, on_error=reported.append)
            await say(agent, "before")
            await agent.flush()
            await anyio.to_thread.run_sync(server.stop)
            with anyio.fail_after(2):
                await say(agent, "while it is down")
            with pytest.raises(StoreError, match=call_id) as failed:
                await agent.flush()
            assert failed.value.retryable
            assert recorder.pending == len(failed.value.unsaved) > 0
            await anyio.to_thread.run_sync(server.start)
            with anyio.fail_after(20):
                await say(agent, "again")
                await until(lambda: not recorder.pending and recorder.error is None)
            assert not recorder.moved
        assert await store.load(call_id) == list(agent.conversation)
    assert reported
    assert not any(isinstance(error, CallMovedError) for error in reported)


async def test_a_server_that_hangs_holds_neither_a_call_nor_whoever_cancels(
    server: Postgres, anyio_backend_name: str
) -> None:
    call_id = f"hang {anyio_backend_name}"
    async with PostgresStore(server.dsn, lease=60) as store:
        async with ScriptedAgent(["Yes."] * 9) as agent:
            recorder = await agent.attach(store, call_id)
            server.pause()
            try:
                with anyio.fail_after(2):
                    await say(agent, "while it hangs")
                    for request in (lambda: store.open_call("another"), agent.flush, lambda: store.load(call_id)):
                        with anyio.move_on_after(0.05) as limit:
                            await request()
                        assert limit.cancelled_caught
                assert recorder.pending
            finally:
                server.resume()
            with anyio.fail_after(20):
                await agent.flush()
            assert not recorder.moved
        assert await store.load(call_id) == list(agent.conversation)
        # What was opened for a caller that had gone was given back.
        with anyio.fail_after(10):
            await (await open_when_free(store, "another")).aclose()


async def test_the_end_of_an_agent_waits_for_a_server_that_hangs_no_longer_than_it_says(
    server: Postgres, anyio_backend_name: str
) -> None:
    async with PostgresStore(server.dsn, lease=3) as store:
        try:
            with anyio.fail_after(9), pytest.raises(StoreError) as failed:
                await never_stored(store, server, f"end {anyio_backend_name}")
        finally:
            server.resume()
    assert [change.come for change in failed.value.unsaved] == [(Message("user", "never stored"),)]


async def never_stored(store: PostgresStore, server: Postgres, call_id: str) -> None:
    async with ScriptedAgent(["Yes."]) as agent:
        await agent.attach(store, call_id, close_timeout=0.2)
        server.pause()
        agent.add_user_message("never stored")


async def test_a_database_that_was_put_back_to_an_older_state_gets_the_call_again(
    server: Postgres, anyio_backend_name: str
) -> None:
    """As a standby that lacks the last seconds when it takes over: some changes are lost, or the call, or the schema."""
    schema = f"older_{anyio_backend_name}"
    async with PostgresStore(server.dsn, lease=0.9, schema=schema) as store:
        await (await store.open_call("a")).aclose()
        server.ask(f"CREATE TABLE {schema}.calls_before AS SELECT * FROM {schema}.calls")
        async with ScriptedAgent(["Yes."] * 9) as agent:
            recorder = await agent.attach(store, "a")
            back = f"SELECT fence, writer, until, number FROM {schema}.calls_before"
            losses = [
                f"DELETE FROM {schema}.items WHERE position >= 2; UPDATE {schema}.calls SET number = 2",
                f"TRUNCATE {schema}.calls CASCADE",
                f"UPDATE {schema}.calls SET (fence, writer, until, number) = ({back})",
            ]
            for loss in losses:
                await say(agent, "before")
                await agent.flush()
                server.ask(loss)
                await say(agent, "after")
                await agent.flush()
                assert await store.load("a") == list(agent.conversation)
            server.ask(f"DROP SCHEMA {schema} CASCADE")
            agent.add_user_message("into a new schema")
            with anyio.fail_after(10):
                await until(lambda: not recorder.pending and recorder.error is None)
            assert not recorder.moved
        assert await store.load("a") == list(agent.conversation)


async def test_an_older_state_is_not_put_back_over_what_a_later_writer_wrote(
    server: Postgres, anyio_backend_name: str
) -> None:
    call_id = f"later {anyio_backend_name}"
    async with PostgresStore(server.dsn) as store, PostgresStore(server.dsn, take_over=True) as other:
        old: LeasedCallLog = await store.open_call(call_id)
        await old.apply([Change(1, 0, 0, (HELLO,))])
        # The server forgets it, and gives the same number to a later writer.
        server.ask(f"DELETE FROM micdrop.calls WHERE call_id = '{call_id}'")
        new = await other.open_call(call_id)
        await new.apply([Change(1, 0, 0, (Message("user", "Later."),))])
        with pytest.raises(CallMovedError):
            await old.apply([Change(2, 1, 0, (HELLO,))])
        await new.aclose()
        with pytest.raises(CallMovedError):
            await old.apply([Change(2, 1, 0, (HELLO,))])
        with pytest.raises(CallMovedError):
            await old.hold()
        assert await store.load(call_id) == [Message("user", "Later.")]


async def test_a_role_that_may_create_nothing_uses_what_is_there(server: Postgres, anyio_backend_name: str) -> None:
    role = f"plain_{anyio_backend_name}"
    async with PostgresStore(server.dsn) as owner:
        await (await owner.open_call("any")).aclose()
    server.ask(f"CREATE ROLE {role} LOGIN")
    server.ask(f"GRANT USAGE ON SCHEMA micdrop TO {role}")
    server.ask(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA micdrop TO {role}")
    async with PostgresStore(server.dsn.replace("user=micdrop", f"user={role}")) as store:
        async with ScriptedAgent(["Yes."]) as agent:
            await agent.attach(store, role)
            await say(agent, "Hello!")
        assert await store.load(role) == list(agent.conversation)


async def test_old_calls_are_forgotten_when_that_is_asked_for(server: Postgres, anyio_backend_name: str) -> None:
    async with PostgresStore(server.dsn, schema=f"old_{anyio_backend_name}") as store:
        kept = await store.open_call("open")
        closed = await store.open_call("closed")
        await closed.apply([Change(1, 0, 0, (HELLO,))])
        await closed.aclose()
        assert await store.forget(60) == 0
        assert await store.forget(0) == 1
        with pytest.raises(StoreError, match="no call"):
            await store.load("closed")
        await kept.aclose()


async def test_a_server_that_is_not_there_is_a_store_error() -> None:
    async with PostgresStore("host=127.0.0.1 port=1 password=secret") as store:
        with pytest.raises(StoreError) as failed:
            await store.open_call("a")
    assert failed.value.retryable
    assert "secret" not in f"{failed.value} {store!r}"


@pytest.mark.parametrize(
    "options", [{"lease": 0}, {"take_over": 1}, {"schema": "a;b"}, {"connections": 0}, {"dsn": "no string"}]
)
def test_an_option_that_is_wrong_is_refused(options: dict[str, Any]) -> None:
    given: dict[str, Any] = {"dsn": "host=localhost", **options}
    with pytest.raises((TypeError, ValueError), match=next(iter(options))):
        PostgresStore(**given)


@pytest.mark.parametrize(
    "dsn", ["postgresql://me:hunter2%zz@localhost/calls", "host=localhost password='hunter2", "host=localhost hunter2"]
)
def test_a_password_in_a_damaged_connection_string_is_in_no_error(dsn: str) -> None:
    with pytest.raises(ValueError, match="dsn is not a connection string") as caught:
        PostgresStore(dsn)
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))
    assert (caught.value.__cause__, caught.value.__context__) == (None, None)
