"""What ``import micdrop_agent`` takes, and what it must not load.

Each round starts two fresh interpreters, one that imports the package and one that does nothing; the
difference counts, so the interpreter's own start is not part of it. Byte code and files are warm.

    python benchmarks/import_time.py --rounds 30

Goal: at most 80 ms, and neither an HTTP client nor an SDK, Trio or pydantic among the modules.
"""

from __future__ import annotations

import subprocess
import sys
import time

from _harness import HERE, Goals, Samples, arguments, tell, with_byte_code

STATEMENTS = {
    "nothing": "pass",
    "anyio": "import anyio",
    "micdrop_agent": "import micdrop_agent",
    "OpenaiAgent": "from micdrop_agent import OpenaiAgent",
}
FORBIDDEN = ("httpx2", "httpx", "httptools", "openai", "trio", "pydantic", "cattrs", "xllamacpp")


def started(statement: str) -> float:
    """Milliseconds that a fresh interpreter takes for ``statement``."""
    began = time.perf_counter_ns()
    subprocess.run([sys.executable, "-c", statement], cwd=HERE.parent, env=with_byte_code(), check=True)
    return (time.perf_counter_ns() - began) / 1e6


def loaded() -> list[str]:
    """The modules that should not be there but are."""
    statement = f"import sys, micdrop_agent; print(*(set({FORBIDDEN!r}) & sys.modules.keys()))"
    done = subprocess.run(
        [sys.executable, "-c", statement], cwd=HERE.parent, check=True, capture_output=True, text=True
    )
    return done.stdout.split()


def measure(rounds: int) -> Samples:
    """All statements in turn, round by round."""
    samples = Samples()
    for number in range(rounds + 2):
        took = {name: started(statement) for name, statement in STATEMENTS.items()}
        if number >= 2:
            for name, each in took.items():
                samples.add("interpreter_ms", name, each)
                samples.add("import_ms", name, each - took["nothing"])
    return samples


def main() -> None:
    """Measure, and print one line."""
    options = arguments(__doc__, rounds=20, loops=("asyncio",)).parse_args()
    samples = measure(options.rounds)
    unwanted = loaded()
    goals = Goals()
    goals.at_most("import ms", samples.median("import_ms", "micdrop_agent"), 80)
    goals.at_most("unwanted modules", len(unwanted), 0)
    tell("import_time", "none", samples, goals, unwanted=unwanted)
    if unwanted:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
