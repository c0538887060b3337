"""The kit says what it promises: an agent that swallows, shields or outlives its cancellation fails, and is named."""

from __future__ import annotations

import gc
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from micdrop_agent import Agent
from micdrop_agent.testing import (
    BACKENDS,
    InvariantError,
    backend_options,
    cancel_everywhere,
    count_steps,
    run_virtual,
    talk_to,
)

if TYPE_CHECKING:
    from micdrop_agent import Turn
    from micdrop_agent.testing import Backend

INJECTED = ["cancel", "close answer"]


class SwallowsAndReturns(Agent):
    async def generate_answer(self, turn: Turn) -> None:
        await turn.write("One ")
        try:
            await anyio.sleep(1)
        except BaseException:  # noqa: BLE001 - the mistake that must be noticed
            return
        await turn.write("two.")


class Shields(Agent):
    async def generate_answer(self, turn: Turn) -> None:
        await turn.write("One ")
        with anyio.CancelScope(shield=True):
            await anyio.sleep(60)
        await turn.write("two.")


class CleansUpForAMinute(Agent):
    async def generate_answer(self, turn: Turn) -> None:
        try:
            await turn.write("One ")
            await anyio.sleep(1)
            await turn.write("two.")
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(60)


class Right(Agent):
    async def generate_answer(self, turn: Turn) -> None:
        await turn.write("One ")
        try:
            await anyio.sleep(1)
        finally:
            with anyio.move_on_after(1, shield=True):
                await anyio.sleep(0.5)
        with anyio.move_on_after(0.5):  # a time limit of its own is no cancellation that it swallows
            await anyio.sleep(5)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("wrong", [SwallowsAndReturns, Shields, CleansUpForAMinute])
def test_an_agent_that_does_not_end_with_its_cancellation_fails_and_is_named(
    wrong: type[Agent], backend: Backend
) -> None:
    with pytest.raises(InvariantError, match=wrong.__name__):
        cancel_everywhere(talk_to(wrong), backends=[backend], inject=INJECTED)


class NeverEnds(Agent):
    async def generate_answer(self, turn: Turn) -> None:
        with anyio.CancelScope(shield=True):
            await anyio.sleep_forever()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_run_that_never_ends_says_what_it_waits_for_and_nothing_else(
    backend: Backend, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(
        InvariantError, match=r"(?s)the scenario never ended.*micdrop answer: .*undisturbed on"
    ) as caught:
        cancel_everywhere(talk_to(NeverEnds), backends=[backend])
    assert caught.value.step is None
    del caught
    gc.collect()  # what is left complains now, if at all: pytest makes an error of it
    assert capfd.readouterr() == ("", "")
    assert [record.message for record in caplog.records if "raised" in record.message] == []


@pytest.mark.parametrize("backend", ["asyncio", "trio", "asyncio-native"])
def test_a_backend_may_be_any_text_and_an_unknown_one_is_named(backend: str) -> None:
    async def nothing() -> None:
        await anyio.sleep(1)

    run_virtual(backend, nothing)
    assert count_steps(backend, nothing) > 0
    for refused in (run_virtual, count_steps):
        with pytest.raises(ValueError, match='not "curio"'.replace('"', "'")):
            refused("curio", nothing)
    with pytest.raises(ValueError, match="asyncio-native"):
        backend_options("uvloop")
    with pytest.raises(ValueError, match="backend is"):
        cancel_everywhere(talk_to(Right), backends=["curio"])


WITHOUT_TRIO = """
import sys
sys.modules["trio"] = None
import logging
logging.basicConfig(format="%(message)s")
import anyio, pytest
from micdrop_agent import MicdropError
from micdrop_agent.testing import BACKENDS, ScriptedAgent, cancel_everywhere, run_virtual, talk, talk_to

assert BACKENDS == ("asyncio",)
report = cancel_everywhere(talk_to(lambda: ScriptedAgent(["One ", 1, "two."])), inject=["cancel", "answer"])
assert list(report.steps) == ["asyncio"] and report.points > 20

async def scenario():
    async with ScriptedAgent(["Hello."]) as agent:
        return (await talk(agent, "Hi")).said("hello").text

assert run_virtual("asyncio", scenario) == "Hello."
with pytest.raises(MicdropError, match="Trio is not installed; run: pip install"):
    run_virtual("trio", scenario)
"""


def test_without_trio_the_kit_runs_on_asyncio_alone_and_says_so() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", WITHOUT_TRIO], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("Trio is not installed, so the sweep runs on asyncio alone; run: pip install")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_clean_up_within_the_time_and_time_limits_of_its_own_pass(backend: Backend) -> None:
    report = cancel_everywhere(talk_to(Right), backends=[backend], inject=INJECTED)

    assert report.points > 20


@pytest.mark.parametrize("backend", BACKENDS)
def test_how_long_clean_up_may_take_is_an_option(backend: Backend) -> None:
    options: dict[str, Any] = {"backends": [backend], "inject": INJECTED}

    assert cancel_everywhere(talk_to(CleansUpForAMinute), end_within=120.0, **options).points > 10
    with pytest.raises(InvariantError, match=r"still ran 0\.2 s after"):
        cancel_everywhere(talk_to(Right), end_within=0.2, **options)
