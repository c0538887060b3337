"""Draws the results as SVG, without any library: distributions, bars, growth.

    python benchmarks/peers.py > peers.json
    python benchmarks/failover_latency.py --spread > failover.json
    python benchmarks/concurrent_calls.py --counts 1,10,100,1000,10000 > calls.json
    python benchmarks/fleet_simulation.py > fleet.json
    python benchmarks/plot.py --fleet fleet.json --peers peers.json --failover failover.json --calls calls.json --out docs

Every drawing says what it was measured on, and a value stands beside every mark: nobody has to guess it
from an axis. Colours are told apart without colour vision, and both on light and on dark paper.
"""

from __future__ import annotations

import argparse
import json
import math
from html import escape
from pathlib import Path
from typing import Any, Final

OURS: Final = "#0072b2"
OTHER: Final = "#8a8f98"
ACCENT: Final = "#d55e00"
INK: Final = "#3a3f47"
NAMES: Final = {
    "httpx2": "bare httpx2",
    "openai": "openai SDK",
    "livekit": "LiveKit Agents",
    "pipecat": "Pipecat",
    "pydantic_ai": "Pydantic AI",
    "openai_agents": "OpenAI Agents SDK",
    "langchain": "LangChain",
    "litellm": "LiteLLM",
}
LEFT, WIDTH, ROW = 170, 760, 30
BUSY: Final = 2.0
"""A measurement alone makes a load of one to one and a half."""


class Drawing:
    """An SVG in the making.

    Args:
        title: What it shows.
        note: How it was measured, in small letters below.
        height: Of the part between the two, in pixels.
    """

    def __init__(self, title: str, note: str, height: int) -> None:
        self.height = height + 96
        self.parts: list[str] = []
        self.text(16, 28, title, size=17, weight="600")
        self.text(16, self.height - 14, note, size=11, ink=OTHER)

    def text(self, x: float, y: float, words: str, **style: Any) -> None:
        """Some words."""
        size, weight = style.get("size", 13), style.get("weight", "400")
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" font-weight="{weight}" fill="{style.get("ink", INK)}" '
            f'text-anchor="{style.get("anchor", "start")}">{escape(words)}</text>'
        )

    def line(self, points: list[tuple[float, float]], colour: str, width: float = 1.0) -> None:
        """A line through points."""
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"/>')

    def box(self, x: float, y: float, width: float, height: float, colour: str) -> None:
        """A filled box with a little rounding."""
        self.parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 1.5):.1f}" height="{height:.1f}" rx="2" fill="{colour}"/>'
        )

    def dot(self, x: float, y: float, colour: str, radius: float = 4) -> None:
        """A mark."""
        self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{colour}"/>')

    def save(self, path: Path) -> None:
        """Write the file."""
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH + 40} {self.height}" '
            f'width="{WIDTH + 40}" height="{self.height}" font-family="system-ui, sans-serif">'
            f'<rect width="100%" height="100%" fill="#fbfbfc"/>'
        )
        path.write_text("\n".join((head, *self.parts, "</svg>")) + "\n", encoding="utf-8")


class Scale:
    """Values to pixels, logarithmic or not."""

    def __init__(self, least: float, most: float, start: float, end: float, *, log: bool = False) -> None:
        self.log = log
        self.least, self.most = (math.log10(least), math.log10(most)) if log else (least, most)
        self.start, self.end = start, end

    def at(self, value: float) -> float:
        """The pixel of a value."""
        place = math.log10(value) if self.log else value
        return self.start + (place - self.least) / (self.most - self.least) * (self.end - self.start)


def label(name: str) -> str:
    """A row's name as people know it."""
    return NAMES.get(name, name)


def ink(name: str) -> str:
    """A row's colour."""
    return {"micdrop_agent": OURS, "httpx2": ACCENT}.get(name, OTHER)


def ticks(drawing: Drawing, scale: Scale, values: list[float], top: float, bottom: float, unit: str) -> None:
    """Thin lines with their values above."""
    for value in values:
        x = scale.at(value)
        drawing.line([(x, top), (x, bottom)], "#dfe2e6")
        drawing.text(x, top - 6, f"{value:g} {unit}", size=11, anchor="middle", ink=OTHER)


