"""The documentation is true: its code runs and prints what it says, its names exist, and no public name is left out."""

from __future__ import annotations

import importlib
import importlib.metadata
import re
import shlex
import subprocess
import sys
import tomllib
from typing import TYPE_CHECKING

import pytest
from docs_support import DOCS, Block, blocks_of, run_block

from micdrop_agent.cli._options import parse

if TYPE_CHECKING:
    from pathlib import Path

PAGES = sorted(path for path in DOCS.rglob("*.md") if "_build" not in path.parts)
BLOCKS = [block for page in PAGES for block in blocks_of(page)]


def _named(block: Block) -> str:
    return f"{block.page}:{block.line}"


def _on(backend: str) -> list[Block]:
    """Asyncio runs every block; Trio those that leave the choice of the loop to AnyIO."""
    return [block for block in BLOCKS if not block.is_test and (backend == "asyncio" or block.on_both)]


_HINT = re.compile(r"\. Did you mean '\w+'\?$", re.MULTILINE)
"""What Python 3.13 adds to its own message about an unknown keyword."""


def _check(block: Block, printed: str) -> None:
    if block.prints is not None:
        assert _HINT.sub("", printed.rstrip("\n")) == _HINT.sub("", block.prints.rstrip("\n"))


@pytest.mark.parametrize("block", _on("asyncio"), ids=_named)
def test_each_block_runs_and_prints_what_the_page_says(block: Block) -> None:
    _check(block, run_block(block, "asyncio"))


@pytest.mark.parametrize("block", _on("trio"), ids=_named)
def test_each_block_that_leaves_the_loop_open_does_the_same_on_trio(block: Block) -> None:
    _check(block, run_block(block, "trio"))


def test_each_block_that_holds_tests_passes(tmp_path: Path) -> None:
    """All in one process: to start pytest takes longer than any of them."""
    blocks = [block for block in BLOCKS if block.is_test]
    files = {re.sub(r"\W", "_", f"test_{_named(block)}"): block for block in blocks}
    for name, block in files.items():
        (tmp_path / f"{name}.py").write_text(block.code, encoding="utf-8")
    # In a checkout where nothing is installed, no entry point tells pytest of the fixtures.
    installed = any(entry.name == "micdrop_agent" for entry in importlib.metadata.entry_points(group="pytest11"))
    plugin = [] if installed else ["-p", "micdrop_agent.testing._plugin"]
    options = ["-q", "-rA", "-p", "no:cacheprovider", *plugin, "--rootdir", str(tmp_path)]
    command = [sys.executable, "-m", "pytest", *options, str(tmp_path)]

    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, cwd=tmp_path)

    assert done.returncode == 0, done.stdout + done.stderr
    passed = set(re.findall(r"^PASSED (\w+)\.py::", done.stdout, re.MULTILINE))
    assert passed == set(files)


REFERENCE = "\n".join(path.read_text(encoding="utf-8") for path in sorted((DOCS / "reference").glob("*.md")))
MODULES = [
    "micdrop_agent",
    "micdrop_agent.call",
    "micdrop_agent.tracing",
    "micdrop_agent.model.protocol",
    "micdrop_agent.call.hosted",
    "micdrop_agent.call.local",
    "micdrop_agent.speech",
    "micdrop_agent.store",
    "micdrop_agent.testing",
    "micdrop_agent.tools",
    "micdrop_agent.wire",
]


@pytest.mark.parametrize("module", MODULES)
def test_the_reference_has_every_public_name(module: str) -> None:
    entries = set(re.findall(r"^\.\. (?:auto\w+|py:data):: \S+\.(\w+)$", REFERENCE, re.MULTILINE))

    assert sorted(set(importlib.import_module(module).__all__) - entries) == []


def test_every_public_class_and_function_has_a_docstring() -> None:
    named = re.findall(r"^\.\. auto(?:class|function):: (\S+)\.(\w+)$", REFERENCE, re.MULTILINE)

    assert [name for module, name in named if not getattr(importlib.import_module(module), name).__doc__] == []


def test_the_install_page_has_every_extra() -> None:
    project = tomllib.loads((DOCS.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    rows = re.findall(
        r'^\| `([\w-]+)` \| `pip install "micdrop-agent\[([\w-]+)\]"`',
        (DOCS / "install.md").read_text(encoding="utf-8"),
        re.MULTILINE,
    )

    assert {extra for extra, _ in rows} == set(project["optional-dependencies"])
    assert [row for row in rows if row[0] != row[1]] == []


def test_each_test_that_the_design_page_names_exists() -> None:
    page = (DOCS / "design.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \|.*\| `(test_\w+\.py)`: (.*) \|$", page, re.MULTILINE)

    assert [int(number) for number, _, _ in rows] == list(range(1, 16))
    for number, file, tests in rows:
        source = (DOCS.parent / "tests" / file).read_text(encoding="utf-8")
        for name in re.findall(r"`(\w+)`", tests):
            assert f"def {name}(" in source, f"{file} has no {name}"
            assert number in re.findall(r"\d+", name)


def test_each_class_that_the_page_on_micdrop_names_on_our_side_is_public() -> None:
    page = (DOCS / "from-micdrop.md").read_text(encoding="utf-8")
    ours = " ".join(line.split(" | ")[1] for line in page.splitlines() if line.startswith("| ") and " | " in line)
    named = set(re.findall(r"`(?:[^`]*\()?([A-Z][a-z]+(?:[A-Z][a-z]+)+)\b", ours))

    assert {"FallbackAgent", "MessageAdded"} <= named
    public = {name for module in MODULES for name in importlib.import_module(module).__all__}
    assert named <= public


COMMANDS = sorted(
    {line for page in PAGES for line in re.findall(r"^\$ micdrop-agent ([^|>#\n]*)", page.read_text(), re.MULTILINE)}
)


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_that_the_docs_show_is_one(command: str) -> None:
    parse(shlex.split(command))


def test_the_commands_with_the_echo_agent_run_in_order(tmp_path: Path) -> None:
    page = (DOCS / "guides" / "command-line.md").read_text(encoding="utf-8")
    lines = re.findall(r"^\$ micdrop-agent (.*(?:echo|show).*)$", page, re.MULTILINE)

    for line in lines:
        command = [sys.executable, "-W", "error", "-m", "micdrop_agent", *shlex.split(line)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, cwd=tmp_path)
        assert done.returncode == 0, (line, done.stderr)
    assert len(lines) >= 6
    assert (tmp_path / "trace.html").read_text(encoding="utf-8").startswith("<!doctype html>")


SESSIONS = re.findall(r"^@nox\.session\S*\ndef (\w+)", (DOCS.parent / "noxfile.py").read_text(), re.MULTILINE)


def test_each_nox_session_that_the_docs_name_exists() -> None:
    named = {name for page in PAGES for name in re.findall(r"nox (?:-R )?-s (\w+)", page.read_text())}

    assert named <= set(SESSIONS)
