"""Full disks, damaged files, files that cannot be written, a busy file: nothing is lost in silence, nobody is locked out."""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from micdrop_agent import Message, SqliteStore, StoreError
from micdrop_agent.store import Change
from micdrop_agent.testing import ScriptedAgent

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

    from micdrop_agent import Item

HELLO = Message("user", "Hello!")
LONG = Message("user", "I have a long story to tell. " * 4000)


async def write(store: SqliteStore, call_id: str, item: Item = HELLO) -> None:
    log = await store.open_call(call_id)
    try:
        await log.apply([Change(log.number + 1, len(log.items), 0, (item,))])
    finally:
        await log.aclose()


@contextlib.contextmanager
def files_of_at_most(size: int) -> Generator[None]:
    """What a full disk does to every write beyond ``size`` bytes of a file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def fill_the_disk() -> None:
    """From now on, until ``files_of_at_most`` around it ends."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


# -- full disks


@pytest.mark.parametrize("size", [0, 1, 4096, 20_000, 40_000, 80_000])
async def test_a_full_disk_refuses_calls_only_while_it_is_full(tmp_path: Path, size: int) -> None:
    async with SqliteStore(tmp_path / "calls.db") as store:
        await write(store, "before")
        log = await store.open_call("open")
        failed = 0
        with files_of_at_most(size):
            for number in range(6):
                try:
                    await write(store, f"new {number}", LONG)
                except StoreError:
                    failed += 1
            with pytest.raises(StoreError):
                await log.apply([Change(1, 0, 0, (LONG,))])
            assert await store.load("before") == [HELLO]
        assert failed
        await log.apply([Change(1, 0, 0, (LONG,))])
        await log.aclose()
        for number in range(6):
            await write(store, f"new {number}", LONG)
            assert await store.load(f"new {number}") in ([LONG], [LONG, LONG])
        async with SqliteStore(tmp_path / "calls.db") as other:
            await write(other, "open")
            assert await other.load("open") == [LONG, HELLO]


@pytest.mark.parametrize("size", [0, 1, 4096, 8192])
async def test_a_disk_that_is_full_from_the_beginning_is_an_error_until_it_is_not(tmp_path: Path, size: int) -> None:
    async with SqliteStore(tmp_path / "calls.db") as store:
        with files_of_at_most(size), pytest.raises(StoreError):
            await write(store, "a", LONG)
        await write(store, "a", LONG)
        assert (await store.load("a"))[-1] == LONG


async def test_what_a_full_disk_did_not_take_is_in_the_exception(tmp_path: Path) -> None:
    reported: list[Exception] = []
    agent = ScriptedAgent()
    async with SqliteStore(tmp_path / "calls.db") as store:
        stored: list[Item] = []
        with pytest.raises(StoreError) as caught, files_of_at_most(2**40):  # noqa: PT012 - the end of a block raises
            async with agent:
                await agent.attach(store, "a", on_error=reported.append)
                stored += await store.load("a")
                fill_the_disk()
                agent.add_user_message("This is lost.")
                agent.add_user_message("And this.")
        assert reported
        assert not caught.value.retryable
        rest = list(stored)
        for change in caught.value.unsaved:
            rest[change.index : change.index + change.gone] = change.come
        assert rest == list(agent.conversation)
        assert await store.load("a") == stored
        await write(store, "a")


# -- an authorizer that forbids one kind of statement

FORBIDDEN: list[tuple[int, str | None]] = [
    (sqlite3.SQLITE_TRANSACTION, "BEGIN"),
    (sqlite3.SQLITE_TRANSACTION, "COMMIT"),
    (sqlite3.SQLITE_TRANSACTION, "ROLLBACK"),
    (sqlite3.SQLITE_INSERT, "calls"),
    (sqlite3.SQLITE_INSERT, "items"),
    (sqlite3.SQLITE_UPDATE, "calls"),
    (sqlite3.SQLITE_READ, "items"),
    (sqlite3.SQLITE_READ, "calls"),
]


