"""What importing the library loads: a server that restarts has callers waiting."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {"httpx2", "httpx", "openai", "trio", "pydantic", "cattrs", "xllamacpp", "opentelemetry", "ssl", "sqlite3"}
RARE = {"hmac", "secrets", "email", "datetime", "asyncio", "concurrent.futures", "micdrop_agent.testing"}


@pytest.mark.parametrize(
    ("statement", "unwanted"),
    [
        ("import micdrop_agent", HEAVY | RARE | {"httptools"}),
        ("from micdrop_agent import ChatAgent, FallbackAgent, tool", HEAVY | RARE),
        ("from micdrop_agent import OpenaiAgent", HEAVY | RARE),
    ],
)
def test_what_is_heavy_or_rare_is_loaded_when_it_is_used(statement: str, unwanted: set[str]) -> None:
    code = f"import sys; sys.path[:0] = {sys.path!r}; {statement}; print(*sorted({unwanted!r} & sys.modules.keys()))"

    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout.split()) == (0, []), done.stderr
