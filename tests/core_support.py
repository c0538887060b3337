"""What the tests of the core share: short forms of a conversation, and logs of events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from micdrop_agent import Message
from micdrop_agent._core import event_hub
from micdrop_agent.events import EVENT_TYPES, MessageAdded, MessageCorrected

if TYPE_CHECKING:
    import pytest

    from micdrop_agent import Agent
    from micdrop_agent.events import Event


def nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process in which no signal ever had a receiver: another test may have connected one."""
    monkeypatch.setattr(event_hub, "CONNECTED", [])


def said(agent: Agent) -> list[tuple[Any, ...]]:
    """The conversation after the system prompt, in short."""
    return [
        (item.role, item.content) if isinstance(item, Message) else (item.role, getattr(item, "output", item.tool_name))
        for item in agent.conversation[1:]
    ]


def log_of(agent: Agent, *kinds: type[Event]) -> list[Event]:
    """The events of ``kinds`` (all if none is named) from now on."""
    events: list[Event] = []
    for kind in kinds or EVENT_TYPES:
        agent.on(kind, events.append)
    return events


def replayed(events: list[Event]) -> list[Any]:
    """What an observer knows of the conversation from the events alone (after the system prompt)."""
    items: list[Any] = []
    for event in events:
        if isinstance(event, MessageAdded):
            items.insert(event.index - 1, event.message)
        elif isinstance(event, MessageCorrected):
            if event.new is None:
                del items[event.index - 1]
            else:
                items[event.index - 1] = event.new
    return items
