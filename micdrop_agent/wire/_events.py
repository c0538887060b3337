"""Events as the browser client reads them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast

import attrs

from micdrop_agent import events
from micdrop_agent.errors import ToolInputError
from micdrop_agent.tools import dump_output
from micdrop_agent.wire._check import WireError, as_object, as_plain, as_text, join, rest_of
from micdrop_agent.wire._items import dump_item, load_item, with_extra

if TYPE_CHECKING:
    from micdrop_agent.messages import Item

__all__ = ["WireEvent", "dump_event", "event_from"]

_BARE: Final[dict[type[events.Event], str]] = {
    events.UserMessageCancelled: "CancelLastUserMessage",
    events.AnswerSkipped: "SkipAnswer",
    events.EndCallRequested: "EndCall",
    events.AnswerFailed: "Failed",
}
_NAMES: Final = ("Message", "ToolCall", *_BARE.values())
_TOOL_MEMBERS: Final = ("name", "parameters", "output")


@attrs.frozen
class WireEvent:
    """An event as it stands on the wire.

    Args:
        event: ``"Message"``, ``"CancelLastUserMessage"``, ``"SkipAnswer"``, ``"EndCall"``,
            ``"ToolCall"`` or ``"Failed"``.
        payload: The item of a ``Message``, the members of a ``ToolCall``, else ``None``.
        extra: Members that this version does not know.
    """

    event: str
    payload: Item | Mapping[str, Any] | None = None
    extra: Mapping[str, Any] = attrs.field(factory=dict[str, Any], kw_only=True, repr=False)


def dump_event(event: events.Event | WireEvent) -> dict[str, Any] | None:
    """The wire form of an event; ``None`` for those that Micdrop does not know.

    Raises:
        WireError: A member of the payload is not JSON.
    """
    if isinstance(event, events.MessageAdded):
        return {"event": "Message", "payload": dump_item("payload", event.message)}
    if isinstance(event, events.ToolCalled):
        return {"event": "ToolCall", "payload": _dump_tool(event)}
    if isinstance(event, WireEvent):
        return _dump_wire_event(event)
    name = _BARE.get(type(event))
    return None if name is None else {"event": name}


def event_from(data: object, *, keep: bool) -> WireEvent:
    """The event of a wire form."""
    members = as_object("", data)
    if "event" not in members:
        raise WireError("event", "is missing")
    name = as_text("event", members["event"])
    if name not in _NAMES:
        raise WireError("event", f"must be one of {', '.join(_NAMES)}, not {name!r}")
    if name in _BARE.values():
        return WireEvent(name, extra=rest_of("", members, frozenset({"event"}), keep=keep))
    if "payload" not in members:
        raise WireError("payload", "is missing")
    extra = rest_of("", members, frozenset({"event", "payload"}), keep=keep)
    if name == "Message":
        return WireEvent(name, load_item("payload", members["payload"], keep=keep), extra=extra)
    return WireEvent(name, _load_tool(members["payload"], keep=keep), extra=extra)


def _dump_wire_event(event: WireEvent) -> dict[str, Any]:
    wire: dict[str, Any] = {"event": event.event}
    if isinstance(event.payload, Mapping):
        wire["payload"] = as_plain("payload", event.payload)
    elif event.payload is not None:
        wire["payload"] = dump_item("payload", event.payload)
    return with_extra("", wire, event.extra)


def _dump_tool(event: events.ToolCalled) -> dict[str, Any]:
    try:
        # As the model sees it: an attrs instance is an object, an enum its value, nothing is null.
        output: Any = json.loads(dump_output(event.output))
    except ToolInputError as error:
        raise WireError("payload.output", f"is not JSON: {error}") from error
    return {
        "name": event.name,
        "parameters": as_plain("payload.parameters", event.parameters),
        "output": output,
    }


def _load_tool(data: object, *, keep: bool) -> dict[str, Any]:
    members = as_object("payload", data)
    for name in _TOOL_MEMBERS:
        if name not in members:
            raise WireError(join("payload", name), "is missing")
    as_text("payload.name", members["name"])
    rest_of("payload", members, frozenset(_TOOL_MEMBERS), keep=keep)
    return cast("dict[str, Any]", as_plain("payload", members))