@pytest.mark.parametrize("forbidden", FORBIDDEN, ids=lambda value: f"{value}")
@pytest.mark.parametrize("moment", ["opening", "writing", "deleting"])
async def test_a_statement_that_fails_leaves_no_lock_and_no_transaction(
    tmp_path: Path, forbidden: tuple[int, str | None], moment: str
) -> None:
    async with SqliteStore(tmp_path / "calls.db") as store:
        await write(store, "a")
        log = await store.open_call("b")
        async with denied(store, forbidden, also_rollback=forbidden[1] == "COMMIT"):
            for number in range(3):
                with contextlib.suppress(StoreError):
                    if moment == "opening":
                        await (await store.open_call(f"{number}")).aclose()
                    elif moment == "writing":
                        await log.apply([Change(1, 0, 0, (HELLO,))])
                    else:
                        await store.delete("a")
        await log.apply([Change(1, 0, 0, (HELLO,))])
        assert await store.load("b") == [HELLO]
        await log.aclose()
        for call_id in ("a", "b", "0", "1", "2", "new"):
            await write(store, call_id)
        async with SqliteStore(tmp_path / "calls.db") as other:
            await write(other, "a")


@contextlib.asynccontextmanager
async def denied(store: SqliteStore, forbidden: tuple[int, str | None], *, also_rollback: bool) -> AsyncGenerator[None]:
    connection = store._database._opened
    assert connection is not None
    rollback = (sqlite3.SQLITE_TRANSACTION, "ROLLBACK")

    def decide(action: int, first: str | None, *_rest: str | None) -> int:
        refused = (action, first) == forbidden or (also_rollback and (action, first) == rollback)
        return sqlite3.SQLITE_DENY if refused else sqlite3.SQLITE_OK

    connection.set_authorizer(decide)
    try:
        yield
    finally:
        with contextlib.suppress(sqlite3.ProgrammingError):  # the store may have closed it, and opened another
            connection.set_authorizer(None)


# -- damaged files

ITEMS: list[Item] = [Message("user", f"Wörter, слова, 言葉 {number}. " * 12, {"n": number}) for number in range(30)]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # what is damaged knows no event loop
async def test_every_damage_of_the_file_is_a_store_error_or_none(tmp_path: Path) -> None:
    good = tmp_path / "good"
    async with SqliteStore(good) as store:
        for call_id in ("a", "b"):
            log = await store.open_call(call_id)
            await log.apply([Change(1, 0, 0, tuple(ITEMS))])
            await log.aclose()
    data = good.read_bytes()
    chance = random.Random(14)
    refused = 0
    for number in range(150):
        path = tmp_path / "bad.db"
        path.write_bytes(damage(data, chance))
        async with SqliteStore(path, create=False, fsync=False) as store:
            for work in (store.calls, lambda: store.load("a"), lambda: write(store, "a"), lambda: store.delete("b")):
                try:
                    result: Any = await work()
                except StoreError:
                    refused += 1
                else:
                    if isinstance(result, list) and result and isinstance(result[0], Message):
                        assert result == ITEMS, number
        remove(tmp_path, "bad.db*")
    assert refused > 150


def remove(folder: Path, pattern: str) -> None:
    for leftover in folder.glob(pattern):
        if leftover.is_dir():
            shutil.rmtree(leftover)
        else:
            leftover.unlink()


def damage(data: bytes, chance: random.Random) -> bytes:
    broken = bytearray(data)
    for _ in range(chance.choice((1, 3, 40))):
        start = chance.choice((chance.randrange(len(data)), chance.randrange(200)))
        kind = chance.randrange(4)
        if kind == 0:
            broken[start % len(broken)] ^= 1 << chance.randrange(8)
        elif kind == 1:
            broken[start : start + 64] = chance.randbytes(64)
        elif kind == 2:
            broken[start : start + 512] = bytes(512)
        else:
            del broken[max(start, 1) :]
            broken.extend(bytes(chance.randrange(2) * (len(data) - len(broken))))
    return bytes(broken)


@pytest.mark.parametrize(
    "change", ["position = position + 1", "body = CAST(x'22ff' AS TEXT)", "body = x'00'", "call = 77"]
)
async def test_rows_that_somebody_changed_are_seen(tmp_path: Path, change: str) -> None:
    path = tmp_path / "calls.db"
    async with SqliteStore(path) as store:
        await write(store, "a")
        await write(store, "a")
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute(f"UPDATE items SET {change} WHERE position = 1")
        connection.commit()
    async with SqliteStore(path) as store:
        with pytest.raises(StoreError, match=r"damaged|cannot be read"):
            await store.load("a")
        with pytest.raises(StoreError, match=r"damaged|cannot be opened"):
            await store.open_call("a")
        await store.delete("a")


