"""Guards at the library's boundary: they say what was wrong and what to do instead."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from micdrop_agent._core.agent import Agent

__all__ = ["State", "check_listener", "may_answer", "may_open"]

State: TypeAlias = Literal["new", "open", "closing", "closed"]


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
