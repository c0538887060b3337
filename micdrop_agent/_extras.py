"""The command that installs an optional part: for a checkout, or for a package that came from an index."""

from __future__ import annotations

import importlib.util
from pathlib import Path

__all__ = ["install_command", "installed"]


def installed(module: str) -> bool:
    """Whether ``module`` can be imported; it is not loaded."""
    return importlib.util.find_spec(module) is not None


def install_command(extra: str) -> str:
    """What a user types to get ``extra``, for example ``pip install "micdrop-agent[trio]"``.

    Where the package runs from a checkout, an index has nothing to do with it: the command names the checkout.
    """
    checkout = Path(__file__).parents[1]
    if not (checkout / "pyproject.toml").exists():
        return f'pip install "micdrop-agent[{extra}]"'
    place = "." if checkout == Path.cwd() else str(checkout)
    return f'pip install -e "{place}[{extra}]"'
