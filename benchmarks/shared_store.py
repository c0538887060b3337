"""The first chunk of a call that is kept in Redis, while Redis works, stands still, is full and is restarted.

No call waits for the store, so nothing of this may be seen: measured is the first chunk after what the caller said, with the
same agent without a store in the same rounds. Each server is a process of its own (``valkey-server`` or
``redis-server`` must be installed); one is stopped with SIGSTOP, one is filled to its memory limit, one is killed and started
again every 20 rounds.

    python benchmarks/shared_store.py

Goal: the 99th percentile at most 1.1 times that without a store. On a busy machine the tail is noise: repeat it.
"""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import anyio
from _harness import LAST, Goals, Provider, Samples, arguments, messages, pin, quiet, run, tell

from micdrop_agent import ChatAgent
from micdrop_agent.store import RedisStore

if TYPE_CHECKING:
    from micdrop_agent import Agent

WITHOUT = "without"
SERVERS = ("working", "stopped", "full", "restarted")
RESTART_EVERY = 20


class Redis:
    """One server."""

    def __init__(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.start()

    def start(self) -> None:
        """Start it, empty."""
        program = shutil.which("valkey-server") or shutil.which("redis-server")
        if program is None:
            raise SystemExit("valkey-server or redis-server must be installed")
        command = [program, "--port", str(self.port), "--bind", "127.0.0.1", "--save", ""]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        while self.ask("PING") != b"+PONG\r\n":
            time.sleep(0.02)

    def ask(self, command: str) -> bytes:
        """Its answer; empty if there is none."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), 2) as connection:
                connection.sendall(f"{command}\r\n".encode())
                return connection.recv(1000)
        except OSError:
            return b""

    def stop(self) -> None:
        """Kill it."""
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait()


async def first_chunk(agent: Agent) -> float:
    """Milliseconds from what the caller said to the first chunk of an answer."""
    began = time.perf_counter_ns()
    agent.add_user_message(LAST)
    answer = agent.answer()
    await answer.receive()
    took = (time.perf_counter_ns() - began) / 1e6
    await answer.wait()
    return took


async def attached(stack: AsyncExitStack, url: str, server: Redis | None) -> Agent:
    """An agent in the middle of a call, which is stored or not."""
    # The store is left after its agent.
    store = None if server is None else await stack.enter_async_context(RedisStore(server.url, lease=2))
    agent = await stack.enter_async_context(ChatAgent(model="paced-3-2ms", api_key="bench", base_url=url))
    for each in messages(10)[1:-1]:
        agent.add_message(each["role"], each["content"])  # type: ignore[arg-type]
    if store is not None:
        await agent.attach(store, "call", close_timeout=20)
    return agent


async def measure(url: str, servers: dict[str, Redis], rounds: int) -> Samples:
    """All of them in turn, round by round."""
    samples = Samples()
    async with AsyncExitStack() as stack:
        agents = {name: await attached(stack, url, servers.get(name)) for name in (WITHOUT, *servers)}
        servers["stopped"].process.send_signal(signal.SIGSTOP)
        servers["full"].ask("CONFIG SET maxmemory 1")
        start = list(agents[WITHOUT].conversation)
        with quiet():
            for number in range(rounds + 5):
                if number % RESTART_EVERY == 0:
                    await anyio.to_thread.run_sync(restart, servers["restarted"])
                for name, agent in agents.items():
                    took = await first_chunk(agent)
                    if number >= 5:
                        samples.add("first_chunk_ms", name, took)
                    agent.conversation.replace(start)
        # What waits is stored in the end.
        for server in servers.values():
            server.process.send_signal(signal.SIGCONT)
            server.ask("CONFIG SET maxmemory 0")
    return samples


def restart(server: Redis) -> None:
    """Kill a server and start it again."""
    server.stop()
    server.start()


def main() -> None:
    """Measure, and print one line."""
    options = arguments(__doc__, rounds=300).parse_args()
    servers = {name: Redis() for name in SERVERS}
    try:
        with Provider(cpu=pin()) as provider:
            samples: Any = run(options.loop, measure, provider.url, servers, options.rounds)
    finally:
        for server in servers.values():
            server.stop()
    row, goals = "first_chunk_ms", Goals()
    floor = samples.percentile(row, WITHOUT, 0.99)
    tails = {name: samples.percentile(row, name, 0.99) for name in (WITHOUT, *SERVERS)}
    for name in SERVERS:
        goals.at_most(f"p99, Redis {name} / without", tails[name] / floor, 1.1)
    tell("shared_store", options.loop, samples, goals, p99_ms={name: round(tail, 2) for name, tail in tails.items()})


if __name__ == "__main__":
    main()
