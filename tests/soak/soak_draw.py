"""Draws memory and open connections of a soak over time, as SVG; one panel for each event loop."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

MEMORY: Final = "#0072b2"
CONNECTIONS: Final = "#d55e00"
INK: Final = "#3a3f47"
PALE: Final = "#8a8f98"
LEFT, RIGHT, PANEL = 70, 730, 190
HIGH: Final = 66
"""Height of the memory of a panel in pixels; the connections have half of it."""


def _text(x: float, y: float, words: str, **style: Any) -> str:
    fill, size, anchor = style.get("fill", INK), style.get("size", 12), style.get("anchor", "start")
    weight = style.get("weight", 400)
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{fill}" font-weight="{weight}" '
        f'text-anchor="{anchor}">{escape(words)}</text>'
    )


def _line(points: Sequence[tuple[float, float]], colour: str, width: float = 1.0) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"/>'


def _panel(told: dict[str, Any], top: float, seconds: float) -> list[str]:
    samples: list[dict[str, Any]] = told["samples"]
    quiet = [sample for sample in samples if sample["quiet"]]
    if not quiet:
        return [_text(LEFT, top + 30, f"{told['loop']}: nothing was seen")]

    def across(sample: dict[str, Any]) -> float:
        return LEFT + (RIGHT - LEFT) * float(sample["t"]) / seconds

    most_mib = max(sample["rss_kib"] for sample in samples) / 1024
    busiest = max(1, *(sample["connections"] for sample in samples))
    ground, floor = top + 26 + HIGH, top + 44 + HIGH + HIGH / 2
    memory = [(across(each), ground - HIGH * each["rss_kib"] / 1024 / most_mib) for each in samples]
    calm = [(across(each), ground - HIGH * each["rss_kib"] / 1024 / most_mib) for each in quiet]
    used = [(across(each), floor - HIGH / 2 * each["connections"] / busiest) for each in samples]
    tally = told["tally"]
    about = (
        f"{tally.get('calls', 0):,} calls, {tally.get('answers', 0):,} answers, "
        f"{tally.get('answers cancelled', 0):,} of them cut off, {tally.get('answers failed', 0):,} failed"
    )
    parts = [
        _text(LEFT, top + 12, told["loop"], weight=600, size=13),
        _text(RIGHT, top + 12, about, anchor="end", fill=PALE),
        _line([(LEFT, ground), (RIGHT, ground)], "#dfe2e6"),
        _line([(LEFT, floor), (RIGHT, floor)], "#dfe2e6"),
        _line(memory, "#9cc7e4"),
        _line(calm, MEMORY, 1.5),
        _line(used, CONNECTIONS, 0.8),
        _text(LEFT - 8, ground - HIGH + 4, f"{most_mib:.0f} MiB", anchor="end", fill=MEMORY),
        _text(LEFT - 8, ground + 4, "0", anchor="end", fill=MEMORY),
        _text(LEFT - 8, floor - HIGH / 2 + 4, f"{busiest}", anchor="end", fill=CONNECTIONS),
        _text(LEFT - 8, floor + 4, "0", anchor="end", fill=CONNECTIONS),
        _text(RIGHT + 8, calm[-1][1] + 4, f"{quiet[-1]['rss_kib'] / 1024:.1f} MiB", fill=MEMORY),
        _text(RIGHT + 8, floor + 4, f"{quiet[-1]['connections']} left", fill=CONNECTIONS),
    ]
    # Between two rounds no call is left: there no connection may be either.
    parts += [
        f'<circle cx="{across(each):.1f}" cy="{floor - HIGH / 2 * each["connections"] / busiest:.1f}" '
        f'r="1.6" fill="{INK}"/>'
        for each in quiet
    ]
    return parts


def draw(runs: Sequence[dict[str, Any]], path: Path) -> None:
    """Write the drawing of ``runs`` to ``path``."""
    seconds = max([float(sample["t"]) for told in runs for sample in told["samples"]], default=1.0)
    height = 84 + PANEL * len(runs)
    note = "Random calls with barge-ins, tools and faults on loopback. Blue: resident memory, dark where no call was left; "
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 820 {height}" font-family="system-ui, sans-serif">',
        f'<rect width="820" height="{height}" fill="#ffffff"/>',
        _text(16, 28, f"Memory and open connections over {seconds:.0f} s on each event loop", size=17, weight=600),
        _text(16, height - 30, note, fill=PALE),
        _text(
            16, height - 14, "orange: connections at the server; dots: the moments when no call was left.", fill=PALE
        ),
    ]
    for number, told in enumerate(runs):
        parts += _panel(told, 48 + PANEL * number, seconds)
    path.write_text("\n".join([*parts, "</svg>"]) + "\n", encoding="utf-8")
