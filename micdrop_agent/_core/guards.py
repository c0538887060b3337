"""Guards at the library's boundary: they say what was wrong and what to do instead."""

from __future__ import annotations

import inspect
import math
import sys
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import anyio

from micdrop_agent._core.scopes import deliver_again, task_scope_class
from micdrop_agent._event_loop import running_loop
from micdrop_agent.options import ExtractJson, ExtractTag

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from micdrop_agent._core.agent import Agent
    from micdrop_agent._core.dialogue import Dialogue

__all__ = [
    "Home",
    "State",
    "call_back",
    "cancel_soon",
    "cancelled_from_outside",
    "extract",
    "function",
    "may_answer",
    "may_open",
    "tools",
]

State: TypeAlias = Literal["new", "open", "closing", "closed"]


def cancelled_from_outside() -> bool:
    """Whether a cancellation that was just caught was asked for, by a scope or of this very task.

    On asyncio an awaited future that somebody else cancelled raises ``CancelledError`` too: for
    the code that awaits it this is an error like any other.
    """
    if running_loop() is None or anyio.current_effective_deadline() == -math.inf:
        return True
    task = sys.modules["asyncio"].current_task()
    return task is None or task.cancelling() > 0


def cancel_soon(home: Home, scope: anyio.CancelScope, streams: Iterable[object]) -> None:
    """Hang up ``streams`` and cancel ``scope`` before any task runs that is not on its way yet.

    A caller waits for this: on asyncio AnyIO describes the cancelling task in words, which costs more
    than the rest of a barge-in, so it is done as the loop's next callback. What a fenced turn still does
    until then has no effect, as with every cancellation that was not delivered yet.
    """

    def release() -> None:
        for stream in streams:
            # A hint that not every stream can follow: the server stops at once, closing comes later.
            hang_up = getattr(stream, "abort", None)
            if hang_up is not None:
                hang_up()
        scope.cancel()

    if home.loop is None:
        release()
    else:
        home.loop.call_soon(release)


def may_open(agent: Agent, state: State, *, owned: bool) -> None:
    """Refuse to open an agent twice, or one that a ``FallbackAgent`` drives."""
    name = type(agent).__name__
    if owned:
        raise RuntimeError(f"this {name} belongs to a FallbackAgent, which opens and closes it")
    if state != "new":
        raise RuntimeError(
            f"this {name} was closed and cannot be opened again (an agent belongs to one event "
            "loop); make a new one, and give it the conversation with conversation.replace()"
        )


def may_answer(agent: Agent, state: State, *, owned: bool) -> None:
    """Refuse ``answer()`` outside the agent's block."""
    name = type(agent).__name__
    if owned:
        raise RuntimeError(f"this {name} belongs to a FallbackAgent; ask that for an answer")
    if state == "new":
        raise RuntimeError(f"answer() needs an open agent: 'async with {name}(...) as agent:'")
    if state != "open":
        raise RuntimeError(f"this {name} was closed; answer() needs an open agent")


class Home:
    """Where an open agent lives: its thread, its event loop, and that loop's clock.

    Attributes:
        loop: The asyncio loop; ``None`` on Trio.
        clock: Seconds on the loop's clock, as ``anyio.current_time()`` tells them.
        new_scope: Makes a cancel scope: the class that ``anyio.CancelScope()`` finds anew each time.
        task_scope: Makes the outermost scope of a task; see ``_scopes``.
    """

    __slots__ = ("_mark", "_running", "_thread", "clock", "loop", "new_scope", "task_scope")

    def __init__(self) -> None:
        loop: Any = running_loop()
        self.loop: Any = loop
        self.clock: Callable[[], float] = anyio.current_time if loop is None else loop.time
        self.new_scope: type[anyio.CancelScope] = type(anyio.CancelScope())
        self.task_scope: type[anyio.CancelScope] = task_scope_class()
        self._thread = threading.get_ident()
        # Looked up once: cancel() is waited for.
        self._running: Any = None if loop is None else sys.modules["asyncio"]._get_running_loop
        sniffio: Any = sys.modules.get("sniffio")
        self._mark: Any = None if sniffio is None else sniffio.current_async_library_cvar

    def check(self, what: str) -> None:
        """Refuse a call from another thread or another event loop than the agent's."""
        if self.loop is not None and self._running() is self.loop:  # and so in its thread
            if self._mark is not None and self._mark.get() is None:
                self._make_known()
            return
        if threading.get_ident() != self._thread:
            raise RuntimeError(
                f"{what} was called from another thread than the agent's event loop; use "
                "anyio.from_thread.run_sync, or loop.call_soon_threadsafe"
            )
        if running_loop() is not self.loop:
            raise RuntimeError(
                f"{what} was called from another event loop than the one in which the agent was "
                "opened; an agent belongs to one event loop"
            )

    def cancellations(self) -> int:
        """How often the current task was cancelled natively; always 0 on Trio."""
        task = None if self.loop is None else sys.modules["asyncio"].current_task()
        return 0 if task is None else task.cancelling()

    def deliver_lost(self, before: int) -> None:
        """An error leaves a block; a native cancellation that came after ``before`` must not be lost to it."""
        if self.loop is not None and self.cancellations() > before:
            deliver_again(self.loop, sys.modules["asyncio"].current_task(), before)

    def _make_known(self) -> None:
        """Let AnyIO recognise an asyncio loop that was not started by it from within a bare callback.

        With sniffio installed (Trio brings it) AnyIO sees only tasks: ``loop.call_soon(agent.cancel)``, a
        signal handler or a protocol's ``data_received`` would fail. The mark stays in their own context.
        """
        if sys.modules["asyncio"].current_task() is None:
            self._mark.set("asyncio")


def extract(name: str, value: object) -> None:
    """Refuse extraction options of another kind."""
    if value is not None and not isinstance(value, ExtractJson | ExtractTag):
        raise TypeError(f"{name} must be an ExtractJson or an ExtractTag, not {value!r}")


def tools(name: str, value: object) -> None:
    """Refuse what is no list of tools, a single tool for example."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise TypeError(f"{name} must be a list of tools or functions, not {value!r}")


def function(name: str, value: object) -> None:
    """Refuse what cannot be called."""
    if value is not None and not callable(value):
        raise TypeError(f"{name} must be a function, not {value!r}")


def call_back(agent: Dialogue, callback: Callable[[Any], object], value: Any) -> None:
    """Call an extraction callback; its errors are logged, a coroutine runs in the background."""
    try:
        returned = callback(value)
    except Exception:  # foreign code: the value is still stored and in the result
        agent._safe_logger.exception("the extract callback raised; the answer goes on")
        return
    if inspect.iscoroutine(returned):
        root = agent._root()
        if root._state == "open":
            root._spawn(_awaiting(agent, returned), "micdrop extract callback")
        else:
            returned.close()
            agent._safe_logger.error("the extract callback is async and needs an open agent to run in")


def _awaiting(agent: Dialogue, work: Awaitable[object]) -> Callable[[], Awaitable[None]]:
    async def run() -> None:
        try:
            await work
        except Exception:  # foreign code, as above
            agent._safe_logger.exception("the extract callback raised; the answer goes on")

    return run
