"""What a person sees while nothing is said yet: a spinner, and each retry when it begins."""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING, Final

import anyio

if TYPE_CHECKING:
    from micdrop_agent._core.answer import Answer
    from micdrop_agent.cli._screen import Screen
    from micdrop_agent.result import TraceEvent

__all__ = ["show_progress"]

EVERY: Final = 0.1
"""Seconds between two looks."""

PATIENCE: Final = 3
"""Looks before the spinner starts: most answers begin sooner, and nothing flickers."""

FRAMES: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


async def show_progress(answer: Answer, screen: Screen) -> None:
    """Tell of ``answer`` until the task is cancelled."""
    frames = cycle(FRAMES)
    looks = seen = 0
    while True:
        await anyio.sleep(EVERY)
        looks += 1
        trace = answer.trace
        for event in trace[seen:]:
            if event.kind == "retry":
                screen.note(_retry(event))
        seen = len(trace)
        if not answer.text and looks >= PATIENCE:
            screen.spin(next(frames))


def _retry(event: TraceEvent) -> str:
    facts = event.detail
    return f"retry {facts['number']} of {facts['of']} in {facts['wait']:.1f} s: {facts['error']}"
