"""Fixtures for pytest, registered by an entry point wherever the library is installed.

pytest loads this module in every project of the environment, so nothing of the test kit is imported before a
test asks for one of its fixtures.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Any, cast

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from micdrop_agent._core.agent import Agent
    from micdrop_agent.testing import (
        AssertNoLeaks,
        Backend,
        Cassette,
        InterruptEverywhere,
        MakeProvider,
        Reply,
        RunVirtual,
        ScriptedProvider,
        SweepReport,
    )


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--cassette-mode``."""
    parser.getgroup("micdrop_agent").addoption(
        "--cassette-mode",
        choices=("once", "replay", "record"),
        help="what cassettes of micdrop_agent do that say nothing of it: record what has no file yet (once, the "
        "default), never record (replay), or record anew from the real servers (record)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Set the mode of cassettes, and tell of the marker."""
    config.addinivalue_line(
        "markers", "cassette(name, **options): the file of the fixture `cassette`, and options of testing.Cassette"
    )
    mode = config.getoption("--cassette-mode")
    if mode is not None:
        from micdrop_agent.testing._mode import DefaultMode

        DefaultMode.mode = mode


@pytest.fixture
def cassette(request: pytest.FixtureRequest) -> Cassette:
    """The cassette of the test: ``cassettes/MODULE/TEST.jsonl`` beside its file, one for all event loops.

    ``@pytest.mark.cassette("name", redact=[…])`` names another file there, or gives options of ``testing.Cassette``.
    """
    from micdrop_agent.testing import Cassette

    marker = request.node.get_closest_marker("cassette")
    options: dict[str, Any] = {} if marker is None else dict(marker.kwargs)
    name = options.pop("name", marker.args[0] if marker is not None and marker.args else None)
    folder = request.path.parent / "cassettes"
    file = folder / request.path.stem / f"{_name_of(request)}.jsonl" if name is None else folder / f"{name}.jsonl"
    return Cassette(file, **options)


def _name_of(request: pytest.FixtureRequest) -> str:
    """The name of the test and of its parameters, without the event loop: what was recorded is the same on each."""
    item = request.node
    name = str(getattr(item, "originalname", None) or item.name)
    callspec = getattr(item, "callspec", None)
    if callspec is not None:
        given = zip(callspec.params.items(), callspec.id.split("-"), strict=False)
        loops = {"asyncio", "trio", "asyncio-native", "asyncio+uvloop"}
        name = "-".join([name, *(shown for (_, value), shown in given if value not in loops)])
    return re.sub(r"[^\w.-]+", "_", name)


@pytest.fixture(params=["asyncio", "trio"])
def micdrop_backend(request: pytest.FixtureRequest) -> Backend:
    """The event loop of the test, which runs once on each; skipped on Trio where that is not installed.

    Override it in a ``conftest.py`` to test on one of them only.
    """
    if request.param == "trio":
        from micdrop_agent._extras import install_command, installed

        if not installed("trio"):
            pytest.skip(f"Trio is not installed, so this runs on asyncio alone; run: {install_command('trio')}")
    return cast("Backend", request.param)


@pytest.fixture
def run_virtual(micdrop_backend: Backend) -> RunVirtual:
    """Runs async code in virtual time, on asyncio and on Trio in turn: ``run_virtual(fn, *args)``."""
    from micdrop_agent.testing import run_virtual as run

    return cast("RunVirtual", functools.partial(run, micdrop_backend))


@pytest.fixture
def scripted_provider() -> MakeProvider:
    """Makes a model server that gives the replies in turn: ``scripted_provider(say("One"), fault("status"))``."""
    from micdrop_agent.testing import ScriptedProvider

    def make(*replies: Reply) -> ScriptedProvider:
        return ScriptedProvider(replies)

    return make


@pytest.fixture
def assert_no_leaks() -> AssertNoLeaks:
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
