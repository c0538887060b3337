"""What the text filters of a response cost per clean chunk, and whether they delay one.

    python benchmarks/text_filters.py

The chunks are those of an ordinary answer: one word each, nothing that looks like a mark. ``ns`` is the
CPU time per chunk, ``held`` the number of chunks that did not come back at once. One JSON line.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Final

from micdrop_agent.options import ExtractJson
from micdrop_agent.text import ExtractFilter, NarrationFilter, ThinkFilter

if TYPE_CHECKING:
    from collections.abc import Callable

    from micdrop_agent.text import TextFilter

TEXT: Final = (
    "We open at nine, and the kitchen closes at ten: shall I book you a table for two? On Fridays it is later."
)
WORDS: Final = TEXT.split(" ")
CHUNKS: Final = [f"{word} " for word in WORDS] + [f" {word}" for word in WORDS]

FILTERS: Final[dict[str, Callable[[], TextFilter]]] = {
    "think": ThinkFilter,
    "narration": lambda: NarrationFilter({"get_weather": None, "end_call": None, "find_table": None}),
    "extract": lambda: ExtractFilter(ExtractJson()),
}


def cost(make: Callable[[], TextFilter], rounds: int = 2_000) -> dict[str, float]:
    """CPU nanoseconds per chunk, and chunks that were held back, in ``rounds`` answers."""
    held = 0
    best = float("inf")
    for _ in range(5):
        filters = [make() for _ in range(rounds)]
        began = time.process_time_ns()
        for each in filters:
            for chunk in CHUNKS:
                each.feed(chunk)
        best = min(best, (time.process_time_ns() - began) / (rounds * len(CHUNKS)))
    each = make()
    for chunk in CHUNKS:
        held += not each.feed(chunk)
    return {"ns": round(best), "held": held}


if __name__ == "__main__":
    print(json.dumps({name: cost(make) for name, make in FILTERS.items()}))
