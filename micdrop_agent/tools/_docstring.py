"""What a Google-style docstring says: the text before its sections, and one text per argument."""

from __future__ import annotations

import inspect
import re
from typing import Final

_ARGUMENT_SECTIONS: Final = frozenset(
    {"Args", "Arguments", "Parameters", "Attributes", "Fields", "Keyword Args", "Keyword Arguments", "Other Parameters"}
)
_OTHER_SECTIONS: Final = "Returns?|Yields?|Raises|Examples?|Notes?|Source|Warnings?|See Also|Todo|References"
_SECTION: Final = re.compile(rf"({'|'.join(sorted(_ARGUMENT_SECTIONS))}|{_OTHER_SECTIONS})\s*:\s*")
_ENTRY: Final = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)")


def summary(docstring: str | None) -> str:
    """The text before the first section, its paragraphs as written, its lines joined."""
    lines: list[str] = []
    for line in inspect.cleandoc(docstring or "").splitlines():
        if _SECTION.fullmatch(line):
            break
        lines.append(line.strip())
    paragraphs = re.split(r"\n{2,}", "\n".join(lines).strip())
    return "\n\n".join(" ".join(text.split()) for text in paragraphs)


def arguments(docstring: str | None) -> dict[str, str]:
    """Argument name to its description, of every section that describes arguments."""
    found: dict[str, list[str]] = {}
    inside, margin, current = False, 0, ""
    for line in inspect.cleandoc(docstring or "").splitlines():
        heading = _SECTION.fullmatch(line)
        if heading is not None:
            inside = heading[1] in _ARGUMENT_SECTIONS
            margin, current = 0, ""
            continue
        if not inside or not line.strip():
            continue
        indent = len(line) - len(line.lstrip())
        # The first entry sets the margin; what stands further in continues an entry.
        margin = margin or indent
        entry = _ENTRY.fullmatch(line.strip()) if indent <= margin else None
        if indent == 0:
            inside = False
        elif entry is not None:
            current = entry[1]
            found[current] = [entry[2]]
        elif current:
            found[current].append(line.strip())
    return {name: " ".join(lines).strip() for name, lines in found.items()}
