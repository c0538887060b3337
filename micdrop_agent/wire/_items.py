"""One item of a conversation, to its wire form and back, with cattrs."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs

from micdrop_agent.messages import ROLES, Message, ToolCall, ToolResult
from micdrop_agent.wire._check import WireError, as_object, as_plain, as_text, join, kind_of, rest_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from cattrs import Converter

    from micdrop_agent.messages import Item

__all__ = ["dump_item", "load_item", "with_extra"]

_MEMBERS: Final[dict[type[Item], dict[str, str]]] = {
    Message: {"content": "content"},
    ToolCall: {"tool_call_id": "toolCallId", "tool_name": "toolName", "parameters": "parameters"},
    ToolResult: {"tool_call_id": "toolCallId", "tool_name": "toolName", "output": "output"},
}
"""Text members of each item: attribute and wire name. Each of them has to be there."""

_TYPE_OF_ROLE: Final[dict[str, type[Item]]] = {
    **dict.fromkeys(ROLES, Message),
    ToolCall.role: ToolCall,
    ToolResult.role: ToolResult,
}


class _FaultError(Exception):
    """A fault in one member; where the item stands is not known there."""

    def __init__(self, error: WireError) -> None:
        super().__init__(error.path)
        self.error = error

    def at(self, path: str) -> WireError:
        return WireError(f"{path}.{self.error.path}", self.error.problem)


def dump_item(path: str, item: Item) -> dict[str, Any]:
    """The wire form of ``item``, which stands at ``path``."""
    if type(item) not in _MEMBERS:
        raise WireError(path, f"must be a Message, ToolCall or ToolResult, not {kind_of(item)}")
    try:
        # The role of calls and results is no attribute of the instance: it is written here for all.
        wire: dict[str, Any] = {"role": item.role, **_converter().unstructure(item)}
    except _FaultError as fault:
        raise fault.at(path) from None
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
    if kind is Message and members.get("metadata") is not None:
        # A metadata of null is no metadata; to come back as it was it is kept like an unknown member.
        known.append("metadata")
    extra = rest_of(path, members, frozenset(known), keep=keep)
    taken = {name: members[name] for name in known}
    try:
        return _converter().structure({**taken, "extra": extra}, kind)
    except _FaultError as fault:
        raise fault.at(path) from None


def _kind_of_item(path: str, members: Mapping[str, Any]) -> type[Item]:
    if "role" not in members:
        raise WireError(join(path, "role"), "is missing")
    role = as_text(join(path, "role"), members["role"])
    if role not in _TYPE_OF_ROLE:
        raise WireError(join(path, "role"), f"must be one of {', '.join(_TYPE_OF_ROLE)}, not {role!r}")
    return _TYPE_OF_ROLE[role]


@functools.cache
def _converter() -> Converter:
    from cattrs import Converter
    from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override

    converter = Converter(detailed_validation=False)
    metadata = _checked("metadata", _plain_object)
    for kind, members in _MEMBERS.items():
        # The items' annotations name types that their module imports for type checkers only.
        attrs.resolve_types(kind, localns={"Mapping": Mapping})
        inward: dict[str, Any] = {"extra": override(struct_hook=_as_it_is)}
        outward: dict[str, Any] = {"extra": override(omit=True)}
        for attribute, name in members.items():
            inward[attribute] = override(rename=name, struct_hook=_checked(name, as_text))
            outward[attribute] = override(rename=name)
        if kind is Message:
            inward["role"] = override(struct_hook=_as_it_is)
            outward["role"] = override(omit=True)
            inward["metadata"] = override(struct_hook=metadata)
            outward["metadata"] = override(omit_if_default=True, unstruct_hook=metadata)
        converter.register_structure_hook(kind, make_dict_structure_fn(kind, converter, **inward))
        converter.register_unstructure_hook(kind, make_dict_unstructure_fn(kind, converter, **outward))
    return converter


def _checked(name: str, check: Callable[[str, object], Any]) -> Callable[..., Any]:
    """A hook of cattrs for the member ``name``; its faults carry that name."""

    def hook(value: object, _type: object = None) -> Any:
        try:
            return check(name, value)
        except WireError as error:
            raise _FaultError(error) from None

    return hook


def _plain_object(path: str, value: object) -> Any:
    return as_plain(path, as_object(path, value))


def _as_it_is(value: Any, _type: object) -> Any:
    return value
