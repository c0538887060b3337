"""For the tests of the command line: run it here or in a process of its own, and servers to talk to."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from anyio.from_thread import start_blocking_portal

from micdrop_agent.testing import ScriptedProvider

if TYPE_CHECKING:
    from collections.abc import Generator

    from micdrop_agent.testing import Reply

PROMPT = {
    "role": "system",
    "content": "You are a helpful voice assistant. Answer in one or two short sentences.",
}
NOBODY = "http://127.0.0.1:1/v1"
"""Nobody listens there."""


def clean_environment(*, measured: bool = True) -> dict[str, str]:
    """The environment without anybody's keys.

    Args:
        measured: Whether a measurement of coverage goes on in the process that gets it.
    """
    left_out = () if measured else ("COVERAGE",)
    return {
        name: value
        for name, value in os.environ.items()
        if not name.endswith("_API_KEY") and not name.startswith(left_out)
    }


def run(
    *arguments: str,
    stdin: str | None = None,
    env: dict[str, str] | None = None,
    before: str = "",
    measured: bool = True,
) -> subprocess.CompletedProcess[str]:
    """Run ``micdrop-agent`` without a terminal; ``before`` is Python that runs first, ``measured`` as above."""
    start = ["-m", "micdrop_agent"]
    if before:
        start = ["-c", f"{before}\nimport sys\nfrom micdrop_agent.cli import main\nsys.exit(main())"]
    return subprocess.run(
        [sys.executable, "-W", "error", *start, *arguments],
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        text=True,
        check=False,
        env=clean_environment(measured=measured) | (env or {}),
        timeout=60,
    )


@contextmanager
def servers(*scripts: list[Reply]) -> Generator[list[str]]:
    """Model servers on this machine, one per script, in a thread; gives their URLs."""
    with start_blocking_portal() as portal, ExitStack() as stack:
        urls: list[str] = []
        for script in scripts:
            provider = stack.enter_context(portal.wrap_async_context_manager(ScriptedProvider(script)))
            urls.append(stack.enter_context(portal.wrap_async_context_manager(provider.listening())))
        yield urls
