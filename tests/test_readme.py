"""The README is true: its Python runs, its commands exist, its names are public."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import micdrop_agent

PROJECT = Path(__file__).parents[1]
README = (PROJECT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)

# The embedded model is 200 MB and has tests of its own; here an echo with its name stands in for it.
STAND_IN = """
import micdrop_agent
micdrop_agent.LocalAgent = micdrop_agent.EchoAgent
"""


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_each_python_block_runs_as_it_stands(block: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", STAND_IN + block],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    # What is logged may show: the fallback says that a child was too slow.
    assert (done.returncode, "Error" in done.stderr) == (0, False), done.stderr
    assert "You said" in done.stdout


def test_the_first_block_has_about_ten_lines() -> None:
    assert len(list(filter(None, BLOCKS[0].splitlines()))) <= 10


def test_links_and_pictures_work_wherever_the_page_is_shown() -> None:
    links = re.findall(r"\]\(([^)]+)\)", README)

    assert links
    assert [link for link in links if not link.startswith("https://")] == []


def test_each_session_that_is_named_exists() -> None:
    sessions = set(
        re.findall(r"^@nox\.session(?:\(.*\))?\ndef (\w+)", (PROJECT / "noxfile.py").read_text(), re.MULTILINE)
    )
    pages = README + (PROJECT / "CONTRIBUTING.md").read_text(encoding="utf-8")

    assert set(re.findall(r"nox (?:-R )?-s (\w+)", pages)) <= sessions


def test_each_class_that_is_named_is_public() -> None:
    table = README[README.index("## If you know Micdrop") :]
    ours = [line.split("|")[2] for line in table.splitlines() if line.startswith("| ")]
    named: set[Any] = set(
        re.findall(r"\b([A-Z][a-z]+[A-Z]\w+|Retry|Tool)\b", " ".join(re.findall(r"`[^`]+`", " ".join(ours))))
    )
    named -= {"TypedDict"}

    assert {"OpenaiAgent", "FallbackAgent", "MessageAdded"} <= named
    assert named <= set(micdrop_agent.__all__)
