"""One typed answer without speech: a request of its own, beside the conversation.

Mood ──▶ JSON Schema in the prompt ──▶ response ──▶ the first object in it ──▶ Mood(…)
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import anyio

from micdrop_agent.errors import ProviderError, ToolInputError
from micdrop_agent.messages import Message
from micdrop_agent.model.protocol import Request
from micdrop_agent.options import CLOSE_TIMEOUT

if TYPE_CHECKING:
    from micdrop_agent.messages import Item
    from micdrop_agent.model.protocol import Provider
    from micdrop_agent.options import Timeouts
    from micdrop_agent.tools import TypedValue

__all__ = ["ask"]


_PROMPT: Final = "Answer with one JSON object and nothing else: no words before or after it, no code fence. It has to fit this JSON Schema:\n{}"


_AGAIN: Final = "That is not it: {}. Answer again, with the JSON object and nothing else."


async def ask(provider: Provider, timeouts: Timeouts, cls: type, text: str, retries: int) -> Any:
    """What the model makes of ``text``, as an instance of ``cls``.

    Raises:
        ProviderError: The provider failed, or no response holds a value that fits (kind ``empty``).
        TypeError: ``cls`` is not a class that can be read from JSON.
    """
    from micdrop_agent.tools import TypedValue

    wanted = TypedValue(cls)
    schema = json.dumps(wanted.schema, ensure_ascii=False, default=str)
    items: list[Item] = [Message("system", _PROMPT.format(schema)), Message("user", text)]
    while True:
        said = await _response(provider, timeouts.total, Request(items=items))
        value, problem = _read(wanted, said)
        if problem is None:
            return value
        if retries <= 0:
            raise ProviderError(
                f"{provider.name} did not answer with a {cls.__name__}: {problem}", kind="empty", provider=provider.name
            )
        retries -= 1
        items += [Message("assistant", said), Message("user", _AGAIN.format(problem))]


def _read(wanted: TypedValue, said: str) -> tuple[Any, str | None]:
    """The value in ``said``, and what is wrong with it."""
    from micdrop_agent.options import ExtractJson
    from micdrop_agent.text import ThinkFilter, extract_text

    think = ThinkFilter()
    _, found, value = extract_text(think.feed(said) + think.finish(), ExtractJson())
    if not found:
        return None, "no JSON object"
    try:
        return wanted.read(value), None
    except ToolInputError as error:
        return None, str(error)


async def _response(provider: Provider, seconds: float | None, request: Request) -> str:
    """The text of one response."""
    pieces: list[str] = []
    limit = None if seconds is None else anyio.current_time() + seconds
    with anyio.CancelScope(deadline=float("inf") if limit is None else limit) as scope:
        stream = await provider.open(request)
        try:
            while (events := await stream.receive()) is not None:
                pieces += [event for event in events if isinstance(event, str)]
        finally:
            with anyio.move_on_after(CLOSE_TIMEOUT, shield=True):
                await stream.aclose()
    if scope.cancelled_caught:
        raise ProviderError(
            f"{provider.name} took longer than {seconds:g} seconds (Timeouts.total)",
            kind="timeout",
            provider=provider.name,
        )
    return "".join(pieces)
