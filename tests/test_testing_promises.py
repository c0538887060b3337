"""The kit says what it promises: an agent that swallows, shields or outlives its cancellation fails, and is named."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest

from micdrop_agent import Agent
from micdrop_agent.testing import BACKENDS, InvariantError, cancel_everywhere, talk_to

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
