"""Print what the package costs: import time and installed size. One line each."""

from __future__ import annotations

import importlib.metadata
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

ROUNDS = 10


def milliseconds(code: str) -> float:
    """CPU milliseconds of ``python -c code``, start of the interpreter included: the least of some rounds.

    CPU time and not wall time, because a CI machine is busy with other things as well; with byte code, which the
    first round leaves.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    times: list[float] = []
    for _ in range(ROUNDS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", code], env=environment, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append((after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000)
    return min(times)


def required(name: str, seen: set[str] | None = None) -> set[str]:
    """The names of a distribution and of everything it requires, extras left out."""
    seen = set() if seen is None else seen
    key = re.sub(r"[-_.]+", "-", name).lower()
    if key in seen:
        return seen
    try:
        distribution = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return seen  # a requirement for another platform or Python
    seen.add(key)
    for requirement in distribution.requires or []:
        if "extra ==" not in requirement:
            required(re.split(r"[\s;<>=!~\[(]", requirement, maxsplit=1)[0], seen)
    return seen


def megabytes(name: str) -> float:
    """The size of a distribution's installed source and data, byte code left out."""
    total = 0
    for file in importlib.metadata.distribution(name).files or []:
        path = Path(str(file.locate()))
        if path.suffix != ".pyc" and path.is_file():
            total += path.stat().st_size
    return total / 1e6


def main() -> None:
    """Measure and print."""
    bare = milliseconds("pass")
    whole = milliseconds("import micdrop_agent")
    print(
        f"import micdrop_agent: {whole - bare:.0f} ms of CPU (least of {ROUNDS}; {bare:.0f} ms interpreter start taken off)"
    )
    own = sum(path.stat().st_size for path in Path("micdrop_agent").rglob("*.py")) / 1e6
    others = required("micdrop-agent") - {"micdrop-agent"}
    print(f"installed size: {own:.2f} MB, with {len(others)} dependencies {own + sum(map(megabytes, others)):.1f} MB")


if __name__ == "__main__":
    main()
