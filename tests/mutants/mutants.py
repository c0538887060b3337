"""Does the suite notice? Applies each fault of ``faults.toml`` to a copy of the package and runs the tests.

    python tests/mutants/mutants.py                      all of them, a table, exit code 1 if one survives
    python tests/mutants/mutants.py --only "a cut"       those whose name contains that
    python tests/mutants/mutants.py --check              only whether every fault still applies

For each fault the sweep comes first (at each ``--every``-th step, which is a part of what the suite does),
then the tests of the core up to the first that fails. First of all the same is run without a fault, which
must pass. A fault whose text is no longer there, or there twice, is an error.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT: Final = Path(__file__).resolve().parent.parent.parent

FIRST: Final = {
    "fallback/supervisor.py": "test_fallback_*.py",
    "fallback/switches.py": "test_fallback_*.py",
    "fallback/rotation.py": "test_fallback_*.py",
    "_core/tool_run.py": "test_toolrun*.py",
    "_core/ledger.py": "test_ledger.py test_invariants_text.py test_toolrun_detach.py",
    "_core/pause.py": "test_core_pause.py",
    "_core/detach.py": "test_toolrun_detach.py",
    "_core/quiet.py": "test_toolrun_detach.py test_summary.py",
    "model/summary.py": "test_summary.py",
    "model/ask.py": "test_extract_typed.py",
    "fallback/ask.py": "test_extract_typed.py",
    "model/step.py": "test_step*.py test_provider_tool_choice.py test_provider_written_calls.py test_provider_replay.py",
    "providers/requests/body.py": "test_provider_tool_choice.py",
    "providers/attachments.py": "test_provider_replay.py test_provider_echo.py",
    "model/clock.py": "test_step*.py",
    "model/agent.py": "test_step*.py",
    "_core/pipe.py": "test_core_reading.py test_core_wait.py test_core_reader_cancelled.py test_core_pause.py",
    "_core/scopes.py": "test_hosts_native.py",
    "_core/parking.py": "test_core_reader_cancelled.py test_core_reading.py",
    "_core/event_hub.py": "test_events*.py test_core_listeners.py",
    "call/_barge_in.py": "test_call_turns.py",
    "call/_drain.py": "test_drain.py",
    "call/_guesses.py": "test_call_guesses.py",
    "call/_ear.py": "test_call_turns.py test_call_guesses.py test_drain.py",
    "call/_fallback_stt.py": "test_call_fallback.py",
    "call/_fallback_tts.py": "test_call_fallback.py",
    "call/_mouth.py": "test_call_turns.py test_call_guesses.py test_call_invariants.py test_drain.py",
    "call/_session.py": "test_call_turns.py test_call_invariants.py test_drain.py",
    "call/_speaking.py": "test_call_invariants.py",
    "call/_watch.py": "test_drain.py test_call_turns.py",
    "fallback/attempts.py": "test_fallback_*.py",
    "text/joining/seam.py": "test_text_seam.py",
    "_core/record.py": "test_core_result.py",
    "transport/loop_stream.py": "test_http_loop_stream.py",
    "_core/turn.py": "test_fallback_races.py test_fallback_partial.py test_core_cancel.py test_fallback_invariants.py",
}
"""Where a fault in a file is most likely to be seen, and so soonest."""

STAGES: Final = (
    "test_ledger.py test_toolrun*.py test_heard.py test_step*.py test_events*.py",
    "test_core_*.py test_fallback_*.py test_hosts_*.py test_text_*.py test_health.py test_invariants_*.py test_call_moves.py",
    "conformance/test_vectors.py conformance/test_cases.py",
)
"""Tests of the core; then all of them, the quick ones first."""

PATIENCE: Final = 900.0
"""Seconds after which a run counts as hanging, which is a way to fail."""


@attrs.frozen
class Fault:
    """One deliberate fault."""

    name: str
    why: str
    invariant: int
    edits: list[dict[str, str]]
    equivalent: str = ""
    """Why nobody can see it, where that is so: then it is not run."""

    def apply(self, package: Path) -> None:
        """Change the copy in ``package``.

        Raises:
            LookupError: A text is not there, or not only once.
        """
        for edit in self.edits:
            path = package / edit["file"]
            text = path.read_text(encoding="utf-8") if path.exists() else ""
            if (count := text.count(edit["old"])) != 1:
                raise LookupError(f"{self.name}: found {count} times in {edit['file']}: {edit['old']!r}")
            path.write_text(text.replace(edit["old"], edit["new"]), encoding="utf-8")


@attrs.frozen
class Verdict:
    """What became of one fault."""

    fault: str
    killed_by: str
    """The test that failed, or what the sweep said; empty if nothing did."""
    sweep: bool
    """Whether the sweep alone sees it."""
    seconds: float


def faults() -> list[Fault]:
    """All of them."""
    with (Path(__file__).with_name("faults.toml")).open("rb") as file:
        return [Fault(**entry) for entry in tomllib.load(file)["fault"]]


def copied(source: Path, target: Path) -> Path:
    """Package, tests and configuration, with the compiled files, so that only the fault is compiled again."""
    target.mkdir()
    for name in ("micdrop_agent", "tests"):
        shutil.copytree(source / name, target / name, ignore=shutil.ignore_patterns(".hypothesis"))
    shutil.copy2(source / "pyproject.toml", target)
    return target


def run(where: Path, *command: str) -> tuple[int, str]:
    """Run Python in the copy; exit code and output.

    Raises:
        RuntimeError: It was ended by a signal again and again: whatever did that, it was no test.
    """
    helpers = where / "tests" / "mutants"
    environment = os.environ | {"PYTHONPATH": f"{where}{os.pathsep}{helpers}", "MUTANT_ROOT": str(where)}
    signal = 0
    for _ in range(3):
        try:
            done = subprocess.run(
                [sys.executable, *command],
                cwd=where,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=PATIENCE,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return 1, f"FAILED it hangs ({PATIENCE:.0f} s)"
        if done.returncode >= 0:
            return done.returncode, done.stdout
        signal = -done.returncode
    raise RuntimeError(f"{' '.join(command)} was ended by signal {signal}")


def swept(where: Path, every: int) -> str:
    """What the sweep sees; empty if nothing."""
    code, output = run(where, "tests/mutants/mutant_sweep.py", "--every", str(every))
    lines = output.strip().splitlines()
    return "" if not code else (lines[-1] if lines else f"exit code {code}")


def tested(where: Path, first: Iterable[str]) -> str:
    """The first test of the core that fails; empty if none does."""
    for patterns in ("test_mutation_gaps.py", *first, *STAGES):
        files = [str(path) for pattern in patterns.split() for path in sorted((where / "tests").glob(pattern))]
        options = ("-x", "-q", "--no-header", "--tb=no", "-p", "no:cacheprovider", "-p", "mutant_guard")
        code, output = run(where, "-m", "pytest", *options, *files)
        if code:
            found = re.search(r"^(?:FAILED|ERROR) (.*?)(?: - .*)?$", output, re.MULTILINE)
            return found[1] if found else f"exit code {code}: {output.strip()[-300:]}"
    return ""


def judge(fault: Fault, source: Path, place: Path, options: Any) -> Verdict:
    """Apply one fault and run what there is."""
    started = time.monotonic()
    where = copied(source, place)
    fault.apply(where / "micdrop_agent")
    seen = "" if options.skip_sweep else swept(where, options.every)
    first = dict.fromkeys(FIRST[edit["file"]] for edit in fault.edits if edit["file"] in FIRST)
    killed_by = seen or tested(where, first)
    shutil.rmtree(place)
    return Verdict(fault.name, killed_by, bool(seen), time.monotonic() - started)


def show(verdict: Verdict) -> None:
    """One row of the table."""
    how = "sweep" if verdict.sweep else "tests" if verdict.killed_by else "LIVES"
    print(f"| {verdict.fault} | {how} | {verdict.killed_by or '-'} | {verdict.seconds:.0f} |", flush=True)  # noqa: T201


def check(chosen: list[Fault], folder: Path) -> list[str]:
    """What no longer applies."""
    wrong: list[str] = []
    for number, fault in enumerate(chosen):
        package = folder / f"check {number}"
        files = {edit["file"] for edit in fault.edits}
        for name in files:
            (package / name).parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / "micdrop_agent" / name).exists():
                shutil.copy2(ROOT / "micdrop_agent" / name, package / name)
        try:
            fault.apply(package)
            for name in files:
                compile((package / name).read_text(encoding="utf-8"), name, "exec")
        except (LookupError, SyntaxError) as error:
            wrong.append(f"{fault.name}: {error}" if isinstance(error, SyntaxError) else str(error))
    return wrong


def main() -> None:
    """Print the table; exit with 1 if a fault survives or no longer applies."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", default=[], help="a part of the name; may be repeated")
    parser.add_argument("--every", type=int, default=3, help="the sweep takes each such step (3)")
    parser.add_argument("--jobs", type=int, default=2, help="processes at the same time (2)")
    parser.add_argument("--check", action="store_true", help="only see whether each fault still applies")
    parser.add_argument("--skip-sweep", action="store_true", help="run the other tests only")
    parser.add_argument("--skip-clean", action="store_true", help="do not run without a fault first")
    options = parser.parse_args()
    chosen = [fault for fault in faults() if not options.only or any(part in fault.name for part in options.only)]
    with tempfile.TemporaryDirectory(prefix="mutants") as temporary:
        folder = Path(temporary)
        wrong = check(chosen, folder)
        if wrong:
            sys.exit("\n".join(["these faults no longer apply:", *wrong]))
        if options.check:
            sys.exit(0)
        sys.exit(1 if survivors(chosen, folder, options) else 0)


