"""Knots: groups of modules that name each other in a circle, imports for type checkers included.

    python tools/knots.py          each knot of more than two modules; exit code 1 if one is larger than LIMIT

What runs points one way only (``lint-imports``). A knot of types costs nothing at run time, but its modules
can only be understood together.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
LIMIT: Final = 18
"""Modules of the largest knot; it may shrink, not grow."""


def modules() -> dict[str, Path]:
    """The modules of the package, by name."""
    found: dict[str, Path] = {}
    for path in sorted((ROOT / "micdrop_agent").rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(path: Path, known: dict[str, Path]) -> set[str]:
    """The modules of ours that one names."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module in known:
            names = {f"{node.module}.{each.name}" for each in node.names}
            found |= {name if name in known else node.module for name in names}
    return found


def reached(start: str, graph: dict[str, set[str]]) -> set[str]:
    """All that can be reached from ``start``."""
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        for name in graph[waiting.pop()] - seen:
            seen.add(name)
            waiting.append(name)
    return seen


def knots() -> list[list[str]]:
    """The knots, the largest first."""
    known = modules()
    graph = {name: imports(path, known) - {name} for name, path in known.items()}
    far = {name: reached(name, graph) for name in graph}
    groups = {tuple(sorted(other for other in far[name] if name in far[other])) for name in graph if name in far[name]}
    return sorted((list(group) for group in groups), key=len, reverse=True)


def main() -> int:
    """Print them, and judge."""
    found = knots()
    for knot in found:
        print(len(knot), *(name.removeprefix("micdrop_agent.") for name in knot))
    return int(len(found[0]) > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
