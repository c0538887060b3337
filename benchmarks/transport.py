"""What the transport alone costs: first chunk of a warm turn, CPU per event of a burst, a cancelled turn.

The same request goes over a raw socket (the floor: hand-written HTTP, no parser, no errors), bare httpx2 and our
transports, interleaved in one run against a loopback server in a process of its own. All but the raw ones split
the body with the same SSE reader; nobody decodes JSON. Not measured: TLS, distance, a real model.

    python benchmarks/transport.py --backend asyncio --rounds 1000

One JSON line: medians in microseconds, and ratios of the direct transport to httpx2 and to the raw socket. Compare
ratios within one line only.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import anyio
import anyio.abc
import httpx2
import openai

sys.path.insert(0, str(Path(__file__).parent.parent))

from micdrop_agent.providers.responses.sse import SseReader
from micdrop_agent.transport.client_transport import ClientTransport
from micdrop_agent.transport.direct import DirectTransport
from micdrop_agent.transport.sdk_transport import SdkTransport

if TYPE_CHECKING:
    from collections.abc import Callable

    from micdrop_agent.transport.base import Transport

BODY = json.dumps({"model": "m", "stream": True, "messages": [{"role": "user", "content": "Hello!"}]}).encode()
HEADERS = {"authorization": "Bearer bench", "content-type": "application/json"}
END = b"0\r\n\r\n"
EVENTS = 10


# --------------------------------------------------------------------------------------- clients


class _Client(Protocol):
    async def turn(self, what: str, on_first: Callable[[], object]) -> None:
        """One whole turn; ``on_first`` is called once, at its first event."""

    async def aclose(self) -> None: ...


def _request(what: str) -> bytes:
    return b"POST /v1/%b HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (what.encode(), len(BODY), BODY)


class _RawAnyio:
    """An AnyIO TCP stream and hand-written HTTP."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.stream: anyio.abc.ByteStream | None = None

    async def turn(self, what: str, on_first: Callable[[], object]) -> None:
        if self.stream is None:
            self.stream = await anyio.connect_tcp("127.0.0.1", self.port)
        done = False
        try:
            await self.stream.send(_request(what))
            first, data = False, b""
            while not data.endswith(END):
                data = await self.stream.receive()
                if not first and len(data.split(b"\n\n")) > 1:
                    first = True
                    on_first()
            done = True
        finally:
            if not done:
                stream, self.stream = self.stream, None
                await anyio.aclose_forcefully(stream)

    async def aclose(self) -> None:
        if self.stream is not None:
            await self.stream.aclose()


class _RawSocket(asyncio.Protocol):
    """An asyncio protocol and hand-written HTTP: the floor."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.transport: Any = None
        self.waiter: asyncio.Future[bytes] | None = None
        self.pending = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(data)
        else:
            self.pending += data

    async def turn(self, what: str, on_first: Callable[[], object]) -> None:
        loop = asyncio.get_running_loop()
        if self.transport is None:
            await loop.create_connection(lambda: self, "127.0.0.1", self.port)
        done = False
        try:
            self.transport.write(_request(what))
            first, data = False, b""
            while not data.endswith(END):
                if self.pending:
                    data, self.pending = self.pending, b""
                else:
                    self.waiter = loop.create_future()
                    data = await self.waiter
                if not first and len(data.split(b"\n\n")) > 1:
                    first = True
                    on_first()
            done = True
        finally:
            if not done:
                self.transport.abort()
                self.transport = None

    async def aclose(self) -> None:
        self.transport.close()


class _Httpx2:
    """Bare httpx2, read as its documentation says."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/v1"
        self.client = httpx2.AsyncClient(timeout=None)

    async def turn(self, what: str, on_first: Callable[[], object]) -> None:
        reader, first = SseReader(), False
        async with self.client.stream("POST", f"{self.url}/{what}", content=BODY, headers=HEADERS) as response:
            async for data in response.aiter_raw():
                if reader.feed(data) and not first:
                    first = True
                    on_first()

    async def aclose(self) -> None:
        await self.client.aclose()


class _Ours:
    """One of our transports."""

    def __init__(self, transport: Transport, sdk: openai.AsyncOpenAI | None = None) -> None:
        self.transport = transport
        self.sdk = sdk

    async def turn(self, what: str, on_first: Callable[[], object]) -> None:
        reader, first = SseReader(), False
        response = await self.transport.post(f"/{what}", HEADERS, BODY)
        try:
            while True:
                if reader.feed(await response.receive()) and not first:
                    first = True
                    on_first()
        except anyio.EndOfStream:
            pass
        finally:
            await response.aclose()

    async def aclose(self) -> None:
        await self.transport.aclose()
        if self.sdk is not None:
            await self.sdk.close()


