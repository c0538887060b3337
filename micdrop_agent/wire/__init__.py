"""The conversation and its events as Micdrop's JSON, exactly, both ways.

    items ──dump──▶ [{"role": …, "toolCallId": …}] ──dumps──▶ text
    items ◀─load───                                ◀─loads───

Guarantees, each one pinned in tests/test_wire.py:

1. ``load(dump(x)) == x`` and ``dump(load(y)) == y`` for all that is accepted.
2. Nothing is dropped silently: members that this version does not know are kept in ``extra``
   or refused, as asked; a member that comes twice is refused.
3. What is wrong is refused with a ``WireError`` that says where (``[3].toolCallId``).

Source: Micdrop ``MicdropConversation`` and the events of page "Agent (LLM)", as the browser
client reads them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from micdrop_agent._strict_json import finite, no_constant
from micdrop_agent.wire._check import WireError, kind_of, once
from micdrop_agent.wire._events import WireEvent, dump_event, event_from
from micdrop_agent.wire._items import dump_item, load_item

if TYPE_CHECKING:
    from micdrop_agent.messages import Item

__all__ = ["Unknown", "WireError", "WireEvent", "dump", "dump_event", "dumps", "load", "load_event", "loads"]

Unknown: TypeAlias = Literal["keep", "refuse"]
"""What to do with members that this version does not know."""

_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def dump(items: Iterable[Item]) -> list[dict[str, Any]]:
    """The wire form of a conversation.

    Args:
        items: The items, for example ``agent.conversation``.

    Raises:
        WireError: A member is not JSON: ``metadata`` with a tuple, a NaN, an object of yours.
    """
    return [dump_item(f"[{index}]", item) for index, item in enumerate(items)]


def load(data: Iterable[Any], *, unknown: Unknown = "keep") -> list[Item]:
    """The conversation of a wire form.

    Args:
        data: The decoded JSON array.
        unknown: Keep members that this version does not know in ``extra``, so that ``dump``
            writes them again, or refuse them.

    Raises:
        WireError: Something is malformed; its ``path`` says where.
        ValueError: ``unknown`` is neither of the two.
    """
    keep = _keeps(unknown)
    given: object = data
    if isinstance(given, str | bytes | bytearray | Mapping) or not isinstance(given, Iterable):
        raise WireError("", f"must be an array of items, not {kind_of(data)}")
    return [load_item(f"[{index}]", value, keep=keep) for index, value in enumerate(data)]


def dumps(items: Iterable[Item]) -> str:
    """The wire form of a conversation as JSON text; characters beyond ASCII stand as they are.

    Raises:
        WireError: As ``dump``.
    """
    data = dump(items)
    try:
        text = json.dumps(data, ensure_ascii=False, allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise WireError("", f"cannot be written as JSON: {error}") from error
    # Half a surrogate pair cannot be encoded as UTF-8; its escape can, and reads back the same.
    return _LONE_SURROGATE.sub(lambda half: f"\\u{ord(half[0]):04x}", text)


def loads(text: str | bytes | bytearray, *, unknown: Unknown = "keep") -> list[Item]:
    """The conversation of a JSON text.

    Args:
        text: JSON text, or its bytes in UTF-8.
        unknown: As for ``load``.

    Raises:
        WireError: The text is not JSON, a member comes twice, or as ``load``.
    """
    try:
        data = json.loads(text, parse_constant=no_constant, parse_float=finite, object_pairs_hook=once)
    except WireError:
        raise
    except RecursionError as error:
        raise WireError("", "is nested too deep") from error
    except ValueError as error:
        raise WireError("", f"is not JSON: {error}") from error
    return load(data, unknown=unknown)


def load_event(data: Any, *, unknown: Unknown = "keep") -> WireEvent:
    """The event of a wire form, for a host or a test that reads what a call server sent.

    Args:
        data: The decoded JSON object.
        unknown: As for ``load``.

    Raises:
        WireError: Something is malformed; its ``path`` says where.
        ValueError: ``unknown`` is neither of the two.
    """
    return event_from(data, keep=_keeps(unknown))


def _keeps(unknown: Unknown) -> bool:
    choice: object = unknown
    if choice not in {"keep", "refuse"}:
        raise ValueError(f'unknown must be "keep" or "refuse", not {choice!r}')
    return choice == "keep"
