"""The documentation is true: its code runs and prints what it says, its names exist, and no public name is left out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from docs_support import DOCS, Block, blocks_of, run_block

PAGES = sorted(path for path in DOCS.rglob("*.md") if "_build" not in path.parts)
BLOCKS = [block for page in PAGES for block in blocks_of(page)]


def _named(block: Block) -> str:
    return f"{block.page}:{block.line}"


def _on(backend: str) -> list[Block]:
    """Asyncio runs every block; Trio those that leave the choice of the loop to AnyIO."""
    return [block for block in BLOCKS if not block.is_test and (backend == "asyncio" or block.on_both)]


def _check(block: Block, printed: str) -> None:
    if block.prints is not None:
        assert printed.rstrip("\n") == block.prints.rstrip("\n")


@pytest.mark.parametrize("block", _on("asyncio"), ids=_named)
def test_each_block_runs_and_prints_what_the_page_says(block: Block) -> None:
    _check(block, run_block(block, "asyncio"))


@pytest.mark.parametrize("block", _on("trio"), ids=_named)
def test_each_block_that_leaves_the_loop_open_does_the_same_on_trio(block: Block) -> None:
    _check(block, run_block(block, "trio"))


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.is_test], ids=_named)
def test_each_block_that_holds_tests_passes(block: Block, tmp_path: Path) -> None:
    file = tmp_path / "test_block.py"
    file.write_text(block.code, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(file)]

    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, cwd=tmp_path)

    assert done.returncode == 0, done.stdout + done.stderr
