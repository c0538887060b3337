"""What a hostile server costs: the longest stop of the event loop, and memory, beside httpx2 and the openai SDK.

Each server of ``ATTACKS`` is asked once in a process of its own, so that the peak of the memory is its own. A task
looks at the clock in every turn of the event loop: the longest time between two looks is the lag. It is measured in
CPU time of the thread, so a busy machine changes little. The clients read the response as their guides say: the SDK
its typed events, httpx2 ``aiter_lines()``.

    python benchmarks/hostile.py --loop uvloop

Goals: no stop longer than 20 ms, at most 32 MiB above the answer's own text, ``total`` holds within 50 ms.
"""

from __future__ import annotations

import argparse
import functools
import gzip
import json
import multiprocessing
import resource
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.lowlevel
import httpx2
import openai

from micdrop_agent import ChatAgent, Retry, Timeouts

if TYPE_CHECKING:
    from collections.abc import Callable

TOTAL_S: Final = 1.0
PATIENCE_S: Final = 60
GOOD: Final = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
WORD: Final = b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"word "},"finish_reason":null}]}\n\n'


def bomb() -> list[bytes]:
    """60 million newlines in 58 KB."""
    body = gzip.compress(b"\n" * 60_000_000)
    return [f"{GOOD}content-encoding: gzip\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body]


def flood(unit: bytes, *, begin: bytes = b"") -> Callable[[], list[bytes]]:
    """``unit`` without end."""
    return lambda: [f"{GOOD}connection: close\r\n\r\n".encode() + begin, unit * (65_536 // len(unit))]


def large_text() -> list[bytes]:
    """Events of 30 KB of text without end."""
    event = b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"%s"}}]}\n\n' % (b"x" * 30_000)
    return [f"{GOOD}connection: close\r\n\r\n".encode(), event]


ATTACKS: Final[dict[str, Callable[[], list[bytes]]]] = {
    "gzip bomb": bomb,
    "newlines": flood(b"\n"),
    "newlines behind a word": flood(b"\n", begin=WORD),
    "comments": flood(b": ping\n\n"),
    "pings": flood(b"data: 1\n\n"),
    "empty data": flood(b"data:\n", begin=WORD),
    "words": flood(WORD),
    "text": large_text,
    "one line": flood(b"x", begin=b"data: "),
}


def serve(listener: socket.socket, pieces: list[bytes]) -> None:
    """Answer one request with the first piece, and with the last one again and again."""
    connection, _ = listener.accept()
    try:
        connection.recv(1 << 20)
        connection.sendall(pieces[0])
        while len(pieces) > 1:
            connection.sendall(pieces[-1])
        time.sleep(3)
    except OSError:
        pass
    finally:
        connection.close()


CLOCKS: Final = {"first_chunk": "comments", "between_chunks": "newlines behind a word", "total": "words"}
"""A flood that only this clock ends."""


async def clocked(url: str, clock: str) -> str:
    """When one clock ends an answer. Nobody reads it: what came before is the reader's, however long that takes."""
    timeouts = Timeouts(**{clock: TOTAL_S})
    async with ChatAgent(model="m", base_url=url, retry=Retry(max_retries=0), timeouts=timeouts) as agent:
        agent.add_user_message("hi")
        return (await agent.answer().wait()).status


async def ours(url: str) -> str:
    """An agent; how its answer ended."""
    async with ChatAgent(
        model="m", base_url=url, retry=Retry(max_retries=0), timeouts=Timeouts(total=TOTAL_S), raise_on_failure=False
    ) as agent:
        agent.add_user_message("hi")
        async for _ in agent.answer():
            pass
    return "ended"


async def lines(url: str) -> str:
    """Lines of a streamed response."""
    async with httpx2.AsyncClient() as client, client.stream("POST", f"{url}/chat/completions", json={}) as response:
        async for _ in response.aiter_lines():
            pass
    return "ended"


