"""One item as the string that is stored, whatever the host put into its metadata."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

import attrs

from micdrop_agent import wire
from micdrop_agent._core.log import SafeLog
from micdrop_agent.messages import Message

if TYPE_CHECKING:
    from collections.abc import Mapping

    from micdrop_agent.messages import Item

__all__ = ["encoded"]

logger: Final = SafeLog(logging.getLogger("micdrop_agent.store"))


def encoded(item: Item) -> str:
    """``item`` as wire JSON.

    Metadata that is not JSON is stored as the text that ``repr`` makes of it, and that is logged: a
    host's odd object must not keep what was said from being stored.
    """
    try:
        return _dumps(item)
    except wire.WireError as error:
        logger.warning("stored as text, because it is not JSON: %s", error)
    if isinstance(item, Message) and item.metadata is not None:
        item = attrs.evolve(item, metadata=_plain(item.metadata))
    return _dumps(attrs.evolve(item, extra=_plain(item.extra)))


def _dumps(item: Item) -> str:
    return wire.dumps([item])[1:-1]


def _plain(members: Mapping[Any, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for name, value in members.items():
        try:
            wire.dumps([Message("system", "", {"value": value})])
        except wire.WireError:
            plain[str(name)] = repr(value)
        else:
            plain[str(name)] = value
    return plain
