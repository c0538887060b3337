"""A reader that is cancelled gets no chunk any more, and loses none for the next reader."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from micdrop_agent import Agent
from micdrop_agent.testing import BACKENDS, Backend, run_virtual

pytestmark = pytest.mark.parametrize("backend", BACKENDS)


def test_a_reader_cancelled_in_the_step_of_the_hand_over_gets_nothing_and_the_next_one_gets_all(
    backend: Backend,
) -> None:
    async def main() -> None:
        scope = anyio.CancelScope()

        class Writes(Agent):
            async def generate_answer(self, turn: Any) -> None:
                await anyio.sleep(1)
                turn.write_nowait("one ")
                scope.cancel()  # after the chunk was handed over, before its reader runs
                await anyio.sleep(1)
                turn.write_nowait("two")

        async with Writes() as agent:
            answer = agent.answer()
            late: list[str] = []
            with scope:
                late.append(await answer.receive())
            assert late == []
            assert [chunk async for chunk in answer] == ["one ", "two"]
            assert answer.text == "one two"

    run_virtual(backend, main)
