"""Print what the package costs: import time and installed size. One line each."""

from __future__ import annotations

import importlib.metadata
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROUNDS = 10


def milliseconds(code: str) -> float:
    """The median wall time of ``python -I -c code`` in milliseconds, start of the interpreter included."""
    times: list[float] = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        times.append((time.perf_counter() - started) * 1000)
    return statistics.median(times)


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
        f"import micdrop_agent: {whole - bare:.0f} ms (median of {ROUNDS}, interpreter start of {bare:.0f} ms taken off)"
    )
    own = sum(path.stat().st_size for path in Path("micdrop_agent").rglob("*.py")) / 1e6
    others = required("micdrop-agent") - {"micdrop-agent"}
    print(f"installed size: {own:.2f} MB, with {len(others)} dependencies {own + sum(map(megabytes, others)):.1f} MB")


if __name__ == "__main__":
    main()
