"""What one response of a model brought; filled while it arrives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from micdrop_agent._core.tool_run import ToolsOutcome

if TYPE_CHECKING:
    from micdrop_agent.model.protocol import FinishReason, Usage

__all__ = ["StepResult"]


@attrs.define(eq=False)
class StepResult:
    """What one response brought."""

    said: bool = False
    refused: bool = False
    finish: FinishReason | None = None
    doubtful: bool = False
    """The finish came so early that more may follow."""
    outcome: ToolsOutcome = attrs.field(factory=ToolsOutcome)
    called: frozenset[str] = frozenset()
    muted: bool = False
    usage: Usage | None = None

    @property
    def whole(self) -> bool:
        """Whether the model has said that it is done: what a server may still send is not text."""
        return self.finish is not None and not self.doubtful

    def facts(self, error: str | None) -> dict[str, Any]:
        """Details for the trace: why it ended, and its tokens, as far as they are known."""
        known: dict[str, Any] = {"finish": self.finish, "error": error}
        if self.usage is not None:
            known |= attrs.asdict(self.usage)
        return {name: value for name, value in known.items() if value is not None}
