"""The command line in a process of its own: what goes to which stream, and the exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from cli_support import PROMPT, run

from micdrop_agent.cli import main

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_say_runs_its_turns_with_text_on_stdout_and_figures_on_stderr(backend: str) -> None:
    done = run("chat", "--agent", "echo", "--backend", backend, "--say", "one", "--say", "two")

    assert done.returncode == 0
    assert done.stdout == 'You said: "one"\nYou said: "two"\n'
    lines = done.stderr.splitlines()
    assert len(lines) == 2
    assert all(line.startswith("first chunk ") and line.endswith(" · 1 chunk") for line in lines)


def test_json_leaves_nothing_but_the_conversation_on_stdout() -> None:
    done = run("chat", "--agent", "echo", "--json", "--say", "hello")

    assert done.returncode == 0
    assert json.loads(done.stdout) == [
        PROMPT,
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": 'You said: "hello"'},
    ]
    assert 'You said: "hello"\n' in done.stderr


def test_a_pipe_gives_one_turn_per_line_and_no_prompt() -> None:
    done = run("chat", "--agent", "echo", stdin="one\n\n  \ntwo ö")

    assert done.returncode == 0
    assert done.stdout == 'You said: "one"\nYou said: "two ö"\n'
    assert "you>" not in done.stderr


def test_a_file_as_input_is_read_like_a_pipe(tmp_path: Path) -> None:
    turns = tmp_path / "turns"
    turns.write_text("one\ntwo\n")
    with turns.open() as stdin:
        done = subprocess.run(
            [sys.executable, "-m", "micdrop_agent", "chat", "--agent", "echo"],
            stdin=stdin,
            capture_output=True,
            text=True,
            check=True,
        )

    assert done.stdout == 'You said: "one"\nYou said: "two"\n'


def test_nothing_to_say_is_no_failure() -> None:
    done = run("chat", "--agent", "echo")

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--bogus"],
        ["chat", "--agent", "nobody"],
        ["chat", "--agent", "chat", "--model", "m"],
        ["chat", "--agent", "chat", "--base-url", "http://localhost/v1"],
        ["chat", "--agent", "chat", "--model", "m", "--base-url", "no URL"],
        ["chat", "--agent", "echo", "--model", "m"],
        ["chat", "--agent", "echo", "--base-url", "http://localhost/v1"],
        ["chat", "--agent", "local", "--api-key-env", "X"],
        ["chat", "--agent", "echo", "--say", ""],
        ["chat", "--agent", "echo", "--backend", "curio"],
        ["chat", "--agent", "openai:a", "--model", "b"],
        ["chat", "--agent", "openai:"],
        ["chat", "--agent", "echo", "--fallback", "chat:m"],
        ["chat", "--agent", "echo", "--first-chunk-timeout", "1"],
        ["chat", "--agent", "echo", "--fallback", "echo", "--first-chunk-timeout", "0"],
        ["chat", "--agent", "echo", "--call", "a"],
        ["chat", "--agent", "echo", "--store", "a", "--call", ""],
        ["chat", "--agent", "echo", "--store", "a", "--resume", "b"],
        ["chat", "--ag", "echo"],
        ["demo"],
        ["demo", "failover", "--fault", "tired"],
        ["demo", "failover", "--timeout", "nan"],
        ["show"],
        ["doctor", "chat:m"],
        ["doctor", "openai,key=NOT_SET", "--timeout", "-1"],
        ["completion", "tcsh"],
    ],
)
def test_bad_usage_ends_with_2_and_names_the_reason(arguments: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    try:
        code: object = main(arguments)
    except SystemExit as left:  # as argparse ends a program
        code = left.code
    out, err = capfd.readouterr()

    assert (code, out) == (2, "")
    assert "error: " in err.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--agent", "openai"], "OPENAI_API_KEY"),
        (["--agent", "mistral"], "MISTRAL_API_KEY"),
        (["--agent", "openai", "--api-key-env", "NOT_SET_KEY"], "NOT_SET_KEY"),
        (["--agent", "chat", "--model", "m", "--base-url", "http://127.0.0.1:1/v1"], "127.0.0.1"),
        (["--agent", "echo", "--resume", "no-such-file"], "no-such-file"),
        (["--agent", "echo", "--transcript", "no-such-folder/file"], "no-such-folder"),
    ],
)
def test_a_failure_ends_with_1_and_one_line_without_traceback(arguments: list[str], reason: str) -> None:
    done = run("chat", *arguments, "--say", "hello")

    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("micdrop-agent: error: ")
    assert reason in lines[0]
    assert done.stdout == ""


def test_a_failed_turn_still_prints_the_conversation_as_json() -> None:
    done = run(
        *("chat", "--agent", "chat", "--model", "m", "--base-url", "http://127.0.0.1:1/v1", "--json", "--say", "hello")
    )

    assert done.returncode == 1
    assert json.loads(done.stdout) == [PROMPT, {"role": "user", "content": "hello"}]


def test_a_transcript_is_resumed_where_it_ended(tmp_path: Path) -> None:
    file = tmp_path / "call.json"

    first = run("chat", "--agent", "echo", "--system-prompt", "Mine.", "--transcript", str(file), "--say", "one")
    saved = json.loads(file.read_text())
    second = run("chat", "--agent", "echo", "--resume", str(file), "--transcript", str(file), "--say", "two")

    assert (first.returncode, second.returncode) == (0, 0)
    assert saved == [
        {"role": "system", "content": "Mine."},
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": 'You said: "one"'},
    ]
    assert json.loads(file.read_text()) == [
        *saved,
        {"role": "user", "content": "two"},
        {"role": "assistant", "content": 'You said: "two"'},
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["call.json"]


def test_a_system_prompt_that_is_given_replaces_the_one_of_the_transcript(tmp_path: Path) -> None:
    file = tmp_path / "call.json"
    file.write_text('[{"role": "system", "content": "Old."}, {"role": "user", "content": "one"}]')

    done = run("chat", "--agent", "echo", "--resume", str(file), "--system-prompt", "New.", "--json")

    assert json.loads(done.stdout) == [{"role": "system", "content": "New."}, {"role": "user", "content": "one"}]


@pytest.mark.parametrize("text", ["no JSON", "{}", '[{"role": "nobody", "content": "x"}]', ""])
def test_a_file_that_is_no_transcript_is_refused_and_left_as_it_is(tmp_path: Path, text: str) -> None:
    file = tmp_path / "call.json"
    file.write_text(text)

    done = run("chat", "--agent", "echo", "--resume", str(file), "--transcript", str(file), "--say", "x")

    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "call.json" in done.stderr
    assert file.read_text() == text


def test_a_reader_that_left_is_no_traceback() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "micdrop_agent", "chat", "--agent", "echo", "--say", "one", "--say", "two"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    error = process.stderr.read().decode()
    process.stderr.close()

    assert process.wait(timeout=30) == 1
    assert "Traceback" not in error
    assert "Exception ignored" not in error


def test_version_and_help_end_with_0() -> None:
    assert run("--version").stdout.startswith("micdrop-agent ")
    for command in ("chat", "demo", "show", "doctor", "completion"):
        with pytest.raises(SystemExit) as left:
            main([command, "--help"])
        assert left.value.code == 0


@pytest.mark.parametrize("command", [["show", "no-such-store"], ["completion", "bash"], ["chat", "--agent", "echo"]])
def test_a_command_loads_only_what_it_needs(command: list[str]) -> None:
    heavy = {"httpx2", "openai", "trio", "xllamacpp", "httptools", "micdrop_agent.testing", "opentelemetry"}
    tell = (
        f"import atexit, sys; atexit.register(lambda: print(sorted({heavy!r} & sys.modules.keys()), file=sys.stderr))"
    )

    assert run(*command, before=tell).stderr.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    "command",
    ["chat --agent echo --say x", "chat --agent echo --json", "show {store}", "completion zsh", "doctor echo"],
)
def test_a_full_disk_behind_stdout_is_one_line(command: str, tmp_path: Path) -> None:
    full = "import os; os.dup2(os.open('/dev/full', os.O_WRONLY), 1)"
    store = tmp_path / "calls.db"
    assert main(["chat", "--agent", "echo", "--store", str(store), "--say", "x"]) == 0

    done = run(*command.format(store=store).split(), before=full)

    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "micdrop-agent: error: cannot write the output: No space left on device"
    assert "Traceback" not in done.stderr