def survivors(chosen: list[Fault], folder: Path, options: Any) -> list[Verdict]:
    """Judge them all, and print the table."""
    source = copied(ROOT, folder / "source")
    run(source, "-m", "compileall", "-q", "micdrop_agent")
    if not options.skip_clean:
        broken = swept(source, options.every) or tested(source, ())
        if broken:
            sys.exit(f"without any fault this fails already: {broken}")
    print("| fault | seen by | first failure | s |\n|---|---|---|---|", flush=True)  # noqa: T201
    for fault in chosen:
        if fault.equivalent:
            print(f"| {fault.name} | equivalent | {fault.equivalent} | - |")  # noqa: T201
    with ThreadPoolExecutor(options.jobs) as pool:
        running = [
            pool.submit(judge, fault, source, folder / str(number), options)
            for number, fault in enumerate(chosen)
            if not fault.equivalent
        ]
        verdicts: list[Verdict] = []
        for future in as_completed(running):
            verdicts.append(future.result())
            show(verdicts[-1])
    alive = [verdict for verdict in verdicts if not verdict.killed_by]
    by_sweep = sum(verdict.sweep for verdict in verdicts)
    print(f"\n{len(verdicts)} faults, {len(verdicts) - len(alive)} seen, {by_sweep} by the sweep alone")  # noqa: T201
    return alive


if __name__ == "__main__":
    main()
