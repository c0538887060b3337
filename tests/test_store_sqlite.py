from __future__ import annotations

import codecs
import datetime as dt
import json
import math
import os
import sqlite3
import stat
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import pytest

from micdrop_agent import CallInUseError, Message, SqliteStore, StoreError, ToolCall, ToolResult
from micdrop_agent.store import CallInfo, Change, UnknownCallError, export_jsonl, import_jsonl
from micdrop_agent.testing import ScriptedAgent

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from micdrop_agent import Item
    from micdrop_agent.store import CallLog

ITEMS: list[Item] = [
    Message("system", "Be brief."),
    Message("user", "Where is the cat? ¿Dónde? 猫は? 🐈", {"at": 1.5, "tags": ["a", None]}),
    ToolCall("1", "look", '{"where": "sofa"}', extra={"index": 0}),
    ToolResult("1", "look", '"there"'),
    Message("assistant", "On the sofa.\u2028\nThere.", {"interrupted": True}),
]


async def fill(store: SqliteStore, call_id: str, items: Iterable[Item] = ITEMS) -> None:
    log = await store.open_call(call_id)
    await log.apply([Change(log.number + 1, 0, 0, tuple(items))])
    await log.aclose()


async def test_many_calls_live_in_one_file(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "calls.db") as store:
        agents = [ScriptedAgent([f"I am {number}."]) for number in range(20)]

        async def call(number: int) -> None:
            async with agents[number] as agent:
                await agent.attach(store, str(number))
                for _ in range(3):
                    agent.add_user_message("Who?")
                    await agent.answer().wait()

        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(call, number)
        assert sorted(info.call_id for info in await store.calls()) == sorted(map(str, range(20)))
        for number, agent in enumerate(agents):
            assert await store.load(str(number)) == list(agent.conversation)


async def test_calls_are_listed_with_the_latest_at_the_end(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "calls.db") as store:
        assert await store.calls() == []
        await fill(store, "a")
        await fill(store, "b", ITEMS[:2])
        first, second = await store.calls()
        assert isinstance(first, CallInfo)
        assert (first.call_id, first.items, second.call_id, second.items) == ("a", 5, "b", 2)
        assert first.created <= first.changed <= second.changed
        await fill(store, "a", ITEMS[:1])
        assert [info.call_id for info in await store.calls()] == ["b", "a"]


async def test_a_change_that_comes_again_is_stored_once(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "calls.db") as store:
        log = await store.open_call("a")
        changes = [Change(number, number - 1, 0, (item,)) for number, item in enumerate(ITEMS, 1)]
        await log.apply(changes[:3])
        await log.apply(changes)
        await log.apply(changes)
        assert await store.load("a") == ITEMS
        await log.aclose()
        await log.aclose()
        with pytest.raises(RuntimeError, match="closed"):
            await log.apply(changes)
        log = await store.open_call("a")
        assert log.number == 5
        assert log.items == ITEMS
        await log.aclose()


async def test_a_writer_that_is_cancelled_loses_no_change_of_another(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "calls.db", fsync=False) as store:
        logs = [await store.open_call(f"{number}") for number in range(4)]
        for steps in range(1, 25):

            async def write(log: CallLog, number: int) -> None:
                await log.apply([Change(number, 0, len(log.items), tuple(ITEMS[:1]))])

            with anyio.fail_after(20):
                async with anyio.create_task_group() as tasks:
                    cancelled = anyio.CancelScope()

                    async def cut(scope: anyio.CancelScope, number: int) -> None:
                        with scope:
                            await write(logs[0], number)

                    tasks.start_soon(cut, cancelled, steps)
                    for log in logs[1:]:
                        tasks.start_soon(write, log, steps)
                    for _ in range(steps):
                        await anyio.lowlevel.checkpoint()
                    cancelled.cancel()
        for number, log in enumerate(logs):
            await log.aclose()
            assert number == 0 or len(await store.load(f"{number}")) == 24


