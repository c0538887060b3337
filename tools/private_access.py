"""How often modules of the package reach into what another module keeps for itself.

    python tools/private_access.py            the count, per 1,000 lines of code; exit code 1 above the limit
    python tools/private_access.py --list     each of them

Counted is ``a._name`` where ``a`` is not ``self`` or ``cls`` and the module does not define ``_name`` itself. Other
packages' private names are not counted; ruff (SLF001) shows those where they stand.
"""

from __future__ import annotations

import argparse
import ast
import sys
from pathlib import Path
from typing import Final

from check_rules import code_lines

ROOT: Final = Path(__file__).resolve().parent.parent / "micdrop_agent"
LIMIT: Final = 2.0
"""Accesses per 1,000 lines of code."""


def defined_in(tree: ast.Module) -> set[str]:
    """Private names that a module defines: functions, classes, attributes of ``self``, class variables, slots."""
    names: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name, ctx=ast.Store()):
                names.add(name)
            case ast.Name(id=name, ctx=ast.Store()):
                names.add(name)
            case ast.Constant(value=str(name)) if name.startswith("_"):
                names.add(name)
            case _:
                pass
    return names


def accesses(path: Path, ours: set[str]) -> list[tuple[int, str]]:
    """Line and name of each access of ``path`` to what another module of ours defines."""
    tree = ast.parse(path.read_text("utf-8"))
    own = defined_in(tree)
    found: list[tuple[int, str]] = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or not node.attr.startswith("_") or node.attr.startswith("__"):
            continue
        if isinstance(node.value, ast.Name) and node.value.id in {"self", "cls"}:
            continue
        if isinstance(node.value, ast.Call) and ast.unparse(node.value) == "super()":
            continue
        if node.attr in ours and node.attr not in own:
            found.append((node.lineno, ast.unparse(node)))
    return found


def main() -> int:
    """Count, print, and judge."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--list", action="store_true", help="show each access")
    options = parser.parse_args()
    paths = sorted(ROOT.rglob("*.py"))
    ours = {name for path in paths for name in defined_in(ast.parse(path.read_text("utf-8"))) if name.startswith("_")}
    found = [(path, *access) for path in paths for access in accesses(path, ours)]
    if options.list:
        for path, line, name in found:
            print(f"{path.relative_to(ROOT.parent)}:{line}: {name}")
    lines = sum(len(code_lines(path.read_text("utf-8"))) for path in paths)
    rate = 1000 * len(found) / lines
    print(f"{len(found)} private accesses across modules in {lines} lines of code: {rate:.2f} per 1,000")
    return int(rate > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
