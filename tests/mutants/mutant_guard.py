"""A pytest plugin, and a check for scripts: what is tested is the copy with the fault, not the project."""

from __future__ import annotations

import os
from pathlib import Path

import hypothesis

# Whether a test fails is all that matters: no time goes into finding the smallest example, and the same
# examples are tried each time. Loaded before the tests, whose settings build on it.
hypothesis.settings.register_profile(
    "mutants",
    phases=(hypothesis.Phase.explicit, hypothesis.Phase.generate),
    derandomize=True,
    database=None,
    deadline=None,
)
hypothesis.settings.load_profile("mutants")


def pytest_sessionstart() -> None:
    """Refuse to test anything else than the copy."""
    check()


def check() -> None:
    """Refuse to go on with a package from anywhere else than ``MUTANT_ROOT``."""
    import micdrop_agent

    root = Path(os.environ["MUTANT_ROOT"]).resolve()
    found = Path(micdrop_agent.__file__ or "").resolve()
    if not found.is_relative_to(root):
        raise SystemExit(f"the package under test is {found}, not the copy in {root}")
