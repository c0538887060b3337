"""Words while a tool runs: said once in an answer, only if the tool takes long, and never stored.

The caller hears "One moment." after ``filler_after`` seconds of silence, and not at all when the tool is
quicker, the answer was cut, or somebody is already speaking.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from micdrop_agent._core.tool_run import ToolRun
    from micdrop_agent.tools import Tool

__all__ = ["speak_filler"]


async def speak_filler(run: ToolRun, tool: Tool) -> None:
    """Wait, and say the filler of ``tool`` if ``run`` is still going on."""
    with anyio.CancelScope() as run.filler:
        await anyio.sleep(tool.filler_after)
    turn = run.turn
    # Timers of one moment ring in any order on Trio: the tool that was called first has the word (invariant 15).
    now = anyio.current_time()
    first = next((each for each in turn.root.tools_at_work if each.turn is turn and each.filler_due <= now), run)
    run, tool = first, first.tool or tool
    if run.over or turn.fenced or turn.answer.paused or turn.facts.filled or turn.ledger.speaking:
        return
    text = _chosen(run, tool)
    if text:
        turn.facts.filled = True
        turn.root.last_filler = text
        turn.say(text)


def _chosen(run: ToolRun, tool: Tool) -> str | None:
    """The next text: not the one that was said last."""
    filler, last = tool.filler, run.turn.root.last_filler
    if callable(filler):
        try:
            made: object = filler()
        except Exception:  # foreign code: the tool goes on without words
            run.turn.root.log.exception("the filler of tool %s raised", tool.name)
            return None
        return made if isinstance(made, str) else None
    if filler is None or isinstance(filler, str):
        return filler
    texts = list(filler)
    start = texts.index(last) + 1 if last in texts else 0
    return next((text for text in (*texts[start:], *texts[:start]) if text != last), texts[0])
