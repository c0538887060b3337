"""What the fixtures of pytest are, for annotations in tests; each is a function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from contextlib import AbstractAsyncContextManager

    from micdrop_agent._core.agent import Agent
    from micdrop_agent.testing._provider import Reply, ScriptedProvider
    from micdrop_agent.testing._sweep import SweepReport

__all__ = ["AssertNoLeaks", "InterruptEverywhere", "MakeProvider", "RunVirtual"]

T = TypeVar("T")


class RunVirtual(Protocol):
    """The fixture ``run_virtual``; its options are those of ``micdrop_agent.testing.run_virtual``."""

    def __call__(self, fn: Callable[..., Awaitable[T]], *args: Any, **options: Any) -> T:
        """Run ``await fn(*args)`` in virtual time."""
        ...


class InterruptEverywhere(Protocol):
    """The fixture ``interrupt_everywhere``."""

    def __call__(
        self, make: Callable[[], Agent], *questions: str, inject: str | Iterable[str] | None = None
    ) -> SweepReport:
        """Interrupt answers of the agents that ``make`` makes."""
        ...


class MakeProvider(Protocol):
    """The fixture ``scripted_provider``."""

    def __call__(self, *replies: Reply) -> ScriptedProvider:
        """A model server that gives these replies in turn."""
        ...


class AssertNoLeaks(Protocol):
    """The fixture ``assert_no_leaks``."""

    def __call__(self) -> AbstractAsyncContextManager[None]:
        """A block for ``async with`` that may leave nothing."""
        ...
