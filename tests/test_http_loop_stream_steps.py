"""LoopStream step by step, on a transport that does only what the test says: what one turn of a loop may bring together."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from loop_stream_support import loops, run

from micdrop_agent.transport.loop_stream import MOST_WAITING, LoopStream, quicken

pytestmark = loops


class Wire:
    """A transport that only takes note."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.written = b""
        self.closing = False

    def is_closing(self) -> bool:
        return self.closing

    def pause_reading(self) -> None:
        self.calls.append("pause")

    def resume_reading(self) -> None:
        self.calls.append("resume")

    def write(self, data: bytes) -> None:
        self.written += data

    def abort(self) -> None:
        self.closing = True
        self.calls.append("abort")

    def set_protocol(self, protocol: object) -> None:
        self.calls.append(type(protocol).__name__)


# -- a reader


@pytest.mark.parametrize("natively", [False, True])
@pytest.mark.parametrize("order", ["the bytes first", "the cancellation first"])
def test_bytes_of_the_step_in_which_a_reader_is_cancelled_are_for_the_next_one(
    uv: bool, natively: bool, order: str
) -> None:
    """Fault "a cancelled reader takes along the bytes that came in its last step"."""

    async def scenario() -> None:
        stream = LoopStream(Wire())
        got: list[bytes] = []
        scope = anyio.CancelScope()

        async def read() -> None:
            with scope:
                got.append(await stream.receive())

        reader = asyncio.ensure_future(read())
        await anyio.lowlevel.checkpoint()
        await anyio.lowlevel.checkpoint()
        cancel = reader.cancel if natively else scope.cancel
        if order == "the bytes first":
            stream.data_received(b"one ")
            cancel()
        else:
            cancel()
            stream.data_received(b"one ")
        await asyncio.wait([reader])
        stream.data_received(b"two")
        rest = b"" if got else await stream.receive()
        # A scope's cancellation does not reach who has been woken already: then the bytes are his.
        assert b"".join([*got, rest, stream._data]) == b"one two"
        assert reader.cancelled() is natively
        assert not (natively and got)

    run(uv, scenario)


def test_what_came_before_the_end_is_read_before_the_end_is_told(uv: bool) -> None:
    async def scenario() -> None:
        for half in (True, False):
            stream = LoopStream(Wire())
            stream.data_received(b"last words")
            if half:
                stream.eof_received()
            else:
                stream.connection_lost(None)
            assert stream.disturbed
            assert await stream.receive(4) == b"last"
            assert await stream.receive() == b" words"
            with pytest.raises(anyio.EndOfStream):
                await stream.receive()

    run(uv, scenario)


def test_a_connection_that_breaks_wakes_its_reader_and_tells_why(uv: bool) -> None:
    async def scenario() -> None:
        stream = LoopStream(Wire())
        why = ConnectionResetError("reset by peer")
        told: list[BaseException | None] = []

        async def read() -> None:
            with pytest.raises(anyio.BrokenResourceError) as caught:
                await stream.receive()
            told.append(caught.value.__cause__)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            await anyio.wait_all_tasks_blocked()
            stream.connection_lost(why)
        with pytest.raises(anyio.BrokenResourceError) as caught:
            await stream.send(b"x")
        assert told == [why]
        assert caught.value.__cause__ is why

    run(uv, scenario)


def test_the_server_is_held_back_while_much_waits_and_let_on_once_there_is_room(uv: bool) -> None:
    async def scenario() -> None:
        wire = Wire()
        stream = LoopStream(wire)
        stream.data_received(b"x" * MOST_WAITING)
        assert wire.calls == []
        stream.data_received(b"y" * 10)
        stream.data_received(b"z" * 10)
        assert wire.calls == ["pause"]
        assert await stream.receive(10) == b"x" * 10
        assert wire.calls == ["pause"]
        assert await stream.receive(10) == b"x" * 10
        assert wire.calls == ["pause", "resume"]
        await stream.receive()
        assert wire.calls == ["pause", "resume"]

    run(uv, scenario)


def test_a_connection_that_is_lost_while_it_was_held_back_is_not_let_on(uv: bool) -> None:
    async def scenario() -> None:
        wire = Wire()
        stream = LoopStream(wire)
        stream.data_received(b"x" * (MOST_WAITING + 1))
        stream.connection_lost(None)
        assert len(await stream.receive(MOST_WAITING * 2)) == MOST_WAITING + 1
        assert wire.calls == ["pause"]

    run(uv, scenario)


# -- a writer


def test_a_writer_that_was_cancelled_while_it_waited_disturbs_nobody(uv: bool) -> None:
    async def scenario() -> None:
        wire = Wire()
        stream = LoopStream(wire)
        stream.pause_writing()
        with anyio.CancelScope() as scope:
            asyncio.get_running_loop().call_soon(scope.cancel)
            await stream.send(b"one ")
        assert scope.cancelled_caught
        stream.resume_writing()
        stream.resume_writing()
        await stream.send(b"two")
        assert wire.written == b"one two"

    run(uv, scenario)


@pytest.mark.parametrize("ours", [False, True], ids=["by the server", "by us"])
def test_a_writer_that_waits_is_told_when_the_connection_is_closed(uv: bool, ours: bool) -> None:
    async def scenario() -> None:
        stream = LoopStream(Wire())
        stream.pause_writing()
        told: list[type[Exception]] = []

        async def write() -> None:
            try:
                await stream.send(b"x")
            except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
                told.append(type(error))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(write)
            await anyio.wait_all_tasks_blocked()
            if ours:
                stream.close_now()
            stream.connection_lost(None)  # as the transport does after abort(), too
        assert told == [anyio.ClosedResourceError if ours else anyio.BrokenResourceError]

    run(uv, scenario)


def test_nothing_is_sent_for_a_task_that_is_cancelled_already(uv: bool) -> None:
    async def scenario() -> None:
        wire = Wire()
        stream = LoopStream(wire)
        with anyio.CancelScope() as scope:
            scope.cancel()
            await stream.send(b"x")
        assert wire.written == b""

    run(uv, scenario)


# -- the end


def test_closing_twice_aborts_once(uv: bool) -> None:
    async def scenario() -> None:
        wire = Wire()
        stream = LoopStream(wire)
        stream.close_now()
        await stream.aclose()
        assert wire.calls == ["abort"]
        with pytest.raises(anyio.ClosedResourceError):
            await stream.receive()

    run(uv, scenario)


# -- where it comes from


class OfAnyIO:
    """What AnyIO's stream looks like from within."""

    def __init__(self, wire: object, event: object) -> None:
        self._transport = wire
        self._protocol = type("Protocol", (), {"read_event": event})()


def test_a_stream_just_connected_gets_our_protocol_and_is_read_from_now_on(uv: bool) -> None:
    async def scenario() -> None:
        wire = Wire()
        foreign: Any = OfAnyIO(wire, asyncio.Event())
        quick = quicken(foreign)
        assert isinstance(quick, LoopStream)
        assert wire.calls == ["LoopStream", "resume"]

    run(uv, scenario)


def test_a_stream_that_was_read_already_or_is_unknown_stays_as_it_is(uv: bool) -> None:
    async def scenario() -> None:
        read, closing = asyncio.Event(), Wire()
        read.set()
        closing.closing = True
        streams: list[Any] = [
            OfAnyIO(Wire(), read),  # its bytes wait in AnyIO's protocol
            OfAnyIO(closing, asyncio.Event()),
            OfAnyIO(Wire(), None),
            OfAnyIO(object(), asyncio.Event()),
            object(),
        ]
        for stream in streams:
            assert quicken(stream) is stream

    run(uv, scenario)
