"""Calls in Redis: the contract of a store, leases that end, and a server that is stopped, filled and restarted."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import pytest
from lease_support import check_take_over, until
from redis_support import Server, needs_server

from micdrop_agent import CallInUseError, CallMovedError, Message, StoreError
from micdrop_agent.store import Change, RedisStore
from micdrop_agent.testing import ScriptedAgent, check_store

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

pytestmark = [
    needs_server,
    # coredis 6.9 leaves the streams of a broken connection to the garbage collector.
    pytest.mark.filterwarnings("ignore:Unclosed <MemoryObject:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

HELLO = Message("user", "Hello!")


@pytest.fixture(autouse=True)
def collected() -> Generator[None]:
    """What the client left is collected here, and disturbs no other test."""
    yield
    gc.collect()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Generator[Server]:
    server = Server(tmp_path_factory.mktemp("redis"))
    yield server
    server.stop()


@pytest.fixture
def server(tmp_path: Path) -> Generator[Server]:
    server = Server(tmp_path)
    yield server
    server.stop()


async def test_the_redis_store_keeps_the_contract(shared: Server) -> None:
    with anyio.fail_after(60):
        await check_store(lambda: RedisStore(shared.url, prefix=f"check{os.getpid()}"))


async def test_a_call_that_is_taken_over_is_lost_to_its_old_writer_at_once(shared: Server) -> None:
    async with RedisStore(shared.url, lease=0.9) as old, RedisStore(shared.url, take_over=True) as new:
        await check_take_over(old, new)


async def test_a_call_is_free_when_the_lease_of_a_dead_worker_has_ended(shared: Server) -> None:
    async with RedisStore(shared.url, lease=0.3) as dead, RedisStore(shared.url) as alive:
        await dead.open_call("dead")  # and nothing holds it
        with pytest.raises(CallInUseError):
            await alive.open_call("dead")
        with anyio.fail_after(10):
            log = await open_when_free(alive, "dead")
        await log.aclose()


async def open_when_free(store: RedisStore, call_id: str) -> Any:
    while True:
        try:
            return await store.open_call(call_id)
        except CallInUseError:
            await anyio.sleep(0.05)


PAUSED = """
import sys, anyio
from micdrop_agent import CallMovedError
from micdrop_agent.store import RedisStore
from micdrop_agent.testing import ScriptedAgent

async def main():
    async with RedisStore(sys.argv[1], lease=0.6) as store, ScriptedAgent() as agent:
        recorder = await agent.attach(store, "paused")
        agent.add_user_message("before")
        await agent.flush()
        print("ready", flush=True)
        await anyio.to_thread.run_sync(sys.stdin.readline)
        agent.add_user_message("after")
        with anyio.move_on_after(5):
            while not recorder.moved:
                await anyio.sleep(0.01)
        print("moved" if recorder.moved else "still here", flush=True)

try:
    anyio.run(main, backend=sys.argv[2])
except* CallMovedError:
    pass