def distributions(told: dict[str, Any], key: str, title: str, note: str) -> Drawing:
    """For every row: a thin line to the 98th percentile, a thick one over the middle half, the median."""
    rows = {name: row for name, row in told["rows"].items() if f"{key}_spread_ms" in row}
    spreads = {name: row[f"{key}_spread_ms"] for name, row in rows.items()}
    order = sorted(rows, key=lambda name: rows[name][f"{key}_ms"])
    least = min(min(each) for each in spreads.values()) * 0.85
    most = max(each[-2] for each in spreads.values()) * 1.15
    scale = Scale(least, most, LEFT, WIDTH - 60, log=True)
    drawing = Drawing(title, note, ROW * len(order) + 16)
    bottom = 66 + ROW * len(order)
    marks = [value for value in (0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0) if least < value < most]
    ticks(drawing, scale, marks, 62, bottom, "ms")
    for number, name in enumerate(order):
        y, each = 82 + ROW * number, spreads[name]
        colour = ink(name)
        drawing.text(LEFT - 12, y + 4, label(name), anchor="end", weight="600" if name == "micdrop_agent" else "400")
        drawing.line([(scale.at(each[0]), y), (scale.at(each[-2]), y)], colour, 1.5)
        drawing.line([(scale.at(each[len(each) // 4]), y), (scale.at(each[len(each) * 3 // 4]), y)], colour, 8)
        drawing.dot(scale.at(rows[name][f"{key}_ms"]), y, "#ffffff", 2.5)
        drawing.text(scale.at(each[-2]) + 8, y + 4, f"{rows[name][f'{key}_ms']:.2f} ms", size=12, ink=colour)
    return drawing


def bars(told: dict[str, Any], key: str, title: str, note: str, unit: str) -> Drawing:
    """One bar for every row, shortest first."""
    rows = {name: row[key] for name, row in told["rows"].items() if row.get(key)}
    order = sorted(rows, key=lambda name: rows[name])
    scale = Scale(0, max(rows.values()) * 1.15, LEFT, WIDTH - 40)
    drawing = Drawing(title, note, ROW * len(order))
    for number, name in enumerate(order):
        y = 66 + ROW * number
        drawing.text(LEFT - 12, y + 4, label(name), anchor="end", weight="600" if name == "micdrop_agent" else "400")
        drawing.box(LEFT, y - 8, scale.at(rows[name]) - LEFT, 16, ink(name))
        drawing.text(scale.at(rows[name]) + 8, y + 4, f"{rows[name]:,.4g} {unit}", size=12, ink=ink(name))
    return drawing


FAILURES: Final = (
    ("no_failure_ms", "no failure"),
    ("error_500_ms", "error 500"),
    ("cut_ms", "cut after 5 words"),
    ("silence_beyond_ms", "silence, beyond the time-out"),
)


def failover(told: dict[str, Any]) -> Drawing:
    """What each kind of failure costs, and what a hedge saves."""
    spread = told["spread"]
    middle = {key: each[len(each) // 2] for key, each in spread.items()}
    most = max(spread[key][-2] for key, _ in FAILURES) * 1.2
    scale = Scale(0, most, LEFT + 40, WIDTH - 60)
    drawing = Drawing(
        "Failover: until the backup's first word",
        "Two agents of a loopback provider, warm connections; line: 98 % of the rounds, dot: median." + busy(told),
        ROW * 4 + 118,
    )
    for number, (key, name) in enumerate(FAILURES):
        y, each = 66 + ROW * number, spread[key]
        drawing.text(LEFT + 28, y + 4, name, anchor="end")
        drawing.line([(scale.at(each[1]), y), (scale.at(each[-2]), y)], OURS, 2)
        drawing.dot(scale.at(middle[key]), y, OURS)
        drawing.text(scale.at(each[-2]) + 10, y + 4, f"{middle[key]:.2f} ms", size=12, ink=OURS)
    top = 66 + ROW * 4 + 26
    drawing.text(
        16, top - 8, "A primary that stalls in 5 % of its answers: 99.5 % of all answers begin within", weight="600"
    )
    hedges = (
        ("stalling_primary_hedge_ms", "hedge after 50 ms", OURS),
        ("stalling_primary_time-out_ms", "time-out of 500 ms", OTHER),
    )
    wide = Scale(0, spread["stalling_primary_time-out_ms"][-1] * 1.15, LEFT + 40, WIDTH - 60)
    for number, (key, name, colour) in enumerate(hedges):
        y = top + 16 + ROW * number
        drawing.text(LEFT + 28, y + 4, name, anchor="end")
        drawing.box(LEFT + 40, y - 8, wide.at(spread[key][-1]) - LEFT - 40, 16, colour)
        drawing.text(wide.at(spread[key][-1]) + 8, y + 4, f"{spread[key][-1]:.0f} ms", size=12, ink=colour)
    return drawing


def growth(told: dict[str, Any]) -> Drawing:
    """Memory and CPU of one answer, by how many are alive."""
    medians = told["medians"]
    counts = [count for count in medians["count"] if int(count) >= 10]
    drawing = Drawing(
        "Cost of one live answer, by how many there are",
        f"6 chunks 350 ms apart, all begun in the same instant; {told['loop']}, one CPU. Memory: agent, conversation, task, socket."
        + busy(told),
        236,
    )
    rows = (("memory_kib_each", "KiB of memory", OURS), ("cpu_ms_each", "ms of CPU for the whole answer", ACCENT))
    across = Scale(10, int(counts[-1]), 90, WIDTH - 60, log=True)
    for at, (key, name, colour) in enumerate(rows):
        values = [medians[key][count] for count in counts]
        up = Scale(0, max(values) * 1.35, 142 + 122 * at, 66 + 122 * at)
        drawing.text(16, 56 + 122 * at, name, size=12, ink=colour, weight="600")
        _growth(drawing, across, up, dict(zip(map(int, counts), values, strict=True)), colour)
    return drawing


def _growth(drawing: Drawing, across: Scale, up: Scale, values: dict[int, float], colour: str) -> None:
    """One line of values over a number of something, each with its figures."""
    points = [(across.at(number), up.at(value)) for number, value in values.items()]
    drawing.line([(90, up.at(0)), (WIDTH - 60, up.at(0))], "#dfe2e6")
    drawing.line(points, colour, 2)
    for (x, y), (number, value) in zip(points, values.items(), strict=True):
        drawing.dot(x, y, colour)
        drawing.text(x, y - 10, f"{value:.3g}", size=12, anchor="middle", ink=colour)
        drawing.text(x, up.at(0) + 15, f"{number:,}", size=11, anchor="middle", ink=OTHER)


FLEET: Final = (
    ("requests to the dead provider, before a worker opened its circuit", ("asked_before",), OURS),
    ("requests to it after that: late ones, and tries", ("asked_after_opened", "tries_while_dead"), ACCENT),
    ("ms from the first worker that knows to the last", ("all_know_after_ms",), OURS),
    ("messages a second to the bus, all workers together", ("bus_commands_per_s",), ACCENT),
)


def fleet(told: dict[str, Any]) -> Drawing:
    """What the death of a provider costs, by the number of workers."""
    rows = told["rows"]
    drawing = Drawing(
        "A provider dies, by the number of workers",
        "Virtual time: SharedHealth and Drain are real, calls (1,000 an hour for each worker), provider and bus are modelled.",
        96 * len(FLEET) + 4,
    )
    across = Scale(1, max(10, rows[-1]["workers"]), 90, WIDTH - 60, log=True)
    for at, (name, keys, colour) in enumerate(FLEET):
        values = [sum(row[key] or 0 for key in keys) for row in rows]
        up = Scale(0, max(*values, 1) * 1.5, 122 + 96 * at, 66 + 96 * at)
        drawing.text(16, 56 + 96 * at, name, size=12, ink=colour, weight="600")
        _growth(drawing, across, up, {row["workers"]: value for row, value in zip(rows, values, strict=True)}, colour)
    return drawing


def busy(told: dict[str, Any]) -> str:
    """A word about other work on the machine, if there was any: the drawing shall say so."""
    return f" Machine busy (load {told['load']})." if told["load"] > BUSY else ""


def read(path: Path) -> dict[str, Any]:
    """The last line of JSON in a file."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("{")]
    told: dict[str, Any] = json.loads(lines[-1])
    return told


def main() -> None:
    """Draw what is given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=Path)
    parser.add_argument("--failover", type=Path)
    parser.add_argument("--calls", type=Path)
    parser.add_argument("--fleet", type=Path)
    parser.add_argument("--out", type=Path, default=Path("docs"))
    options = parser.parse_args()
    options.out.mkdir(exist_ok=True)
    note = "Loopback provider, warm, 10 messages; thick: the middle half, thin: 98 % of the answers, dot: median."
    if options.peers:
        told = read(options.peers)
        note += busy(told)
        distributions(told, "first", "Time to the first chunk", note).save(options.out / "first-chunk.svg")
        long = note.replace("10 messages", "202 messages")
        distributions(told, "long", "Time to the first chunk, late in a long call", long).save(
            options.out / "first-chunk-long.svg"
        )
        crowd = (
            "6 chunks 350 ms apart, all begun in the same instant, one CPU; memory from before the clients were made."
            + busy(told)
        )
        bars(told, "crowd_memory_kib", "Memory of each of 1,000 live answers", crowd, "KiB").save(
            options.out / "memory.svg"
        )
    if options.failover:
        failover(read(options.failover)).save(options.out / "failover.svg")
    if options.calls:
        growth(read(options.calls)).save(options.out / "growth.svg")
    if options.fleet:
        fleet(read(options.fleet)).save(options.out / "fleet.svg")


if __name__ == "__main__":
    main()
