"""Side by side with other libraries, each in an environment of its own, over the same loopback provider.

    nox -s peers                                             # makes the environments, then measures
    python benchmarks/peers.py --envs DIR --only httpx2,micdrop_agent,openai

One process per library; they take turns round by round on one CPU, the provider has the other. Bare httpx2
is the floor: what an application would write without a library. The result is one JSON line, and a table
in Markdown on standard error. All talk Chat Completions; ``peer_clients/`` shows how each is used, and
where a library has a switch that makes it faster (grouping of chunks, tracing, limits), it is thrown.

Measured: first chunk in conversations of 10 and of 202 messages, first chunk when 200 come at once, CPU per
chunk of 2,000, a cancelled reader, 1,000 answers at once, import. Not measured: TLS, distance, audio.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
import venv
from pathlib import Path
from typing import Any, Final

from _harness import HERE, Provider, many_files, pin

PEERS: Final[dict[str, tuple[str, ...]]] = {
    "httpx2": ("httpx2",),
    "micdrop_agent": (str(HERE.parent), "uvloop"),
    "openai": ("openai",),
    "livekit": ("livekit-agents", "livekit-plugins-openai"),
    "pipecat": ("pipecat-ai[openai]",),
    "pydantic_ai": ("pydantic-ai-slim[openai]",),
    "openai_agents": ("openai-agents",),
    "langchain": ("langchain-openai",),
    "litellm": ("litellm",),
}
FLOOR: Final = "httpx2"
CROWD: Final = "paced-6-350ms"


def environment(envs: Path, name: str) -> Path:
    """The interpreter of a peer; its environment is made if there is none."""
    python = envs / name / "bin" / "python"
    if not python.exists():
        print(f"making the environment of {name}", file=sys.stderr)
        venv.create(envs / name, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-q", *PEERS[name]], check=True)
    return python


class Peer:
    """A library's process."""

    def __init__(self, name: str, python: Path, url: str, cpu: int | None) -> None:
        self.name = name
        self.python = python
        module = "micdrop_client" if name == "micdrop_agent" else f"{name}_client"
        worker = HERE / "peer_clients" / "_worker.py"
        # Not the tree beside this file but what is installed there, as a user has it.
        self.process = subprocess.Popen(
            [python, worker, module, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=python.parent
        )
        if cpu is not None:
            os.sched_setaffinity(self.process.pid, {cpu})
        self.ready = self.told()
        self.statement: str = self.ready.get("statement", "pass")

    def told(self) -> dict[str, Any]:
        """The next line."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        told: dict[str, Any] = json.loads(line) if line else {"error": "the process ended"}
        return told

    def ask(self, what: str, **options: Any) -> dict[str, Any]:
        """Measure something."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps({"what": what, **options}) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return {"error": "the process ended"}
        return self.told()

    def leave(self) -> None:
        """End the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def importing(self) -> float:
        """Milliseconds that a fresh interpreter takes for the import; the best of three."""
        took: list[float] = []
        for statement in ("pass", self.statement) * 3:
            began = time.perf_counter()
            subprocess.run([self.python, "-c", statement], check=True, cwd=self.python.parent, capture_output=True)
            took.append((time.perf_counter() - began) * 1000)
        return min(took[1::2]) - min(took[::2])


def percentile(values: list[float], share: float) -> float:
    """The value that a ``share`` of the values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def in_turn(peers: list[Peer], rounds: int, rows: dict[str, dict[str, Any]], key: str, **asked: Any) -> None:
    """Ask every peer, round by round, in another order each time; the first of a block finds cold caches."""
    values: dict[str, list[float]] = {peer.name: [] for peer in peers}
    cpu: dict[str, list[float]] = {peer.name: [] for peer in peers}
    for number in range(rounds + 1):
        at = number % len(peers)
        for peer in peers[at:] + peers[:at]:
            told = peer.ask("first", **asked)
            row = rows[peer.name]
            if "error" in told:
                row[f"{key}_error"] = told["error"]
            elif number:
                values[peer.name] += told["first_us"][1:]
                cpu[peer.name] += told["cpu_per_chunk_us"][1:]
                row["wrong"] = row.get("wrong", 0) + told["wrong"]
    for name, measured in values.items():
        if measured:
            rows[name][f"{key}_ms"] = round(statistics.median(measured) / 1000, 3)
            rows[name][f"{key}_p99_ms"] = round(percentile(measured, 0.99) / 1000, 3)
            rows[name][f"{key}_cpu_per_chunk_us"] = round(statistics.median(cpu[name]), 2)
            rows[name][f"{key}_spread_ms"] = [
                round(percentile(measured, (at + 0.5) / 50) / 1000, 3) for at in range(50)
            ]


def measure(names: list[str], envs: Path, rounds: int, many: int) -> dict[str, dict[str, Any]]:
    """Everything, for everybody."""
    rows: dict[str, dict[str, Any]] = {name: {} for name in names}
    many_files()
    cpu = pin()
    pythons = {name: environment(envs, name) for name in names}
    mine = None if cpu is None else max(os.sched_getaffinity(0))
    with Provider(cpu=cpu) as provider:
        peers = [Peer(name, pythons[name], provider.url, mine) for name in names]
        in_turn(peers, rounds, rows, "first", model="paced-3-2ms", messages=10, times=11)
        in_turn(peers, max(1, rounds // 2), rows, "long", model="paced-3-2ms", messages=202, times=6)
        in_turn(peers, max(1, rounds // 2), rows, "burst", model="burst-200", messages=10, times=6)
        in_turn(peers, max(1, rounds // 4), rows, "chunks", model="burst-2000", messages=10, times=2)
        for peer in peers:
            told = peer.ask("cancel", model="paced-3000-2ms", times=40)
            ended: list[float] = told.get("ended_us", [])
            rows[peer.name] |= {
                "cancel_ended_us": round(statistics.median(ended), 1) if ended else None,
                "cancel_late": told.get("late"),
                "cancel_hung": told.get("hung"),
            }
            peer.leave()
        for name in names:
            peer = Peer(name, pythons[name], provider.url, mine)
            told = peer.ask("crowd", model=CROWD, many=many)
            rows[name] |= {
                f"crowd_{key}": round(value, 2) if value else value for key, value in told.items() if key != "error"
            }
            rows[name]["import_ms"] = round(peer.importing(), 1)
            peer.leave()
    return rows


COLUMNS: Final = (
    ("first_ms", "first chunk, ms"),
    ("long_ms", "same, 202 messages, ms"),
    ("burst_ms", "first of a burst of 200, ms"),
    ("chunks_cpu_per_chunk_us", "CPU per chunk, µs"),
    ("cancel_ended_us", "cancelled reader ended, µs"),
    ("crowd_wall_s", "1,000 at once, s"),
    ("crowd_memory_kib", "memory each, KiB"),
    ("import_ms", "import, ms"),
)


def table(rows: dict[str, dict[str, Any]]) -> str:
    """The result in Markdown: each value, and its ratio to the floor of the same run."""
    lines = ["| | " + " | ".join(title for _, title in COLUMNS) + " |", "|---" * (len(COLUMNS) + 1) + "|"]
    floor = rows.get(FLOOR, {})
    for name, row in rows.items():
        cells: list[str] = []
        for key, _ in COLUMNS:
            value, base = row.get(key), floor.get(key)
            ratio = f" ({value / base:.2f}\N{MULTIPLICATION SIGN})" if value and base and name != FLOOR else ""
            cells.append("-" if value is None else f"{value:,.4g}{ratio}")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Measure; one line of JSON, and the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--envs", type=Path, default=HERE.parent / ".nox" / "peer-envs", help="where environments are")
    parser.add_argument("--only", default=",".join(PEERS), help="libraries, by name")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--many", type=int, default=1000)
    options = parser.parse_args()
    rows = measure(options.only.split(","), options.envs, options.rounds, options.many)
    print(table(rows), file=sys.stderr)
    print(json.dumps({"benchmark": "peers", "load": round(os.getloadavg()[0], 1), "rows": rows}))


if __name__ == "__main__":
    main()
