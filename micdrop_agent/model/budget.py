"""Keeps a request within a number of tokens: the oldest turns are left out of it, complete ones only. No I/O.

    items ──▶ [system prompt] [turn 1] [turn 2] … [last turn]
                   kept        └─ left out ─┘        kept

A turn begins with what the caller said and reaches to the next thing the caller says; what comes
before the first of them is one too. Guarantees, pinned in tests/test_budget.py:

1. The system prompt and the last turn are always sent, even when they alone are too large.
2. What is sent is the system prompt and an unbroken end of the conversation.
3. A tool call and its result are sent together or not at all.
4. The conversation itself is never changed, and an item is counted once, however often it is sent.
5. What was left out stays left out: more than needed is cut at once, so that the beginning of the
   next requests stays the same, for the provider's prompt cache and for ours.
"""

from __future__ import annotations

import logging
import operator
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

from micdrop_agent._core.log import SafeLog
from micdrop_agent.images import images_of
from micdrop_agent.messages import Message, ToolCall, ToolResult

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from micdrop_agent.messages import Item

__all__ = ["TokenBudget", "check_counter", "estimate_tokens", "first_turns"]

PER_ITEM: Final = 4
"""Tokens for the role and the separators of one item, as OpenAI counts them."""

PER_IMAGE: Final = 1000
"""Tokens of a picture: about what the providers count for one of a usual size."""

CUT_TO: Final = 0.75
"""Share of the budget that is left filled by a cut: a deep cut now and then keeps the beginning of
the requests in between the same, where a small cut for each turn would change it each time."""

logger: Final = SafeLog(logging.getLogger("micdrop_agent.budget"))


def estimate_tokens(text: str) -> int:
    """A cheap estimate, on the safe side: a token is 4 bytes of ASCII text, else 3 bytes of UTF-8.

    Close enough to leave room in a window; off by up to a third either way for code, numbers and
    rare scripts. Give ``count_tokens`` a real tokenizer when it has to be exact.
    """
    if text.isascii():
        return (len(text) + 3) // 4
    return (len(text.encode("utf-8", "surrogatepass")) + 2) // 3


def check_counter(count: object, *, limit: object) -> None:
    """Refuse a ``count_tokens`` that cannot be one, or that nothing would use."""
    if count is None:
        return
    if not callable(count):
        raise TypeError(f"count_tokens must be a function of a text that returns its tokens, not {count!r}")
    if limit is None:
        raise ValueError("count_tokens has no effect without max_context_tokens")


class TokenBudget:
    """Trims the requests of one agent.

    Args:
        limit: Most tokens of a conversation, its system prompt included.
        count: Tokens of a text; ``estimate_tokens`` if ``None``. When it raises or returns
            nonsense, that is logged and the estimate is used: a call goes on.
    """

    def __init__(self, limit: int, count: Callable[[str], int] | None = None) -> None:
        self.limit = limit
        self._count = estimate_tokens if count is None else count
        self._items: list[Item] = []
        self._tokens: list[int] = []
        self._total = 0
        self._first: Item | None = None
        """The first item after the system prompt that is sent; ``None``: nothing is left out."""
        self._told = False
        self.tokens_sent = 0
        """Tokens of what was sent last."""

    @property
    def tokens(self) -> int:
        """Tokens of all items, as they were at the last ``trim()``."""
        return self._total

    def trim(self, items: Sequence[Item]) -> Sequence[Item]:
        """What of ``items`` is to be sent; ``items`` itself when all of it fits."""
        listed = list(items)
        self._recount(listed)
        head = _head(listed)
        start = self._start(head)
        left_out = sum(self._tokens[head:start]) if start > head else 0
        if self._total - left_out > self.limit:
            start = self._cut(head, start)
        self.tokens_sent = self._total - sum(self._tokens[head:start])
        if start <= head:
            self._first = None
            return items
        self._first = listed[start]
        return [*listed[:head], *listed[start:]]

    def _recount(self, items: list[Item]) -> None:
        """Bring the counts up to date; items that stand where they stood are not counted again."""
        known = self._items
        same = len(known)
        if len(items) < same or not all(map(operator.is_, known, items)):  # the usual case, at the speed of C
            same = next(index for index, pair in enumerate(zip_longest(known, items)) if pair[0] is not pair[1])
        moved = dict(zip(map(id, known[same:]), self._tokens[same:], strict=True))
        self._total -= sum(self._tokens[same:])
        del self._tokens[same:]
        for item in items[same:]:
            tokens = moved.get(id(item))
            tokens = self._tokens_of(item) if tokens is None else tokens
            self._tokens.append(tokens)
            self._total += tokens
        self._items = items  # also keeps them alive, so that an id means one item

    def _tokens_of(self, item: Item) -> int:
        if isinstance(item, Message):
            pictures = PER_IMAGE * len(images_of(item)) if item.metadata else 0
            return PER_ITEM + pictures + self._counted(item.content)
        text = item.parameters if isinstance(item, ToolCall) else item.output
        return PER_ITEM + self._counted(item.tool_name) + self._counted(text)

    def _counted(self, text: str) -> int:
        try:
            tokens: object = self._count(text)
        except Exception:  # foreign code: a tokenizer must not end a call
            logger.exception("count_tokens raised; tokens are estimated from now on")
        else:
            if isinstance(tokens, int) and tokens >= 0:
                return tokens
            logger.error("count_tokens returned %r, no number of tokens; they are estimated from now on", tokens)
        self._count = estimate_tokens
        return estimate_tokens(text)

    def _start(self, head: int) -> int:
        """Where the last cut is now; ``head`` if there is none, or its item is gone."""
        if self._first is not None:
            for index in range(head, len(self._items)):
                if self._items[index] is self._first:
                    return index
        return head

    def _cut(self, head: int, start: int) -> int:
        """The first turn that is sent, so that some room is left; the last one if none leaves it."""
        turns = _turns(self._items, head)
        wanted = self.limit * CUT_TO
        left = self._total - sum(self._tokens[head:start])
        at = start
        for turn in turns:
            if turn <= at:
                continue
            if left <= wanted:
                break
            left -= sum(self._tokens[at:turn])
            at = turn
        if left > self.limit and not self._told:
            self._told = True
            logger.warning(
                "the system prompt and the last turn are about %d tokens, more than max_context_tokens=%d; "
                "they are sent all the same",
                left,
                self.limit,
            )
        return at


def first_turns(items: Sequence[Item]) -> list[int]:
    """Where each turn begins: the places at which a conversation may be cut without parting a call and its result."""
    return _turns(items, _head(items))


def _head(items: Sequence[Item]) -> int:
    """How many items the system prompt is."""
    for index, item in enumerate(items):
        if not isinstance(item, Message) or item.role != "system":
            return index
    return len(items)


def _turns(items: Sequence[Item], head: int) -> list[int]:
    """Where a cut may be: at the first thing that the caller says, and not within a call pair."""
    results = {item.tool_call_id: index for index, item in enumerate(items) if isinstance(item, ToolResult)}
    turns: list[int] = []
    whole_at = head  # no call before here has its result behind it
    spoke = False
    for index in range(head, len(items)):
        item = items[index]
        if isinstance(item, ToolCall):
            whole_at = max(whole_at, results.get(item.tool_call_id, 0) + 1)
        speaks = isinstance(item, Message) and item.role == "user"
        if speaks and not spoke and index >= whole_at:
            turns.append(index)
        spoke = speaks
    return turns
