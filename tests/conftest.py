"""Options of the test suite, and where its helper modules are found."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis  # noqa: F401  # with it loaded, Trio's scheduler is seeded: sweeps repeat themselves

if TYPE_CHECKING:
    import pytest

_HERE = Path(__file__).parent
# The suite is imported with --import-mode=importlib, which finds no neighbours by itself.
sys.path[:0] = [str(_HERE), str(_HERE / "conformance")]
if importlib.util.find_spec("micdrop_agent") is None:
    # A fresh checkout, nothing installed: the suite is about the code beside it.
    sys.path.insert(0, str(_HERE.parent))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--vectors", type=Path, metavar="DIR", help="replay the vectors in DIR in place of ours")
    parser.addoption("--cases", type=Path, metavar="DIR", help="replay the bug cases in DIR in place of ours")
