"""The producer's side of an answer: the only way in which an answer may change anything.

    generate_answer(turn) ──▶ Turn ──claim──▶ Ledger, Conversation, events, consumer

A turn is fenced when its answer is cancelled or superseded, or when its attempt lost. Nothing done through a fenced
turn has any effect, whatever task it runs in and whether or not the cancellation has been delivered yet (invariant 2).
The first effect of an attempt claims the answer for it and fences its rivals in the same synchronous step (invariant 9).

Source: Micdrop page "Agent (LLM)", ``generateAnswer``; the fence is its ``answerCount``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio

from micdrop_agent._core.filters import seams_in
from micdrop_agent._core.history import PromptOverlay, take_last_user_message
from micdrop_agent._core.ledger import Ledger
from micdrop_agent._core.record import Facts
from micdrop_agent._core.tool_run import run_calls, watch_tools
from micdrop_agent._interrupts import defer_interrupts
from micdrop_agent.events import EVENT_TYPES, AnswerSkipped, UserMessageCancelled
from micdrop_agent.messages import Message, ToolCall, ToolResult
from micdrop_agent.options import check_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from micdrop_agent._core.agent import Agent
    from micdrop_agent._core.answer import Answer
    from micdrop_agent._core.core import Core
    from micdrop_agent._core.history import History
    from micdrop_agent._core.race import Race
    from micdrop_agent._core.tool_run import ToolsOutcome
    from micdrop_agent.conversation import Conversation
    from micdrop_agent.events import Event
    from micdrop_agent.messages import Item
    from micdrop_agent.model.protocol import FinishReason, Usage
    from micdrop_agent.options import TurnContext
    from micdrop_agent.text import TextFilter
    from micdrop_agent.tools import Tool

__all__ = ["Turn"]


@defer_interrupts
class Turn:
    """What ``generate_answer`` works with.

    Attributes:
        agent: The agent that the application holds (a ``FallbackAgent``, not its child).
        ran_tool: Whether a tool was started for the response that is being received.
        core: The inside of the agent whose ``generate_answer`` this turn was given to.
        continue_from: Text of this answer that another agent has already spoken; the model is
            to go on from there. ``None`` in a normal turn.
        patient: Whether waiting before a retry is worth it; ``False`` when another agent
            could answer at once.
        label: Name of the responder in the trace.
        context: What hooks have the model know for this answer.
        fenced: Whether this turn has lost its effect: cancelled, superseded, or out of the race.
        claimed: Whether this turn has had a visible effect, a filler of its hook aside.
        aside: Whether what is written now is said by the hook.
    """

    __slots__ = (
        "__dict__",  # empty: only a probe, which watches what a turn does, puts something there
        "agent",
        "answer",
        "aside",
        "children",
        "claimed",
        "context",
        "continue_from",
        "core",
        "facts",
        "fenced",
        "filters",
        "label",
        "ledger",
        "on_end",
        "parent",
        "patient",
        "prompt",
        "race",
        "ran_tool",
        "root",
        "scope",
    )

    def __init__(
        self,
        answer: Answer,
        core: Core,
        *,
        prompt: Message | None,
        scope: anyio.CancelScope,
        parent: Turn | None = None,
        race: Race[Turn] | None = None,
        conversation: History | None = None,
    ) -> None:
        self.answer = answer
        self.parent = parent
        self.scope = scope
        self.race = race
        self.children: list[Turn] = []
        self.fenced = False
        self.claimed = False
        self.aside = False
        self.filters: tuple[TextFilter, ...] = ()
        self.core = core
        self.prompt = prompt
        self.continue_from: str | None = None
        self.ran_tool = False
        self.on_end: Callable[[Exception | None], None]  # of an attempt: its supervisor's
        self.patient = True
        self.label: str = core.label()
        if parent is None:
            self.root: Core = core
            self.context: tuple[TurnContext, ...] = ()
            self.agent: Agent = core.agent
            self.facts: Facts = Facts(answer.home.clock)
            self.ledger: Ledger = Ledger(
                core.conversation if conversation is None else conversation,
                record_interrupted=core.options.record_interrupted,
            )
        else:
            self.root = parent.root
            self.context = parent.context
            self.agent = parent.agent
            self.facts = parent.facts
            self.ledger = parent.ledger
            parent.children.append(self)
            if parent.fenced:
                self.fence()
        if race is not None:
            race.rivals.append(self)

    # -- fence and claim

    def fence(self) -> None:
        """Take all effect from this turn and from the attempts within it."""
        self.fenced = True
        for child in self.children:
            child.fence()
        if self.root.tools_at_work:
            watch_tools(self)

    def claim(self) -> bool:
        """Make this turn the one that answers; ``False`` if it may not have any effect.

        Refused when a turn from here to the root is fenced, or its scope was cancelled, even if
        that has not been delivered yet (a deadline that fired in this very step).
        """
        if self.answer.ended:
            return False  # its author kept the turn: an answer that has ended stays as it is
        if self.claimed:
            return not self.fenced
        if not self._alive():
            return False
        turn: Turn | None = self
        won: list[Race[Turn]] = []
        while turn is not None and not turn.claimed:
            turn.claimed = True
            if turn.race is not None:
                turn.race.won_by(turn)
                won.append(turn.race)
            turn = turn.parent
        # From the outside in, and only now: this runs listeners, which may cancel the answer.
        for race in reversed(won):
            race.tell()
        return not self.fenced

    def _alive(self) -> bool:
        """Whether no turn from here to the root was fenced or its scope cancelled."""
        turn: Turn | None = self
        while turn is not None:
            if turn.fenced or turn.scope.cancel_called:
                return False
            turn = turn.parent
        return True

    def child(self, core: Core, race: Race[Turn], scope: anyio.CancelScope) -> Turn:
        """An attempt of another agent at this turn, as a rival of the others in ``race``."""
        return Turn(self.answer, core, prompt=self.prompt, scope=scope, parent=self, race=race)

    def stop(self) -> None:
        """Cancel the task of this attempt, which has no effect any more."""
        self.scope.cancel()

    # -- what an author uses

    @property
    def responder(self) -> Agent:
        """The agent whose ``generate_answer`` this turn was given to."""
        return self.core.agent

    @property
    def conversation(self) -> Conversation:
        """The conversation, to read, under the responder's own system prompt. It changes through this turn and ``agent``."""
        if self.parent is None or self.claimed:
            return self.ledger.conversation
        return PromptOverlay(self.ledger.conversation, self.core.system_message())

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
        if self.fenced or not text or not (self._fills() if self.aside else self.claim()):
            return
        if self.facts.ended:
            raise RuntimeError("this answer's stream was ended with turn.end(); nothing follows it")
        if not self.aside:
            for text_filter in self.filters:
                text = text_filter.feed(text)
        self._say(text)

    def say(self, text: str, *, store: bool = False) -> None:
        """Say ``text`` now, as the progress of a tool; it is stored only with ``store``, or within a sentence."""
        if not text or not self.claim() or self.facts.ended:
            return
        within = self.ledger.speaking  # what is stored stays what was heard
        self._say(text, aside=not (store or within))
        if store and not within:
            self.emit_all(self.ledger.commit())

    async def drain(self) -> None:
        """Let the consumer run; with a ``buffer_size``, wait until it has kept up."""
        await anyio.lowlevel.checkpoint()
        size = self.root.options.buffer_size
        if size is not None and not self.fenced:
            await self.answer.wait_for_room(size)

    def commit(self, metadata: Mapping[str, Any] | None = None) -> None:
        """Store the text written since the last commit as one assistant message.

        A blank text is not stored. An extracted value is taken out of it first.
        """
        if self.fenced or not self.claimed:  # nothing was written, or nothing counts
            return
        self._release()
        extracted = self.core.extracted(self)
        if extracted or metadata:
            metadata = {**(metadata or {}), **extracted}
        self.emit_all(self.ledger.commit(metadata))
        self.filters = self.core.text_filters()

    def add(self, item: Item) -> None:
        """Store ``item``. An assistant message settles the text written since the last one.

        A result is placed right after its call. A call without a result gets an error as its
        result when the answer ends.
        """
        if not isinstance(item, Message | ToolCall | ToolResult):
            raise TypeError(f"add() takes a message, a tool call or a tool result, not {item!r}")
        if not self.claim():
            return
        if isinstance(item, Message) and item.role == "assistant":
            self._release()
            self.filters = self.core.text_filters()
            if self.continue_from is None:
                self.emit_all(self.ledger.settle(item))
            else:  # the author knows only its own part of the sentence
                self.emit_all(self.ledger.commit(item.metadata))
        elif isinstance(item, ToolCall):
            self.part()
            self.emit_all(self.ledger.open_call(item, self)[1])
        else:
            self.emit_all(self.ledger.add(item))

    def emit(self, event: Event) -> None:
        """Tell the agent's listeners of ``event``."""
        if type(event) not in EVENT_TYPES:
            raise TypeError(f"not an event: {event!r}; make one of the classes in micdrop_agent.events")
        if self.claim():
            self.emit_all([event])

    async def run_tools(self, calls: Sequence[ToolCall]) -> ToolsOutcome:
        """Run ``calls`` and store each with its result; a tool's error becomes its result."""
        return await run_calls(self, calls, parallel=self.core.options.parallel_tools)

    @property
    def tools(self) -> Sequence[Tool]:
        """The tools of this turn: the responder's own, then those shared by outer agents."""
        return self.core.offered_tools()

    def skip_answer(self) -> None:
        """Say nothing this time; the caller has the turn again. Emits ``AnswerSkipped``."""
        if self.claim():
            self.facts.skipped = True
            self.emit_all([AnswerSkipped()])

    def end_call(self) -> None:
        """Ask for the end of the call; reported once, after the last chunk was handed over."""
        if self.claim():
            self.facts.ends_call = True

    def cancel_last_user_message(self) -> None:
        """Take the last user message out of the conversation. Emits ``UserMessageCancelled``."""
        if self.claim():
            self.emit_all([take_last_user_message(self.ledger.conversation)])

    def cancel_prompt(self) -> None:
        """Take out the user message that this answer was started for, and no other."""
        if not self.claim():
            return
        index = None if self.prompt is None else self.ledger.conversation.index_of(self.prompt)
        if index is not None:
            self.ledger.conversation.delete(index)
        self.facts.skipped = True
        gone = None if index is None else self.prompt
        self.emit_all([UserMessageCancelled(gone, index)])

    def end(self) -> None:
        """End the consumer's stream now; generation may go on, but writing is an error."""
        if self.claim():
            self.facts.ended = True
            self.answer.pipe.end()

    # -- for the library's own agents

    def answers(self, prompt: Message) -> None:
        """``prompt`` is what this turn answers, and the attempts within it."""
        self.prompt = prompt
        for child in self.children:
            child.answers(prompt)

    async def adopted(self) -> None:
        """Wait until what is done here counts; a guess waits before tools and hooks."""
        if self.guessing:
            await self.answer.adopted()

    @property
    def guessing(self) -> bool:
        """Whether this is a guess that was not adopted yet."""
        return self.answer.held is not None

    @property
    def outermost(self) -> bool:
        """Whether this is the turn of the answer itself, and no attempt within it."""
        return self.parent is None

    @property
    def cut(self) -> bool:
        """Whether the answer was cancelled."""
        return self.answer.status == "cancelled"

    @property
    def spoken(self) -> bool:
        """Whether the answer has had an effect, through whichever attempt."""
        return self.answer.turn.claimed

    @property
    def reader_waits(self) -> bool:
        """Whether the consumer has not yet come for a chunk that is there for it."""
        return self.answer.pipe.due

    def new_scope(self) -> anyio.CancelScope:
        """A cancel scope, without looking for its class again."""
        return self.answer.home.new_scope()

    def _fills(self) -> bool:
        """Whether the hook may say something now; it is not output, so it claims nothing.

        Not behind the filler of another child, and not within the sentence that is continued.
        """
        filler = self.facts.filler
        if self.continue_from is not None or (filler is not None and filler is not self):
            return False
        if self.answer.ended or not self._alive():
            return False
        self.facts.filler = self
        return True

    def _say(self, text: str, *, aside: bool | None = None) -> None:
        if not text:
            return
        if self.facts.first_chunk_at is None:
            now = self.facts.first_chunk_at = self.facts.clock()
            self.facts.note("first_chunk", now, agent=self.label)
        self.ledger.say(text, aside=self.aside if aside is None else aside)
        self.answer.push(text)

    def _release(self) -> None:
        """Hand over what the filters still hold back, at the end of a stretch of text."""
        rest = ""
        for text_filter in self.filters:
            rest = (text_filter.feed(rest) if rest else "") + text_filter.finish()
        if rest and self.claim() and not self.facts.ended:
            self._say(rest)

    def flush(self) -> None:
        """Stop waiting for the seam of a continuation: silence would be heard."""
        for seam in seams_in(self.filters):
            if self.claim() and not self.facts.ended:
                self._say(seam.flush())

    def part(self) -> None:
        """A call comes: what another child has said stands before it, and is not continued behind it."""
        if self.continue_from is not None:
            self.commit()
            self.continue_from = None

    def holds_seam(self) -> bool:
        """Whether a seam is still looked for in what this turn writes itself."""
        return any(seam.is_open for seam in seams_in(self.filters)) and not self.fenced and not self.children

    def speaker(self) -> Turn:
        """The turn that wrote what was written last: this one, or the winner within it."""
        turn = self
        while winners := [child for child in turn.children if child.claimed]:
            turn = winners[-1]
        return turn

    def close_calls(self) -> None:
        """Give each open call of this turn, which was lost, its result."""
        self.emit_all(self.ledger.close_calls(owner=self))
        for child in self.children:
            child.close_calls()

    def succeeded(self) -> None:
        """The answer is complete: end it now; only its task waits for clean-up."""
        self.commit()
        self._end_with(None)

    def failed(self, error: Exception) -> None:
        """The answer has failed: end it now, as above; what still cleans up keeps nobody waiting."""
        self._end_with(error)

    def _end_with(self, error: Exception | None) -> None:
        if self.parent is None:
            self.answer.finish(error)
        else:
            self.on_end(error)

    def emit_all(self, events: list[Event]) -> None:
        if events:
            self.answer.emit(events)

    def add_finish(self, reason: FinishReason) -> None:
        if not self.fenced:
            self.facts.finish_reason = reason

    def add_usage(self, usage: Usage) -> None:
        if not self.fenced:
            known = self.facts.usage
            self.facts.usage = usage if known is None else known + usage
