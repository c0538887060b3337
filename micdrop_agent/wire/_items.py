"""One item of a conversation, to its wire form and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from micdrop_agent.messages import ROLES, Message, ToolCall, ToolResult
from micdrop_agent.wire._check import WireError, as_object, as_plain, as_text, join, kind_of, rest_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from micdrop_agent.messages import Item

__all__ = ["dump_item", "load_item", "with_extra"]

_MEMBERS: Final[dict[type[Item], dict[str, str]]] = {
    Message: {"content": "content"},
    ToolCall: {"tool_call_id": "toolCallId", "tool_name": "toolName", "parameters": "parameters"},
    ToolResult: {"tool_call_id": "toolCallId", "tool_name": "toolName", "output": "output"},
}
"""Required string members of each item: attribute and wire name."""

_TYPE_OF_ROLE: Final[dict[str, type[Item]]] = {
    **dict.fromkeys(ROLES, Message),
    ToolCall.role: ToolCall,
    ToolResult.role: ToolResult,
}


def dump_item(path: str, item: Item) -> dict[str, Any]:
    """The wire form of ``item``, which stands at ``path``."""
    if type(item) not in _MEMBERS:
        raise WireError(path, f"must be a Message, ToolCall or ToolResult, not {kind_of(item)}")
    wire: dict[str, Any] = {"role": item.role}
    wire |= {name: getattr(item, attribute) for attribute, name in _MEMBERS[type(item)].items()}
    if isinstance(item, Message) and item.metadata is not None:
        wire["metadata"] = _plain_object(join(path, "metadata"), item.metadata)
    return with_extra(path, wire, item.extra)


def with_extra(path: str, wire: dict[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """``wire`` with the members that were kept when it was read."""
    for name, value in as_object(join(path, "extra"), extra).items():
        if name in wire:
            raise WireError(join(path, name), "stands in extra too, where only unknown members belong")
        wire[name] = as_plain(join(path, name), value)
    return wire


def load_item(path: str, data: object, *, keep: bool) -> Item:
    """The item of a wire form that stands at ``path``."""
    members = as_object(path, data)
    kind = _kind_of_item(path, members)
    known = ["role", *_MEMBERS[kind].values()]
    for name in known:
        if name not in members:
            raise WireError(join(path, name), "is missing")
    texts = {attribute: as_text(join(path, name), members[name]) for attribute, name in _MEMBERS[kind].items()}
    found: dict[str, Any] = {**texts}
    if kind is Message:
        found["role"] = members["role"]
        # A metadata of null means none; it is kept like an unknown member, so that it comes back as it was.
        if members.get("metadata") is not None:
            found["metadata"] = _plain_object(join(path, "metadata"), members["metadata"])
            known.append("metadata")
    found["extra"] = rest_of(path, members, frozenset(known), keep=keep)
    return kind(**found)


def _kind_of_item(path: str, members: Mapping[str, Any]) -> type[Item]:
    if "role" not in members:
        raise WireError(join(path, "role"), "is missing")
    role = as_text(join(path, "role"), members["role"])
    if role not in _TYPE_OF_ROLE:
        raise WireError(join(path, "role"), f"must be one of {', '.join(_TYPE_OF_ROLE)}, not {role!r}")
    return _TYPE_OF_ROLE[role]


def _plain_object(path: str, value: object) -> Any:
    return as_plain(path, as_object(path, value))
