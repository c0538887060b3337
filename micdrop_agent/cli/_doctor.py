"""``micdrop-agent doctor``: what works on this machine, what is missing, and the command that mends it.

system, parts, keys ──▶ Finding ──▶ one line, and how to mend it
each agent ──▶ one tiny request, up to its first chunk ──▶ Finding
"""

from __future__ import annotations

import os
import platform
import shlex
import sys
from typing import TYPE_CHECKING

from micdrop_agent.cli._findings import Finding, keys, parts
from micdrop_agent.cli._probe import probe
from micdrop_agent.cli._screen import Paint, one_line
from micdrop_agent.cli._spec import AGENTS, KEYS, AgentSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from micdrop_agent.cli._options import DoctorArguments

__all__ = ["doctor"]


async def doctor(options: DoctorArguments) -> int:
    """Print what is found, as it is found; returns the exit code: 1 if no agent can answer.

    Raises:
        UsageError: An agent refuses its URL, or something else that was given for it.
    """
    from micdrop_agent import __version__

    report = _Report()
    system = f"{platform.system()} {platform.machine()}"
    report.title(f"micdrop_agent {__version__} · Python {platform.python_version()} · {system} · {options.backend}")
    for finding in (*parts(), *keys(tuple(KEYS.values()))):
        report.add(finding)
    specs = options.agents or _configured()
    report.title("asking for one word, up to the first chunk:" if specs else "no agent is set up")
    usable: list[AgentSpec] = []
    for spec in specs:
        finding = await probe(spec, options.timeout)
        report.add(finding)
        if finding.state == "ok":
            usable.append(spec)
    report.title(_summary(specs, usable))
    return 0 if usable else 1


def _configured() -> Sequence[AgentSpec]:
    """The agents that need nothing more said: those with a key, and the local one."""
    from micdrop_agent.cli._findings import has_local

    found = [AgentSpec(name) for name in AGENTS if name in KEYS and os.environ.get(KEYS[name], "").strip()]
    return [*found, AgentSpec("local")] if has_local() else found


def _summary(specs: Sequence[AgentSpec], usable: Sequence[AgentSpec]) -> str:
    if not usable:
        return (
            "no agent can answer; to try one with no key, install the local model (above)"
            if not specs
            else ("no agent can answer")
        )
    first, *others = [shlex.quote(str(spec)) for spec in usable]
    command = " ".join(["micdrop-agent chat --agent", first, *(f"--fallback {other}" for other in others)])
    return f"{len(usable)} of {len(specs)} can answer; try: {command}"


class _Report:
    """Writes findings to stdout."""

    def __init__(self) -> None:
        self._paint = Paint(sys.stdout)
        self._begun = False

    def title(self, text: str) -> None:
        print(("\n" if self._begun else "") + self._paint.bold(text), flush=True)
        self._begun = True

    def add(self, finding: Finding) -> None:
        paint = self._paint
        mark = {"ok": paint.green("ok    "), "missing": paint.yellow("--    "), "failed": paint.red("FAILED")}
        print(f"  {mark[finding.state]}  {one_line(finding.text)}", flush=True)
        for line in finding.mend:
            print(f"          {paint.dim(line)}", flush=True)
