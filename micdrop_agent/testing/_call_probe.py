"""Watches a call from its client's end, and checks what must hold for every call.

    probe = CallProbe()
    ... probe.watch(call, client, tts); await call.run() ...
    check_call(probe)

The checks have the names that the invariants have in docs/design.md (C1 to C7).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import anyio
import attrs

from micdrop_agent.call._frames import CANCEL_LAST, item_frame
from micdrop_agent.events import MessageAdded, UserMessageCancelled
from micdrop_agent.testing._invariants import InvariantError

if TYPE_CHECKING:
    from micdrop_agent.call import Call
    from micdrop_agent.testing._call import MemoryClient, ScriptedTTS

__all__ = ["CallInvariantError", "CallProbe", "check_call"]


class CallInvariantError(InvariantError):
    """An invariant of a call was broken.

    Attributes:
        name: Which one: ``"C1"`` to ``"C7"``.
    """

    def __init__(self, name: str, what: str) -> None:
        super().__init__(int(name[1:]), what)
        self.name = name
        self.args = (f"{name}: {what}",)


@attrs.frozen
class Entry:
    """A frame on the wire."""

    at: float
    taken: bool
    """The server took it from the client; otherwise it sent it."""
    frame: str | bytes
    voices: frozenset[int] = frozenset()
    """The labels of all audio that was begun before."""

    @property
    def name(self) -> str:
        """The name of the frame, or ``"audio"``; a command of the client is one without anything behind it."""
        if self.taken and isinstance(self.frame, str):
            return self.frame
        return self.frame.partition(" ")[0] if isinstance(self.frame, str) else "audio"


def _no_entries() -> list[Entry]:
    return []


def _nothing() -> list[Any]:
    return []


@attrs.define(eq=False)
class CallProbe:
    """What one run of a call showed."""

    patience: float = 31.0
    """Seconds within which a client that waits must be answered (C2)."""
    resumes: bool = False
    """The call has a backchannel: an answer may go on after a sound of the caller."""
    log: list[Entry] = attrs.field(factory=_no_entries)
    events: list[Any] = attrs.field(factory=_nothing)
    voices: list[ScriptedTTS] = attrs.field(factory=_nothing)
    ended_at: float | None = None
    returned: bool = False
    """``run()`` has returned."""
    late: list[str] = attrs.field(factory=_nothing)
    """What was sent after that."""

    def watch(self, call: Call, client: MemoryClient, *voices: ScriptedTTS) -> None:
        """Record everything from now on."""
        self.voices += voices
        client.on_frame = lambda frame: self._note(frame, taken=False)
        client.on_taken = lambda frame: self._note(frame, taken=True)
        agent = call.options.agent
        if agent is not None:
            agent.on(MessageAdded, self.events.append)
            agent.on(UserMessageCancelled, self.events.append)

    def over(self) -> None:
        """``run()`` has returned."""
        self.returned = True
        self.ended_at = anyio.current_time()

    def _note(self, frame: str | bytes, *, taken: bool) -> None:
        begun = frozenset(voice.label + number for voice in self.voices for number in range(len(voice.said)))
        entry = Entry(anyio.current_time(), taken, frame, begun)
        if self.returned and not taken:
            self.late.append(entry.name)
        self.log.append(entry)


def check_call(probe: CallProbe) -> None:
    """Check a finished run.

    Raises:
        CallInvariantError: One does not hold; the message names it.
    """
    if not probe.resumes:
        _check_silence(probe)
    _check_replies(probe)
    _check_order(probe)
    if probe.late:
        raise CallInvariantError("C5", f"after run() had returned there were sent: {probe.late}")


def _check_silence(probe: CallProbe) -> None:
    """C1: after StartSpeaking was received no audio of an earlier answer is sent."""
    old: frozenset[int] = frozenset()
    for entry in probe.log:
        if entry.taken and entry.name in {"StartSpeaking", "Mute"}:
            old = entry.voices
        elif isinstance(entry.frame, bytes) and not entry.taken:
            (label,) = struct.unpack("<h", entry.frame[:2])
            if label in old:
                raise CallInvariantError("C1", f"audio of answer {label} was sent after the caller had spoken")


def _check_replies(probe: CallProbe) -> None:
    """C2: after the connection and each StopSpeaking audio or SkipAnswer follows, within the clocks."""
    since: float | None = 0.0
    end = probe.ended_at if probe.ended_at is not None else probe.log[-1].at if probe.log else 0.0
    for entry in [*probe.log, Entry(end, True, "end of the call")]:
        if since is not None and entry.at > since + probe.patience:
            raise CallInvariantError("C2", f"the client waits from {since:g} to {entry.at:g} s, for {entry.name}")
        if entry.taken and entry.name == "StopSpeaking":
            since = entry.at if since is None else since
        elif (entry.taken and entry.name in {"StartSpeaking", "Mute"}) or (
            not entry.taken and entry.name in {"audio", "SkipAnswer", "CancelLastUserMessage"}
        ):
            since = None


def _check_order(probe: CallProbe) -> None:
    """C3: frames go out in the order of the changes that they report."""
    told = [
        CANCEL_LAST if isinstance(event, UserMessageCancelled) else item_frame(event.message)
        for event in probe.events
        if isinstance(event, UserMessageCancelled) or event.message.role in {"user", "assistant"}
    ]
    reports = {"Message", CANCEL_LAST}
    seen = [entry.frame for entry in probe.log if not entry.taken and entry.name in reports]
    if seen != told[: len(seen)]:
        raise CallInvariantError("C3", f"the client saw {seen}; what happened is {told}")
