"""What one client that floods its call costs the other calls of the process, over real WebSockets.

    python benchmarks/call_flood.py --calls 20 --rounds 3

A process of its own sends 10 MB of frames within a second: random audio, commands, text and rubbish. Beside it
go calls that listen to an answer and send audio. How late their frames were, before and while it lasts, what the
server grew by, and how much of the flood it has read.

Goals: p99 of the others at most twice what it was before, and at most 10 MB of memory.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import socket
import struct
import sys
import time
from typing import TYPE_CHECKING, Any, Final

import anyio
from _harness import Goals, Samples, many_files, pin, run, tell
from call_sockets import HERE, Server, talk

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

SIZE: Final = 10_000_000
KINDS: Final = ("mixed", "tiny", "commands")
HANDSHAKE: Final = (
    b"GET /talk HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


def frame(payload: str | bytes) -> bytes:
    """A WebSocket frame of a client, whose mask is zero."""
    data = payload.encode() if isinstance(payload, str) else payload
    size = len(data)
    length = struct.pack(">B", 128 + size) if size < 126 else struct.pack(">BH", 254, size)
    return bytes([129 if isinstance(payload, str) else 130]) + length + bytes(4) + data


def flood_of(kind: str) -> bytes:
    """10 MB of frames."""
    chance = random.Random(1)
    commands = ["StartSpeaking", "StopSpeaking", "Mute"]
    frames: list[bytes] = []
    left = SIZE
    while left > 0:
        if kind == "tiny":
            payload: str | bytes = chance.randbytes(chance.randint(0, 40))
        elif kind == "commands":
            payload = chance.choice([*commands, chance.randbytes(200)])
        else:
            audio, text = chance.randbytes(chance.randint(0, 20_000)), chance.randbytes(chance.randint(0, 900)).hex()
            payload = chance.choice([audio, text, *commands])
        frames.append(frame(payload))
        left -= len(frames[-1])
    return b"".join(frames)


def flood(kind: str, port: int, told: Connection) -> None:
    """Send it for a second, as much as the server takes; tell how much that was."""
    data = flood_of(kind)
    with socket.create_connection(("127.0.0.1", port)) as link:
        link.sendall(HANDSHAKE)
        link.recv(4096)
        told.send("ready")
        told.recv()
        link.settimeout(0.05)
        sent, end = 0, time.monotonic() + 1
        while sent < len(data) and time.monotonic() < end:
            try:
                sent += link.send(data[sent : sent + 65_536])
            except TimeoutError:
                continue
            except OSError:
                break
        told.send(sent / 1e6)


async def measure(server: Server, samples: Samples, options: argparse.Namespace) -> None:
    """Listen, then listen again while the flood goes on."""
    late: list[float] = []
    async with anyio.create_task_group() as tasks:
        clients = [await server.connect("talk") for _ in range(options.calls)]
        for client in clients:
            tasks.start_soon(talk, client, late)
        await anyio.sleep(2)
        for _ in range(options.rounds):
            for kind in KINDS:
                await _one(server, samples, kind, late)
        tasks.cancel_scope.cancel()


async def _one(server: Server, samples: Samples, kind: str, late: list[float]) -> None:
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=flood, args=(kind, server.port, theirs), daemon=True)
    process.start()
    await anyio.to_thread.run_sync(ours.recv)
    memory = server.kib()
    late.clear()
    await anyio.sleep(3)
    for value in late:
        samples.add("late before", kind, value)
    late.clear()
    ours.send("go")
    await anyio.sleep(1.5)
    for value in late:
        samples.add("late in the flood", kind, value)
    samples.add("MB taken", kind, await anyio.to_thread.run_sync(ours.recv))
    samples.add("memory, MB", kind, max(0, server.kib() - memory) / 1024)
    process.join()


def main() -> None:
    """Measure, and print one line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    many_files()
    samples, goals = Samples(), Goals()
    server = Server("micdrop_agent", [sys.executable, str(HERE / "micdrop_agent_server.py")], pin(), HERE)
    try:
        run("asyncio", measure, server, samples, options)
    finally:
        server.close()
    tails: dict[str, Any] = {}
    for kind in KINDS:
        before = samples.percentile("late before", kind, 0.99)
        during = samples.percentile("late in the flood", kind, 0.99)
        tails[kind] = [round(before, 2), round(during, 2)]
        goals.at_most(f"{kind}: p99 of the others, times", during / before, 2)
        goals.at_most(f"{kind}: memory, MB", samples.median("memory, MB", kind), 10)
    tell("call_flood", "asyncio", None, goals, p99_before_and_in=tails, medians=samples.medians(2))


if __name__ == "__main__":
    main()
