"""The frames of a call: names, audio format, and how events become text frames. No I/O.

    client ──▶ StartSpeaking | StopSpeaking | Mute | binary audio
    client ◀── Message {…} | SkipAnswer | EndCall | … | binary audio

Commands and audio are told apart by the type of the frame: text is a command, binary is audio. The
one exception is a binary frame that is exactly the name of a command, which some clients send.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from micdrop_agent import wire

if TYPE_CHECKING:
    from micdrop_agent.events import Event
    from micdrop_agent.messages import Item

__all__ = [
    "BINARY_COMMANDS",
    "BYTES_PER_SECOND",
    "CANCEL_LAST",
    "END_CALL",
    "LONGEST_COMMAND",
    "MUTE",
    "SAMPLE_RATE",
    "SKIP_ANSWER",
    "START",
    "STOP",
    "event_frame",
    "item_frame",
    "json_frame",
]

SAMPLE_RATE: Final = 16_000
"""Samples per second of all audio of a call, in both directions: PCM16, little endian, mono."""

BYTES_PER_SECOND: Final = 2 * SAMPLE_RATE

START: Final = "StartSpeaking"
STOP: Final = "StopSpeaking"
MUTE: Final = "Mute"
BINARY_COMMANDS: Final = {command.encode(): command for command in (START, STOP, MUTE)}
LONGEST_COMMAND: Final = 15
"""Bytes from which on a binary frame is audio, as in the original."""

SKIP_ANSWER: Final = "SkipAnswer"
END_CALL: Final = "EndCall"
CANCEL_LAST: Final = "CancelLastUserMessage"

_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def json_frame(name: str, value: Any) -> str:
    """``NAME``, one space, and ``value`` as JSON without blanks, as the browser client reads it."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # Half of a surrogate pair is not UTF-8, so it could not be sent; its escape can.
    return f"{name} {_LONE_SURROGATE.sub(_escaped, text)}"


def _escaped(half: re.Match[str]) -> str:
    return f"\\u{ord(half[0]):04x}"


def item_frame(item: Item) -> str:
    """The ``Message`` frame of one item of the conversation.

    Raises:
        micdrop_agent.wire.WireError: A member of the item is not JSON.
    """
    return json_frame("Message", wire.dump([item])[0])


def event_frame(event: Event) -> str | None:
    """The frame that reports ``event``; ``None`` for events that the client does not know.

    Raises:
        micdrop_agent.wire.WireError: A member of the event is not JSON.
    """
    dumped = wire.dump_event(event)
    if dumped is None or dumped["event"] == "Failed":
        return None
    if "payload" not in dumped:
        return str(dumped["event"])
    return json_frame(dumped["event"], dumped["payload"])
