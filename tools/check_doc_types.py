"""Puts every Python block of the documentation through mypy --strict and pyright, as a user's own code would be.

    python tools/check_doc_types.py

A block that shows a mistake on purpose (``<!-- run: raises … -->``) is left out, and so is one of ``<!-- run: no types -->``.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from docs_support import DOCS, blocks_of


def written(folder: Path) -> dict[str, str]:
    """Write each block to a module of its own; ``page:line`` by module name."""
    places: dict[str, str] = {}
    for page in [*sorted(DOCS.glob("**/*.md")), DOCS.parent / "README.md"]:
        if "_build" in page.parts:
            continue
        for block in blocks_of(page, DOCS.parent):
            if block.raises is None and "no types" not in block.marks:
                name = re.sub(r"\W", "_", f"{block.page}_{block.line}")
                places[name] = f"{block.page}:{block.line}"
                (folder / f"{name}.py").write_text(block.code, encoding="utf-8")
    return places


def main() -> int:
    """Print what the checkers say, by page; 1 when they say anything."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        places = written(folder)
        (folder / "pyrightconfig.json").write_text(
            json.dumps({"typeCheckingMode": "standard", "reportMissingModuleSource": False}), encoding="utf-8"
        )
        commands = (
            [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--config-file=", str(folder)],
            [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--project", str(folder)],
        )
        failed = False
        for command in commands:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                failed = True
                said = done.stdout + done.stderr
                for name, place in places.items():
                    said = said.replace(f"{folder}/{name}.py", place)
                print(said)
    print(f"{len(places)} blocks: {'problems' if failed else 'clean'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