async def test_a_change_that_cannot_be_stored_leaves_nothing_of_itself(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "calls.db") as store:
        log = await store.open_call("a")
        broken: Any = object()
        with pytest.raises(Exception, match="object"):
            await log.apply([Change(1, 0, 0, tuple(ITEMS)), Change(2, 0, 2, (ITEMS[0], broken))])
        assert await store.load("a") == ITEMS
        await log.apply([Change(2, 4, 1, ())])
        assert await store.load("a") == ITEMS[:-1]
        await log.aclose()


async def test_metadata_that_is_no_json_does_not_keep_what_was_said_from_being_stored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    day = dt.date(2026, 1, 2)
    odd = Message("user", "Hi!", {"day": day, "nan": math.nan, "fine": [1], 7: "seven"}, extra={"x": day})  # type: ignore[dict-item]
    async with SqliteStore(tmp_path / "calls.db") as store:
        await fill(store, "a", [odd])
        stored = (await store.load("a"))[0]
    assert isinstance(stored, Message)
    assert stored.content == "Hi!"
    assert stored.metadata == {"day": repr(day), "nan": "nan", "fine": [1], "7": "seven"}
    assert stored.extra == {"x": repr(day)}
    assert "not JSON" in caplog.text


async def test_a_file_that_is_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    text, foreign, newer = tmp_path / "text", tmp_path / "foreign.db", tmp_path / "newer.db"
    text.write_text("This is a letter, and no database. " * 200)
    with sqlite3.connect(foreign) as connection:
        connection.execute("CREATE TABLE mine (x)")
    connection.close()
    async with SqliteStore(newer) as store:
        await fill(store, "a")
    connection = sqlite3.connect(newer)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    for path, why in ((text, "not a database"), (foreign, "not a store of calls"), (newer, "newer version")):
        before = path.read_bytes()
        async with SqliteStore(path) as store:
            with pytest.raises(StoreError, match=why):
                await store.calls()
            with pytest.raises(StoreError, match=why):
                await store.open_call("a")
        assert path.read_bytes() == before


async def test_a_store_that_is_missing_closed_or_damaged_says_so(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "none.db", create=False) as store:
        with pytest.raises(StoreError, match="there is no store"):
            await store.calls()
    assert not (tmp_path / "none.db").exists()
    async with SqliteStore(tmp_path / "no" / "folder.db") as store:
        with pytest.raises(StoreError, match="No such file"):
            await store.calls()
    store = SqliteStore(tmp_path / "calls.db")
    assert "calls.db" in repr(store)
    await fill(store, "a")
    with pytest.raises(UnknownCallError, match="no call 'b'"):
        await store.load("b")
    with pytest.raises(UnknownCallError):
        await store.delete("b")
    await store.aclose()
    await store.aclose()
    with pytest.raises(StoreError, match="was closed"):
        await store.load("a")
    connection = sqlite3.connect(tmp_path / "calls.db")
    connection.execute("""UPDATE items SET body = '{"role":"user"}' WHERE position = 1""")
    connection.commit()
    connection.close()
    async with SqliteStore(tmp_path / "calls.db", create=False) as store:
        with pytest.raises(StoreError, match=r"'a'.*damaged: \[1\]"):
            await store.load("a")
        with pytest.raises(StoreError, match="damaged"):
            await store.open_call("a")
        await store.delete("a")  # and it is not locked by the attempt


async def test_a_deleted_call_is_told_to_whoever_still_writes_it(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "calls.db") as store:
        log = await store.open_call("a")
        connection = sqlite3.connect(tmp_path / "calls.db")
        connection.execute("DELETE FROM calls")
        connection.commit()
        connection.close()
        with pytest.raises(StoreError, match="deleted"):
            await log.apply([Change(1, 0, 0, tuple(ITEMS))])
        await log.aclose()


