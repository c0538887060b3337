"""Encodes a conversation as the JSON of a request, and keeps what cannot change any more.

    items ──▶ repair ──▶ Dialect.add(), entry by entry ──▶ the bytes between "[" and "]"
                └ closed part: encoded once, found again by the identity of its items

A turn of a long call costs what its last exchange costs. Items are frozen, so the same objects mean
the same bytes; a replaced or removed one makes the encoder start over.
"""

from __future__ import annotations

import operator
import re
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final

import attrs

from micdrop_agent.errors import ProviderError
from micdrop_agent.images import images_of
from micdrop_agent.messages import Message
from micdrop_agent.providers.json_text import encode_text
from micdrop_agent.providers.requests.fillers import CONTINUE_NOTE
from micdrop_agent.providers.requests.pairing import CallGroup, repair
from micdrop_agent.providers.requests.wire_ids import WireIds, up_to_64

if TYPE_CHECKING:
    from collections.abc import Sequence

    from micdrop_agent.images import Image
    from micdrop_agent.messages import Item
    from micdrop_agent.providers.attachments import Attachments
    from micdrop_agent.providers.requests.pairing import Entry, PairedCall

__all__ = [
    "Dialect",
    "EncodedHistory",
    "HistoryEncoder",
    "State",
    "encode_call",
    "message",
    "together",
    "wire_name",
]

