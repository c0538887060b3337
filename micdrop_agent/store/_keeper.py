"""Follows a conversation and has each change of it stored, in order, behind the call's back.

    Conversation._changed ──▶ queue ──▶ one task of the agent ──▶ CallLog.apply
                                            └── flush(), and the end of the block, do the same

A change leaves the queue when the store has it. One that may or may not have arrived (the task was
cancelled, the store raised) is given again with the same number, which the store then ignores.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Final

import anyio

from micdrop_agent._core.core import core_of
from micdrop_agent._core.guards import check_listener
from micdrop_agent._core.log import SafeLog
from micdrop_agent.messages import Message, is_blank
from micdrop_agent.options import LEAVE_TIMEOUT
from micdrop_agent.store._protocol import Change, StoreError, check_call_id
from micdrop_agent.store._repair import repaired

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from micdrop_agent._core.agent import Agent
    from micdrop_agent.messages import Item
    from micdrop_agent.store._protocol import CallLog, ConversationStore

__all__ = ["KeptCall", "attach"]

logger: Final = SafeLog(logging.getLogger("micdrop_agent.store"))


async def attach(
    agent: Agent,
    store: ConversationStore,
    call_id: str,
    *,
    on_error: Callable[[Exception], object] | None = None,
) -> KeptCall:
    """See ``Agent.attach``."""
    _check(agent)
    check_call_id(call_id)
    if on_error is not None:
        check_listener(on_error, "on_error must be a function of one error")
    log = await store.open_call(call_id)
    try:
        _check(agent)  # it may have been closed, or attached elsewhere, meanwhile
        kept = KeptCall(agent, log, call_id, on_error)
        await kept.begin()
    except BaseException:
        with anyio.move_on_after(LEAVE_TIMEOUT, shield=True):
            await log.aclose()
        raise
    return kept


def _check(agent: Agent) -> None:
    name = type(agent).__name__
    if core_of(agent).owner is not None:
        raise RuntimeError(f"this {name} belongs to a FallbackAgent; attach that one")
    if core_of(agent).state != "open":
        raise RuntimeError(f"attach() needs an open agent: 'async with {name}(...) as agent:'")
    kept = core_of(agent).kept
    if kept is not None:
        raise RuntimeError(f"this agent is attached already, to call {kept.call_id!r}")
    if agent.answering:
        raise RuntimeError("attach() comes before the first answer; an answer is running")


class KeptCall:
    """A call that is being kept; returned by ``agent.attach()``.

    Attributes:
        call_id: The call.
        resumed: Items that were stored before; 0 for a new call.
        error: Why the store does not take changes at the moment; ``None`` while it does.
    """

    def __init__(
        self, agent: Agent, log: CallLog, call_id: str, on_error: Callable[[Exception], object] | None
    ) -> None:
        self.call_id = call_id
        self.resumed: int = len(log.items)
        self.error: Exception | None = None
        self._agent = agent
        self._log = log
        self._on_error = on_error
        self._queue: deque[Change] = deque()
        self._number = log.number
        self._wake = anyio.Event()
        self._lock = anyio.Lock()

    @property
    def pending(self) -> int:
        """Changes that are not stored yet."""
        return len(self._queue)

    async def flush(self) -> None:
        """Wait until every change up to now is stored.

        Raises:
            StoreError: The store fails; the changes are kept and tried again with the next one.
        """
        try:
            await self._drain()
        except Exception as error:
            self._failed(error)
            raise self._problem() from error

    # -- the beginning

    async def begin(self) -> None:
        """Take over what is stored, store what is new, and follow from now on."""
        agent, stored = self._agent, list(self._log.items)
        core = core_of(agent)
        history = core.conversation
        if stored:
            history.replace(_joined(stored, agent))
        first = _difference(stored, list(history))
        if first is not None:
            self._note(*first)
        # From here on, without a gap: what happens while the beginning is written comes behind it.
        history.follow(self._note)
        core.kept = self
        try:
            await self.flush()
        except BaseException:
            history.follow(None)
            core.kept = None
            raise
        core.spawn(self._write, "micdrop store")

    def _note(self, index: int, gone: int, come: tuple[Item, ...]) -> None:
        self._number += 1
        self._queue.append(Change(self._number, index, gone, come))
        self._wake.set()

    # -- the task

    async def _write(self) -> None:
        while True:
            await self._wake.wait()
            self._wake = anyio.Event()
            try:
                await self._drain()
            except Exception as error:  # noqa: BLE001 - foreign code: a store that fails must not end the call
                self._failed(error)

    async def _drain(self) -> None:
        async with self._lock:
            while self._queue:
                batch = tuple(self._queue)
                await self._log.apply(batch)
                for _ in batch:
                    self._queue.popleft()
                self.error = None

    def _failed(self, error: Exception) -> None:
        again, self.error = self.error is not None, error
        logger.error(
            "call %r: %d changes are not stored: %s",
            self.call_id,
            len(self._queue),
            error,
            exc_info=None if again else error,
            extra={"call_id": self.call_id, "pending": len(self._queue)},
        )
        if self._on_error is None:
            return
        try:
            self._on_error(error)
        except Exception:  # foreign code
            logger.exception("on_error of call %r raised; it is ignored", self.call_id)

    def _problem(self) -> StoreError:
        if isinstance(self.error, StoreError):
            return self.error
        return StoreError(f"call {self.call_id!r}: {len(self._queue)} changes are not stored: {self.error}")

    # -- the end

    async def finish(self, *, raising: bool) -> None:
        """Store what is left and give the call back; at the end of the agent's block."""
        core_of(self._agent).conversation.follow(None)
        with anyio.move_on_after(LEAVE_TIMEOUT, shield=True) as limit:
            try:
                await self._drain()
            except Exception as error:  # noqa: BLE001 - foreign code, told below
                self._failed(error)
            try:
                await self._log.aclose()
            except Exception:  # foreign code
                logger.exception("call %r could not be given back", self.call_id)
        if limit.cancelled_caught:
            self._failed(TimeoutError(f"the store took longer than {LEAVE_TIMEOUT:g} seconds"))
        if self._queue and raising:
            raise self._problem()


def _joined(stored: Sequence[Item], agent: Agent) -> list[Item]:
    """What was stored, under the agent's own system prompt if it has one, and what it has besides."""
    own = list(agent.conversation)
    head = [own.pop(0)] if own and _is_system(own[0]) else []
    if _is_system(stored[0]):
        head = head if any(isinstance(item, Message) and not is_blank(item.content) for item in head) else [stored[0]]
        stored = stored[1:]
    return [*head, *repaired(stored), *own]


def _is_system(item: Item) -> bool:
    return isinstance(item, Message) and item.role == "system"


def _difference(old: list[Item], new: list[Item]) -> tuple[int, int, tuple[Item, ...]] | None:
    """The one change that makes ``new`` of ``old``; ``None`` if they are equal."""
    if old == new:
        return None
    shorter = min(len(old), len(new))
    start = next((index for index in range(shorter) if old[index] != new[index]), shorter)
    same = next((back for back in range(shorter - start) if old[-1 - back] != new[-1 - back]), shorter - start)
    return start, len(old) - same - start, tuple(new[start : len(new) - same])
