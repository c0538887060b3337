"""What must hold for every answer, whatever happened to it: checks of one finished run.

    Probe.watch(agent) ──▶ Trace ──▶ check_invariants(trace)

Each check has the number that the invariant has in docs/design.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from micdrop_agent.events import (
    ConversationSummarized,
    MessageAdded,
    MessageCorrected,
    RoleChanged,
    UserMessageCancelled,
)
from micdrop_agent.messages import Message, ToolResult, is_blank
from micdrop_agent.pairs import first_open_call

if TYPE_CHECKING:
    from micdrop_agent.testing._probe import AnswerTrace, Trace

STATUSES = frozenset({"completed", "skipped", "cancelled", "failed"})


class InvariantError(AssertionError):
    """An invariant was broken.

    Attributes:
        number: Which one, as numbered in docs/design.md.
        step: The scheduling step of the injection; ``None`` in an undisturbed run.
    """

    def __init__(self, number: int, what: str) -> None:
        super().__init__(f"invariant {number}: {what}")
        self.number = number
        self.step: int | None = None
        self.inject: str | None = None
        self.backend: str | None = None

    def at(self, backend: str, inject: str | None, step: int) -> InvariantError:
        """The same error, with where it happened."""
        self.backend, self.inject, self.step = backend, inject, None if inject is None else step
        where = "undisturbed" if inject is None else f"{inject} at step {step}"
        self.args: tuple[Any, ...] = (f"{self.args[0]} ({where} on {backend})",)
        return self


def check_invariants(trace: Trace) -> None:
    """Check a finished run.

    Raises:
        InvariantError: One does not hold; the message names it.
    """
    for number, what in trace.violations:
        raise InvariantError(number, what)
    if trace.listened:
        for answer in trace.answers:
            _check_end(answer)
            _check_text(answer, trace)
        _check_replay(trace)
    else:
        _check_all_text(trace)
    _check_pairs(trace)
    if trace.tasks_left:
        raise InvariantError(11, f"{trace.tasks_left} tasks are left after the agent was closed")
    error: object = trace.error
    if isinstance(error, BaseExceptionGroup):
        raise InvariantError(14, f"a group of errors left the agent: {trace.error!r}")


def _check_end(trace: AnswerTrace) -> None:
    status = trace.answer.status
    if status not in STATUSES:
        raise InvariantError(3, f"answer {trace.number} never ended: {status}")
    if trace.finished != [status]:
        raise InvariantError(3, f"answer {trace.number} is {status}, and its end was announced as {trace.finished}")
    if trace.failures != (status == "failed"):
        number = 8 if status == "cancelled" else 3
        raise InvariantError(number, f"answer {trace.number} is {status} and emitted {trace.failures} failures")


def _check_text(trace: AnswerTrace, whole: Trace) -> None:
    if trace.one_of_several:
        return
    if trace.taken_apart:
        whole_chunks = "".join(trace.written).startswith("".join(trace.received))
    else:
        whole_chunks = trace.received == trace.written[: len(trace.received)]
    if not whole_chunks:
        raise InvariantError(4, f"received {trace.received}, written {trace.written}")
    texts = [item for item in trace.stored if isinstance(item, Message) and item.role == "assistant"]
    if any(is_blank(item.content) for item in texts):
        raise InvariantError(5, f"answer {trace.number} stored a blank message")
    stored = "".join(item.content for item in texts)
    wanted = _wanted(trace, whole, stored=bool(stored))
    if _letters(stored) != _letters(wanted):
        raise InvariantError(5, f"answer {trace.number} stored {stored!r}; its consumer received {wanted!r}")
    # One stretch of text, so it is the one that was cut.
    cut = trace.answer.status == "cancelled" and len(trace.answer.ledger.segments) == 1 and len(texts) == 1
    written = "".join(trace.written)
    if cut and _letters(stored) != _letters(written) and not (texts[0].metadata or {}).get("interrupted"):
        raise InvariantError(
            5, f"answer {trace.number} stored {stored!r} of {written!r} and did not mark it as interrupted"
        )


def _check_all_text(trace: Trace) -> None:
    """Of a run without events: the conversation holds what the consumers of all answers received."""
    for answer in trace.answers:
        if answer.answer.status not in STATUSES:
            raise InvariantError(3, f"answer {answer.number} never ended: {answer.answer.status}")
    happened = [event for answer in trace.answers for event in answer.answer.result.trace]
    if any(event.kind == "switch" and event.detail["restarted"] for event in happened):
        return  # how much text was taken back, only the events tell
    added = [item for item in trace.final if not any(item is known for known in trace.initial)]
    texts = [item.content for item in added if isinstance(item, Message) and item.role == "assistant"]
    wanted = [_wanted(answer, trace, stored=True) for answer in trace.answers]
    if _letters("".join(texts)) != _letters("".join(wanted)):
        raise InvariantError(5, f"the conversation has {texts!r}; the consumers received {wanted!r}")


def _wanted(trace: AnswerTrace, whole: Trace, *, stored: bool) -> str:
    """What should be stored of an answer."""
    said = "".join(trace.received)
    # An answer that ended by itself and may still be read keeps all of its text.
    wanted = said if trace.silent else "".join(trace.written)
    if trace.cut_at is not None:
        wanted = said[: trace.cut_at]
    if trace.taken_back and not stored:
        # What was taken back need not be stored; what was said in its place counts.
        wanted = wanted[trace.taken_back :]
    elif trace.taken_back:
        wanted = wanted[trace.taken_back :] or wanted
    for text in whole.tool_texts:
        wanted = wanted.replace(text, "")
    return wanted.removeprefix(whole.hook_text) if len(wanted) >= len(whole.hook_text) else ""


def _letters(text: str) -> str:
    return "".join(text.split())


def _check_pairs(trace: Trace) -> None:
    left = first_open_call(trace.final)
    if left is not None:
        raise InvariantError(6, f"call {left.tool_call_id} of {left.tool_name} has no result")
    results = [item.tool_call_id for item in trace.final if isinstance(item, ToolResult)]
    if len(results) != len(set(results)):
        raise InvariantError(6, f"a call has two results: {results}")


def _check_replay(trace: Trace) -> None:
    """The events, replayed in order, rebuild the conversation."""
    items = list(trace.initial)
    for event in trace.events:
        if isinstance(event, MessageAdded):
            items.insert(event.index, event.message)
        elif isinstance(event, MessageCorrected):
            items[event.index : event.index + 1] = [] if event.new is None else [event.new]
        elif isinstance(event, ConversationSummarized):
            items[event.index : event.index + len(event.old)] = [event.summary]
        elif isinstance(event, RoleChanged) and items and items[0] == event.old:
            items[0] = event.new
        elif isinstance(event, UserMessageCancelled) and event.index is not None:
            del items[event.index]
    known = trace.final if trace.at_close is None else trace.at_close
    if items != known:
        raise InvariantError(13, f"the events give {items}, the conversation is {known}")