_NOT_IN_A_NAME: Final = re.compile(r"[^a-zA-Z0-9_-]")
_MAX_NAME: Final = 64
_NOTHING_CALLED: Final[frozenset[str]] = frozenset()


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
        notes: System notes that belong to the front, or into a member of their own.
        ids: Ids of the calls so far.
        called: Names of the tools that were called.
        current: Whether what comes belongs to the current turn, which nobody has answered yet.
        unsigned: Whether the current turn has a call that came without the thoughts of this server.
        blocks: Encoded content of a message that the next entry may still join (``BlockDialect``).
        block_role: Role of that message.
    """

    __slots__ = (
        "block_role",
        "blocks",
        "called",
        "current",
        "ids",
        "last",
        "notes",
        "parts",
        "spoken",
        "unsigned",
        "waiting",
    )

    def __init__(self, ids: WireIds) -> None:
        self.parts: list[bytes] = []
        self.last = ""
        self.spoken = False
        self.waiting: list[Message] = []
        self.notes: list[str] = []
        self.ids = ids
        self.called = _NOTHING_CALLED
        self.current = False
        self.unsigned = False
        self.blocks: list[bytes] = []
        self.block_role = ""

    def fork(self) -> State:
        """A copy for the part that may still change; it has no parts yet."""
        copy = State(self.ids.fork())
        copy.last = self.last
        copy.spoken = self.spoken
        copy.waiting = list(self.waiting)
        copy.notes = list(self.notes)
        copy.called = self.called
        copy.blocks = list(self.blocks)
        copy.block_role = self.block_role
        return copy

    def put(self, role: str, encoded: bytes) -> None:
        """Append an encoded message."""
        self.parts.append(encoded)
        self.last = role


class Dialect(ABC):
    """How one provider family wants a conversation."""

    __slots__ = ()

    def id_form(self, call_id: str) -> str:
        """The form of an id that this server takes."""
        return up_to_64(call_id)

    def add(self, state: State, entry: Entry) -> None:
        """Encode ``entry``, or let it wait for the next one."""
        if isinstance(entry, CallGroup):
            state.spoken = True
            state.called |= {wire_name(each.call.tool_name) for each in entry.calls}
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
            state.put(each.role, self.said(each.role, each.content, images_of(each) if each.metadata else []))

    def said(self, role: str, content: str, images: list[Image]) -> bytes:
        """A message with words, and the pictures that belong to them."""
        if not images:
            return self.message(role, content)
        parts = b",".join([self.text_part(content), *(self.image_part(image) for image in images)])
        return b'{"role":"%b","content":[%b]}' % (role.encode(), parts)

    def message(self, role: str, content: str) -> bytes:
        """A message with words."""
        return message(role, content)

    def text_part(self, content: str) -> bytes:
        """Words beside a picture."""
        return b'{"type":"text","text":%b}' % encode_text(content)

    def image_part(self, image: Image) -> bytes:
        """A picture.

        Raises:
            ProviderError: This server takes none (kind ``bad_request``).
        """
        del image
        raise ProviderError("this agent takes no images: its model cannot see", kind="bad_request")

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


@attrs.frozen(eq=False)
class EncodedHistory:
    """A conversation as the JSON of a request.

    Args:
        pieces: The messages, to be joined; without brackets around them.
        spoken: Whether there is more than system notes.
        called: Names of the tools that were called.
        notes: System notes, where the API has a member of its own for them.
        unsigned: Whether the current turn has a call that came without the thoughts of this server.
    """

    pieces: list[bytes | bytearray]
    spoken: bool
    called: frozenset[str]
    notes: list[str]
    unsigned: bool


class HistoryEncoder:
    """The conversation of one agent, turn by turn.

    Args:
        dialect: How the provider wants it.
    """

    __slots__ = ("_bytes", "_dialect", "_items", "_kept")

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._forget()

    def _forget(self) -> None:
        self._items: list[Item] = []
        self._kept = State(WireIds(self._dialect.id_form))
        self._bytes = bytearray()
        """The closed part. It grows in place, and is copied once per request, into the body."""

    def encode(self, items: Sequence[Item], continue_from: str | None = None) -> EncodedHistory:
        """Encode ``items``; what cannot change any more is encoded once and kept."""
        if len(items) < len(self._items) or not all(map(operator.is_, self._items, items)):
            self._forget()
        done = len(self._items)
        rest = repair(items[done:] if done else items)
        if rest.closed:
            self._keep(items[done : done + rest.closed], rest.entries[: rest.closed_entries])
        state = self._kept.fork()
        entries = self._dialect.grouped(rest.entries[rest.closed_entries :])
        turn = _last_said(entries)
        for number, entry in enumerate(entries):
            state.current = number > turn
            self._dialect.add(state, entry)
        self._dialect.finish(state, continue_from)
        start = self._dialect.start(state)
        pieces = [piece for piece in (start, self._bytes, b",".join(state.parts)) if piece]
        joined = [part for piece in pieces for part in (b",", piece)][1:]
        return EncodedHistory(joined, state.spoken, state.called, state.notes, state.unsigned)

    def _keep(self, items: Sequence[Item], entries: list[Entry]) -> None:
        for entry in self._dialect.grouped(entries):
            self._dialect.add(self._kept, entry)
        self._items += items
        if self._kept.parts:
            if self._bytes:
                self._bytes += b","
            self._bytes += b",".join(self._kept.parts)
            self._kept.parts.clear()


def _last_said(entries: Sequence[Entry]) -> int:
    """Where the caller spoke last; -1 if nowhere."""
    for number in range(len(entries) - 1, -1, -1):
        entry = entries[number]
        if isinstance(entry, Message) and entry.role == "user":
            return number
    return -1


def together(entries: list[Entry], attachments: Attachments) -> list[Entry]:
    """``entries`` with the calls of one response in one group, where their server attached something to them."""
    out: list[Entry] = []
    for entry in entries:
        last = out[-1] if out else None
        if (
            isinstance(last, CallGroup)
            and isinstance(entry, CallGroup)
            and attachments.together(last.calls[-1].call, entry.calls[0].call)
        ):
            out[-1] = CallGroup((*last.calls, *entry.calls), (*last.texts, *entry.texts))
        else:
            out.append(entry)
    return out


def encode_call(item: PairedCall, template: bytes, call_id: str) -> bytes:
    """``template`` with id, name and arguments of a call."""
    return template % (encode_text(call_id), encode_text(wire_name(item.call.tool_name)), encode_text(item.arguments))