async def test_a_store_in_memory_works_and_refuses_a_second_writer() -> None:
    async with SqliteStore(":memory:", fsync=False) as store, SqliteStore(":memory:") as other:
        log = await store.open_call("a")
        with pytest.raises(CallInUseError):
            await store.open_call("a")
        await (await other.open_call("a")).aclose()
        await log.aclose()
        await fill(store, "a")
        assert await store.load("a") == ITEMS


@pytest.mark.parametrize("options", [{"path": b"calls.db"}, {"path": "a", "fsync": 1}, {"path": "a", "create": "no"}])
def test_an_option_of_the_wrong_type_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=r"path|fsync|create"):
        SqliteStore(**options)


HOLDER = """
import sys, anyio
from micdrop_agent.store import SqliteStore

async def main():
    store = SqliteStore(sys.argv[1])
    await store.open_call("a")
    print("held", flush=True)
    sys.stdin.read()

anyio.run(main)
"""


async def test_a_writer_in_another_process_is_refused_until_that_process_is_dead(tmp_path: Path) -> None:
    path = tmp_path / "calls.db"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(  # noqa: ASYNC220 - the event loop has nothing else to do
        [sys.executable, "-c", HOLDER, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        async with SqliteStore(path) as store:
            await fill(store, "b")
            with pytest.raises(CallInUseError, match=f"process {holder.pid}"):
                await store.open_call("a")
            holder.kill()
            holder.wait()
            await fill(store, "a")
            assert await store.load("a") == ITEMS


async def test_a_call_goes_out_and_in_as_json_lines_exactly(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    async with SqliteStore(tmp_path / "calls.db") as store:
        await fill(store, "a")
        assert await export_jsonl(store, "a", file) == 5
        lines = file.read_text("utf-8").rstrip("\n").split("\n")
        assert len(lines) == 5
        assert json.loads(lines[2]) == {
            "role": "tool_call",
            "toolCallId": "1",
            "toolName": "look",
            "parameters": '{"where": "sofa"}',
            "index": 0,
        }
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert await import_jsonl(store, "b", file) == 5
        file.write_bytes(codecs.BOM_UTF8 + file.read_bytes())  # as an editor on Windows saves it
        assert await import_jsonl(store, "with a mark", file) == 5
        assert await store.load("b") == ITEMS
        with pytest.raises(StoreError, match="5 items already"):
            await import_jsonl(store, "b", file)
        with pytest.raises(UnknownCallError):
            await export_jsonl(store, "c", file)
        with pytest.raises(StoreError, match="cannot write"):
            await export_jsonl(store, "a", tmp_path / "no" / "file")
        with pytest.raises(StoreError, match="cannot read"):
            await import_jsonl(store, "c", tmp_path / "nothing")
        for bad in ('{"role":"user"}', '{"role":"user","content":', "[]", '{"role":"user","content":"a"},', "\xff"):
            (tmp_path / "bad").write_bytes(lines[0].encode() + b"\n\n" + bad.encode("latin-1") + b"\n")
            with pytest.raises(StoreError, match="line 3"):
                await import_jsonl(store, "c", tmp_path / "bad")
        with pytest.raises(UnknownCallError):
            await store.load("c")
    assert [entry.name for entry in sorted(tmp_path.iterdir())] == ["a.jsonl", "bad", "calls.db", "calls.db-locks"]  # noqa: ASYNC240


async def test_what_callers_said_is_for_the_owner_of_the_file_only(tmp_path: Path) -> None:
    file = tmp_path / "calls.db"
    async with SqliteStore(file) as store:
        await fill(store, "a")
        log = await store.open_call("b")
        assert modes_in(tmp_path) == {0o600}
        await log.aclose()


def modes_in(folder: Path) -> set[int]:
    """The modes of all files; those of folders add what it takes to enter them."""
    return {stat.S_IMODE(path.stat().st_mode) & ~(0o100 * path.is_dir()) for path in folder.rglob("*")}
