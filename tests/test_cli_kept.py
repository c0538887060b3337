"""What the command line keeps and shows again: ``--store``, ``show`` and ``--trace``."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import anyio
import pytest
from cli_support import NOBODY, PROMPT, run

from micdrop_agent import Message, ToolCall, ToolResult
from micdrop_agent.cli import main
from micdrop_agent.store import Change, SqliteStore
from micdrop_agent.testing import BACKENDS

if TYPE_CHECKING:
    from pathlib import Path

    from micdrop_agent import Item


def echo(store: Path, *arguments: str) -> int:
    return main(["chat", "--agent", "echo", "--store", str(store), *arguments])


def shown(store: Path, capfd: pytest.CaptureFixture[str], *arguments: str) -> str:
    capfd.readouterr()
    assert main(["show", str(store), *arguments]) == 0
    out, err = capfd.readouterr()
    assert err == ""
    return out


def fill(store: Path, call: str, *items: Item) -> None:
    async def write() -> None:
        async with SqliteStore(store) as opened:
            log = await opened.open_call(call)
            await log.apply([Change(1, 0, 0, items)])
            await log.aclose()

    anyio.run(write)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_stored_call_goes_on_where_it_ended_under_its_own_prompt(
    backend: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "calls.db"
    loop = ("--backend", backend)

    assert echo(store, "--call", "ada", "--say", "one", "--system-prompt", "Mine.", *loop) == 0
    assert capfd.readouterr().err.splitlines()[0] == f"call ada is new in {store}"
    assert echo(store, "--call", "ada", "--say", "two", *loop) == 0
    assert capfd.readouterr().err.splitlines()[0] == "call ada goes on; it has 3 items"

    assert json.loads(shown(store, capfd, "ada", "--json")) == [
        {"role": "system", "content": "Mine."},
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": 'You said: "one"'},
        {"role": "user", "content": "two"},
        {"role": "assistant", "content": 'You said: "two"'},
    ]


def test_a_fallback_keeps_the_prompt_of_a_resumed_call_too(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "calls.db"
    fill(store, "ada", Message("system", "Mine."), Message("user", "one"))

    arguments = ["chat", "--agent", f"chat:m@{NOBODY}", "--fallback", "echo", "--store", str(store), "--call", "ada"]
    assert main([*arguments, "--say", "two"]) == 0

    assert json.loads(shown(store, capfd, "ada", "--json"))[0] == {"role": "system", "content": "Mine."}


def test_a_call_without_a_name_gets_one_that_is_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "calls.db"

    assert echo(store, "--say", "one") == 0
    told = capfd.readouterr().err.splitlines()[0]
    call = told.rpartition("--call ")[2]

    assert json.loads(shown(store, capfd, call, "--json"))[0] == PROMPT


def test_calls_are_listed_for_people_and_for_programs(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "calls.db"
    fill(store, "a", Message("user", "x"))
    fill(store, "a longer name", Message("user", "x"), Message("assistant", "y"))

    table = shown(store, capfd).splitlines()
    listed = json.loads(shown(store, capfd, "--json"))

    assert [line.split("  ")[0].strip() for line in table] == ["call", "a", "a longer name"]
    assert [(call["id"], call["items"]) for call in listed] == [("a", 1), ("a longer name", 2)]


def test_a_call_can_be_read_and_cannot_move_the_cursor(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "calls.db"
    fill(
        store,
        "a",
        Message("system", "Be brief."),
        Message("user", "Is it \x1b[2Jopen?\nNow?"),
        ToolCall("c1", "hours", '{"day":"monday"}'),
        ToolResult("c1", "hours", '"9 to 17"'),
        Message("assistant", "It is", {"interrupted": True}),
    )

    assert shown(store, capfd, "a").splitlines()[1:] == [
        "prompt  Be brief.",
        "caller  Is it [2Jopen?",
        "        Now?",
        'tool    hours({"day":"monday"})',
        '        → "9 to 17"',
        "agent   It is  [interrupted]",
    ]


@pytest.mark.parametrize(
    ("make", "call", "reason"),
    [
        ("none", None, "there is no store"),
        ("text", None, "file is not a database"),
        ("folder", None, "Is a directory"),
        ("other", None, "not a store of calls"),
        ("store", "adda", "did you mean 'ada'?"),
        ("store", "zzz", "lists those that it has"),
    ],
)
def test_what_cannot_be_shown_is_one_line(
    make: str, call: str | None, reason: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "calls.db"
    match make:
        case "text":
            file.write_text("no database, and long enough to be sure of that")
        case "folder":
            file.mkdir()
        case "other":
            with closing(sqlite3.connect(file)) as connection:
                connection.execute("CREATE TABLE a (b)")
        case "store":
            fill(file, "ada", Message("user", "x"))
    before = file.exists()

    assert main(["show", str(file), *([] if call is None else [call])]) == 1
    out, err = capfd.readouterr()

    assert out == ""
    assert len(err.splitlines()) == 1
    assert reason in err
    assert file.exists() == before


def test_a_call_that_somebody_keeps_is_refused(tmp_path: Path) -> None:
    store = tmp_path / "calls.db"

    async def while_open() -> str:
        async with SqliteStore(store) as opened:
            log = await opened.open_call("ada")
            done = await anyio.to_thread.run_sync(
                lambda: run("chat", "--agent", "echo", "--store", str(store), "--call", "ada", "--say", "x")
            )
            await log.aclose()
        assert done.returncode == 1
        return done.stderr

    assert "another writer (process " in anyio.run(while_open)


def test_a_disk_that_fills_up_is_told_and_what_was_stored_stays(tmp_path: Path) -> None:
    store = tmp_path / "calls.db"
    small = "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\nresource.setrlimit(resource.RLIMIT_FSIZE, (110_000, 110_000))"

    done = run(
        *("chat", "--agent", "echo", "--store", str(store), "--call", "a", "--say", "one", "--say", "x" * 60_000),
        before=small,
        measured=False,  # the figures would not fit on that disk either
    )

    assert done.returncode == 1
    assert "not stored yet: " in done.stderr
    assert done.stderr.splitlines()[-1].startswith("micdrop-agent: error: ")
    assert "You said" in done.stdout
    assert 'agent   You said: "one"' in run("show", str(store), "a").stdout


@pytest.mark.parametrize("file", ["no-such-folder/t.html", "."])
def test_a_trace_that_cannot_be_written_shows_before_anything_is_said(
    file: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["chat", "--agent", "echo", "--trace", str(tmp_path / file), "--say", "x"]) == 1
    out, err = capfd.readouterr()

    assert out == ""
    assert err.startswith("micdrop-agent: error: cannot save the trace ")


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_trace_has_every_answer_with_its_question_also_a_failed_one(
    backend: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "trace.html"
    good = ["chat", "--agent", "echo", "--trace", str(file), "--backend", backend]

    assert main([*good, "--say", "first question", "--say", "second <question>"]) == 0
    page = file.read_text()
    assert capfd.readouterr().err.splitlines()[-1] == f"the trace of 2 answers is in {file}"
    bad = ["chat", "--agent", f"chat:m@{NOBODY}", "--trace", str(file), "--backend", backend, "--say", "x"]
    assert main(bad) == 1

    assert page.count("<section") == 2
    assert "first question" in page
    assert "second &lt;question&gt;" in page
    assert "1 failed" in file.read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["trace.html"]
