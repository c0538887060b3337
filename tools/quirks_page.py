"""Writes docs/guides/quirks.md from the code: quirks of servers, tolerances, error codes.

python tools/quirks_page.py          # writes the page
python tools/quirks_page.py --check  # fails if the page is not what it would write
"""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from pathlib import Path
from typing import Any, Final

import attrs
from tolerances import TOLERANCES

from micdrop_agent.providers import quirks
from micdrop_agent.providers.code_sources import CODES
from micdrop_agent.providers.quirks import SERVERS, TEMPLATE_FORM, ChatQuirks

PAGE: Final = Path(__file__).parent.parent / "docs" / "guides" / "quirks.md"

_HEAD: Final = """\
# Quirks of servers

<!-- Made by tools/quirks_page.py from micdrop_agent/providers; do not edit. -->

Servers that have the same API differ. This page lists what is done about it: for which server, where the need for it is
documented or was reported, and how to switch it off.

## Servers with Chat Completions

`ChatAgent` recognises a server by the host of its `base_url`, or by the name of its model behind a gateway. What it does for
that server is a value, `ChatQuirks`; pass another one as `quirks=` to change it:

```python
import attrs
from micdrop_agent import ChatAgent
from micdrop_agent.providers.quirks import quirks_of

url, model = "https://gateway.example/v1", "google/gemini-3-flash"
quirks = attrs.evolve(quirks_of(url, model), unsigned_call=None)
agent = ChatAgent(base_url=url, model=model, quirks=quirks)
```
"""


def page() -> str:
    """The page."""
    docs = _field_docs()
    plain = ChatQuirks()
    lines = [_HEAD]
    for row in (*SERVERS, attrs.evolve(plain, server='`dialect="template"`', **TEMPLATE_FORM)):
        lines += [f"### {row.server}", ""]
        if row.hosts or row.models:
            known = [*(f"`{host}`" for host in row.hosts), *([f"models like `{row.models}`"] if row.models else [])]
            lines += [f"Recognised by: {', '.join(known)}. Source: {row.source}.", ""]
        changed = {name: getattr(row, name) for name in docs if getattr(row, name) != getattr(plain, name)}
        lines += [f"- `{name}={value!r}`: {docs[name]}" for name, value in changed.items()]
        lines.append("")
    lines += ["### Every quirk, and its default", ""]
    lines += [f"- `{name}={_default(plain, name)}`: {text}" for name, text in docs.items()]
    lines += [
        "",
        "## Every kind of agent",
        "",
        "| What is done | For | Source | Switched off by |",
        "|---|---|---|---|",
    ]
    lines += [f"| {row.what} | {row.servers} | {row.source} | {_off(row.off)} |" for row in TOLERANCES]
    lines += [
        "",
        "## Error codes",
        "",
        "What a code means, by the reference of each provider (see [Errors](errors.md)).",
    ]
    for provider in CODES:
        lines += ["", f"### {provider.provider}", "", f"Source: {provider.source}.", ""]
        lines += [f"- `{kind}`: {', '.join(f'`{code}`' for code in codes)}" for kind, codes in provider.codes.items()]
    return "\n".join(lines) + "\n"


def _off(how: str) -> str:
    return "not needed: other servers do not notice" if how == "no" else how


def _default(plain: ChatQuirks, name: str) -> Any:
    return repr(getattr(plain, name))


def _field_docs() -> dict[str, str]:
    """The sentence below each field of ``ChatQuirks``."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(quirks.ChatQuirks)))
    (made,) = tree.body
    assert isinstance(made, ast.ClassDef)
    docs: dict[str, str] = {}
    for field, text in zip(made.body, made.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr):
            words = ast.literal_eval(text.value)
            docs[field.target.id] = " ".join(str(words).split()).replace("``", "`")
    return docs


def main() -> int:
    """Write or check the page; the exit code."""
    made = page()
    if "--check" not in sys.argv:
        PAGE.write_text(made, encoding="utf-8")
        return 0
    if PAGE.read_text(encoding="utf-8") == made:
        return 0
    print("docs/guides/quirks.md is not what the code says: run python tools/quirks_page.py")
    return 1


if __name__ == "__main__":
    sys.exit(main())
