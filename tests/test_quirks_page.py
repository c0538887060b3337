"""The guide to quirks is made from the code, and the code of each row is there."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import attrs
import pytest

from micdrop_agent.providers.quirks import SERVERS, ChatQuirks

ROOT = Path(__file__).parent.parent
sys.path.append(str(ROOT / "tools"))

from tolerances import TOLERANCES, Tolerance  # noqa: E402 - a table beside the tool that prints it


def test_the_page_is_what_the_code_says() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "quirks_page.py", "--check"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_every_quirk_and_every_row_is_on_it() -> None:
    page = (ROOT / "docs" / "guides" / "quirks.md").read_text(encoding="utf-8")
    for field in attrs.fields(ChatQuirks):
        if field.name not in {"server", "source", "hosts", "models"}:
            assert f"- `{field.name}=" in page
    for row in SERVERS:
        assert row.server in page
        assert row.source


@pytest.mark.parametrize("row", TOLERANCES, ids=lambda row: row.what[:40])
def test_a_row_names_its_servers_its_source_and_a_module_that_is_there(row: Tolerance) -> None:
    assert all(attrs.astuple(row))
    assert importlib.util.find_spec(f"micdrop_agent.{row.module}") is not None
