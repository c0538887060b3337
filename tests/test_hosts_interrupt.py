"""Ctrl-C at any step: the host is told, no coroutine is lost before it began, and no socket stays open.

Python looks for signals when a function begins, when one returns, and at the end of a loop. Each run here is
interrupted at one of those points, by the handler that Trio or asyncio has set up, as a real signal would. Some of the points
are tried, spread evenly; ``MICDROP_INTERRUPTS=all`` tries each (ten minutes).
"""

from __future__ import annotations

import dis
import gc
import os
import signal
import socket
import sys
import threading
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.lowlevel
import pytest

from micdrop_agent import Agent, ChatAgent, FallbackAgent, ProviderError, Retry, tool
from micdrop_agent.testing import HANG, Call, ScriptedAgent

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator
    from types import CodeType, FrameType

    from micdrop_agent import Turn

ALL: Final = os.environ.get("MICDROP_INTERRUPTS") == "all"

POINTS: Final = {"asyncio": 4, "uvloop": 2, "trio": 14}
"""How many points of a scenario are tried: on asyncio it is always the main task that is cancelled."""

LOOKS: Final = frozenset({"CALL", "CALL_KW", "CALL_FUNCTION_EX", "RESUME", "JUMP_BACKWARD"})
"""Instructions behind which Python looks for signals."""

BODY: Final = (
    b'data: {"choices":[{"index":0,"delta":{"content":"word "},"finish_reason":null}]}\n\n'
    b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
)
HEAD: Final = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n" % len(BODY)

_instructions: Final[dict[CodeType, dict[int, str]]] = {}