async def sdk(url: str) -> str:
    """Typed events of the SDK."""
    async with openai.AsyncOpenAI(api_key="k", base_url=url, max_retries=0) as client:
        messages: Any = [{"role": "user", "content": "hi"}]
        async for _ in await client.chat.completions.create(model="m", messages=messages, stream=True):
            pass
    return "ended"


def resident() -> int:
    """Memory of this process now, in KiB (Linux)."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * resource.getpagesize() // 1024


WHO: Final = {"ours": ours, "httpx2": lines, "sdk": sdk}
HIDDEN: Final = {name: functools.partial(clocked, clock=name) for name in CLOCKS}


async def watched(client: Callable[[str], Any], url: str) -> dict[str, Any]:
    """Ask, and look at the clocks in every turn of the loop."""
    lag = 0.0
    peak = before = resident()
    done = anyio.Event()

    async def watch() -> None:
        nonlocal lag, peak
        last = time.thread_time()
        while not done.is_set():
            await anyio.lowlevel.checkpoint()
            now = time.thread_time()
            lag = max(lag, now - last)
            peak = max(peak, resident())
            last = time.thread_time()

    began, took, highest = time.perf_counter(), 0.0, 0
    how = "ended"
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        await anyio.lowlevel.checkpoint()
        highest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        try:
            with anyio.move_on_after(TOTAL_S * 3 if isinstance(client, functools.partial) else TOTAL_S) as limit:
                how = await client(url)
            how = "timed out" if limit.cancelled_caught else how
        except Exception as error:  # noqa: BLE001 - of three libraries: how it ended is the result
            how = type(error).__name__
        took = time.perf_counter() - began
        done.set()
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    peak = max(peak, after if after > highest else 0)  # within one stop of the loop nobody looks
    return {"lag_ms": round(lag * 1e3, 1), "mib": round((peak - before) / 1024, 1), "s": round(took, 3), "end": how}


def one(who: str, url: str, loop: str) -> None:
    """In a process of its own: warm up, ask, print."""
    ChatAgent(model="m", base_url=url)
    options = {"use_uvloop": True} if loop == "uvloop" else {}
    backend = "trio" if loop == "trio" else "asyncio"
    print(
        json.dumps(anyio.run(watched, {**WHO, **HIDDEN}[who], url, backend=backend, backend_options=options)),
        flush=True,
    )


def attack(name: str, who: str, loop: str) -> dict[str, Any]:
    """One client against one server."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = multiprocessing.get_context("fork").Process(target=serve, args=(listener, ATTACKS[name]()))
        server.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        command = [sys.executable, __file__, "--one", who, "--url", url, "--loop", loop]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        except subprocess.TimeoutExpired:  # not even a cancel scope ends it
            return {"end": f"hung for {PATIENCE_S} s", "lag_ms": PATIENCE_S * 1e3}
        finally:
            server.terminate()
            server.join()
    lines = done.stdout.splitlines()
    return json.loads(lines[-1]) if lines else {"end": "died", "error": done.stderr[-200:]}


def main() -> None:
    """Measure, and print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loop", choices=["asyncio", "uvloop", "trio"], default="asyncio")
    parser.add_argument("--only", choices=list(ATTACKS), action="append")
    parser.add_argument("--who", choices=list(WHO), action="append")
    parser.add_argument("--one", choices=[*WHO, *HIDDEN], help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        one(options.one, options.url, options.loop)
        return
    rows = {
        name: {who: attack(name, who, options.loop) for who in options.who or WHO} for name in options.only or ATTACKS
    }
    late = {
        name: sorted(round((attack(flood, name, options.loop)["s"] - TOTAL_S) * 1e3) for _ in range(3))
        for name, flood in CLOCKS.items()
    }
    worst = max(float(row["ours"]["lag_ms"]) for row in rows.values() if "ours" in row and "lag_ms" in row["ours"])
    print(
        json.dumps(
            {"benchmark": "hostile", "loop": options.loop, "worst_lag_ms": worst, "clocks_late_ms": late, "rows": rows}
        )
    )


if __name__ == "__main__":
    main()
