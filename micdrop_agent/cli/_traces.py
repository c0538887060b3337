"""``--trace``: the web page that shows what happened inside each answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio.to_thread

from micdrop_agent.cli._files import write_whole
from micdrop_agent.events import AnswerFinished
from micdrop_agent.messages import Message

if TYPE_CHECKING:
    from pathlib import Path

    from micdrop_agent._core.agent import Agent
    from micdrop_agent.result import AnswerResult

__all__ = ["Traces"]


class Traces:
    """Collects the traces of the answers of ``agent`` and writes it to ``file``."""

    def __init__(self, agent: Agent, file: Path) -> None:
        self._agent = agent
        self._file = file
        self._results: list[AnswerResult] = []
        self._prompts: list[str | None] = []
        self._saved = -1
        agent.on(AnswerFinished, self._finished)

    @property
    def written(self) -> str | None:
        """What the user reads at the end; ``None`` if there is nothing to look at."""
        if self._saved <= 0:
            return None
        answers = "1 answer" if self._saved == 1 else f"{self._saved} answers"
        return f"the trace of {answers} is in {self._file}"

    async def save(self) -> None:
        """Write the page, if anything is new; the first time also without any answer.

        Raises:
            MicdropError: It cannot be written.
        """
        count = len(self._results)
        if count != self._saved:
            await anyio.to_thread.run_sync(self._write, self._results[:count], self._prompts[:count])
            self._saved = count

    def _write(self, results: list[AnswerResult], prompts: list[str | None]) -> None:
        from micdrop_agent.tracing.page import render_trace

        write_whole(render_trace(results, prompts=prompts), self._file, "the trace")

    def _finished(self, event: AnswerFinished) -> None:
        said = (item for item in reversed(self._agent.conversation) if isinstance(item, Message))
        self._results.append(event.result)
        self._prompts.append(next((item.content for item in said if item.role == "user"), None))
