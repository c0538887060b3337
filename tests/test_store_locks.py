"""One call, one writer, whatever its file is called; and nothing keeps a lock that nobody holds."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import pytest

from micdrop_agent import CallInUseError, CallMovedError, Message, SqliteStore, StoreError
from micdrop_agent.store import Change
from micdrop_agent.store.locks import CallLocks
from micdrop_agent.testing import ScriptedAgent

if TYPE_CHECKING:
    from collections.abc import Callable

HELLO = Message("user", "Hello!")


async def write(store: SqliteStore, call_id: str = "a", text: str = "Hello!") -> None:
    log = await store.open_call(call_id)
    await log.apply([Change(log.number + 1, len(log.items), 0, (Message("user", text),))])
    await log.aclose()


def symlink(path: Path, name: Path) -> None:
    name.symlink_to(path)


def relative_symlink(path: Path, name: Path) -> None:
    name.symlink_to(os.path.relpath(path, name.parent))


def hard_link(path: Path, name: Path) -> None:
    name.hardlink_to(path)


def symlink_to_its_folder(path: Path, name: Path) -> None:
    name.symlink_to(path.parent, target_is_directory=True)


LINKS = [symlink, relative_symlink, hard_link, symlink_to_its_folder]


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("name", ["a first name.db", "z last name.db"])
async def test_a_call_has_one_writer_under_every_name_of_its_file(
    tmp_path: Path, link: Callable[[Path, Path], None], name: str
) -> None:
    first, second = tmp_path / "calls.db", tmp_path / name
    async with SqliteStore(first) as store:
        await write(store)
        link(first, second)
        other_name = second / "calls.db" if second.is_dir() else second
        async with SqliteStore(other_name) as other:
            log = await store.open_call("a")
            held = log._call
            assert held is not None
            with pytest.raises(CallInUseError):
                await other.open_call("a")
            await log.apply([Change(2, 1, 0, (HELLO,))])
            assert len(await other.load("a")) == 2
            await log.aclose()
            await write(other)
            with pytest.raises(CallMovedError):
                # Even a writer that got past the lock is one too many: its name is not that of the last one.
                await store.apply(held, [Change(3, 0, 0, (HELLO,))])
        assert len(await store.load("a")) == 3
    async with SqliteStore(other_name) as other, SqliteStore(first) as store:
        assert await other.load("a") == await store.load("a")


async def test_a_hard_link_to_another_folder_is_refused_and_harms_nobody(tmp_path: Path) -> None:
    (tmp_path / "backup").mkdir()
    first, second = tmp_path / "calls.db", tmp_path / "backup" / "calls.db"
    async with SqliteStore(first) as store:
        await write(store)
        second.hardlink_to(first)
        async with SqliteStore(second) as other:
            with pytest.raises(StoreError, match="hard link"):
                await other.open_call("a")
            with pytest.raises(StoreError, match="hard link"):
                await other.load("a")
        await write(store)
    async with SqliteStore(first) as store:  # a backup that is made of links locks nobody out
        await write(store)
        assert len(await store.load("a")) == 3


async def test_opening_and_closing_the_files_elsewhere_in_the_process_gives_no_lock_away(tmp_path: Path) -> None:
    path = tmp_path / "calls.db"
    async with SqliteStore(path) as store:
        log = await store.open_call("a")
        open_and_close_all(tmp_path)
        holder = subprocess.run(  # noqa: ASYNC221 - the event loop has nothing else to do
            [sys.executable, "-c", TRY, path], capture_output=True, text=True, check=False, env=environment()
        )
        assert holder.stdout.strip() == "CallInUseError", holder.stderr
        await log.aclose()


def open_and_close_all(folder: Path) -> None:
    for file in folder.rglob("*"):
        if file.is_file() and not file.name.endswith("-shm"):
            os.close(os.open(file, os.O_RDWR))


TRY = """
import sys, anyio
from micdrop_agent.store import SqliteStore, StoreError

async def main():
    async with SqliteStore(sys.argv[1]) as store:
        try:
            await store.open_call("a")
        except StoreError as error:
            print(type(error).__name__)
        else:
            print("opened")