def _clients(port: int, backend: str) -> dict[str, _Client]:
    url = f"http://127.0.0.1:{port}/v1"
    sdk = openai.AsyncOpenAI(api_key="bench", base_url=url)
    floor: dict[str, _Client] = {"raw anyio": _RawAnyio(port)}
    if backend == "asyncio":
        floor["raw socket"] = _RawSocket(port)
    return floor | {
        "httpx2": _Httpx2(port),
        "direct": _Ours(DirectTransport(url)),
        "client": _Ours(ClientTransport(httpx2.AsyncClient(), url, owned=True)),
        "sdk": _Ours(SdkTransport(sdk), sdk),
    }


# ------------------------------------------------------------------------------------- measuring


async def _cancelled_turn(client: _Client, observer: DirectTransport) -> tuple[float, float]:
    """Microseconds from a cancel in the middle of a turn to the end of the task, and to the server's noticing."""
    begun = anyio.Event()
    async with anyio.create_task_group() as group:
        group.start_soon(client.turn, "hold", begun.set)
        await begun.wait()
        await anyio.wait_all_tasks_blocked()
        started = time.perf_counter_ns()
        group.cancel_scope.cancel()
    ended = time.perf_counter_ns()
    lost = 0
    while lost < started:
        async with await observer.post("/lost", {}, BODY) as response:
            lost = int(await response.read())
    return (ended - started) / 1000, (lost - started) / 1000


async def _timed_turn(client: _Client, what: str) -> tuple[float, float]:
    """Microseconds to the first event, and microseconds of CPU for the whole turn."""
    first = 0

    def note() -> None:
        nonlocal first
        first = time.perf_counter_ns()

    cpu, started = time.process_time_ns(), time.perf_counter_ns()
    await client.turn(what, note)
    return (first - started) / 1000, (time.process_time_ns() - cpu) / 1000


async def _measure(port: int, backend: str, rounds: int, burst: int) -> dict[str, Any]:
    made = _clients(port, backend)
    observer = DirectTransport(f"http://127.0.0.1:{port}")
    rows: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for client in made.values():
        for _ in range(50):
            await _timed_turn(client, str(EVENTS))
        await _timed_turn(client, str(burst))
    gc.collect()
    gc.freeze()
    gc.disable()
    for number in range(rounds):
        for name, client in made.items():
            wall, cpu = await _timed_turn(client, str(EVENTS))
            rows["first_chunk_us"][name].append(wall)
            rows["cpu_per_turn_us"][name].append(cpu)
        if number % 20 == 0:
            gc.collect(0)
            for name, client in made.items():
                rows["cpu_per_burst_event_us"][name].append((await _timed_turn(client, str(burst)))[1] / burst)
                ended, lost = await _cancelled_turn(client, observer)
                rows["cancel_to_end_us"][name].append(ended)
                rows["cancel_to_server_us"][name].append(lost)
                await _timed_turn(client, str(EVENTS))
    for client in made.values():
        await client.aclose()
    await observer.aclose()
    result = {row: {name: round(statistics.median(v), 2) for name, v in values.items()} for row, values in rows.items()}
    result["first_chunk_p99_us"] = {
        name: round(sorted(values)[int(len(values) * 0.99)], 1) for name, values in rows["first_chunk_us"].items()
    }
    return result


def _ratios(result: dict[str, Any]) -> dict[str, float]:
    ratios = {f"{row}_to_httpx2": values["direct"] / values["httpx2"] for row, values in result.items()}
    first = result["first_chunk_us"]
    ratios["first_chunk_us_to_raw"] = first["direct"] / first.get("raw socket", first["raw anyio"])
    ratios["first_chunk_us_to_raw_anyio"] = first["direct"] / first["raw anyio"]
    return {name: round(value, 3) for name, value in ratios.items()}


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="asyncio", choices=["asyncio", "trio", "uvloop"])
    parser.add_argument("--rounds", type=int, default=600)
    parser.add_argument("--burst", type=int, default=2000)
    options = parser.parse_args()
    server = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("transport_server.py"))], stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        backend = "asyncio" if options.backend == "uvloop" else options.backend
        loop: dict[str, Any] = {"use_uvloop": True} if options.backend == "uvloop" else {}
        result = anyio.run(
            _measure, port, backend, options.rounds, options.burst, backend=backend, backend_options=loop
        )
    finally:
        server.kill()
        server.wait()
    print(json.dumps({"backend": options.backend, **result, "ratios": _ratios(result)}))


if __name__ == "__main__":
    _main()
