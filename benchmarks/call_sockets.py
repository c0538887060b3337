"""Whole calls over real WebSockets: this server, the TypeScript original and Pipecat's transport, in one run.

    python benchmarks/call_sockets.py                                    # ours alone
    python benchmarks/call_sockets.py --typescript DIR --pipecat PYTHON  # beside the others

``DIR`` is a folder whose ``node_modules`` hold ``@micdrop/server`` and ``ws``; ``PYTHON`` is the interpreter of an
environment with ``pipecat-ai`` and ``uvicorn``. Every server gets the same scripted parts (``call_servers/``), has
one CPU, and the client the other; they take turns, round by round.

``reply``: from StopSpeaking to the first audio frame. ``barge-in``: from StartSpeaking to the last audio frame,
while the voice sends 20 ms of audio every 2 ms, and how many frames still came. ``late``: how late a frame was with
many calls at once, 10 frames a second each way; with the share of a core, and the memory of a call.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
from _harness import Goals, Samples, many_files, pin, run, tell
from websockets.asyncio.client import connect

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

HERE = Path(__file__).parent / "call_servers"
FRAME = bytes(3200)


class Server:
    """A server in a process of its own."""

    def __init__(self, name: str, command: list[str], cpu: int | None, folder: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = int(free.getsockname()[1])
        self.name = name
        self.process = subprocess.Popen([*command, str(self.port)], cwd=folder)
        if cpu is not None:
            os.sched_setaffinity(self.process.pid, {cpu})
        self._wait()

    def _wait(self) -> None:
        for _ in range(400):
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
            except OSError:
                assert self.process.poll() is None, f"{self.name} has ended"
                time.sleep(0.1)
            else:
                return
        raise TimeoutError(self.name)

    def connect(self, kind: str) -> connect:
        """A client that begins a call."""
        return connect(f"ws://127.0.0.1:{self.port}/{kind}", compression=None, max_size=None)

    def cpu_seconds(self) -> float:
        """CPU that it has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def kib(self) -> int:
        """Its resident memory."""
        status = Path(f"/proc/{self.process.pid}/status").read_text().split()
        return int(status[status.index("VmRSS:") + 1])

    def close(self) -> None:
        """End it."""
        self.process.kill()
        self.process.wait()


async def speak(client: ClientConnection) -> None:
    """One turn of the caller."""
    await client.send("StartSpeaking")
    await client.send(FRAME)
    await client.send("StopSpeaking")


async def until_audio(client: ClientConnection) -> None:
    """Read up to the first audio."""
    while isinstance(await client.recv(), str):
        pass


async def reply(server: Server, samples: Samples, rounds: int) -> None:
    """Ask and wait, again and again."""
    async with server.connect("answer") as client:
        for number in range(rounds + 10):
            await client.send("StartSpeaking")
            await client.send(FRAME)
            await anyio.sleep(0.01)
            began = time.perf_counter()
            await client.send("StopSpeaking")
            with anyio.fail_after(10):
                await until_audio(client)
            if number >= 10:
                samples.add("reply", server.name, (time.perf_counter() - began) * 1000)
            await anyio.sleep(0.01)


async def barge_in(server: Server, samples: Samples, rounds: int) -> None:
    """Interrupt a voice in full flow."""
    for _ in range(rounds):
        async with server.connect("torrent") as client:
            await speak(client)
            for _ in range(20):
                await until_audio(client)
            began = last = time.perf_counter()
            await client.send("StartSpeaking")
            count = 0
            with anyio.move_on_after(0.3):
                while True:
                    if not isinstance(await client.recv(), str):
                        last, count = time.perf_counter(), count + 1
            samples.add("barge-in", server.name, (last - began) * 1000)
            samples.add("frames after", server.name, count)


def _note_late(frame: str | bytes, late: list[float]) -> None:
    if isinstance(frame, bytes) and any(frame[:8]):
        late.append((time.perf_counter_ns() - struct.unpack("<q", frame[:8])[0]) / 1e6)


async def talk(client: ClientConnection, late: list[float]) -> None:
    """Listen to an endless answer, and send audio all the while."""

    async def listen() -> None:
        async for frame in client:
            _note_late(frame, late)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listen)
        await speak(client)
        while True:
            await client.send(FRAME)
            await anyio.sleep(0.1)


async def many(server: Server, samples: Samples, calls: int, seconds: float) -> None:
    """So many calls at once."""
    late: list[float] = []
    before = server.kib()
    async with anyio.create_task_group() as tasks:
        clients = [await server.connect("talk") for _ in range(calls)]
        for client in clients:
            tasks.start_soon(talk, client, late)
            await anyio.sleep(0.5 / calls)
        await anyio.sleep(1)
        late.clear()
        used, began = server.cpu_seconds(), time.perf_counter()
        await anyio.sleep(seconds)
        samples.add("core %", server.name, (server.cpu_seconds() - used) / (time.perf_counter() - began) * 100)
        samples.add("KiB a call", server.name, (server.kib() - before) / calls)
        tasks.cancel_scope.cancel()
    for client in clients:
        await client.close()
    for value in late:
        samples.add("late", server.name, value)


async def measure(servers: list[Server], samples: Samples, options: argparse.Namespace) -> None:
    """Everything, the servers in turn."""
    for _ in range(3):
        for server in servers:
            await reply(server, samples, options.rounds // 3)
            await barge_in(server, samples, max(1, options.rounds // 15))
    for server in servers:
        await many(server, samples, options.calls, options.seconds)


def main() -> None:
    """Start the servers, measure them, and print one line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--typescript", type=Path, metavar="DIR", help="where @micdrop/server is installed")
    parser.add_argument("--pipecat", metavar="PYTHON", help="an interpreter with pipecat-ai")
    parser.add_argument("--rounds", type=int, default=150)
    parser.add_argument("--calls", type=int, default=100, help="calls at once (100)")
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    many_files()
    cpu = pin()
    commands: dict[str, tuple[list[str], Path]] = {
        "micdrop_agent": ([sys.executable, str(HERE / "micdrop_agent_server.py")], HERE)
    }
    if options.typescript:
        node = shutil.which("node")
        assert node is not None, "node is not installed"
        commands["TypeScript"] = ([node, str(HERE / "typescript.mjs")], options.typescript)
    if options.pipecat:
        commands["Pipecat"] = ([options.pipecat, "-W", "ignore", str(HERE / "pipecat_server.py")], HERE)
    servers: list[Server] = []
    samples, goals = Samples(), Goals()
    try:
        servers += [Server(name, command, cpu, folder) for name, (command, folder) in commands.items()]
        run("asyncio", measure, servers, samples, options)
    finally:
        for server in servers:
            server.close()
    goals.at_most("frames late, p99 ms", samples.percentile("late", "micdrop_agent", 0.99), 100)
    tails: dict[str, Any] = {name: round(samples.percentile("late", name, 0.99), 2) for name in commands}
    tell("call_sockets", "asyncio", None, goals, medians=samples.medians(2), late_p99=tails, calls=options.calls)


if __name__ == "__main__":
    main()
