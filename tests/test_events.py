"""Events: their order, re-entrancy, bad listeners, streams of them, and the signals for all agents."""

from __future__ import annotations

import asyncio
import gc
import logging
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from micdrop_agent import EchoAgent, Message, signal_of
from micdrop_agent.events import (
    EVENT_TYPES,
    AnswerSkipped,
    EndCallRequested,
    Event,
    EventHub,
    MessageAdded,
    UserMessageCancelled,
)
from micdrop_agent.testing import BACKENDS, ScriptedAgent, run_virtual

if TYPE_CHECKING:
    from collections.abc import Callable

    from micdrop_agent.testing import Backend

backends = pytest.mark.parametrize("backend", BACKENDS)
LOGGER = logging.getLogger("micdrop_agent.test")


def added(number: int) -> MessageAdded:
    return MessageAdded(Message("user", str(number)), number)


def make_hub() -> EventHub:
    return EventHub(object(), LOGGER)


# -- listeners


def test_listeners_are_called_in_the_order_in_which_they_came() -> None:
    hub, seen = make_hub(), list[str]()
    removers = [hub.on(AnswerSkipped, lambda _event, name=name: seen.append(name)) for name in "abcd"]  # type: ignore[misc]
    removers[1]()
    removers[1]()
    hub.on(AnswerSkipped, lambda _event: seen.append("e"))
    hub.emit(AnswerSkipped())
    assert seen == list("acde")
    assert hub.observed


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
    assert not hub.observed


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


# -- signals


def test_signals_come_after_the_listeners_in_the_order_of_connection() -> None:
    seen: list[str] = []
    receivers: list[Callable[..., None]] = [lambda _agent, event, n=n: seen.append(f"signal {n}") for n in range(8)]  # type: ignore[misc]
    signal = signal_of(AnswerSkipped)
    agent = EchoAgent()
    for receiver in receivers:
        signal.connect(receiver)
    try:
        agent.on(AnswerSkipped, lambda _event: seen.append("listener"))
        agent.skip_answer()
        assert seen == ["listener", *[f"signal {n}" for n in range(8)]]
        signal.disconnect(receivers[3])
        seen.clear()
        agent.skip_answer()
        assert seen == ["listener", *[f"signal {n}" for n in range(8) if n != 3]]
    finally:
        for receiver in receivers:
            signal.disconnect(receiver)


def test_signals_tell_the_agent_and_can_be_limited_to_one() -> None:
    one, two = EchoAgent(), EchoAgent()
    seen: list[object] = []

    def receiver(agent: object, event: Event) -> None:
        seen.append(agent)

    signal = signal_of(AnswerSkipped)
    signal.connect(receiver, sender=one)
    try:
        one.skip_answer()
        two.skip_answer()
        assert seen == [one]
    finally:
        signal.disconnect(receiver)


def test_receivers_of_signals_are_held_weakly_and_may_raise(caplog: pytest.LogCaptureFixture) -> None:
    signal = signal_of(AnswerSkipped)
    signal.connect(lambda _agent, event: None)
    gc.collect()

    def raises(_agent: object, event: Event) -> None:
        raise ValueError("of the receiver")

    signal.connect(raises)
    try:
        EchoAgent().skip_answer()
    finally:
        signal.disconnect(raises)
    assert caplog.text.count("it is ignored") == 1
    assert not signal.receivers


def test_there_is_a_signal_for_each_event() -> None:
    assert len({id(signal_of(kind)) for kind in EVENT_TYPES}) == len(EVENT_TYPES)


# -- streams


