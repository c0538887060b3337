"""The completion scripts, asked in the shells themselves where these are installed."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from micdrop_agent.cli._completion import arguments, script
from micdrop_agent.cli._parser import make_parser
from micdrop_agent.cli._spec import AGENTS
from micdrop_agent.errors import MicdropError

if TYPE_CHECKING:
    from pathlib import Path

SHELLS = ("bash", "zsh", "fish")
ASKED: list[tuple[list[str], set[str]]] = [
    ([""], {"chat", "demo", "show", "doctor", "completion"}),
    (["ch"], {"chat"}),
    (["chat", "--agent", ""], set(AGENTS)),
    (["chat", "--agent", "chat", "--fallback", "o"], {"openai"}),
    (["chat", "--tr"], {"--transcript", "--trace"}),
    (["chat", "--backend", ""], {"asyncio", "trio"}),
    (["demo", ""], {"failover"}),
    (["demo", "failover", "--fault", "s"], {"silent", "stall"}),
    (["completion", ""], {"bash", "zsh", "fish"}),
    (["doctor", "--ti"], {"--timeout"}),
    (["chat", "--model", "x"], set()),
]


def needs(shell: str) -> str:
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"{shell} is not installed")
    return found


def ask(shell: str, words: list[str], folder: Path) -> set[str]:
    """What ``shell`` offers for the last of ``words``."""
    file = folder / f"script.{shell}"
    file.write_text(script(shell))
    line = " ".join(["micdrop-agent", *words])
    program = {
        "bash": f"compopt() {{ :; }}; source {file}; COMP_WORDS=(micdrop-agent "
        + " ".join(f"'{word}'" for word in words)
        + f'); COMP_CWORD={len(words)}; _shtab_micdrop_agent; printf "%s\\n" "${{COMPREPLY[@]}}"',
        "fish": f"source {file}; complete -C '{line}'",
    }[shell]
    flags = {"bash": ["--norc"], "fish": ["--no-config"]}[shell]
    done = subprocess.run(
        [needs(shell), *flags, "-c", program], capture_output=True, text=True, check=True, cwd=folder, timeout=30
    )
    assert done.stderr == ""
    return {offer.split("\t")[0] for offer in done.stdout.splitlines() if offer}


@pytest.mark.parametrize(("words", "offered"), ASKED)
@pytest.mark.parametrize("shell", ["bash", "fish"])
def test_the_shell_offers_what_can_follow(shell: str, words: list[str], offered: set[str], tmp_path: Path) -> None:
    needs(shell)
    assert ask(shell, words, tmp_path) == offered


@pytest.mark.parametrize("words", [["show", "ca"], ["chat", "--store", "ca"]])
@pytest.mark.parametrize("shell", ["bash", "fish"])
def test_files_are_offered_where_a_file_can_follow(shell: str, words: list[str], tmp_path: Path) -> None:
    needs(shell)
    (tmp_path / "calls.db").touch()
    assert ask(shell, words, tmp_path) == {"calls.db"}


@pytest.mark.parametrize("shell", SHELLS)
def test_the_shell_can_read_its_script(shell: str, tmp_path: Path) -> None:
    file = tmp_path / "script"
    file.write_text(script(shell))
    done = subprocess.run([needs(shell), "-n", str(file)], capture_output=True, text=True, check=False, timeout=30)

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("shell", SHELLS)
def test_each_command_and_option_is_in_each_script(shell: str) -> None:
    text = script(shell)
    for argument in arguments(make_parser()):
        assert all(flag.lstrip("-") in text for flag in argument.option_strings)
        if isinstance(argument, argparse._SubParsersAction):
            assert all(command in text for command in argument.choices)


def test_without_shtab_the_command_names_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    with pytest.raises(MicdropError, match=r"completion needs shtab; run: pip install .*\[completion\]"):
        script("bash")
