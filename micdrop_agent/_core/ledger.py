"""What one answer said and did, and how much of it the consumer received. No I/O.

    Turn ── say / add / open_call ──▶ Ledger ──▶ Conversation
    Answer ── took ─────────────────▶   │
    cancel ── interrupt ────────────▶   ▼
                                  events to emit

Text is kept in segments: a segment is what becomes one assistant message. It is open while it
is being spoken, and stored once it is complete (``commit``) or cut (``interrupt``). Every method is
synchronous, so a cancelled task can never leave the conversation half changed. Pinned in
tests/test_ledger.py and by invariants 5 and 6.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import attrs

from micdrop_agent.events import MessageAdded, MessageCorrected
from micdrop_agent.messages import Message, ToolCall, ToolResult, is_blank

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from micdrop_agent._core.history import History
    from micdrop_agent.events import Event
    from micdrop_agent.messages import Item

__all__ = ["CANCELLED_OUTPUT", "Ledger", "OpenCall"]

CANCELLED_OUTPUT: Final = '{"error":"cancelled"}'
"""Output of a call whose answer was cancelled (docs/design.md, invariant 6)."""

FOLLOWS_OUTPUT: Final = '{"status":"still running","note":"the result follows"}'
"""Output of a call whose tool goes on without its answer (``on_cancel="detach"``)."""


class Segment:
    """A stretch of text, as offsets into all that the answer wrote.

    Attributes:
        aside: Spoken, but no part of the conversation (a filler of the hook, a restarted attempt).
    """

    __slots__ = ("aside", "end", "metadata", "start", "stored", "text")

    def __init__(self, start: int, *, aside: bool) -> None:
        self.start = start
        self.end = start
        self.aside = aside
        self.stored: Message | None = None
        self.text = ""
        self.metadata: dict[str, Any] = {}

    @property
    def unheard(self) -> str:
        """What of it was cut off."""
        return self.text[self.end - self.start :]


class OpenCall:
    """A tool call that has no result yet.

    Attributes:
        on_stack: The tool's code is running at this very moment, below the caller of ``cancel()``.
        deferred: Cancelled by the tool itself: its result is real if it returns without a checkpoint.
        may_outlive: Asked when the answer is cut: whether the tool goes on, and its result follows.
    """

    __slots__ = ("deferred", "item", "may_outlive", "on_stack", "owner")

    def __init__(self, item: ToolCall, owner: object) -> None:
        self.item = item
        self.owner = owner
        self.on_stack = False
        self.deferred = False
        self.may_outlive: Callable[[], bool] | None = None

    def output_when_cut(self) -> str:
        """What its result is when its answer is cancelled."""
        return FOLLOWS_OUTPUT if self.may_outlive is not None and self.may_outlive() else CANCELLED_OUTPUT


class Ledger:
    """The record of one answer.

    Args:
        conversation: Where messages are stored.
        record_interrupted: Whether the heard part of a cut answer is stored.
    """

    __slots__ = (
        "calls",
        "chunks",
        "conversation",
        "length",
        "open",
        "received",
        "record_interrupted",
        "restarted",
        "segments",
    )

    def __init__(self, conversation: History, *, record_interrupted: bool = True) -> None:
        self.conversation = conversation
        self.record_interrupted = record_interrupted
        self.chunks: list[str] = []
        self.length: int = 0
        self.received: int = 0
        self.restarted: int = 0
        """Up to here everything was taken back."""
        self.segments: list[Segment] = []
        self.open: Segment | None = None
        self.calls: list[OpenCall] = []

    # -- text

    def say(self, text: str, *, aside: bool = False) -> None:
        """``text`` goes to the consumer as the next chunk."""
        segment = self.open
        if segment is None or segment.aside is not aside:
            segment = Segment(self.length, aside=aside)
            self.segments.append(segment)
            if self.open is None or not aside:  # a filler ends nothing: it may all have been in vain
                self.conversation.mark = len(self.conversation)
                self.open = segment
        self.chunks.append(text)
        self.length += len(text)
        segment.end = self.length

    def go_on(self, stored: Message | None, heard: str, metadata: Mapping[str, Any]) -> None:
        """Begin with the text of an answer that was cut: ``stored`` becomes complete, or is cut elsewhere."""
        segment = self.open = Segment(0, aside=False)
        self.segments.append(segment)
        segment.stored = stored
        segment.metadata = dict(metadata)
        self.chunks = [heard]
        self.length = self.received = segment.end = len(heard)
        self.conversation.mark = len(self.conversation)

    def stands_for(self, item: Item) -> bool:
        """Whether ``item`` is the stored beginning of what is being spoken."""
        return self.open is not None and self.open.stored is item

    def took(self, length: int) -> None:
        """The consumer received the next ``length`` characters."""
        self.received += length

    @property
    def text(self) -> str:
        """Everything that was written for the consumer."""
        if len(self.chunks) > 1:  # joined once: the text may be asked for at each of many commits
            self.chunks = ["".join(self.chunks)]
        return self.chunks[0] if self.chunks else ""

    @property
    def speaking(self) -> bool:
        """Whether a text that is to be stored has begun and has not ended."""
        return self.open is not None and not self.open.aside

    @property
    def open_text(self) -> str:
        """What has been spoken since the last stored message; what a next child continues."""
        segment = self.open
        return "" if segment is None or segment.aside else self.text[segment.start : segment.end]

    def commit(self, metadata: Mapping[str, Any] | None = None) -> list[Event]:
        """Store the open segment as one message; a blank one is not stored."""
        segment, self.open = self.open, None
        if segment is None or segment.aside:
            return []
        segment.text = self.text[segment.start : segment.end]
        if metadata:
            segment.metadata.update(metadata)
        return self._store(segment, segment.text, segment.metadata)

    def settle(self, message: Message) -> list[Event]:
        """Store ``message`` as what the open segment amounts to, in the author's words."""
        segment, self.open = self.open, None
        if segment is not None and not segment.aside:
            segment.text = self.text[segment.start : segment.end]
            segment.metadata.update(message.metadata or {})
            if not is_blank(message.content):
                segment.stored = message
        return self.add(message)

    def drop_open(self) -> None:
        """Keep the open segment out of the conversation; it was spoken and is taken back."""
        if self.open is not None:
            self.open.aside = True
            self.open = None
            self.restarted = self.length

    def _store(self, segment: Segment, text: str, metadata: Mapping[str, Any]) -> list[Event]:
        if is_blank(text):
            return []
        message = Message("assistant", text, dict(metadata) or None)
        return self._put_stored(segment, message) or [MessageAdded(message, self.conversation.push(message))]

    def _put_stored(self, segment: Segment, message: Message) -> list[Event]:
        """Have ``message`` stored for ``segment``, in the place of the one that a resumed answer has; empty if it has none."""
        old, segment.stored = segment.stored, message
        index = None if old is None else self.conversation.index_of(old)
        if old is None or index is None:
            return []
        self.conversation.put(index, message)
        return [MessageCorrected(old, message, index)]

    def _marked(self) -> int:
        """Where the open segment began, but not between a call and its result."""
        mark = self.conversation.mark
        if 0 < mark < len(self.conversation):
            call, result = self.conversation[mark - 1], self.conversation[mark]
            if isinstance(call, ToolCall) and isinstance(result, ToolResult):
                return mark + (call.tool_call_id == result.tool_call_id)
        return mark

    # -- items

    def add(self, item: Item) -> list[Event]:
        """Append ``item``; a result goes right after its call; a blank message is ignored."""
        if isinstance(item, ToolResult):
            for call in self.calls:
                if call.item.tool_call_id == item.tool_call_id:
                    return self.close_call(call, item.output)
        if isinstance(item, Message) and is_blank(item.content):
            return []
        return [MessageAdded(item, self.conversation.push(item))]

    def open_call(self, item: ToolCall, owner: object) -> tuple[OpenCall, list[Event]]:
        """Store a call; it stays open until ``close_call`` or ``interrupt``."""
        call = OpenCall(item, owner)
        self.calls.append(call)
        return call, self.add(item)

    def close_call(self, call: OpenCall, output: str) -> list[Event]:
        """Store the result of ``call`` right after it; nothing if it has one already."""
        if call not in self.calls:
            return []
        self.calls.remove(call)
        item = call.item
        result = ToolResult(item.tool_call_id, item.tool_name, output)
        found = self.conversation.index_of(item)
        index = len(self.conversation) if found is None else found + 1
        self.conversation.push_before(index, result)
        return [MessageAdded(result, index)]

    def close_calls(self, output: str = CANCELLED_OUTPUT, *, owner: object = None) -> list[Event]:
        """Give every open call (of ``owner``) its result, except one that is on the stack."""
        events: list[Event] = []
        cut = owner is None and output is CANCELLED_OUTPUT
        for call in tuple(self.calls):
            if owner is not None and call.owner is not owner:
                continue
            if call.on_stack:
                call.deferred = True
            elif cut:
                events += self.close_call(call, call.output_when_cut())
            else:
                events += self.close_call(call, output)
        return events

    # -- the cut

    def interrupt(self, upto: int) -> list[Event]:
        """Cut the stored text to the first ``upto`` characters of what was written.

        The open segment is stored as far as that, marked as interrupted.
        """
        self.conversation.settle()  # an earlier cut comes first
        events: list[Event] = []
        open_segment, self.open = self.open, None
        for segment in self.segments:
            if segment.aside:
                continue
            if segment is open_segment:
                events += self._store_cut(segment, upto)
            elif segment.stored is not None and segment.end > upto:
                events += self._shorten(segment, upto)
        return events

    def interrupt_unheard(self, upto: int) -> None:
        """As ``interrupt``, where no listener, store or open call needs to know: before anybody looks."""
        self.conversation.defer(partial(self.interrupt, upto))

    def _store_cut(self, segment: Segment, upto: int) -> list[Event]:
        """Store what was heard of the open segment, where it was being spoken.

        What the caller said into the answer comes after the words that it interrupted.
        """
        start = segment.start
        segment.text = self.text[start : segment.end]
        if not self.record_interrupted:
            return []
        upto = max(upto, start)
        segment.end = min(segment.end, upto)
        heard = segment.text[: upto - start]
        if is_blank(heard):
            return []
        message = Message("assistant", heard, {**segment.metadata, "interrupted": True})
        if corrected := self._put_stored(segment, message):
            return corrected
        index = self._marked()
        self.conversation.push_before(index, message)
        return [MessageAdded(message, index)]

    def _shorten(self, segment: Segment, upto: int) -> list[Event]:
        old = segment.stored
        index = None if old is None else self.conversation.index_of(old)
        if old is None or index is None:
            return []
        heard = segment.text[: max(0, upto - segment.start)]
        segment.end = max(upto, segment.start)
        if is_blank(heard) or not self.record_interrupted:
            segment.stored = None
            self.conversation.delete(index)
            return [MessageCorrected(old, None, index)]
        metadata = {**(old.metadata or {}), "interrupted": True}
        new = attrs.evolve(old, content=heard, metadata=metadata)
        segment.stored = new
        self.conversation.put(index, new)
        return [MessageCorrected(old, new, index)]
