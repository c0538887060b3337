"""Lines of code, without blank lines, comments and docstrings: by room, and what each commit did to them.

python tools/code_lines.py                     the package and the tests, room by room
python tools/code_lines.py 4a7cbd6             the same beside an earlier commit, features that came since apart
python tools/code_lines.py 4a7cbd6 --commits   what each commit since then added or took away

It counts as ``tools/check_rules.py`` does. The cases that were handed in (``tests/cases``) are data.
"""

from __future__ import annotations

import argparse
import functools
import subprocess
from collections import Counter
from pathlib import Path, PurePosixPath
from typing import Final

from check_rules import code_lines

ROOTS: Final = ("micdrop_agent", "tests")
FEATURES: Final = {
    "": "images",
    "_core": "detach farewell filler guess pause quiet race resume role scopes spoken_pipe threads",
    "call": "*",
    "cli": "_as_test",
    "fallback": "ask bus shared",
    "model": "ask context summary",
    "providers": "anthropic gemini quirks",
    "providers/requests": "block_dialect claude_dialect gemini_dialect",
    "providers/responses": "claude_stream gemini_stream thoughts",
    "speech": "*",
    "store": "lease postgres postgres_link redis redis_scripts",
    "testing": "_block_writers _call _call_probe _call_sweep _cassette _nearest _played _recorder _secrets _stores"
    " _tape _tape_reader _watched _talk _judge _course",
    "text": "blocks guesses marks template_marks written",
    "tools": "_mcp _models _patterns _references _typed",
    "tracing": "call_page call_timeline otel_call",
}
"""Folders of the package, and the modules in them that hold what did not exist at 4a7cbd6."""


def git(*arguments: str) -> str:
    """What ``git`` prints."""
    return subprocess.run(["git", *arguments], capture_output=True, text=True, check=True).stdout


def counted(name: str) -> bool:
    """Whether the file is code of the package or of the tests."""
    return name.endswith(".py") and name.startswith(ROOTS) and not name.startswith("tests/cases/")


@functools.cache
def lines_at(commit: str, name: str) -> int:
    """Lines of code of a file; 0 where it is absent."""
    try:
        source = git("show", f"{commit}:{name}")
    except subprocess.CalledProcessError:
        return 0
    return len(code_lines(source))


def room_of(name: str) -> str:
    """The room that the file is in; its features apart."""
    path = PurePosixPath(name)
    parts = path.parts[:-1]
    features = FEATURES.get("/".join(parts[1:]), "").split() if parts[0] == "micdrop_agent" else []
    new = "*" in features or path.stem in features or "call" in parts[1:2]
    return ("new: " if new else "") + "/".join(parts[:2])


def rooms(commit: str) -> Counter[str]:
    """Lines of code in each room, at ``commit`` or (``""``) as the files are now."""
    found: Counter[str] = Counter()
    if not commit:
        for root in ROOTS:
            for path in sorted(Path(root).rglob("*.py")):
                if counted(path.as_posix()):
                    found[room_of(path.as_posix())] += len(code_lines(path.read_text("utf-8")))
        return found
    for name in filter(counted, git("ls-tree", "-r", "--name-only", commit, *ROOTS).splitlines()):
        found[room_of(name)] += lines_at(commit, name)
    return found


def show_rooms(before: str | None) -> None:
    """Print the table of rooms."""
    now, then = rooms(""), rooms(before) if before else Counter[str]()
    for root in ROOTS:
        names = sorted(name for name in now | then if root in name)
        for name in (*names, root):
            members = names if name == root else [name]
            new, old = sum(now[each] for each in members), sum(then[each] for each in members)
            print(f"{'total: ' * (name == root) + name:36}{new:7}" + (f"{old:7}{new - old:+7}" if before else ""))


def show_commits(before: str) -> None:
    """Print what each commit changed, and the sum of those that made the code smaller."""
    smaller: Counter[str] = Counter()
    for line in git("log", "--reverse", "--no-merges", "--format=%h %s", f"{before}..HEAD").splitlines():
        commit = line.split()[0]
        changed = Counter[str]()
        for name in filter(counted, git("diff", "--no-renames", "--name-only", f"{commit}^", commit).splitlines()):
            changed[name.split("/")[0]] += lines_at(commit, name) - lines_at(f"{commit}^", name)
        if any(changed.values()):
            print(*(f"{changed[root]:+7}" for root in ROOTS), line)
        smaller.update({root: value for root, value in changed.items() if value < 0})
    print("taken away:", ", ".join(f"{root} {smaller[root]}" for root in ROOTS))


def main() -> None:
    """Count and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("before", nargs="?", help="a commit to compare with")
    parser.add_argument("--commits", action="store_true", help="one line for each commit since then")
    chosen = parser.parse_args()
    if chosen.commits:
        show_commits(chosen.before or "HEAD~10")
    else:
        show_rooms(chosen.before)


if __name__ == "__main__":
    main()
