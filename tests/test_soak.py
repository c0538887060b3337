"""The soak's verdict, on figures made up for it; the soak itself is ``nox -s soak``."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parent / "soak"))

from soak_draw import draw
from soak_report import leaks, slope, summary


def told(growth: dict[str, int] | None = None, *, rounds: int = 8) -> dict[str, Any]:
    """A run in which each round leaves ``growth`` more of something behind."""
    samples: list[dict[str, Any]] = []
    for number in range(rounds):
        load = {"t": 2.0 * number + 1, "quiet": False, "rss_kib": 35000, "connections": 6, "answers": 100 * number}
        calm = {"fds": 8, "sockets": 2, "tasks": 1, "generators": 3, "blocks": 128000}
        samples += [load, {**load, **calm, "t": 2.0 * number + 2, "quiet": True, "connections": 0}]
        for key, each in (growth or {}).items():
            samples[-1][key] += each * number
    tally = {"calls": 30 * rounds, "answers": 100 * rounds}
    return {"loop": "trio", "seconds": 2 * rounds, "tally": tally, "complaints": [], "error": None, "samples": samples}


def test_a_flat_run_is_clean() -> None:
    assert leaks(told()) == []
    assert summary(told())["blocks_per_answer"] == 0


@pytest.mark.parametrize(
    ("growth", "seen"),
    [
        ({"fds": 1}, "fds: 9 before, 15 after"),
        ({"sockets": 1}, "sockets: "),
        ({"tasks": 1}, "tasks: "),
        ({"generators": 2}, "generators: "),
        ({"blocks": 1000}, "blocks: +10.00 per answer"),
        ({"rss_kib": 2000}, "rss_kib: +20.00 per answer"),
        ({"connections": 1}, "connections: 1 open when no call was left"),
    ],
)
def test_what_grows_with_the_answers_is_a_leak(growth: dict[str, int], seen: str) -> None:
    (found,) = leaks(told(growth))
    assert found.startswith(seen)


def test_a_cache_that_fills_once_is_none() -> None:
    run = told()
    for sample in run["samples"][4:]:
        sample["rss_kib"] += 20000
        if sample["quiet"]:
            sample["blocks"] += 20000
    assert leaks(run) == []


def test_a_heap_that_grows_to_what_many_calls_hold_is_none_until_it_grows_on() -> None:
    short, long = told({"rss_kib": 2000}), told({"rss_kib": 5000})
    for sample in (*short["samples"], *long["samples"]):
        sample["connections"] *= 20  # 120 calls at once
    assert leaks(short) == []
    assert leaks(long) == ["rss_kib: +50.00 per answer, +30000 in all"]


def test_warnings_errors_and_runs_that_show_nothing_are_no_success() -> None:
    assert leaks({**told(), "complaints": ["unclosed socket"], "error": "it broke"}) == [
        "reported: unclosed socket",
        "broke off: it broke",
    ]
    assert leaks(told(rounds=2)) == ["only 2 rounds: too short to see anything"]
    assert slope([], "blocks") == 0


def test_the_drawing_is_xml_with_a_panel_for_each_loop(tmp_path: Path) -> None:
    path = tmp_path / "soak.svg"
    draw([told(), {**told(), "loop": "asyncio"}, {**told(), "samples": []}], path)
    texts = [element.text for element in ET.parse(path).iter() if element.text and element.text.strip()]
    assert {"trio", "asyncio", "trio: nothing was seen", "0 left"} <= set(texts)
