"""The producer's side of an answer: the only way in which an answer may change anything.

    generate_answer(turn) ──▶ Turn ──claim──▶ Ledger, Conversation, events, consumer

A turn is fenced when its answer is cancelled or superseded, or when its attempt lost. Nothing
done through a fenced turn has any effect, whatever task it runs in and whether or not the
cancellation has been delivered yet (invariant 2). The first effect of an attempt claims the
answer for it and fences its rivals in the same synchronous step (invariant 9).

Source: Micdrop page "Agent (LLM)", ``generateAnswer``; the fence is its ``answerCount``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import anyio

from micdrop_agent._core.ledger import Ledger
from micdrop_agent._core.record import Facts
from micdrop_agent._core.tool_run import run_calls
from micdrop_agent.conversation import Headed
from micdrop_agent.events import (
    EVENT_TYPES,
    AnswerSkipped,
    UserMessageCancelled,
)
from micdrop_agent.messages import Message, ToolCall, ToolResult
from micdrop_agent.options import check_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from micdrop_agent._core.agent import Agent
    from micdrop_agent._core.answer import Answer
    from micdrop_agent._core.tool_run import ToolsOutcome
    from micdrop_agent.conversation import Conversation
    from micdrop_agent.events import (
        Event,
    )
    from micdrop_agent.messages import Item
    from micdrop_agent.model.protocol import FinishReason, Usage
    from micdrop_agent.text import TextFilter
    from micdrop_agent.text.joining import LeadInFilter, SeamFilter
    from micdrop_agent.tools import Tool

__all__ = ["Facts", "Race", "Turn"]


class Race:
    """The attempts of one round: at most one of them becomes the winner.

    Args:
        on_win: Called with the winner in the step in which it claims.
    """

    def __init__(self, on_win: Callable[[Turn], None] | None = None) -> None:
        self.turns: list[Turn] = []
        self.winner: Turn | None = None
        self._on_win = on_win

    def won_by(self, turn: Turn) -> None:
        """Fence every rival of ``turn`` and lift its deadline. Synchronous: no rival gets in."""
        self.winner = turn
        turn._scope.deadline = math.inf
        for rival in self.turns:
            if rival is not turn:
                rival.fence()
                rival._scope.cancel()

    def tell(self) -> None:
        """Tell of the winner, once the races around this one are decided too."""
        if self._on_win is not None and self.winner is not None:
            self._on_win(self.winner)


class Turn:
    """What ``generate_answer`` works with.

    Attributes:
        agent: The agent that the application holds (a ``FallbackAgent``, not its child).
        ran_tool: Whether a tool was started for the response that is being received.
        responder: The agent whose ``generate_answer`` this turn was given to.
        continue_from: Text of this answer that another agent has already spoken; the model is
            to go on from there. ``None`` in a normal turn.
        patient: Whether waiting before a retry is worth it; ``False`` when another agent
            could answer at once.
        label: Name of the responder in the trace.
    """

    __slots__ = (
        "__dict__",  # empty: only a probe, which watches what a turn does, puts something there
        "_answer",
        "_aside",
        "_children",
        "_claimed",
        "_fenced",
        "_filters",
        "_on_end",
        "_parent",
        "_race",
        "_scope",
        "agent",
        "continue_from",
        "facts",
        "label",
        "ledger",
        "patient",
        "prompt",
        "ran_tool",
        "responder",
    )

    def __init__(
        self,
        answer: Answer,
        responder: Agent,
        *,
        prompt: Message | None,
        scope: anyio.CancelScope,
        parent: Turn | None = None,
        race: Race | None = None,
    ) -> None:
        self._answer = answer
        self._parent = parent
        self._scope = scope
        self._race = race
        self._children: list[Turn] = []
        self._fenced = False
        self._claimed = False
        self._aside = False
        self._filters: tuple[TextFilter, ...] = ()
        self.responder = responder
        self.prompt = prompt
        self.continue_from: str | None = None
        self.ran_tool = False
        self._on_end: Callable[[Exception | None], None]  # of an attempt: its supervisor's
        self.patient = True
        self.label: str = responder._label()
        if parent is None:
            self.agent: Agent = responder
            self.facts: Facts = Facts(answer._home.clock)
            self.ledger: Ledger = Ledger(responder.conversation, record_interrupted=responder.record_interrupted)
        else:
            self.agent = parent.agent
            self.facts = parent.facts
            self.ledger = parent.ledger
            parent._children.append(self)
            if parent._fenced:
                self.fence()
        if race is not None:
            race.turns.append(self)

    # -- fence and claim

    @property
    def fenced(self) -> bool:
        """Whether this turn has lost its effect: cancelled, superseded, or out of the race."""
        return self._fenced

    @property
    def claimed(self) -> bool:
        """Whether this turn has had a visible effect, a filler of its hook aside."""
        return self._claimed

    def fence(self) -> None:
        """Take all effect from this turn and from the attempts within it."""
        self._fenced = True
        for child in self._children:
            child.fence()

    def claim(self) -> bool:
        """Make this turn the one that answers; ``False`` if it may not have any effect.

        Refused when a turn from here to the root is fenced, or its scope was cancelled, even if
        that has not been delivered yet (a deadline that fired in this very step).
        """
        if self._answer._status != "running":
            return False  # its author kept the turn: an answer that has ended stays as it is
        if self._claimed:
            return not self._fenced
        if not self._alive():
            return False
        turn: Turn | None = self
        won: list[Race] = []
        while turn is not None and not turn._claimed:
            turn._claimed = True
            if turn._race is not None:
                turn._race.won_by(turn)
                won.append(turn._race)
            turn = turn._parent
        # From the outside in, and only now: this runs listeners, which may cancel the answer.
        for race in reversed(won):
            race.tell()
        return not self._fenced

    def _alive(self) -> bool:
        """Whether no turn from here to the root was fenced or its scope cancelled."""
        turn: Turn | None = self
        while turn is not None:
            if turn._fenced or turn._scope.cancel_called:
                return False
            turn = turn._parent
        return True

    def child(self, responder: Agent, race: Race, scope: anyio.CancelScope) -> Turn:
        """An attempt of ``responder`` at this turn, as a rival of the others in ``race``."""
        return Turn(self._answer, responder, prompt=self.prompt, scope=scope, parent=self, race=race)

    # -- what an author uses

    @property
    def conversation(self) -> Conversation:
        """The conversation, to read, under the responder's own system prompt. It changes through this turn and ``agent``."""
        if self._parent is None or self._claimed:
            return self.ledger.conversation
        return Headed(self.ledger.conversation, self.responder._system_message())

    async def write(self, text: str) -> None:
        """Hand ``text`` to the consumer as the next chunk and let it run.

        The text is stored as an assistant message when ``generate_answer`` returns, when
        ``commit()`` is called, or, as far as it was received, when the answer is cut.

        Raises:
            RuntimeError: The stream was ended with ``end()``.
        """
        self.write_nowait(text)
        await self.drain()

    def write_nowait(self, text: str) -> None:
        """As ``write``, without a checkpoint: for several chunks that arrived together."""
        if type(text) is not str:
            check_text("a chunk", text)
        if self._fenced or not text or not (self._fills() if self._aside else self.claim()):
            return
        if self.facts.ended:
            raise RuntimeError("this answer's stream was ended with turn.end(); nothing follows it")
        if not self._aside:
            for text_filter in self._filters:
                text = text_filter.feed(text)
        self._say(text)

    async def drain(self) -> None:
        """Let the consumer run; with a ``buffer_size``, wait until it has kept up."""
        size = self.agent.buffer_size
        if size is None or self._fenced:
            await anyio.lowlevel.checkpoint()
        else:
            await anyio.lowlevel.checkpoint()
            await self._answer._wait_for_room(size)

    def commit(self, metadata: Mapping[str, Any] | None = None) -> None:
        """Store the text written since the last commit as one assistant message.

        A blank text is not stored. An extracted value is taken out of it first.
        """
        if self._fenced or not self._claimed:  # nothing was written, or nothing counts
            return
        self._release()
        extracted = self.responder._extracted(self)
        if extracted or metadata:
            metadata = {**(metadata or {}), **extracted}
        self._emit(self.ledger.commit(metadata))
        self._filters = self.responder._text_filters()

    def add(self, item: Item) -> None:
        """Store ``item``. An assistant message settles the text written since the last one.

        A result is placed right behind its call. A call without a result gets an error as its
        result when the answer ends.
        """
        if not isinstance(item, Message | ToolCall | ToolResult):
            raise TypeError(f"add() takes a message, a tool call or a tool result, not {item!r}")
        if not self.claim():
            return
        if isinstance(item, Message) and item.role == "assistant":
            self._release()
            self._filters = self.responder._text_filters()
            if self.continue_from is None:
                self._emit(self.ledger.settle(item))
            else:  # the author knows only its own part of the sentence
                self._emit(self.ledger.commit(item.metadata))
        elif isinstance(item, ToolCall):
            self._part()
            self._emit(self.ledger.open_call(item, self)[1])
        else:
            self._emit(self.ledger.add(item))

    def emit(self, event: Event) -> None:
        """Tell the agent's listeners of ``event``."""
        if type(event) not in EVENT_TYPES:
            raise TypeError(f"not an event: {event!r}; make one of the classes in micdrop_agent.events")
        if self.claim():
            self._answer._agent._hub.emit(event)

    async def run_tools(self, calls: Sequence[ToolCall]) -> ToolsOutcome:
        """Run ``calls`` and store each with its result; a tool's error becomes its result."""
        return await run_calls(self, calls, parallel=self.responder.parallel_tools)

    @property
    def tools(self) -> Sequence[Tool]:
        """The tools of this turn: the responder's own, then those shared by outer agents."""
        return self.responder._offered_tools()

    def skip_answer(self) -> None:
        """Say nothing this time; the caller has the turn again. Emits ``AnswerSkipped``."""
        if self.claim():
            self.facts.skipped = True
            self._answer._agent._hub.emit(AnswerSkipped())

    def end_call(self) -> None:
        """Ask for the end of the call; told once, after the last chunk was handed over."""
        if self.claim():
            self.facts.ends_call = True

    def cancel_last_user_message(self) -> None:
        """Take the last user message out of the conversation. Emits ``UserMessageCancelled``."""
        if self.claim():
            self._answer._agent.cancel_last_user_message()

    def cancel_prompt(self) -> None:
        """Take out the user message that this answer was started for, and no other."""
        if not self.claim():
            return
        index = None if self.prompt is None else self.ledger.conversation.index_of(self.prompt)
        if index is not None:
            self.ledger.conversation._delete(index)
        self.facts.skipped = True
        gone = None if index is None else self.prompt
        self._answer._agent._hub.emit(UserMessageCancelled(gone, index))

    def end(self) -> None:
        """End the consumer's stream now; generation may go on, but writing is an error."""
        if self.claim():
            self.facts.ended = True
            self._answer._pipe.end()

    # -- for the library's own agents

    def _fills(self) -> bool:
        """Whether the hook may say something now; it is no output, so it claims nothing.

        Not behind the filler of another child, and not within the sentence that is continued.
        """
        filler = self.facts.filler
        if self.continue_from is not None or (filler is not None and filler is not self):
            return False
        if self._answer._status != "running" or not self._alive():
            return False
        self.facts.filler = self
        return True

    def _say(self, text: str) -> None:
        if not text:
            return
        if self.facts.first_chunk_at is None:
            now = self.facts.first_chunk_at = self.facts.clock()
            self.facts.note("first_chunk", now, agent=self.label)
        self.ledger.say(text, aside=self._aside)
        self._answer._push(text)

    def _release(self) -> None:
        """Hand over what the filters still hold back, at the end of a stretch of text."""
        rest = ""
        for text_filter in self._filters:
            rest = (text_filter.feed(rest) if rest else "") + text_filter.finish()
        if rest and self.claim() and not self.facts.ended:
            self._say(rest)

    def _flush(self) -> None:
        """Stop waiting for the seam of a continuation: silence would be heard."""
        for seam in self._seams():
            if self.claim() and not self.facts.ended:
                self._say(seam.flush())

    def _part(self) -> None:
        """A call comes: what another child has said stands before it, and is not continued behind it."""
        if self.continue_from is not None:
            self.commit()
            self.continue_from = None

    def _holds_seam(self) -> bool:
        """Whether a seam is still looked for in what this turn writes itself."""
        return any(seam.is_open for seam in self._seams()) and not self._fenced and not self._children

    def _seams(self) -> list[SeamFilter | LeadInFilter]:
        if not self._filters:
            return []
        from micdrop_agent.text.joining import LeadInFilter, SeamFilter

        return [text_filter for text_filter in self._filters if isinstance(text_filter, SeamFilter | LeadInFilter)]

    def _speaker(self) -> Turn:
        """The turn that wrote what was written last: this one, or the winner within it."""
        turn = self
        while winners := [child for child in turn._children if child._claimed]:
            turn = winners[-1]
        return turn

    def _in_value(self) -> bool:
        """Whether the text stopped inside a value that is being extracted."""
        return any(getattr(text_filter, "in_value", False) for text_filter in self._filters)

    def _close_calls(self) -> None:
        """Give each open call of this turn, which was lost, its result."""
        self._emit(self.ledger.close_calls(owner=self))
        for child in self._children:
            child._close_calls()

    def succeeded(self) -> None:
        """The answer is whole: end it now; what still cleans up is awaited by its task only."""
        self.commit()
        self._end_with(None)

    def failed(self, error: Exception) -> None:
        """The answer has failed: end it now, as above; what still cleans up keeps nobody waiting."""
        self._end_with(error)

    def _end_with(self, error: Exception | None) -> None:
        if self._parent is None:
            self._answer._finish(error)
        else:
            self._on_end(error)

    def _emit(self, events: list[Event]) -> None:
        if events:
            self._answer._agent._hub.emit(*events)

    def _add_finish(self, reason: FinishReason) -> None:
        if not self._fenced:
            self.facts.finish_reason = reason

    def _add_usage(self, usage: Usage) -> None:
        if not self._fenced:
            known = self.facts.usage
            self.facts.usage = usage if known is None else known + usage