@backends
def test_a_stream_has_every_event_in_order_and_ends_with_the_agent(backend: Backend) -> None:
    async def main() -> None:
        heard: list[Event] = []
        streamed: list[Event] = []

        async def read(stream: Any) -> None:
            async for event in stream:
                streamed.append(event)  # noqa: PERF401 - what came before an end counts

        async with anyio.create_task_group() as tasks, ScriptedAgent(["a", 1.0, "b"]) as agent:
            for kind in EVENT_TYPES:
                agent.on(kind, heard.append)
            tasks.start_soon(read, agent.events())
            agent.add_user_message("hi")
            agent.cancel_last_user_message()
            agent.end_call()
            await agent.answer().wait()
        assert [type(event).__name__ for event in streamed] == [
            "MessageAdded",
            "UserMessageCancelled",
            "EndCallRequested",
            "MessageAdded",
            "AnswerFinished",
        ]
        assert streamed == heard

    run_virtual(backend, main)


@backends
def test_a_reader_that_times_out_loses_no_event(backend: Backend) -> None:
    async def main() -> None:
        async with EchoAgent() as agent:
            stream = agent.events()
            with anyio.move_on_after(1) as scope:
                await stream.receive()
            assert scope.cancelled_caught
            agent.skip_answer()
            assert await stream.receive() == AnswerSkipped()

    run_virtual(backend, main)


def test_a_native_cancellation_in_the_tick_of_an_event_does_not_lose_it() -> None:
    async def main() -> None:
        async with EchoAgent() as agent:
            stream = agent.events()
            reader = asyncio.ensure_future(stream.receive())
            for _ in range(5):
                await asyncio.sleep(0)
            agent.skip_answer()
            reader.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reader
            agent.end_call()
            assert [await stream.receive(), await stream.receive()] == [AnswerSkipped(), EndCallRequested()]

    run_virtual("asyncio", main)


@backends
def test_a_stream_may_be_left_at_any_time(backend: Backend) -> None:
    async def main() -> None:
        async with EchoAgent() as agent:
            agent.events()  # never read
            left = agent.events()
            agent.skip_answer()
            async for _ in left:
                break
            closed = agent.events()
            await closed.aclose()
            with pytest.raises(anyio.ClosedResourceError):
                await closed.receive()
            del left
            gc.collect()
            agent.skip_answer()
            assert not agent._hub._inboxes

            waiting = agent.events()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ends_with, anyio.ClosedResourceError, waiting)
                await anyio.sleep(1)
                await waiting.aclose()

    run_virtual(backend, main)


async def ends_with(error: type[Exception], stream: Any) -> None:
    with pytest.raises(error):
        await stream.receive()


@backends
def test_two_readers_of_one_stream_share_its_events(backend: Backend) -> None:
    async def main() -> None:
        seen: list[Event] = []

        async def read(stream: Any) -> None:
            async for event in stream:
                seen.append(event)
                await anyio.lowlevel.checkpoint()

        async with anyio.create_task_group() as tasks, EchoAgent() as agent:
            stream = agent.events()
            tasks.start_soon(read, stream)
            tasks.start_soon(read, stream)
            await anyio.sleep(1)
            for _ in range(10):
                agent.skip_answer()
            await anyio.sleep(1)
        assert len(seen) == 10

    run_virtual(backend, main)


# -- what the events of an agent say


@backends
def test_events_tell_positions_so_that_an_observer_can_follow(backend: Backend) -> None:
    async def main() -> None:
        async with EchoAgent() as agent:
            events: list[Event] = []
            agent.on(UserMessageCancelled, events.append)
            agent.cancel_last_user_message()
            agent.add_user_message("one")
            agent.add_assistant_message("two")
            agent.cancel_last_user_message()
            assert events == [UserMessageCancelled(None, None), UserMessageCancelled(Message("user", "one"), 1)]

    run_virtual(backend, main)


@backends
def test_another_logger_hears_of_bad_listeners_too(backend: Backend, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with EchoAgent() as agent:
            agent.logger = logging.getLogger("my.app")
            assert agent.logger.name == "my.app"
            agent.on(AnswerSkipped, lambda _event: 1 / 0)
            agent.skip_answer()

    run_virtual(backend, main)
    assert {record.name for record in caplog.records if record.levelno >= logging.ERROR} == {"my.app"}
