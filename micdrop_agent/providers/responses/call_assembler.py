"""Puts the tool calls of one Chat Completions stream together from their fragments; no I/O.

    delta.tool_calls ──▶ add() ──▶ calls that are known to be complete
    end of response  ──▶ finish() ──▶ all others

Servers agree on little: the index is missing, always 0 or ``None``; id and name come once, with
every fragment, empty, in pieces (the name), or as the text ``"null"``; arguments come complete, in pieces, as an object, or
not at all; several calls are packed into one chunk; fragments of two calls interleave.

Invariants, pinned in tests/test_provider_assemble.py:

1. However a call is cut and calls are interleaved, the same calls come out, in the order in which
   they were opened.
2. A call comes out once. Ids are never empty, and differ within a response.
3. A call is known to be complete before the end only if its arguments are a complete object and a later call,
   text or a finish reason has come; one that might be cut (``finish(cut=True)``) never comes out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from micdrop_agent.errors import ProviderError
from micdrop_agent.model.call_ids import new_call_id
from micdrop_agent.model.protocol import CallReady
from micdrop_agent.providers.json_text import (
    arguments_object,
    as_dict,
    encode_loosely,
    is_dict,
    is_list,
    normal_arguments,
    normal_name,
    whole_letters,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["MAX_ARGUMENT_CHARS", "CallAssembler"]

MAX_ARGUMENT_CHARS: Final = 1024 * 1024
"""Most text of arguments in one response: a model that writes more has lost its way."""

MAX_CALLS: Final = 128
"""Most calls in one response (OpenAI's own limit of tools in a request)."""

_MAX_PROBE_CHARS: Final = 32 * 1024


class _Call:
    __slots__ = ("extra", "given_id", "id", "index", "name", "pieces")

    def __init__(self, index: int | None, given_id: str, call_id: str, name: str) -> None:
        self.index = index
        self.given_id = given_id
        self.id = call_id
        self.name = name
        self.pieces: list[str] = []
        self.extra: dict[str, Any] = {}

    @property
    def arguments(self) -> str:
        if len(self.pieces) > 1:
            self.pieces = ["".join(self.pieces)]
        return self.pieces[0] if self.pieces else ""

    @property
    def whole(self) -> bool:
        """Whether the arguments are a complete object (``{}`` may be a mere opening)."""
        if not self.pieces or not self.pieces[-1].rstrip().endswith("}"):
            return False
        text = self.arguments
        # Asked again and again; beyond this length the end of the response will tell.
        return len(text) <= _MAX_PROBE_CHARS and bool(arguments_object(text))

    def goes_on_with(self, name: str) -> bool:
        """Whether a fragment at the same index with an unknown id can only be more of this call."""
        if not self.name or self.whole:
            return False
        text = self.arguments.strip()
        return not name or (name == self.name and text not in {"", "{}"})

    def takes_name(self, name: str, given_id: str) -> bool:
        """Whether ``name`` is a further piece of this call's name: it has an id, and its arguments are not all there.

        A server that tells calls apart by ids would not leave out that of the next one.
        """
        if not (self.given_id and name) or given_id or name == self.name:
            return False
        text = self.arguments
        return len(text) <= _MAX_PROBE_CHARS and (not text.strip() or arguments_object(text) is None)

    def with_more_name(self, name: str) -> str:
        """The name with one more piece; some servers send all of it so far each time."""
        return name if name.startswith(self.name) else self.name + name


class CallAssembler:
    """The calls of one response.

    Args:
        new_id: Makes an id for a call that has none.
        members: Further members of a call that its server wants back.
    """

    __slots__ = ("_by_index", "_calls", "_chars", "_last", "_members", "_new_id", "_ready")

    def __init__(self, new_id: Callable[[], str] = new_call_id, members: Iterable[str] = ()) -> None:
        self._members = members
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._last: _Call | None = None
        self._ready = 0
        """How many calls, from the first, have come out."""
        self._chars = 0
        self._new_id = new_id

    @property
    def started(self) -> bool:
        """Whether any call was begun."""
        return bool(self._calls)

    @property
    def waiting(self) -> bool:
        """Whether a call has begun that has not come out yet."""
        return self._ready < len(self._calls)

    def add(self, fragments: Iterable[object]) -> list[CallReady]:
        """Take the fragments of one chunk; returns the calls that are known to be complete now.

        Raises:
            ProviderError: The arguments are far too long (kind ``protocol``).
        """
        before = len(self._calls)
        for fragment in fragments:
            self._add(as_dict(fragment), first_new=before)
        # A later call has begun: the ones before it are mostly complete, but fragments may interleave.
        return self._take_whole(len(self._calls) - 1) if len(self._calls) > before else []

    def take_whole(self, *, at_end: bool) -> list[CallReady]:
        """What can be read can run: the model says something else, or has reported why it finished.

        Without arguments at all, a call is only taken ``at_end``: they may still come, and a tool
        that runs with made-up arguments is worse than one that runs late.
        """
        return self._take_whole(len(self._calls), empty=("", "null", "{}") if at_end else ("{}",))

    def finish(self, *, cut: bool = False) -> list[CallReady]:
        """The calls that have not come out yet; none if the response may have been cut in them."""
        calls = [] if cut else self._calls[self._ready :]
        self._ready = len(self._calls)
        return [_ready(call) for call in calls if call.name]

    def _take_whole(self, end: int, *, empty: tuple[str, ...] = ()) -> list[CallReady]:
        out: list[CallReady] = []
        while self._ready < end:
            call = self._calls[self._ready]
            if not call.name or not (call.whole or call.arguments.strip() in empty):
                break
            out.append(_ready(call))
            self._ready += 1
        return out

    def _add(self, fragment: dict[str, Any], *, first_new: int) -> None:
        function = as_dict(fragment.get("function"))
        index = _index(fragment.get("index"))
        given_id, name = _word(fragment.get("id")), _word(function.get("name"))
        call = self._find(index, given_id, name, function.get("arguments"), first_new)
        if call is None:
            call = self._open(index, given_id, name)
        else:
            # An empty or repeated id or name changes nothing; a late one completes.
            call.name = call.with_more_name(name) if call.takes_name(name, given_id) else call.name or name
            if given_id and not call.given_id:
                self._name_late(call, given_id)
        self._last = call
        call.extra |= {member: fragment[member] for member in self._members if fragment.get(member)}
        self._append(call, function.get("arguments"), head=bool(given_id or name))

    def _find(self, index: int | None, given_id: str, name: str, arguments: object, first_new: int) -> _Call | None:
        """The call that a fragment goes on with; ``None`` if it opens a new one."""
        if index is None:
            call = self._by_id(given_id) if given_id else self._last
        elif index in self._by_index:
            call = self._by_index[index]
        else:
            return self._find_unindexed(index, given_id, name)
        if call is None or (given_id and given_id == call.given_id):
            return call
        if given_id and call.given_id:
            # One index (mostly 0) for all calls of a response: the id tells them apart. One that comes
            # in the middle of a call's arguments was made up again for the fragment.
            known = self._by_id(given_id)
            return call if known is None and index is not None and call.goes_on_with(name) else known
        if given_id or not name or not call.name:
            return call
        if call not in self._calls[first_new:] and call.takes_name(name, given_id):
            return call
        packed = index is None and call in self._calls[first_new:]
        return None if packed or self._is_new(call, name, arguments) else call

    @staticmethod
    def _is_new(call: _Call, name: str, arguments: object) -> bool:
        """A name without an id is a repeated head, unless it differs, or the call needs no more."""
        return name != call.name or (call.whole and not _blank(arguments))

    def _find_unindexed(self, index: int, given_id: str, name: str) -> _Call | None:
        """A new index mostly means a new call, unless the call's first fragment came without one."""
        call = self._by_id(given_id) if given_id else None if name else self._last
        if call is None or (given_id and call.index is not None):
            return None
        self._by_index[index] = call
        return call

    def _by_id(self, given_id: str) -> _Call | None:
        return next((c for c in reversed(self._calls) if c.given_id == given_id), None)

    def _open(self, index: int | None, given_id: str, name: str) -> _Call:
        if len(self._calls) >= MAX_CALLS:
            raise ProviderError(f"the model called more than {MAX_CALLS} tools in one response", kind="protocol")
        call = _Call(index, given_id, self._unique(given_id), name)
        self._calls.append(call)
        if index is not None:
            self._by_index[index] = call
        return call

    def _name_late(self, call: _Call, given_id: str) -> None:
        call.given_id = given_id
        if self._calls.index(call) >= self._ready:  # what came out keeps the id it came out with
            call.id = self._unique(given_id)

    def _unique(self, given_id: str) -> str:
        taken = {call.id for call in self._calls}
        while not given_id or given_id in taken:
            given_id = self._new_id()
        return given_id

    def _append(self, call: _Call, arguments: object, *, head: bool) -> None:
        if is_dict(arguments) or is_list(arguments):
            # Whole by nature. Whatever text came before it was its empty opening.
            piece = encode_loosely(arguments)
            call.pieces.clear()
        elif isinstance(arguments, str) and arguments:
            piece = arguments
        else:
            return
        if call.pieces and not piece.isspace():
            if len(call.pieces) == 1 and call.pieces[0].strip() == "{}":
                # Gateways open a call with "{}" and then stream the real arguments.
                call.pieces.clear()
            elif head and call.whole:
                return  # the whole arguments once more, with a repeated head
        self._chars += len(piece)
        if self._chars > MAX_ARGUMENT_CHARS:
            raise ProviderError(
                f"the model wrote more than {MAX_ARGUMENT_CHARS:,} characters of tool arguments in one response",
                kind="protocol",
            )
        call.pieces.append(piece)


def _ready(call: _Call) -> CallReady:
    return CallReady(call.id, normal_name(call.name), normal_arguments(whole_letters(call.arguments)), call.extra)


def _blank(arguments: object) -> bool:
    return not arguments or (isinstance(arguments, str) and not arguments.strip())


def _index(value: object) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value[:9])
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _word(value: object) -> str:
    """A given id or name; ``""`` for everything that stands for none."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value if isinstance(value, str) and value.strip() not in {"", "null", "None"} else ""
