"""The oldest turns of a long conversation become a summary, made beside the call.

    request at 70 % of the budget ──▶ a task of the agent: summarize(oldest turns) ──▶ between two answers: one message

What is being said never waits for it. A summary that fails, comes too late, or tells of turns that have changed
meanwhile, changes nothing. Pinned in tests/test_summary.py.
"""

from __future__ import annotations

import inspect
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final

import anyio

from micdrop_agent._core.agent import Agent
from micdrop_agent._core.core import core_of
from micdrop_agent._core.quiet import until_quiet
from micdrop_agent.errors import MicdropError
from micdrop_agent.events import ConversationSummarized
from micdrop_agent.messages import Message, ToolCall, is_blank
from micdrop_agent.model.budget import first_turns

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from micdrop_agent._core.core import Core
    from micdrop_agent.messages import Item
    from micdrop_agent.model.options import Summarize

__all__ = ["Summarizer"]

AGAIN_AFTER: Final = 0.1
"""Share of the budget by which a conversation grows before another summary is tried."""

INTRODUCTION: Final = "Summary of the conversation so far:\n"

_ASK: Final = (
    "Summarize the conversation below, so that it can be continued without its text. Keep names, numbers, what was "
    "agreed, and what is still open. Write nothing but the summary.\n\n"
)
_SPEAKERS: Final = {"user": "Caller", "assistant": "Assistant", "system": "Note"}


class Summarizer:
    """Keeps the conversation of one agent short.

    Args:
        core: The agent that sends the conversation.
        options: By whom, and when.
        limit: Tokens of its budget.
    """

    def __init__(self, core: Core, options: Summarize, limit: int) -> None:
        self._core = core
        self._options = options
        self._limit = limit
        self._next = limit * options.at
        self._at_work = False
        self._wanted: anyio.Event | None = None

    def look(self, tokens: int) -> None:
        """``tokens`` is what the conversation has now: have it summarized if that is too much."""
        if tokens < self._next or self._at_work:
            return
        # Whatever becomes of it: not again with each request.
        self._next = tokens + self._limit * AGAIN_AFTER
        self._at_work = True
        if self._wanted is not None:
            self._wanted.set()
        elif not self._core.spawn(self._run, "micdrop summary"):
            self._at_work = False

    async def _run(self) -> None:
        """Make one summary after the other; an agent that makes them stays open in between."""
        by = self._options.by
        try:
            async with AsyncExitStack() as stack:
                if isinstance(by, Agent) and core_of(by).state == "new":
                    await stack.enter_async_context(by)
                while True:
                    self._wanted = anyio.Event()
                    await self._summarize()
                    self._at_work = False
                    await self._wanted.wait()
        finally:
            self._wanted, self._at_work = None, False

    async def _summarize(self) -> None:
        root = self._core.root()
        items = list(root.conversation)
        start = 1 if items and items[0].role == "system" else 0
        turns = first_turns(items)
        if len(turns) <= self._options.keep_turns:
            return  # the last turns alone are long
        old = items[start : turns[-self._options.keep_turns]]
        text = await self._text(old)
        if text is None:
            return
        await until_quiet(root, heard=False)
        if _replaced(root, start, old, Message("system", INTRODUCTION + text, {"summary": True})):
            self._next = self._limit * self._options.at

    async def _text(self, old: Sequence[Item]) -> str | None:
        """The summary of ``old``; ``None`` if there is none in time."""
        log, options = self._core.log, self._options
        text: object = None
        try:
            with anyio.move_on_after(options.timeout) as limit:
                text = await _asked(options.by, tuple(old))
        except Exception:  # foreign code: the call goes on with its complete conversation
            log.exception("the conversation could not be summarized; it stays as it is")
            return None
        if limit.cancelled_caught:
            log.warning("no summary within %g s; the conversation stays as it is", options.timeout)
        elif not isinstance(text, str) or is_blank(text):
            log.warning("a summary is a text, not %r; the conversation stays as it is", text)
        else:
            return text.strip()
        return None


async def _asked(by: Agent | Callable[[Sequence[Item]], Any], old: tuple[Item, ...]) -> object:
    if isinstance(by, Agent):
        return await _asked_agent(by, old)
    made: object = by(old)
    return await made if inspect.isawaitable(made) else made


async def _asked_agent(agent: Agent, old: Sequence[Item]) -> str:
    # Each summary is a conversation of its own.
    agent.conversation.replace([Message("system", agent.system_prompt)])
    agent.add_user_message(_ASK + "\n".join(_line(item) for item in old))
    answer = agent.answer()
    try:
        result = await answer.wait()
    finally:
        answer.cancel()  # out of time; does nothing after the end
    if result.status != "completed":
        raise result.error or MicdropError(f"the answer with the summary was {result.status}")
    return result.text


def _line(item: Item) -> str:
    if isinstance(item, Message):
        return f"{_SPEAKERS[item.role]}: {item.content}"
    if isinstance(item, ToolCall):
        return f"Assistant calls {item.tool_name} with {item.parameters}"
    return f"{item.tool_name} returns {item.output}"


def _replaced(root: Core, start: int, old: Sequence[Item], summary: Message) -> bool:
    """Put ``summary`` in the place of ``old``, unless that is no longer what stands there."""
    history = root.conversation
    now = history[start : start + len(old)]
    if len(now) != len(old) or any(item is not then for item, then in zip(now, old, strict=True)):
        root.log.info("the conversation has changed while it was summarized; it stays as it is")
        return False
    history.fold(start, len(old), summary)
    root.hub.emit(ConversationSummarized(tuple(old), summary, start))
    return True
