"""What the APIs of Claude and of Gemini have in common: turns that alternate, made of blocks; no I/O.

    Entry ──▶ BlockDialect ──▶ {"role": user, [blocks]} {"role": assistant, [blocks]} …

A message is open until somebody else speaks: what the same side says next joins it, so that results and the
caller's words, or words and calls, stand in one message, in that order. System notes go into a member of their
own. The first and the last message are the user's.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from micdrop_agent.images import images_of
from micdrop_agent.messages import Message
from micdrop_agent.providers.attachments import Attachments
from micdrop_agent.providers.requests.fillers import CONTINUE_NOTE, GO_ON, OPENING
from micdrop_agent.providers.requests.history import Dialect, together

if TYPE_CHECKING:
    from micdrop_agent.providers.requests.history import State
    from micdrop_agent.providers.requests.pairing import CallGroup, Entry, PairedCall

__all__ = ["BlockDialect"]


class BlockDialect(Dialect):
    """Messages of blocks.

    Args:
        attachments: What this server attached to its calls, and wants back.
    """

    def __init__(self, attachments: Attachments | None = None) -> None:
        self._attachments = Attachments() if attachments is None else attachments

    @abstractmethod
    def text(self, words: str) -> bytes:
        """A block of text."""

    @abstractmethod
    def call(self, state: State, call: PairedCall, call_id: str, *, first: bool) -> list[bytes]:
        """The blocks of a call, with what has to stand before it.

        Args:
            state: Where the encoding stands.
            call: The call.
            call_id: Its id on the wire.
            first: Whether it is the first of its response.
        """

    @abstractmethod
    def result(self, call: PairedCall, call_id: str) -> bytes:
        """The block of a result."""

    @abstractmethod
    def wrap(self, role: str, blocks: bytes) -> bytes:
        """A message."""

    def add(self, state: State, entry: Entry) -> None:
        """System notes stand apart; what stood around one may join."""
        if isinstance(entry, Message) and entry.role == "system":
            state.notes.append(entry.content)
        else:
            super().add(state, entry)

    def grouped(self, entries: list[Entry]) -> list[Entry]:
        """Calls of one response stand in one message."""
        return together(entries, self._attachments)

    def texts(self, state: State, messages: list[Message]) -> None:
        """Each message is a block."""
        for each in messages:
            for image in images_of(each):
                self._put(state, each.role, self.image_part(image))
            self._put(state, each.role, self.text(each.content))

    def calls(self, state: State, group: CallGroup) -> None:
        """What was thought, said and called goes into one message, the results into the next."""
        words = list(group.texts)
        if state.waiting and state.waiting[0].role == "assistant":
            words, state.waiting = [*state.waiting, *words], []
        self.flush(state)
        ids = [state.ids.next(each.call.tool_call_id) for each in group.calls]
        first, *others = (
            self.call(state, each, call_id, first=number == 0)
            for number, (each, call_id) in enumerate(zip(group.calls, ids, strict=True))
        )
        for block in first[:-1]:
            self._put(state, "assistant", block)
        self.texts(state, words)
        for block in (first[-1], *(block for blocks in others for block in blocks)):
            self._put(state, "assistant", block)
        for each, call_id in zip(group.calls, ids, strict=True):
            self._put(state, "user", self.result(each, call_id))

    def finish(self, state: State, continue_from: str | None) -> None:
        """The user has the last word: not every model takes a message that it is to continue."""
        self.flush(state)
        if continue_from:
            self._put(state, "assistant", self.text(continue_from))
            self._put(state, "user", self.text(f"({CONTINUE_NOTE})"))
        elif state.block_role == "assistant":
            self._put(state, "user", self.text(GO_ON))
        elif not state.block_role:
            self._put(state, "user", self.text(OPENING))
        self._close(state)

    def _put(self, state: State, role: str, block: bytes) -> None:
        if state.block_role != role:
            self._close(state)
            if role == "assistant" and not state.last:
                state.put("user", self.wrap("user", self.text(OPENING)))
            state.block_role = role
        state.blocks.append(block)

    def _close(self, state: State) -> None:
        """The message that was open is complete."""
        if state.blocks:
            state.put(state.block_role, self.wrap(state.block_role, b",".join(state.blocks)))
            state.blocks = []
