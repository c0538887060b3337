"""Events: their order, re-entrancy, bad listeners, streams of them, and the signals for all agents."""

from __future__ import annotations

import gc
import logging
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from micdrop_agent import Message, signal_of
from micdrop_agent._core.event_hub import EventHub
from micdrop_agent._core.log import SafeLog
from micdrop_agent.events import (
    AnswerSkipped,
    EndCallRequested,
    Event,
    MessageAdded,
)

LOGGER = logging.getLogger("micdrop_agent.test")


def added(number: int) -> MessageAdded:
    return MessageAdded(Message("user", str(number)), number)


def make_hub() -> EventHub:
    return EventHub(object(), SafeLog(LOGGER))


# -- listeners


def test_listeners_are_called_in_the_order_in_which_they_came() -> None:
    hub, seen = make_hub(), list[str]()
    removers = [hub.on(AnswerSkipped, lambda _event, name=name: seen.append(name)) for name in "abcd"]  # type: ignore[misc]
    removers[1]()
    removers[1]()
    hub.on(AnswerSkipped, lambda _event: seen.append("e"))
    hub.emit(AnswerSkipped())
    assert seen == list("acde")
    assert not hub.unheard


def test_the_same_function_may_listen_twice_and_be_removed_once() -> None:
    hub, seen = make_hub(), list[Event]()
    remove = hub.on(AnswerSkipped, seen.append)
    hub.on(AnswerSkipped, seen.append)
    hub.emit(AnswerSkipped())
    remove()
    hub.emit(AnswerSkipped())
    assert len(seen) == 3


def test_listeners_are_held_strongly() -> None:
    hub, seen = make_hub(), list[Event]()

    class Host:
        def heard(self, event: Event) -> None:
            seen.append(event)

    hub.on(AnswerSkipped, Host().heard)
    hub.on(AnswerSkipped, lambda event: seen.append(event))  # noqa: PLW0108 - nothing else holds it
    gc.collect()
    hub.emit(AnswerSkipped())
    assert len(seen) == 2


def test_a_listener_hears_only_what_it_asked_for() -> None:
    hub, seen = make_hub(), list[Event]()
    hub.on(EndCallRequested, seen.append)
    hub.emit(AnswerSkipped(), EndCallRequested(), AnswerSkipped())
    assert seen == [EndCallRequested()]


@pytest.mark.parametrize("kind", [str, Event, None, "MessageAdded", AnswerSkipped()])
def test_what_is_no_event_class_is_refused_with_the_list_of_them(kind: Any) -> None:
    for connect in (lambda: make_hub().on(kind, print), lambda: signal_of(kind)):
        with pytest.raises(TypeError, match=r"not an event class: .*; there are MessageAdded, "):
            connect()


def test_what_cannot_listen_is_refused() -> None:
    async def listener(_event: Event) -> None: ...

    hub = make_hub()
    bad: Any
    for bad in (None, 5, "x"):
        with pytest.raises(TypeError, match="a listener is a function of one event"):
            hub.on(AnswerSkipped, bad)
    for bad in (listener, partial(listener)):
        with pytest.raises(TypeError, match=r"is a coroutine function and would never run; .* agent\.events\(\)"):
            hub.on(AnswerSkipped, bad)


# -- order and re-entrancy


@given(
    plan=st.lists(st.lists(st.integers(0, 5), max_size=3), max_size=6),
    listeners=st.integers(1, 3),
    first=st.lists(st.integers(0, 5), min_size=1, max_size=4),
)
def test_every_observer_sees_one_order_whatever_listeners_emit(
    plan: list[list[int]], listeners: int, first: list[int]
) -> None:
    """Breadth first: an event emitted within another comes after all that were emitted before it."""
    hub = make_hub()
    seen: list[list[int]] = [[] for _ in range(listeners)]
    emitted: list[int] = []
    budget = [20]

    def emit(*numbers: int) -> None:
        emitted.extend(numbers)
        hub.emit(*map(added, numbers))

    def listen(which: int, event: MessageAdded) -> None:
        seen[which].append(event.index)
        if which == 0 and event.index < len(plan) and budget[0] > 0:
            budget[0] -= 1
            emit(*plan[event.index])

    for which in range(listeners):
        hub.on(MessageAdded, partial(listen, which))
    inbox = hub.inbox()
    emit(*first)
    assert all(order == emitted for order in seen)
    assert [event.index for event in inbox.waiting if isinstance(event, MessageAdded)] == emitted


def test_a_listener_added_within_an_event_hears_from_the_next_one_on() -> None:
    hub, seen = make_hub(), list[int]()

    def add(_event: MessageAdded) -> None:
        if not seen:
            hub.on(MessageAdded, lambda event: seen.append(event.index))
            seen.append(-1)

    hub.on(MessageAdded, add)
    hub.emit(added(1), added(2))
    assert seen == [-1, 2]


def test_a_closed_hub_is_silent_from_that_very_event_on() -> None:
    hub, seen = make_hub(), list[Event]()
    hub.on(AnswerSkipped, lambda _event: hub.close())
    hub.on(EndCallRequested, seen.append)
    inbox = hub.inbox()
    hub.emit(AnswerSkipped(), EndCallRequested())
    hub.emit(EndCallRequested())
    assert seen == []
    assert list(inbox.waiting) in ([], [AnswerSkipped()])
    assert inbox.ended
    assert hub.inbox().ended
    assert not hub._listeners


# -- bad listeners


def test_a_listener_that_raises_harms_nobody_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    hub, seen = make_hub(), list[Event]()
    hub.on(AnswerSkipped, lambda _event: 1 / 0)
    hub.on(AnswerSkipped, seen.append)
    hub.emit(AnswerSkipped(), AnswerSkipped())
    assert len(seen) == 2
    assert caplog.text.count("a listener of AnswerSkipped raised; it is ignored") == 2
    assert "ZeroDivisionError" in caplog.text


def test_a_fatal_error_of_a_listener_goes_to_who_emitted_and_loses_no_later_event() -> None:
    hub, seen = make_hub(), list[Event]()

    def fatal(_event: Event) -> None:
        raise KeyboardInterrupt

    remove = hub.on(AnswerSkipped, fatal)
    hub.on(EndCallRequested, seen.append)
    with pytest.raises(KeyboardInterrupt):
        hub.emit(AnswerSkipped(), EndCallRequested())
    remove()
    hub.emit(AnswerSkipped())
    assert seen == [EndCallRequested()]


def test_a_coroutine_that_comes_back_is_closed_and_reported(caplog: pytest.LogCaptureFixture) -> None:
    class Sneaky:
        async def __call__(self, _event: Event) -> None: ...

    hub = make_hub()
    hub.on(AnswerSkipped, Sneaky())
    hub.emit(AnswerSkipped())
    gc.collect()  # a coroutine that was never awaited would warn here
    assert "returned a coroutine, which nobody runs" in caplog.text
