"""Follows a conversation and stores each change of it, in order, while the call goes on.

    Conversation ── journal ──▶ queue ──▶ one task of the agent ──▶ CallLog.apply
                                   └── flush(), and the end of the block, do the same

Invariants, pinned in tests/test_store_attach.py and tests/test_store_failures.py:

1. A change leaves the queue when the store has it, and not before. One that may or may not have arrived
   (the task was cancelled, the store raised) is given again with the same number, which the store ignores.
2. The end of the block waits as long as the store makes progress, and at most ``close_timeout`` without.
   What is not stored then is in the error that is raised there.
3. A call that another writer took over gets nothing more from here, and its answer and tools end.
4. Where workers share the store: a tool starts when its call is stored (or the store is known to be away), so the
   worker that goes on after a crash never runs it again; and what is stored of an answer is what was heard of it.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Final

import anyio

from micdrop_agent._core.core import core_of
from micdrop_agent._core.guards import check_listener
from micdrop_agent._core.log import SafeLog
from micdrop_agent.options import LEAVE_TIMEOUT, check_seconds
from micdrop_agent.store.history import difference, joined
from micdrop_agent.store.protocol import CallMovedError, Change, LeasedCallLog, StoreError, check_call_id
from micdrop_agent.store.view import View

if TYPE_CHECKING:
    from collections.abc import Callable

    from micdrop_agent._core.agent import Agent
    from micdrop_agent.messages import Item
    from micdrop_agent.store.protocol import CallLog, ConversationStore
    from micdrop_agent.store.view import ViewOf

__all__ = ["CallRecorder", "attach"]

BATCH: Final = 256
"""Changes that are given to the store at once: after a long failure its progress is seen."""

FIRST_BATCH: Final = 8
"""The same after a failure, until something was stored."""

FIRST_RETRY: Final = 0.3
LAST_RETRY: Final = 15.0
"""Seconds between two attempts to store the same changes; they double."""

TOOL_PATIENCE: Final = 0.5
"""Seconds that a tool waits until its call is stored; a store that is away is not waited for again."""

logger: Final = SafeLog(logging.getLogger("micdrop_agent.store"))


async def attach(
    agent: Agent,
    store: ConversationStore,
    call_id: str,
    *,
    on_error: Callable[[Exception], object] | None,
    close_timeout: float,
) -> CallRecorder:
    """See ``Agent.attach``."""
    _check(agent)
    check_call_id(call_id)
    check_seconds("close_timeout", close_timeout)
    if on_error is not None:
        check_listener(on_error, "on_error must be a function of one error")
    log = await store.open_call(call_id)
    try:
        _check(agent)  # it may have been closed, or attached elsewhere, while the store was opened
        recorder = CallRecorder(agent, log, call_id, on_error, close_timeout)
        await recorder.begin()
    except BaseException:
        with anyio.move_on_after(LEAVE_TIMEOUT, shield=True):
            await log.aclose()
        raise
    return recorder


def _check(agent: Agent) -> None:
    name, core = type(agent).__name__, core_of(agent)
    if core.owner is not None:
        raise RuntimeError(f"this {name} belongs to a FallbackAgent; attach that one")
    if core.state != "open":
        raise RuntimeError(f"attach() needs an open agent: 'async with {name}(...) as agent:'")
    if core.recorder is not None:
        raise RuntimeError(f"this agent is attached already, to call {core.recorder.call_id!r}")
    if agent.answering:
        raise RuntimeError("attach() comes before the first answer; an answer is running")


class CallRecorder:
    """Stores one call while it goes on; returned by ``agent.attach()``.

    Attributes:
        call_id: The call.
        resumed: Items that were stored before; 0 for a new call.
        error: Why the store does not take changes at the moment; ``None`` while it does.
            A ``CallMovedError`` is final.
    """

    def __init__(
        self,
        agent: Agent,
        log: CallLog,
        call_id: str,
        on_error: Callable[[Exception], object] | None,
        close_timeout: float,
    ) -> None:
        self.call_id = call_id
        self.resumed: int = len(log.items)
        self.error: Exception | None = None
        self._agent = agent
        self._log = log
        self._on_error = on_error
        self._close_timeout = close_timeout
        self._queue: deque[Change] = deque()
        self._number = log.number
        self._wake = anyio.Event()
        self._lock = anyio.Lock()
        self._closing: anyio.CancelScope | None = None
        self._on_moved: list[Callable[[CallMovedError], object]] = []
        self._view: View | None = None

    @property
    def pending(self) -> int:
        """How many changes are not stored yet."""
        return len(self._queue)

    @property
    def moved(self) -> bool:
        """Whether another writer took the call over."""
        return isinstance(self.error, CallMovedError)

    async def flush(self) -> None:
        """Wait until every change up to now is stored.

        Raises:
            CallMovedError: Another writer took the call over.
            StoreError: The store fails; the changes are kept and tried again.
        """
        if self.moved:
            raise self._problem()
        try:
            await self._drain()
        except Exception as error:
            self._failed(error)
            raise self._problem() from error

    # -- for a call

    @property
    def leased(self) -> bool:
        """Whether the store is one that workers share."""
        return isinstance(self._log, LeasedCallLog)

    def on_moved(self, listener: Callable[[CallMovedError], object]) -> Callable[[], None]:
        """Call ``listener`` when another writer takes the call over; the returned function removes it."""
        self._on_moved.append(listener)
        return lambda: self._on_moved.remove(listener)

    def show(self, view: ViewOf | None) -> None:
        """Store the conversation as ``view`` changes it, a list of items, in place; ``None``: as it is.

        For a call, where more is written than was heard: a worker that dies leaves what was heard.
        """
        before, items = self._view, list(core_of(self._agent).conversation)
        self._view = None if view is None else View(list(items), view)
        if before is not None:
            self._put(before.end(items))
        if self._view is not None:
            self._put(self._view.look(items, anyio.current_time()))

    def heard_more(self) -> None:
        """The view has changed; it is looked at soon, and not too often."""
        if self._view is not None and self._view.changed():
            self._wake.set()

    async def before_tool(self) -> None:
        """Wait until the call of a tool is stored.

        Raises:
            CallMovedError: Another writer took the call over: the tool is not to run here.
        """
        if self.leased and self.error is None:
            with anyio.move_on_after(TOOL_PATIENCE) as patience:
                try:
                    await self._drain()
                except Exception as error:  # noqa: BLE001 - foreign code: a store that fails must not end the call
                    self._failed(error)
            if patience.cancelled_caught:
                self._failed(StoreError(f"not stored within {TOOL_PATIENCE:g} seconds; the tool runs", retryable=True))
        if isinstance(self.error, CallMovedError):
            raise self.error

    # -- the beginning

    async def begin(self) -> None:
        """Take over what is stored, store what is new, and follow from now on."""
        core, stored = core_of(self._agent), list(self._log.items)
        history = core.conversation
        if stored:
            history.replace(joined(stored, history))
        first = difference(stored, history)
        self._put(first)
        # From here on, without a gap: what happens while the beginning is written comes after it.
        history.follow(self._note)
        core.recorder = self
        try:
            await self.flush()
        except BaseException:
            history.follow(None)
            core.recorder = None
            raise
        core.spawn(self._write, "micdrop store")
        if isinstance(self._log, LeasedCallLog):
            core.spawn(self._hold, "micdrop store lease")

    def _note(self, index: int, gone: int, come: tuple[Item, ...]) -> None:
        if self._view is None:
            self._put((index, gone, come))
        else:
            self._look(self._view)

    def _look(self, view: View) -> None:
        self._put(view.look(list(core_of(self._agent).conversation), anyio.current_time()))

    def _put(self, change: tuple[int, int, tuple[Item, ...]] | None) -> None:
        if change is not None and not self.moved:
            self._number += 1
            self._queue.append(Change(self._number, *change))
            self._wake.set()

    # -- the tasks

    async def _write(self) -> None:
        failures = 0
        while not self.moved:
            # A new change is a reason to try again at once; without one the store gets some rest.
            with anyio.move_on_after(self._rest(failures)):
                await self._wake.wait()
            self._wake = anyio.Event()
            # Only what the store has taken is added to: one that is away gets the last state, and not each of them.
            if self._view is not None and anyio.current_time() >= self._view.due and not self._queue:
                self._look(self._view)
            try:
                await self._drain()
                failures = 0
            except Exception as error:  # noqa: BLE001 - foreign code: a store that fails must not end the call
                self._failed(error)
                failures += 1

    def _rest(self, failures: int) -> float:
        """Seconds until there is something to do even without a new change."""
        if self.error is not None:
            return _wait_after(failures)
        return math.inf if self._view is None else max(0.0, self._view.due - anyio.current_time())

    async def _hold(self) -> None:
        assert isinstance(self._log, LeasedCallLog)
        try:
            await self._log.hold()
        except Exception as error:  # noqa: BLE001 - foreign code: a store that fails must not end the call
            self._failed(error)

    async def _drain(self) -> None:
        async with self._lock:
            while self._queue and not self.moved:
                # A store that fails is asked with a little: what is prepared in vain takes time from the call.
                batch = tuple(islice(self._queue, BATCH if self.error is None else FIRST_BATCH))
                await self._log.apply(batch)
                for _ in batch:
                    self._queue.popleft()
                self.error = None
                if self._closing is not None:  # progress: the patience of the end begins again
                    self._closing.deadline = anyio.current_time() + self._close_timeout

    def _failed(self, error: Exception) -> None:
        if self.moved:
            return
        again, self.error = self.error is not None, error
        if isinstance(error, CallMovedError):
            # What is said from now on is another writer's to store, and tools are that one's to run.
            core_of(self._agent).conversation.follow(None)
            self._wake.set()
            self._agent.cancel()
        logger.error(
            "call %r: %d changes are not stored: %s",
            self.call_id,
            len(self._queue),
            error,
            exc_info=None if again else error,
            extra={"call_id": self.call_id, "pending": len(self._queue)},
        )
        if isinstance(error, CallMovedError):
            for listener in tuple(self._on_moved):
                listener(error)
        if self._on_error is None:
            return
        try:
            self._on_error(error)
        except Exception:  # foreign code
            logger.exception("on_error of call %r raised; it is ignored", self.call_id)

    def _problem(self) -> StoreError:
        error = self.error
        if not isinstance(error, StoreError):
            error = StoreError(f"call {self.call_id!r}: {len(self._queue)} changes are not stored: {error}")
            error.__cause__ = self.error
        error.unsaved = tuple(self._queue)
        return error

    # -- the end

    async def finish(self, *, raising: bool) -> None:
        """Store what is left and give the call back; at the end of the agent's block."""
        if self._view is not None:
            self.show(None)
        core_of(self._agent).conversation.follow(None)
        with anyio.move_on_after(self._close_timeout, shield=True) as self._closing:
            await self._store_rest()
        if self._closing.cancelled_caught:
            self._failed(TimeoutError(f"the store took longer than {self._close_timeout:g} seconds"))
        with anyio.move_on_after(LEAVE_TIMEOUT, shield=True):
            try:
                await self._log.aclose()
            except Exception:  # foreign code
                logger.exception("call %r could not be given back", self.call_id)
        if self._queue and raising:
            raise self._problem()

    async def _store_rest(self) -> None:
        failures = 0
        while self._queue and not self.moved:
            try:
                await self._drain()
            except Exception as error:  # noqa: BLE001 - foreign code, reported below
                self._failed(error)
                if not isinstance(error, StoreError) or not error.retryable:
                    return
                failures += 1
                await anyio.sleep(_wait_after(failures))


def _wait_after(failures: int) -> float:
    return min(FIRST_RETRY * 2.0 ** max(0, failures - 1), LAST_RETRY)
