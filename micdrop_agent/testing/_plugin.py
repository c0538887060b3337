"""Fixtures for pytest, registered by an entry point wherever the library is installed.

pytest loads this module in every project of the environment, so nothing of the test kit is imported before a
test asks for one of its fixtures.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, cast

import pytest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from contextlib import AbstractAsyncContextManager
    from typing import Protocol, TypeVar

    from micdrop_agent._core.agent import Agent
    from micdrop_agent.testing import Backend, Reply, ScriptedProvider, SweepReport

    T = TypeVar("T")

    class RunVirtual(Protocol):
        """What the fixture ``run_virtual`` is; the options are those of ``micdrop_agent.testing.run_virtual``."""

        def __call__(self, fn: Callable[..., Awaitable[T]], *args: Any, **options: Any) -> T:
            """Run ``await fn(*args)``."""
            ...

    class InterruptEverywhere(Protocol):
        """What the fixture ``interrupt_everywhere`` is."""

        def __call__(
            self, make: Callable[[], Agent], *questions: str, inject: str | Iterable[str] | None = None
        ) -> SweepReport:
            """Interrupt answers of the agents that ``make`` makes."""
            ...


@pytest.fixture(params=["asyncio", "trio"])
def micdrop_backend(request: pytest.FixtureRequest) -> Backend:
    """The event loop of the test, which runs once on each; skipped on Trio where that is not installed.

    Override it in a ``conftest.py`` to test on one of them only.
    """
    if request.param == "trio":
        pytest.importorskip("trio")
    return cast("Backend", request.param)


@pytest.fixture
def run_virtual(micdrop_backend: Backend) -> RunVirtual:
    """Runs async code in virtual time, on asyncio and on Trio in turn: ``run_virtual(fn, *args)``."""
    from micdrop_agent.testing import run_virtual as run

    return cast("RunVirtual", functools.partial(run, micdrop_backend))


@pytest.fixture
def scripted_provider() -> Callable[..., ScriptedProvider]:
    """Makes a model server that gives the replies in turn: ``scripted_provider(say("One"), fault("status"))``."""
    from micdrop_agent.testing import ScriptedProvider

    def make(*replies: Reply) -> ScriptedProvider:
        return ScriptedProvider(replies)

    return make


@pytest.fixture
def assert_no_leaks() -> Callable[[], AbstractAsyncContextManager[None]]:
    """The check that a block leaves no task and no open resource, to be used with ``async with``."""
    from micdrop_agent.testing import assert_no_leaks as check

    return check


@pytest.fixture
def interrupt_everywhere(micdrop_backend: Backend) -> InterruptEverywhere:
    """Interrupts answers at every step and checks every invariant: ``interrupt_everywhere(MyAgent, "Hello?")``.

    It takes a function that makes the agent, what the caller says (one answer each), and ``inject``: names of
    ``INJECTIONS``, by default all of them.
    """
    from micdrop_agent.testing import INJECTIONS, cancel_everywhere, talk_to

    def interrupt(make: Callable[[], Agent], *questions: str, inject: str | Iterable[str] | None = None) -> SweepReport:
        return cancel_everywhere(
            talk_to(make, *questions),
            inject=tuple(INJECTIONS) if inject is None else inject,
            backends=[micdrop_backend],
        )

    return interrupt
