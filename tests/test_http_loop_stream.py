"""LoopStream: reads on asyncio without AnyIO's costs per read, and keeps what AnyIO's stream promises."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import random
import socket
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import pytest
from llmock_support import until
from loop_stream_support import loops, run

from micdrop_agent.transport.connection import Connection, connect_direct
from micdrop_agent.transport.loop_stream import MOST_WAITING, LoopStream, quicken

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

pytestmark = pytest.mark.skipif(os.name != "posix", reason="sockets of a POSIX system")


class Peer:
    """The other end, as a plain socket."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        self.socket: socket.socket | None = None

    def accept(self) -> socket.socket:
        self.socket, _ = self.listener.accept()
        self.socket.settimeout(10)
        return self.socket

    def close(self) -> None:
        self.listener.close()
        if self.socket is not None:
            self.socket.close()


@asynccontextmanager
async def connected(host: str = "127.0.0.1") -> AsyncGenerator[tuple[LoopStream, socket.socket]]:
    peer = Peer()
    try:
        stream = await connect_direct(host, peer.port, tls=False, context=None)
        assert isinstance(stream, LoopStream)
        try:
            yield stream, peer.accept()
        finally:
            await stream.aclose()
    finally:
        peer.close()


def arrived(stream: LoopStream, reader: asyncio.Future[None]) -> bool:
    return bool(stream._data) or reader.done()


@loops
def test_every_byte_comes_once_and_in_order_however_it_is_cut(uv: bool) -> None:
    async def scenario() -> None:
        dice = random.Random(7)
        sent = dice.randbytes(300_000)
        async with connected() as (stream, peer):

            def send() -> None:
                at = 0
                while at < len(sent):
                    size = dice.choice((1, 3, 1000, 60_000))
                    peer.sendall(sent[at : at + size])
                    at += size
                peer.close()

            got = b""
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(anyio.to_thread.run_sync, send)
                while len(got) < len(sent):
                    data = await stream.receive(dice.choice((1, 10, 65_536)))
                    assert data
                    got += data
            with pytest.raises(anyio.EndOfStream):
                await stream.receive()
            assert got == sent

    run(uv, scenario)


@loops
def test_connections_of_one_loop_do_not_see_each_others_bytes(uv: bool) -> None:
    # They are read into the same buffer, and what came for one waits while the other is read.
    async def scenario() -> None:
        async with connected() as (one, first), connected() as (two, second):
            for number in range(50):
                first.sendall(b"first %02d" % number)
                await until(lambda: bool(one._data))
                second.sendall(b"other %02d" % number)
                await until(lambda: bool(two._data))
                assert await one.receive() == b"first %02d" % number
                assert await two.receive() == b"other %02d" % number

    run(uv, scenario)


@loops
def test_a_name_is_connected_to_and_read_like_an_address(uv: bool) -> None:
    async def scenario() -> None:
        async with connected("localhost") as (stream, peer):
            peer.sendall(b"hello")
            assert await stream.receive() == b"hello"
            await stream.send(b"there")
            assert peer.recv(100) == b"there"

    run(uv, scenario)


@loops
def test_all_connections_of_a_loop_are_read_into_one_buffer_and_no_other_loop_is(uv: bool) -> None:
    buffers: list[memoryview] = []

    async def scenario() -> None:
        async with connected() as (one, _), connected() as (two, _):
            assert one.get_buffer(-1) is two.get_buffer(-1)
            buffers.append(one.get_buffer(-1))

    run(uv, scenario)
    run(uv, scenario)
    assert buffers[0] is not buffers[1]


@pytest.mark.parametrize(
    ("host", "raced"),
    [("127.0.0.1", False), ("::1", False), ("localhost", True), ("127.1", True), ("a\0b", True), ("", True)],
)
def test_only_a_name_is_looked_up_and_raced(monkeypatch: pytest.MonkeyPatch, host: str, raced: bool) -> None:
    asked: list[str] = []

    async def connect_tcp(host: str, port: int) -> None:
        asked.append(host)
        raise OSError("not here")

    async def scenario() -> None:
        monkeypatch.setattr(anyio, "connect_tcp", connect_tcp)
        with pytest.raises(OSError):  # noqa: PT011 - which one, the system says: nothing listens at port 1
            await connect_direct(host, 1, tls=False, context=None)

    run(False, scenario)
    assert asked == [host] * raced


def open_sockets() -> list[str]:
    return sorted(name for each in Path("/proc/self/fd").iterdir() if (name := target(each)).startswith("socket:"))