class Interrupt:
    """Calls the handler of SIGINT at the ``at``-th point."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.points = 0
        self.where = ""

    def trace(self, frame: FrameType, _event: str, _arg: object) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        code = frame.f_code
        names = _instructions.get(code)
        if names is None:
            names = _instructions[code] = {each.offset: each.opname for each in dis.get_instructions(code)}
        before: str | None = None

        def step(frame: FrameType, event: str, _arg: object) -> Any:
            nonlocal before
            if event == "opcode":
                looked, name = before in LOOKS, names.get(frame.f_lasti)
                if name not in {"CACHE", "PRECALL"}:
                    before = name
                if looked and not _in_the_application(frame):
                    self._point(frame)
            return step

        return step

    def _point(self, frame: FrameType) -> None:
        self.points += 1
        if self.points == self.at:
            self.where = f"{frame.f_code.co_qualname} in {frame.f_code.co_filename}:{frame.f_lineno}"
            handler: Any = signal.getsignal(signal.SIGINT)
            handler(signal.SIGINT, frame)


def _in_the_application(frame: FrameType | None) -> bool:
    """Whether it was the application, not the library, that has called what runs: that is between it and Trio."""
    while frame is not None and "/micdrop_agent/" not in frame.f_code.co_filename:
        if frame.f_code.co_filename == __file__:
            return True
        frame = frame.f_back
    return False


class Watched:
    """Runs one scenario, and gathers what is complained of."""

    def __init__(self) -> None:
        self.complaints: list[str] = []

    def run(self, backend: str, scenario: Callable[[], Awaitable[None]], interrupt: Interrupt) -> str:
        """How it ended."""

        async def main() -> None:
            sys.settrace(interrupt.trace)
            try:
                await scenario()
            finally:
                sys.settrace(None)
            await anyio.lowlevel.checkpoint()

        options = {"use_uvloop": True} if backend == "uvloop" else {}
        ended = "completed"
        old, sys.unraisablehook = sys.unraisablehook, lambda hook: self.complaints.append(repr(hook.exc_value))
        before = sys.gettrace()
        try:
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always")
                try:
                    anyio.run(main, backend="trio" if backend == "trio" else "asyncio", backend_options=options)
                except BaseException as error:  # noqa: BLE001 - how it ended is what is looked at
                    ended = type(error).__name__
                gc.collect()
            self.complaints += [str(each.message) for each in warned]
        finally:
            sys.settrace(before)
            sys.unraisablehook = old
        return ended


@contextmanager
def served() -> Generator[str]:
    """A server in threads; its URL."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listener:

        def answer(connection: socket.socket) -> None:
            with connection:
                try:
                    while connection.recv(65_536):
                        connection.sendall(HEAD + BODY)
                except OSError:
                    return

        def accept() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=answer, args=(connection,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield f"http://localhost:{listener.getsockname()[1]}/v1"
        listener.shutdown(socket.SHUT_RDWR)


async def over_http(url: str) -> None:
    async with ChatAgent(model="m", base_url=url, retry=Retry(max_retries=0)) as agent:
        agent.add_user_message("hi")
        async for _ in agent.answer():
            pass
        agent.add_user_message("again")
        async for _ in agent.answer():
            agent.cancel()


class Own(Agent):
    """As a user writes one."""

    async def generate_answer(self, turn: Turn) -> None:
        for word in ("One ", "two "):
            await turn.write(word)
            await anyio.lowlevel.checkpoint()


@tool
async def look() -> str:
    """Look."""
    await anyio.lowlevel.checkpoint()
    return "seen"


@tool
def count() -> str:
    """Count."""
    return "three"


async def in_tools(_url: str) -> None:
    script: list[Any] = ["a", [Call("look"), Call("count"), Call("look")]]
    async with ScriptedAgent(script, ["b"], tools=[look, count]) as agent:
        async for _ in agent.answer():
            pass


async def over_children(_url: str) -> None:
    down = ProviderError("scripted", kind="server")
    children: list[Callable[[], Agent]] = [lambda: ScriptedAgent([down]), lambda: ScriptedAgent([HANG]), Own]
    async with FallbackAgent(children, hedge_after=0.001) as agent:
        async for _ in agent.answer():
            pass


SCENARIOS: Final = (over_http, in_tools, over_children)


@pytest.fixture(autouse=True)
def _pythons_own_handler() -> Generator[None]:
    """Event loops replace only that one."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("backend", ["asyncio", "uvloop", "trio"])
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_an_interrupt_at_any_step_ends_the_host_and_leaves_nothing(
    scenario: Callable[[str], Awaitable[None]], backend: str
) -> None:
    watched = Watched()
    with served() as url:

        async def main() -> None:
            await scenario(url)

        watched.run(backend, main, Interrupt(0))  # imports
        whole = Interrupt(0)
        assert watched.run(backend, main, whole) == "completed"
        assert whole.points > 500
        gc.collect()
        gc.freeze()
        try:
            for at in range(1, whole.points - 20, 1 if ALL else whole.points // POINTS[backend]):
                interrupt = Interrupt(at)
                ended = watched.run(backend, main, interrupt)
                wanted = "KeyboardInterrupt" if interrupt.where else "completed"  # no two runs are quite the same
                assert (ended, watched.complaints) == (wanted, []), f"interrupted in {interrupt.where}"
        finally:
            gc.unfreeze()


def test_code_of_the_application_can_be_interrupted_on_trio() -> None:
    """A tool, or an agent, that computes for ever ends with Ctrl-C, not with a kill."""
    import trio

    seen: list[bool] = []

    def protected() -> None:
        seen.append(trio.lowlevel.currently_ki_protected())

    @tool
    async def waits() -> None:
        """Wait."""
        protected()
        await anyio.lowlevel.checkpoint()
        protected()

    @tool
    def computes() -> None:
        """Compute."""
        protected()

    class Ours(Agent):
        async def generate_answer(self, turn: Turn) -> None:
            protected()
            await turn.run_tools(turn.conversation[-1:0])  # type: ignore[arg-type]  # none
            protected()

    async def hook(_agent: Agent, _turn: Turn) -> bool:
        protected()
        return False

    async def main() -> None:
        async with ScriptedAgent([[Call("waits"), Call("computes")]], ["b"], tools=[waits, computes]) as agent:
            await agent.answer().wait()
        async with Ours(on_before_answer=hook) as own:
            await own.answer().wait()
        protected()

    anyio.run(main, backend="trio")
    assert seen == [False] * 7