# -- files that cannot be written


@pytest.fixture
def world() -> Generator[Path]:
    """A folder that every user may enter; those of pytest are for their owner only."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


READER = """
import anyio, filelock, json, os, sys
from micdrop_agent.store import SqliteStore, StoreError
anyio.run(SqliteStore(":memory:").calls)  # imports what it takes, which a stranger may not read
if os.geteuid() == 0:
    os.setgid(65534); os.setuid(65534)

async def main():
    async with SqliteStore(sys.argv[1]) as store:
        items = await store.load("a")
        calls = await store.calls()
        try:
            await store.open_call("a")
        except StoreError as error:
            refused = str(error)
        else:
            refused = ""
        print(json.dumps([len(items), len(calls), refused]))

anyio.run(main)
"""


@pytest.mark.parametrize("clean", [True, False], ids=["left cleanly", "after a crash"])
@pytest.mark.parametrize("index", [True, False], ids=["with index", "without index"])
@pytest.mark.parametrize("folder_too", [True, False], ids=["read-only folder", "read-only files"])
def test_a_file_that_cannot_be_written_can_be_read(world: Path, *, clean: bool, index: bool, folder_too: bool) -> None:
    kept, copy = world / "kept", world / "copy"
    kept.mkdir()
    copy.mkdir()

    async def fill() -> None:
        async with SqliteStore(kept / "calls.db") as store:
            await write(store, "a")
            await write(store, "a")
            if not clean:
                copy_files()
        if clean:
            copy_files()

    def copy_files() -> None:
        for file in kept.iterdir():
            if file.is_file() and (index or not file.name.endswith("-shm")):
                shutil.copy(file, copy)

    anyio.run(fill)
    for file in copy.iterdir():
        file.chmod(0o444)
    copy.chmod(0o555 if folder_too else 0o777)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "HOME": "/nonexistent"}
    reader = subprocess.run(
        [sys.executable, "-c", READER, copy / "calls.db"], capture_output=True, text=True, check=False, env=environment
    )
    assert reader.returncode == 0, reader.stderr
    items, calls, refused = json.loads(reader.stdout)
    assert (items, calls) == (2, 1)
    assert refused


# -- a busy file


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_six_hundred_agents_on_one_busy_file_lose_nothing(tmp_path: Path, backend: str) -> None:
    path, agents = tmp_path / "calls.db", 600
    said: dict[str, int] = {}

    async def call(store: SqliteStore, number: int) -> None:
        async with ScriptedAgent(["Yes."]) as agent:
            await agent.attach(store, f"{number}")
            for _ in range(3):
                agent.add_user_message("And?")
                await agent.answer().wait()
        said[f"{number}"] = len(agent.conversation)

    async def busy(store: SqliteStore) -> None:
        async with anyio.create_task_group() as tasks:
            for number in range(agents):
                tasks.start_soon(call, store, number)

    async def main() -> None:
        async with SqliteStore(path, fsync=False) as store:
            await busy(store)
            stored = {info.call_id: info.items for info in await store.calls()}
        assert stored == said
        assert sum(said.values()) == agents * 7

    with noisy_neighbour(path):
        anyio.run(main, backend=backend)


@contextlib.contextmanager
def noisy_neighbour(path: Path) -> Generator[None]:
    """Another process that holds the file for half of the time, again and again."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", NEIGHBOUR, path], stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield
        finally:
            process.kill()


NEIGHBOUR = """
import sqlite3, sys, time
import anyio
from micdrop_agent.store import SqliteStore
anyio.run(SqliteStore(sys.argv[1]).calls)
connection = sqlite3.connect(sys.argv[1], timeout=30, isolation_level=None)
print("ready", flush=True)
while True:
    connection.execute("BEGIN IMMEDIATE")
    time.sleep(0.05)
    connection.execute("COMMIT")
    time.sleep(0.05)
"""
