"""The figures of a soak, and the verdict: what was there after the first rounds, and what after the last."""

from __future__ import annotations

import statistics
from typing import Any, Final, TypeAlias

Sample: TypeAlias = dict[str, Any]

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

KIB_AT_ONCE: Final = 160
"""The same for each call that runs at once: 64 KiB read, as much decoded, and the text of an answer.

The heap grows to the most that all of them ever held together. A short run against hostile servers is not there when its
comparison begins: 12 MiB were seen in 8,000 answers of 120 calls at once, and 5 in the next 26,000.
"""


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
    heap = max(LEAST_KIB, KIB_AT_ONCE * max(sample["connections"] for sample in told["samples"]))
    for key, each, least in (("blocks", BLOCKS, LEAST_BLOCKS), ("rss_kib", KIB, heap)):
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
