"""Signals for the observers of all agents, and events as a stream."""

from __future__ import annotations

import asyncio
import gc
import logging
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from micdrop_agent import EchoAgent, Message, signal_of
from micdrop_agent.events import (
    EVENT_TYPES,
    AnswerSkipped,
    EndCallRequested,
    Event,
    UserMessageCancelled,
)
from micdrop_agent.testing import BACKENDS, ScriptedAgent, run_virtual

if TYPE_CHECKING:
    from collections.abc import Callable

    from micdrop_agent.testing import Backend

backends = pytest.mark.parametrize("backend", BACKENDS)
LOGGER = logging.getLogger("micdrop_agent.test")


# -- signals


def test_signals_come_after_the_listeners_in_the_order_of_connection() -> None:
    seen: list[str] = []
    receivers: list[Callable[..., None]] = [lambda _agent, event, n=n: seen.append(f"signal {n}") for n in range(8)]
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
            assert not agent._core.hub._inboxes

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
