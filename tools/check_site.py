"""Checks the documentation as built: every public member is on a page, and defaults read as values.

python tools/check_site.py docs/_build/html
"""

from __future__ import annotations

import html
import importlib
import inspect
import re
import sys
from pathlib import Path
from typing import Final

MODULES: Final = (
    "micdrop_agent",
    "micdrop_agent.store",
    "micdrop_agent.tools",
    "micdrop_agent.wire",
    "micdrop_agent.tracing",
)
INTERNALS: Final = ("attr_dict[", "NOTHING", "&lt;factory&gt;", "_Default")
"""What a reader of the reference must never see."""


def missing_members(ids: set[str]) -> list[str]:
    """``Class.member`` for each method and property of a public class that no entry of it or its bases has.

    Fields are described in the text of their class.
    """
    missing: set[str] = set()
    for module in map(importlib.import_module, MODULES):
        for name in module.__all__:
            public = getattr(module, name)
            if not inspect.isclass(public) or issubclass(public, BaseException):
                continue
            bases = [base for base in public.__mro__ if base.__module__.startswith("micdrop_agent")]
            for member, each in ((n, each) for base in bases for n, each in vars(base).items()):
                shown = any(f"{base.__name__}.{member}" in ids for base in bases)
                if shown or member.startswith("_") or not each.__doc__:
                    continue  # without a docstring it is for the rooms of the library alone
                if callable(each) or isinstance(each, property):
                    missing.add(f"{name}.{member}")
    return sorted(missing)


def main(site: Path) -> int:
    """Print what is wrong; 1 when something is."""
    pages = {path: path.read_text(encoding="utf-8") for path in (site / "reference").glob("*.html")}
    ids = {found for page in pages.values() for found in re.findall(r'id="micdrop_agent\.(?:\w+\.)*?(\w+\.\w+)"', page)}
    wrong = [f"{name} is on no page of the reference" for name in missing_members(ids)]
    for path, page in pages.items():
        text = html.unescape(re.sub(r"<[^>]+>", "", page))
        wrong += [f"{path.name} shows {word!r}" for word in INTERNALS if html.unescape(word) in text]
    print(*wrong, sep="\n", end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
