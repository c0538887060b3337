"""Any bytes, at any speed: whatever a server sends, an answer ends in our terms, and the loop has its turn.

The servers are those of the soak (``tests/soak/hostile_servers.py``), over lines in memory and in virtual time. How long the loop is held is
counted as work between two of its turns: bytes that were taken from the line, and CPU time of the thread with room for
a busy machine. uvloop has the same scripts in real time, where the pauses are short.
"""

from __future__ import annotations

import gc
import gzip
import math
import os
import random
import sys
import time
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from micdrop_agent import ChatAgent, MicdropError, Retry, Timeouts
from micdrop_agent.testing import BACKENDS, run_virtual

sys.path.append(str(Path(__file__).parent / "soak"))

from hostile_servers import CLOSE, EVERY, HANG, HONEST, OPEN, RESET, Line, chunk, coded, sized

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hostile_servers import Step

    from micdrop_agent import AnswerResult

CLOCKS: Final = Timeouts(connect=1.0, first_chunk=1.0, between_chunks=1.0, total=5.0)

MOST_BYTES: Final = 128 * 1024
"""Bytes that may be taken from the network in one turn of the loop: two reads."""

MOST_CPU_S: Final = 0.1
"""CPU time of one turn. The goal is 0.02; caches of a busy machine are cold, and this is no benchmark."""


class Seen:
    """What was seen of one answer."""

    def __init__(self) -> None:
        self.result: AnswerResult | None = None
        self.heard = ""
        self.most_bytes = 0
        self.most_cpu = 0.0
        self.left = 0
        self.took = 0.0
        self._given = 0
        self._since = math.inf
        """CPU time when the loop had its last turn."""

    def gave(self, count: int) -> None:
        """The network handed out so many bytes."""
        self._given += count

    def step(self, _step: int) -> None:
        """The loop has its turn."""
        now = time.thread_time()
        self.most_cpu, self._since = max(self.most_cpu, now - self._since), now
        self.most_bytes, self._given = max(self.most_bytes, self._given), 0


async def _ask(steps: Callable[[], Sequence[Step]], dice: random.Random, seen: Seen, clocks: Timeouts) -> None:
    alive: set[Line] = set()

    async def connect(_host: str, _port: int, _tls: bool) -> Line:
        return Line(steps, dice, alive, seen)

    began = anyio.current_time()
    async with ChatAgent(
        model="m",
        base_url="http://any.test/v1",
        connect=connect,
        retry=Retry(max_retries=0),
        timeouts=clocks,
        raise_on_failure=False,
    ) as agent:
        agent.add_user_message("hi")
        answer = agent.answer()
        async for piece in answer:
            seen.heard += piece
        seen.result = await answer.wait()
        seen.took = anyio.current_time() - began
    seen.left = len(alive)


def ask(backend: str, steps: Callable[[], Sequence[Step]], seed: int) -> Seen:
    """One answer from a server that does ``steps``."""
    seen = Seen()

    async def main() -> None:
        await _ask(steps, random.Random(seed), seen, CLOCKS)

    if backend == "uvloop":
        quick = Timeouts(connect=1.0, first_chunk=0.02, between_chunks=0.02, total=5.0)

        async def really() -> None:
            await _ask(steps, random.Random(seed), seen, quick)

        anyio.run(really, backend_options={"use_uvloop": True})
    else:
        run_virtual(backend, main, on_step=seen.step)
    return seen


def check(seen: Seen) -> None:
    """It has ended as every answer may, and kept nobody waiting."""
    assert seen.result is not None
    error = seen.result.error
    assert error is None or isinstance(error, MicdropError), repr(error)
    assert seen.heard == seen.result.text
    assert seen.left == 0
    assert seen.most_bytes <= MOST_BYTES
    assert seen.most_cpu <= MOST_CPU_S
    assert seen.took <= CLOCKS.total + 0.05  # type: ignore[operator]  # it is not None


@pytest.fixture(scope="module", autouse=True)
def _no_garbage_of_others() -> Any:
    """The collector would stop the loop for the objects of the whole suite, and the first answer imports."""
    for backend in (*BACKENDS, "uvloop"):
        ask(backend, lambda: HONEST["tool"](random.Random(1)), 1)
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.parametrize("backend", [*BACKENDS, "uvloop"])
def test_each_kind_of_hostile_server_holds_no_loop(backend: str) -> None:
    every = list(EVERY.items())
    # Each is tried by the soak on each loop, for minutes: here once.
    step = 1 if os.environ.get("MICDROP_SERVERS") == "all" else 3
    for number in range([*BACKENDS, "uvloop"].index(backend) % step, len(every), step):
        name, attack = every[number]
        dice = random.Random(number)
        try:
            check(ask(backend, lambda attack=attack, dice=dice: attack(dice), number))  # type: ignore[misc]
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from error


PIECES: Final = st.one_of(
    st.sampled_from(
        [
            b"data: ",
            b"\n\n",
            b"\n",
            b"\r",
            b":",
            b"event: error\n",
            b'{"choices":[{"delta":{"content":"',
            b'"}}]}',
            b"[DONE]",
        ]
    ),
    st.binary(max_size=40),
    st.tuples(st.sampled_from([b"\n", b"x", b"[", b": \n\n", b"data: 1\n\n", b"0\r\n"]), st.integers(1, 40_000)).map(
        lambda drawn: drawn[0] * drawn[1]
    ),
)
PAUSES: Final = st.floats(0, 2, allow_nan=False)
ENDS: Final = st.sampled_from([HANG, CLOSE, RESET])


@st.composite
def _responses(draw: st.DrawFn) -> list[Any]:
    """A head, right or wrong, and then anything, in any coding, with pauses."""
    pieces = draw(st.lists(PIECES, max_size=6))
    body = b"".join(pieces)
    how = draw(st.sampled_from(["open", "sized", "chunked", "gzip", "deflate", "br", "zstd", "none", "mixed"]))
    if how == "open":
        return [OPEN, *[step for piece in pieces for step in (piece, draw(PAUSES))], draw(ENDS)]
    if how == "chunked":
        head = OPEN.replace(b"\r\n\r\n", b"\r\ntransfer-encoding: chunked\r\n\r\n")
        extension = draw(st.sampled_from([b"", b";a=b", b";" + b"x" * 5000]))
        return [
            head,
            *[chunk(piece, extension) for piece in pieces if piece],
            draw(st.sampled_from([b"0\r\n\r\n", b""])),
            HANG,
        ]
    if how == "none":
        return [*pieces, draw(ENDS)]
    if how == "mixed":
        return [HONEST["chunked"](random.Random(1))[0][: draw(st.integers(1, 900))], body, draw(ENDS)]  # type: ignore[index]
    if how == "sized":
        return [sized(body), draw(ENDS)]
    packed = gzip.compress(body) if how == "gzip" else zlib.compress(body) if how == "deflate" else body
    return [coded(how.encode(), packed), draw(ENDS)]


@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=40, deadline=None)
@given(steps=_responses(), seed=st.integers(0, 2**16))
def test_any_bytes_at_any_speed_hold_no_loop(backend: str, steps: list[Any], seed: int) -> None:
    check(ask(backend, lambda: steps, seed))