anyio.run(main)
"""


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def test_a_forked_child_does_not_keep_the_call_of_its_dead_parent(tmp_path: Path) -> None:
    path = str(tmp_path / "calls.db")
    CallLocks(path)  # filelock is imported before the fork
    program = PARENT % (path,)
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", program], stdout=subprocess.PIPE, env=environment()
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.kill()
        parent.wait()
        try:
            locks, tries = CallLocks(path), 0
            # The child lets go as its first act, which may come a moment after its parent's death.
            while (lock := locks.acquire("a")) is None and tries < 1000:
                tries += 1
                time.sleep(0.01)
            assert lock is not None
            lock.release()
        finally:
            os.kill(child, signal.SIGKILL)


PARENT = """
import os, time
from micdrop_agent.store.locks import CallLocks
held = CallLocks(%r).acquire("a")
child = os.fork()
if child:
    print(child, flush=True)
time.sleep(60)
"""


def test_many_processes_that_fight_for_a_call_hold_it_one_at_a_time(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    with context.Pool(4) as pool:
        counts = pool.starmap(fight, [(str(tmp_path), number) for number in range(4)])
    assert not list(tmp_path.glob("broken*"))
    assert sum(counts) > 20
    assert list((tmp_path / "calls.db-locks").iterdir()) == []


def fight(folder: str, number: int) -> int:
    """Take and give back the lock; a file that is there already was made by another holder."""
    locks, mark, held = CallLocks(f"{folder}/calls.db"), Path(folder, "mark"), 0
    for _ in range(500):
        lock = locks.acquire("a")
        if lock is None:
            continue
        held += 1
        try:
            mark.touch(exist_ok=False)
            mark.unlink()
        except OSError:
            Path(folder, f"broken{number}").touch()
        lock.release()
        lock.release()
    return held


async def test_a_cancelled_opening_leaves_no_lock(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "calls.db") as store:
        for delay in range(20):
            with anyio.move_on_after(delay / 10_000):
                log = await store.open_call("a")
                await log.aclose()
        await write(store)


def test_a_native_cancellation_of_the_opening_leaves_no_lock(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with SqliteStore(tmp_path / "calls.db") as store:
            await write(store)
            for steps in range(12):
                task = asyncio.create_task(store.open_call("a"))
                for _ in range(steps):
                    await asyncio.sleep(0)
                task.cancel()
                try:
                    log = await task
                except asyncio.CancelledError:
                    pass
                else:
                    await log.aclose()
                await anyio.to_thread.run_sync(store._database.calls)  # the thread that was left is through
                await write(store)
                log = await store.open_call("a")
                closing = asyncio.create_task(log.aclose())
                for _ in range(1 + steps):  # a task that never began closes nothing
                    await asyncio.sleep(0)
                closing.cancel()
                await asyncio.wait([closing])
                await write(store)

    asyncio.run(scenario())


@pytest.mark.parametrize("memory", [False, True])
def test_one_store_serves_several_event_loops(tmp_path: Path, *, memory: bool) -> None:
    store = SqliteStore(":memory:" if memory else tmp_path / "calls.db", fsync=False)
    failures: list[BaseException] = []

    def loop(name: str, backend: str) -> None:
        try:
            with_limit(call_four_times, store, name, backend=backend)
        except BaseException as error:  # noqa: BLE001 - told to the test below
            failures.append(error)

    threads = [threading.Thread(target=loop, args=(f"{n}", ("asyncio", "trio")[n % 2])) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    assert not any(thread.is_alive() for thread in threads)
    assert len(anyio.run(store.calls)) == 16
    anyio.run(store.aclose)


async def call_four_times(store: SqliteStore, name: str) -> None:
    async def call(number: int) -> None:
        for _ in range(3):
            async with ScriptedAgent(["Yes."]) as agent:
                await agent.attach(store, f"{name} {number}")
                agent.add_user_message("And?")
                await agent.answer().wait()
            assert await store.load(f"{name} {number}") == list(agent.conversation)

    async with anyio.create_task_group() as tasks:
        for number in range(4):
            tasks.start_soon(call, number)


def with_limit(main: Callable[..., Any], *args: Any, backend: str) -> None:
    async def limited() -> None:
        with anyio.fail_after(50):
            await main(*args)

    anyio.run(limited, backend=backend)
