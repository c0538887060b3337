"""Readers that are cancelled natively at any step, one or several, with every buffer: no chunk is lost or doubled."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from property_support import quickly

from micdrop_agent.testing import ScriptedAgent, run_virtual

if TYPE_CHECKING:
    from micdrop_agent import Answer

CHUNKS = [str(number) for number in range(8)]


async def read_one(answer: Answer, into: list[str]) -> None:
    into.append(await answer.receive())


async def read_with_cancels(answer: Answer, into: list[str], gaps: list[int]) -> None:
    """Read chunk by chunk in tasks of their own; each is cancelled after the next number of loop turns."""
    plan = iter(gaps)
    while True:
        task = asyncio.ensure_future(read_one(answer, into))
        gap = next(plan, None)
        for _ in range(gap or 0):
            await asyncio.sleep(0)
        if gap is not None:
            task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            continue
        except anyio.EndOfStream:
            return


@pytest.mark.parametrize("buffer_size", [None, 0, 1])
@given(
    pauses=st.lists(st.integers(0, 3), min_size=len(CHUNKS), max_size=len(CHUNKS)),
    readers=st.lists(st.lists(st.integers(0, 6), max_size=12), min_size=1, max_size=3),
    seed=st.one_of(st.none(), st.integers(0, 100)),
)
@quickly
def test_no_chunk_is_lost_or_doubled_by_native_cancellations(
    buffer_size: int | None, pauses: list[int], readers: list[list[int]], seed: int | None
) -> None:
    async def main() -> None:
        async def pause(turns: int) -> None:
            for _ in range(turns):
                await anyio.lowlevel.checkpoint()

        script: list[Any] = []
        for chunk, turns in zip(CHUNKS, pauses, strict=True):
            script += [lambda _turn, turns=turns: pause(turns), chunk]
        async with ScriptedAgent(script, buffer_size=buffer_size) as agent:
            answer = agent.answer()
            read: list[list[str]] = [[] for _ in readers]
            with anyio.fail_after(1000):
                await asyncio.gather(
                    *(read_with_cancels(answer, into, gaps) for into, gaps in zip(read, readers, strict=True))
                )
            assert sorted(chunk for into in read for chunk in into) == CHUNKS
            assert all(into == sorted(into) for into in read)
            assert answer.text == "".join(CHUNKS)

    run_virtual("asyncio", main, shuffle_seed=seed)
