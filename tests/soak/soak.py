"""Random calls for minutes on asyncio, uvloop and Trio: is anything left of them?

    python tests/soak/soak.py --seconds 600 --out soak-report --plot docs/soak.svg

Each loop has its share of the time, in a process of its own, against a model server in another one (see
``soak_worker`` and ``soak_calls``). Between two rounds of calls everything must be as it was: tasks, sockets,
file descriptors, generators, connections at the server; memory may not grow with the number of answers.
Nothing of this is a matter of speed, so a busy machine changes no verdict. Exits with 1 on a leak.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any, Final, TypeAlias

from soak_draw import draw

Sample: TypeAlias = dict[str, Any]

LOOPS: Final = ("asyncio", "uvloop", "trio")

WARM_UP: Final = 0.25
"""Share of the rounds before the comparison begins: caches, imports and threads come in the first ones."""

BLOCKS: Final = 2.0
"""Allocated blocks (objects, roughly) per answer; one answer that is kept holds a hundred."""

LEAST_BLOCKS: Final = 5000
"""Growth in blocks that means nothing: Trio keeps up to a thousand deadlines that are over, then drops them."""

KIB: Final = 1.0
"""Resident KiB per answer; one answer that is kept holds about 20."""

LEAST_KIB: Final = 8192
"""Growth in KiB that the allocator may cause by itself."""


def slope(samples: list[Sample], key: str) -> float:
    """Growth of ``key`` per answer: the median of all slopes between two samples (Theil and Sen)."""
    slopes = [
        (later[key] - earlier[key]) / (later["answers"] - earlier["answers"])
        for index, earlier in enumerate(samples)
        for later in samples[index + 1 :]
        if later["answers"] > earlier["answers"]
    ]
    return statistics.median(slopes) if slopes else 0.0


def leaks(told: dict[str, Any]) -> list[str]:
    """What is wrong with a run, in words; nothing if it was clean."""
    found = [f"reported: {complaint}" for complaint in told["complaints"]]
    if told["error"]:
        found.append(f"broke off: {told['error']}")
    quiet = [sample for sample in told["samples"] if sample["quiet"]]
    if len(quiet) < 3:
        return [*found, f"only {len(quiet)} rounds: too short to see anything"]
    steady = quiet[max(1, int(len(quiet) * WARM_UP)) - 1 :]
    first, *rest = steady
    for key in ("fds", "sockets", "tasks", "generators"):
        most = max(rest, key=lambda sample: int(sample[key]))
        # A generator more may be one of a library's cache; one per call is a leak.
        allowed = 3 if key == "generators" else 0
        if most[key] > first[key] + allowed:
            found.append(f"{key}: {first[key]} before, {most[key]} after {most['answers']} answers")
    left = [sample for sample in quiet if sample["connections"]]
    if left:
        found.append(f"connections: {left[0]['connections']} open when no call was left, at {left[0]['t']} s")
    for key, each, least in (("blocks", BLOCKS, LEAST_BLOCKS), ("rss_kib", KIB, LEAST_KIB)):
        growth, grown = slope(steady, key), steady[-1][key] - first[key]
        if growth > each and grown > least:
            found.append(f"{key}: {growth:+.2f} per answer, {grown:+} in all")
    return found


def summary(told: dict[str, Any]) -> dict[str, Any]:
    """The figures of a run."""
    quiet = [sample for sample in told["samples"] if sample["quiet"]]
    steady = quiet[max(1, int(len(quiet) * WARM_UP)) - 1 :] if quiet else []
    tally = told["tally"]
    return {
        "loop": told["loop"],
        "seconds": told["seconds"],
        "rounds": len(quiet),
        "calls": tally.get("calls", 0),
        "answers": tally.get("answers", 0),
        "cancelled": tally.get("answers cancelled", 0),
        "failed": tally.get("answers failed", 0),
        "most_connections": max((sample["connections"] for sample in told["samples"]), default=0),
        "fds": sorted({sample["fds"] for sample in steady}),
        "tasks": sorted({sample["tasks"] for sample in steady}),
        "rss_mib": [round(sample["rss_kib"] / 1024, 1) for sample in steady[:1] + steady[-1:]],
        "blocks_per_answer": round(slope(steady, "blocks"), 3),
        "bytes_per_answer": round(slope(steady, "rss_kib") * 1024),
        "leaks": leaks(told),
    }


def run(loop: str, seconds: float, seed: int) -> dict[str, Any]:
    """Let one loop run; what a process that died has told is kept."""
    worker = str(Path(__file__).with_name("soak_worker.py"))
    command = [sys.executable, worker, "--loop", loop, "--seconds", str(seconds), "--seed", str(seed)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=seconds * 3 + 120, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    samples = [line for line in lines if "quiet" in line]
    told = next((line for line in lines if "tally" in line), None)
    if told is None:
        told = {"loop": loop, "seconds": 0, "tally": {}, "complaints": [], "error": f"exit code {done.returncode}"}
    return {**told, "samples": samples}


def main() -> None:
    """Run every loop, write the report, and exit with 1 on a leak."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600.0, help="for all loops together (600)")
    parser.add_argument("--loop", choices=LOOPS, action="append", help="only this one; may be repeated")
    parser.add_argument("--seed", type=int, default=1, help="of the random calls (1)")
    parser.add_argument("--out", type=Path, help="folder for the report and the plot")
    parser.add_argument("--plot", type=Path, help="another place for the plot")
    options = parser.parse_args()
    loops = tuple(options.loop or LOOPS)
    runs = [run(loop, options.seconds / len(loops), options.seed) for loop in loops]
    report = [summary(told) for told in runs]
    for row in report:
        print(json.dumps(row))  # noqa: T201 - the result
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "soak.json").write_text(json.dumps({"report": report, "runs": runs}), encoding="utf-8")
        draw(runs, options.out / "soak.svg")
    if options.plot is not None:
        draw(runs, options.plot)
    sys.exit(1 if any(row["leaks"] for row in report) else 0)


if __name__ == "__main__":
    main()
