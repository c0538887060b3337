"""Encodes a conversation as the JSON of a request, and keeps what cannot change any more.

    items ──▶ repair ──▶ Dialect.add(), entry by entry ──▶ the bytes between "[" and "]"
                └ closed part: encoded once, found again by the identity of its items

A turn of a long call costs what its last exchange costs. Items are frozen, so the same objects mean
the same bytes; a replaced or removed one makes the encoder begin anew.
"""

from __future__ import annotations

import operator
import re
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final

from micdrop_agent.providers.json_text import encode_text
from micdrop_agent.providers.requests.pairing import CallGroup, repair
from micdrop_agent.providers.requests.wire_ids import WireIds, up_to_64

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from micdrop_agent.messages import Item, Message
    from micdrop_agent.providers.requests.pairing import Entry, PairedCall

__all__ = ["CONTINUE_NOTE", "Dialect", "HistoryEncoder", "State", "message", "wire_name"]

CONTINUE_NOTE: Final = (
    "Your last message was cut off where it ends. Go on from exactly there: say only what comes next, "
    "repeat nothing of it, and do not mention the interruption."
)

_NOT_IN_A_NAME: Final = re.compile(r"[^a-zA-Z0-9_-]")
_MAX_NAME: Final = 64


def message(role: str, content: str) -> bytes:
    """A plain message; both APIs have the same form for it."""
    return b'{"role":"%b","content":%b}' % (role.encode(), encode_text(content))


def wire_name(name: str) -> str:
    """A tool's name in the letters that providers take; the model may have called anything."""
    return _NOT_IN_A_NAME.sub("_", name)[:_MAX_NAME] or "unknown"


class State:
    """Where an encoding stands.

    Attributes:
        parts: The encoded messages so far.
        last: Role of the last of them, ``""`` before the first.
        spoken: Whether anything but system notes came.
        waiting: Messages of one role that are not encoded yet: the next entry may join them.
        notes: System notes that belong into the first message (chat templates).
        ids: Ids of the calls so far.
    """

    __slots__ = ("ids", "last", "notes", "parts", "spoken", "waiting")

    def __init__(self, ids: WireIds) -> None:
        self.parts: list[bytes] = []
        self.last = ""
        self.spoken = False
        self.waiting: list[Message] = []
        self.notes: list[str] = []
        self.ids = ids

    def fork(self) -> State:
        """A copy for the part that may still change; it has no parts yet."""
        copy = State(self.ids.fork())
        copy.last = self.last
        copy.spoken = self.spoken
        copy.waiting = list(self.waiting)
        copy.notes = list(self.notes)
        return copy

    def put(self, role: str, encoded: bytes) -> None:
        """Append an encoded message."""
        self.parts.append(encoded)
        self.last = role


class Dialect(ABC):
    """How one provider family wants a conversation."""

    id_form: Callable[[str], str] = staticmethod(up_to_64)

    def add(self, state: State, entry: Entry) -> None:
        """Encode ``entry``, or let it wait for the next one."""
        if isinstance(entry, CallGroup):
            state.spoken = True
            self.calls(state, entry)
            return
        state.spoken = state.spoken or entry.role != "system"
        if state.waiting and state.waiting[0].role != entry.role:
            self.flush(state)
        state.waiting.append(entry)

    def grouped(self, entries: list[Entry]) -> list[Entry]:
        """The entries of a part of the conversation, before they are added."""
        return entries

    def flush(self, state: State) -> None:
        """Encode the messages that waited."""
        waiting, state.waiting = state.waiting, []
        if waiting:
            self.texts(state, waiting)

    def texts(self, state: State, messages: list[Message]) -> None:
        """Encode messages of one role."""
        for each in messages:
            state.put(each.role, self.message(each.role, each.content))

    def message(self, role: str, content: str) -> bytes:
        """A message with words."""
        return message(role, content)

    @abstractmethod
    def calls(self, state: State, group: CallGroup) -> None:
        """Encode calls with their results; the messages that wait come before them."""

    def start(self, state: State) -> bytes:
        """What comes before everything else, encoded at the very end."""
        del state
        return b""

    def finish(self, state: State, continue_from: str | None) -> None:
        """Encode what waits, and what a request needs at its end."""
        self.flush(state)
        if continue_from:
            state.put("assistant", self.message("assistant", continue_from))
            state.put("system", self.message("system", CONTINUE_NOTE))


class HistoryEncoder:
    """The conversation of one agent, turn by turn.

    Args:
        dialect: How the provider wants it.
    """

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._forget()

    def _forget(self) -> None:
        self._items: list[Item] = []
        self._kept = State(WireIds(self._dialect.id_form))
        self._bytes = bytearray()
        """The closed part. It grows in place, and is copied once per request, into the body."""

    def encode(self, items: Sequence[Item], continue_from: str | None = None) -> tuple[list[bytes | bytearray], bool]:
        """The messages in pieces to be joined, without brackets, and whether there is more than system notes."""
        if len(items) < len(self._items) or not all(map(operator.is_, self._items, items)):
            self._forget()
        done = len(self._items)
        rest = repair(items[done:] if done else items)
        if rest.closed:
            self._keep(items[done : done + rest.closed], rest.entries[: rest.closed_entries])
        state = self._kept.fork()
        for entry in self._dialect.grouped(rest.entries[rest.closed_entries :]):
            self._dialect.add(state, entry)
        self._dialect.finish(state, continue_from)
        start = self._dialect.start(state)
        pieces = [piece for piece in (start, self._bytes, b",".join(state.parts)) if piece]
        return [part for piece in pieces for part in (b",", piece)][1:], state.spoken

    def _keep(self, items: Sequence[Item], entries: list[Entry]) -> None:
        for entry in self._dialect.grouped(entries):
            self._dialect.add(self._kept, entry)
        self._items += items
        if self._kept.parts:
            if self._bytes:
                self._bytes += b","
            self._bytes += b",".join(self._kept.parts)
            self._kept.parts.clear()


def encode_call(item: PairedCall, template: bytes, call_id: str) -> bytes:
    """``template`` with id, name and arguments of a call."""
    return template % (encode_text(call_id), encode_text(wire_name(item.call.tool_name)), encode_text(item.arguments))
