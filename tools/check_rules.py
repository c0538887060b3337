"""Checks the rules of CONTRIBUTING.md that no other linter knows; prints each violation and fails.

    python tools/check_rules.py            # every rule
    python tools/check_rules.py --figures  # and the figures behind them

Rules: length of files and functions of the package, and the subjects of commits. Commits are read from
the first one after ``RULES_SINCE``; where git or that commit is missing, for example in an sdist, that rule is skipped.
"""

from __future__ import annotations

import ast
import io
import subprocess
import sys
import tokenize
from pathlib import Path
from typing import Final

PACKAGE: Final = Path("micdrop_agent")
FILE_LINES: Final = 460
FUNCTION_LINES: Final = 50
SUBJECT_CHARS: Final = 72
RULES_SINCE: Final = "4a7cbd6"
"""The commit before the rules were checked."""


def code_lines(source: str) -> set[int]:
    """Line numbers that hold code: no blank lines, comments or docstrings."""
    skipped = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in skipped:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        body = getattr(node, "body", None)
        if not isinstance(body, list):
            continue
        for each in body:
            # A string that stands alone is a docstring, of a class or function or of the attribute before it.
            if (
                isinstance(each, ast.Expr)
                and isinstance(each.value, ast.Constant)
                and isinstance(each.value.value, str)
            ):
                lines.difference_update(range(each.lineno, (each.end_lineno or each.lineno) + 1))
    return lines


def check_file(path: Path) -> list[str]:
    """The violations in one module of the package."""
    source = path.read_text(encoding="utf-8")
    total = source.count("\n")
    found = [f"{path}: {total} lines, at most {FILE_LINES}: which concept wants a name?"] if total > FILE_LINES else []
    code = code_lines(source)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = sum(node.lineno <= line <= (node.end_lineno or 0) for line in code)
            if length > FUNCTION_LINES:
                found.append(f"{path}:{node.lineno}: {node.name} has {length} lines of code, at most {FUNCTION_LINES}")
    return found


def check_commits() -> list[str]:
    """The commits whose subject is too long."""
    done = subprocess.run(
        ["git", "log", "--no-merges", "--format=%h %s", f"{RULES_SINCE}..HEAD"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        return []
    subjects = [line.partition(" ") for line in done.stdout.splitlines()]
    return [
        f"commit {name}: the subject has {len(subject)} characters, at most {SUBJECT_CHARS}; the reason belongs in the body"
        for name, _, subject in subjects
        if len(subject) > SUBJECT_CHARS
    ]


def main() -> int:
    """Print the violations; 1 when there is one."""
    files = sorted(PACKAGE.rglob("*.py"))
    found = [line for path in files for line in check_file(path)] + check_commits()
    print(*found, sep="\n", end="\n" if found else "")
    if "--figures" in sys.argv:
        total = sum(len(code_lines(path.read_text(encoding="utf-8"))) for path in files)
        print(f"{len(files)} files, {total} lines of code")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
