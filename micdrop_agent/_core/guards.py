"""Guards at the library's boundary: they say what was wrong and what to do instead."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["State", "awaited", "check_listener", "may_answer", "may_open"]

State: TypeAlias = Literal["new", "open", "closing", "closed"]


def may_open(agent: object, state: State, *, owned: bool) -> None:
    """Refuse to open an agent twice, or one that a ``FallbackAgent`` drives."""
    name = type(agent).__name__
    if owned:
        raise RuntimeError(f"this {name} belongs to a FallbackAgent, which opens and closes it")
    if state != "new":
        raise RuntimeError(
            f"this {name} was closed and cannot be opened again (an agent belongs to one event "
            "loop); make a new one, and give it the conversation with conversation.replace()"
        )


def may_answer(agent: object, state: State, *, owned: bool) -> None:
    """Refuse ``answer()`` outside the agent's block."""
    name = type(agent).__name__
    if owned:
        raise RuntimeError(f"this {name} belongs to a FallbackAgent; ask that for an answer")
    if state == "new":
        raise RuntimeError(f"answer() needs an open agent: 'async with {name}(...) as agent:'")
    if state != "open":
        raise RuntimeError(f"this {name} was closed; answer() needs an open agent")


def check_listener(listener: object, what: str, *, instead: str = "") -> None:
    """Refuse a listener that nobody could call, or whose coroutine nobody would run.

    Args:
        listener: What was given.
        what: What it is, and what it takes: "on_error is a function of one error".
        instead: Where code that awaits belongs.
    """
    if not callable(listener):
        raise TypeError(f"{what}, not {listener!r}")
    if inspect.iscoroutinefunction(listener):
        raise TypeError(
            f"{what}; {listener!r} is a coroutine function and would never run; use a plain function{instead}"
        )


def awaited(answer: object) -> Generator[Any, Any, object]:
    """The ``__await__`` of an answer: says what to await instead.

    Some await whatever a function returned if that can be awaited: a portal (``portal.call(agent.answer)``), this
    library with hooks and tools. They get the answer as it is.
    """
    here = inspect.currentframe()
    asks = here.f_back if here is not None else None
    if asks is not None and str(asks.f_globals.get("__name__")).partition(".")[0] in {"anyio", "micdrop_agent"}:
        return _itself(answer).__await__()
    raise TypeError(
        "an answer is not awaitable: read it with 'async for chunk in answer', or use 'await answer.wait()'"
    )


async def _itself(answer: object) -> object:
    return answer