def target(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:  # it was open only for the listing
        return ""


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs Linux's list of open files")
@loops
def test_a_handshake_that_is_given_up_leaves_no_socket_open(uv: bool) -> None:
    # A server whose queue is full answers nothing: the handshake hangs.
    async def scenario() -> None:
        with socket.socket() as full:
            full.bind(("127.0.0.1", 0))
            full.listen(0)
            port: int = full.getsockname()[1]
            with contextlib.ExitStack() as waiting:
                for _ in range(4):
                    taken = waiting.enter_context(socket.socket())
                    taken.setblocking(False)
                    taken.connect_ex(("127.0.0.1", port))
                before = open_sockets()
                with anyio.move_on_after(0.05) as limit:
                    await connect_direct("127.0.0.1", port, tls=False, context=None)
                assert limit.cancelled_caught
                await until(lambda: open_sockets() == before)

    run(uv, scenario)


@loops
@pytest.mark.parametrize("natively", [False, True])
def test_a_reader_that_is_cancelled_takes_no_byte_along(uv: bool, natively: bool) -> None:
    async def scenario() -> None:
        async with connected() as (stream, peer):
            got = b""
            scopes: list[anyio.CancelScope] = []

            async def read() -> None:
                nonlocal got
                with anyio.CancelScope() as scope:
                    scopes.append(scope)
                    got += await stream.receive()

            for number in range(40):
                reader = asyncio.ensure_future(read())
                await anyio.lowlevel.checkpoint()
                peer.sendall(b"%02d" % number)
                if number % 2:
                    await until(functools.partial(arrived, stream, reader))
                if natively:
                    reader.cancel()
                else:
                    scopes[-1].cancel()
                await asyncio.wait([reader])
            while len(got) < 80:
                got += await stream.receive()
            assert got == b"".join(b"%02d" % number for number in range(40))

    run(uv, scenario)


@loops
def test_a_sender_that_nobody_reads_is_held_back_and_nothing_is_lost(uv: bool) -> None:
    async def scenario() -> None:
        size, got = 20 * MOST_WAITING, 0
        async with connected() as (stream, peer):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(anyio.to_thread.run_sync, functools.partial(peer.sendall, b"x" * size))
                await until(lambda: stream._paused)
                held = len(stream._data)
                assert MOST_WAITING < held <= 2 * MOST_WAITING
                for _ in range(50):
                    await anyio.lowlevel.checkpoint()
                assert len(stream._data) == held
                while got < size:
                    got += len(await stream.receive())
            assert got == size
            peer.close()
            with pytest.raises(anyio.EndOfStream):
                await stream.receive()

    run(uv, scenario)


@loops
def test_a_writer_waits_until_the_system_has_taken_its_bytes(uv: bool) -> None:
    async def scenario() -> None:
        size = 8_000_000
        async with connected() as (stream, peer):

            def drain() -> int:
                got = 0
                while got < size:
                    got += len(peer.recv(1 << 20))
                return got

            with anyio.move_on_after(0.01) as impatient:
                await stream.send(b"y" * size)
            assert impatient.cancelled_caught
            assert await anyio.to_thread.run_sync(drain) == size
            await stream.send(b"more")
            assert peer.recv(10) == b"more"

    run(uv, scenario)


@loops
def test_an_idle_connection_knows_that_the_server_has_closed_it_or_spoken_unasked(uv: bool) -> None:
    async def scenario() -> None:
        async with connected() as (stream, peer):
            connection = Connection(stream, tls=False)
            assert not connection.looks_dead()
            peer.sendall(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
            await until(connection.looks_dead)
            peer.close()
            await until(stream._transport.is_closing)
            with pytest.raises(anyio.BrokenResourceError):
                await stream.send(b"POST")

    run(uv, scenario)


@loops
def test_hanging_up_is_seen_by_the_server_before_the_loop_turns_and_closing_works_afterwards(uv: bool) -> None:
    async def scenario() -> None:
        async with connected() as (stream, peer):
            connection = Connection(stream, tls=False)
            connection.abort()
            assert peer.recv(1) == b""
            await connection.aclose()
            await connection.aclose()
            with pytest.raises(anyio.ClosedResourceError):
                await stream.receive()
            with pytest.raises(anyio.ClosedResourceError):
                await stream.send(b"x")

    run(uv, scenario)


@loops
def test_closing_wakes_the_reader_and_a_second_reader_is_refused(uv: bool) -> None:
    async def scenario() -> None:
        async with connected() as (stream, _):
            said: list[str] = []

            async def read() -> None:
                try:
                    await stream.receive()
                except anyio.ClosedResourceError:
                    said.append("closed")

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(read)
                await anyio.wait_all_tasks_blocked()
                with pytest.raises(anyio.BusyResourceError):
                    await stream.receive()
                stream.close_now()
            assert said == ["closed"]

    run(uv, scenario)


@loops
def test_a_reset_connection_is_a_broken_one(uv: bool) -> None:
    async def scenario() -> None:
        async with connected() as (stream, peer):
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            peer.close()
            with pytest.raises((anyio.BrokenResourceError, anyio.EndOfStream)):
                await stream.receive()

    run(uv, scenario)


@loops
def test_it_tells_its_addresses_as_every_stream_of_anyio(uv: bool) -> None:
    async def scenario() -> None:
        async with connected() as (stream, peer):
            assert stream.extra(anyio.abc.SocketAttribute.remote_address) == peer.getsockname()
            assert stream.extra(anyio.abc.SocketAttribute.remote_port) == peer.getsockname()[1]
            assert stream.extra(anyio.abc.SocketAttribute.local_address) == peer.getpeername()

    run(uv, scenario)


def test_a_stream_of_another_kind_stays_as_it_is() -> None:
    class Foreign:
        _transport = object()

    foreign: Any = Foreign()
    assert quicken(foreign) is foreign