"""


@pytest.mark.parametrize("taken", [True, False], ids=["taken over", "not taken over"])
async def test_a_worker_that_was_stopped_beyond_its_lease_writes_nothing_more(
    shared: Server, anyio_backend_name: str, *, taken: bool
) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", PAUSED, shared.url, anyio_backend_name]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as worker:  # noqa: ASYNC220 - the event loop has nothing else to do
        assert worker.stdin is not None
        assert worker.stdout is not None
        assert worker.stdout.readline() == b"ready\n"
        worker.send_signal(signal.SIGSTOP)
        await anyio.sleep(1.2)
        async with RedisStore(shared.url) as store:
            before, log = await store.load("paused"), None
            if taken:
                log = await store.open_call("paused")
                await log.apply([Change(log.number + 1, len(log.items), 0, (HELLO,))])
                before = await store.load("paused")
            worker.stdin.write(b"go\n")
            worker.stdin.flush()
            worker.send_signal(signal.SIGCONT)
            assert worker.stdout.readline() == b"moved\n"
            worker.wait()
            assert await store.load("paused") == before
            if log is not None:
                await log.aclose()
            await (await store.open_call("paused")).aclose()


async def test_a_server_that_was_restarted_without_its_data_gets_the_call_again(server: Server) -> None:
    async with RedisStore(server.url, lease=3) as store:
        async with ScriptedAgent(["Yes."] * 9) as agent:
            recorder = await agent.attach(store, "a")
            await say(agent, "before")
            await agent.flush()
            await anyio.to_thread.run_sync(server.stop)
            with anyio.fail_after(2):
                await say(agent, "while it is away")
            await anyio.to_thread.run_sync(server.start)
            with anyio.fail_after(20):
                await say(agent, "again")
                await until(lambda: not recorder.pending and recorder.error is None)
            assert not recorder.moved
        assert await store.load("a") == list(agent.conversation)


async def test_a_server_that_went_back_to_an_older_state_gets_what_it_lost(server: Server) -> None:
    """As a replica that lacks the last seconds when it takes over."""
    async with RedisStore(server.url, lease=3) as store:
        async with ScriptedAgent(["Yes."] * 9) as agent:
            recorder = await agent.attach(store, "a")
            await say(agent, "kept")
            await agent.flush()
            assert server.ask("SAVE").startswith(b"+OK")
            await say(agent, "lost")
            await agent.flush()
            await anyio.to_thread.run_sync(server.stop)
            await anyio.to_thread.run_sync(server.start)
            with anyio.fail_after(20):
                await say(agent, "after")
                await until(lambda: not recorder.pending and recorder.error is None)
            assert not recorder.moved
        assert await store.load("a") == list(agent.conversation)


async def test_a_request_of_a_writer_that_gave_the_call_back_opens_it_no_more(shared: Server) -> None:
    async with RedisStore(shared.url) as store:
        log = await store.open_call("late")
        await log.apply([Change(1, 0, 0, (HELLO,))])
        await log.aclose()
        log._closed = False  # as if the request had been on its way
        with pytest.raises(CallMovedError):
            await log.apply([Change(2, 1, 0, (HELLO,))])
        await (await store.open_call("late")).aclose()


async def test_a_server_that_is_stopped_for_longer_than_the_lease_ends_no_call(server: Server) -> None:
    async with RedisStore(server.url, lease=1.5) as store:
        async with ScriptedAgent(["Yes."] * 9) as agent:
            recorder = await agent.attach(store, "a")
            await say(agent, "before")
            server.pause()
            with anyio.fail_after(2):
                await say(agent, "while it is stopped")
            await anyio.sleep(2.2)
            server.resume()
            await say(agent, "after")
            assert not recorder.moved
        assert await store.load("a") == list(agent.conversation)


async def test_a_server_that_is_full_takes_what_it_missed_when_it_has_room(server: Server) -> None:
    async with RedisStore(server.url, lease=3) as store:
        async with ScriptedAgent(["Yes."] * 9) as agent:
            recorder = await agent.attach(store, "a")
            server.ask("CONFIG SET maxmemory 1")
            await say(agent, "when it is full")
            with pytest.raises(StoreError, match="OOM"):
                await agent.flush()
            assert recorder.pending
            server.ask("CONFIG SET maxmemory 0")
            await say(agent, "when it has room")
            await agent.flush()
        assert await store.load("a") == list(agent.conversation)


async def say(agent: ScriptedAgent, text: str) -> None:
    agent.add_user_message(text)
    await agent.answer().wait()


@pytest.mark.parametrize("options", [{"lease": 0}, {"ttl": -1}, {"lease": "1"}, {"take_over": 1}])
def test_an_option_that_is_wrong_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError), match=next(iter(options))):
        RedisStore("redis://localhost", **options)


async def test_a_call_is_forgotten_after_its_time(shared: Server) -> None:
    async with RedisStore(shared.url, ttl=0.2) as store:
        log = await store.open_call("short")
        await log.apply([Change(1, 0, 0, (HELLO,))])
        assert await store.load("short") == [HELLO]
        await log.aclose()
        await anyio.sleep(0.4)
        with pytest.raises(StoreError, match="no call"):
            await store.load("short")
