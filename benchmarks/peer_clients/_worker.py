"""Measures one peer, in the peer's own environment: ``python _worker.py MODULE URL``; asyncio, no other needs.

Reads one JSON object per line and answers with one: ``{"what": "first", "model": …, "messages": 10, "times": 11}``.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
import logging
import os
import resource
import sys
import time
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

if TYPE_CHECKING:
    from _base import Peer


def resident() -> int:
    """Memory of this process in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def wanted(model: str) -> str:
    """The text that the provider sends for ``model``."""
    count = int(model.split("-")[1])
    return "".join(f"w{number:04d} " for number in range(count))


class Worker:
    """One peer, measured."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer

    async def first(self, model: str, messages: int, times: int) -> dict[str, Any]:
        """Several answers: microseconds to the first chunk, CPU of all per chunk, texts that are wrong."""
        await self.peer.prepare(model)
        first: list[float] = []
        cpu: list[float] = []
        wrong = 0
        for _ in range(times):
            text, came, chunks = "", 0, 0
            cpu_began, began = time.process_time_ns(), time.perf_counter_ns()
            async with aclosing(self.peer.chunks(model, messages)) as stream:
                async for chunk in stream:
                    came = came or time.perf_counter_ns()
                    text += chunk
                    chunks += 1
            cpu.append((time.process_time_ns() - cpu_began) / 1000 / max(1, chunks))
            first.append((came - began) / 1000)
            wrong += text != wanted(model)
            await asyncio.sleep(0.002)
        return {"first_us": first, "cpu_per_chunk_us": cpu, "wrong": wrong}

    async def cancel(self, model: str, times: int) -> dict[str, Any]:
        """A barge-in: the task that reads is cancelled; microseconds until it has ended, and what came late."""
        await self.peer.prepare(model)
        ended: list[float] = []
        late = hung = 0
        for _ in range(times):
            state = {"chunks": 0, "cancelled": False, "late": 0}
            reached = asyncio.Event()

            async def read(state: dict[str, Any] = state, reached: asyncio.Event = reached) -> None:
                async with aclosing(self.peer.chunks(model, 10)) as stream:
                    async for _ in stream:
                        state["chunks"] += 1
                        state["late"] += state["cancelled"]
                        if state["chunks"] == 5:
                            reached.set()

            task = asyncio.create_task(read())
            await reached.wait()
            await asyncio.sleep(0.0015)
            began = time.perf_counter_ns()
            state["cancelled"] = True
            task.cancel()
            _, open_ = await asyncio.wait([task], timeout=0.5)
            ended.append((time.perf_counter_ns() - began) / 1000)
            hung += bool(open_)
            while not task.done():
                task.cancel()
                await asyncio.wait([task], timeout=0.1)
            late += state["late"]
            await asyncio.sleep(0.01)
        return {"ended_us": ended, "late": late, "hung": hung}

    async def crowd(self, model: str, many: int) -> dict[str, Any]:
        """Many answers at once: wall seconds, memory of each, texts that are right."""
        await self.first("burst-10", 10, 3)
        gc.collect()
        before = resident()
        await self.peer.crowd(model, many)
        full, begun, good = 0, 0, 0

        async def one() -> None:
            nonlocal full, begun, good
            text = ""
            async with aclosing(self.peer.chunks(model, 10)) as stream:
                async for chunk in stream:
                    if not text:
                        begun += 1
                        if begun == many:
                            full = resident()
                    text += chunk
            good += text == wanted(model)

        began = time.perf_counter()
        _, open_ = await asyncio.wait([asyncio.create_task(one()) for _ in range(many)], timeout=60)
        wall = time.perf_counter() - began
        for task in open_:
            task.cancel()
        memory = (full - before) / 1024 / many if full else None
        return {"wall_s": wall, "memory_kib": memory, "good": good}


async def serve(module: str, url: str, out: Any) -> None:
    """Do what is asked until the input ends."""
    began = time.perf_counter()
    peer: Peer = importlib.import_module(module).Client(url)
    worker = Worker(peer)
    out.write(json.dumps({"ready": (time.perf_counter() - began) * 1000, "statement": peer.statement}) + "\n")
    out.flush()
    while line := await asyncio.to_thread(sys.stdin.readline):
        asked = json.loads(line)
        try:
            told = await getattr(worker, asked.pop("what"))(**asked)
        except Exception as error:  # a peer's failure is a result too
            logging.getLogger(__name__).exception("failed")
            told = {"error": repr(error)[:300]}
        out.write(json.dumps(told) + "\n")
        out.flush()
    os._exit(0)  # nobody waits for a peer's background tasks


def main() -> None:
    """Serve, with the real standard output kept from whatever a peer prints."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    os.environ.update(OPENAI_API_KEY="bench", LITELLM_LOCAL_MODEL_COST_MAP="True", OPENAI_AGENTS_DISABLE_TRACING="1")
    asyncio.run(serve(sys.argv[1], sys.argv[2], out))


if __name__ == "__main__":
    main()
