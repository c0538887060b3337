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
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from soak_draw import draw
from soak_report import summary

LOOPS: Final = ("asyncio", "uvloop", "trio")


def run(loop: str, seconds: float, seed: int, *more: str) -> dict[str, Any]:
    """Let one loop run; what a process that died has told is kept."""
    worker = str(Path(__file__).with_name("soak_worker.py"))
    command = [sys.executable, worker, "--loop", loop, "--seconds", str(seconds), "--seed", str(seed), *more]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=seconds * 3 + 120, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    samples = [line for line in lines if "quiet" in line]
    told = next((line for line in lines if "tally" in line), None)
    if told is None:
        told = {"loop": loop, "seconds": 0, "tally": {}, "complaints": [], "error": f"exit code {done.returncode}"}
    return {**told, "samples": samples}


def run_beside_each_other(loops: tuple[str, ...], seconds: float, seed: int, answers: int) -> list[dict[str, Any]]:
    """One process for each core; each loop ends when it has its share of ``answers``, if that is given."""
    cores = min(os.cpu_count() or 1, len(loops))
    share = seconds * cores / len(loops)
    most = ("--most", str(-(-answers // len(loops)))) if answers else ()
    with ThreadPoolExecutor(cores) as pool:
        return list(pool.map(lambda loop: run(loop, share, seed, "--hostile", *most), loops))


def main() -> None:
    """Run every loop, write the report, and exit with 1 on a leak."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600.0, help="for all loops together (600)")
    parser.add_argument("--loop", choices=LOOPS, action="append", help="only this one; may be repeated")
    parser.add_argument("--hostile", action="store_true", help="against servers that do what no honest one does")
    parser.add_argument("--seed", type=int, default=1, help="of the random calls (1)")
    parser.add_argument("--answers", type=int, default=0, help="fail with fewer answers than this in all (0)")
    parser.add_argument("--out", type=Path, help="folder for the report and the plot")
    parser.add_argument("--plot", type=Path, help="another place for the plot")
    options = parser.parse_args()
    loops = tuple(options.loop or LOOPS)
    if options.hostile:
        runs = run_beside_each_other(loops, options.seconds, options.seed, options.answers)
    else:
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
    answers = sum(int(told["tally"].get("answers", 0)) for told in runs)
    sys.exit(1 if any(row["leaks"] for row in report) or answers < options.answers else 0)


if __name__ == "__main__":
    main()
