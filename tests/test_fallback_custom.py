"""Children of the application's own make: their prompt, and the fillers of their hooks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest

from fallback_kit import Cast, down, listen, stored
from micdrop_agent import Agent, FallbackAgent, Message
from micdrop_agent.testing import BACKENDS, HANG, Backend, ScriptedAgent, run_virtual

if TYPE_CHECKING:
    from collections.abc import Callable

    from micdrop_agent import Turn

both = pytest.mark.parametrize("backend", BACKENDS)


class Reader(Agent):
    """Says the prompt that it reads in the conversation, before and after its first word."""

    async def generate_answer(self, turn: Turn) -> None:
        conversation = turn.conversation
        before = [conversation[0], len(conversation), conversation.index_of(conversation[-1])]
        await turn.write(f"{conversation[0].content}, ")  # type: ignore[union-attr]
        await turn.write(f"{turn.conversation[0].content}")  # type: ignore[union-attr]
        assert before == [conversation[0], len(conversation), conversation.index_of(conversation[-1])]


@both
def test_a_child_of_ones_own_reads_its_own_prompt_also_before_its_first_word(backend: Backend) -> None:
    """What it reads is what it sends to its model."""
    inner = Cast([down()], lambda: Reader(system_prompt="mine"))
    nested = Cast([down()], inner.agent)

    async def scenario() -> None:
        for cast in (Cast([down()], lambda: Reader(system_prompt="mine")), nested):
            async with cast.agent() as agent:
                assert (await listen(agent)).text == "mine, mine"
                assert agent.conversation[0] == Message("system", "mine")

    run_virtual(backend, scenario)


@both
def test_a_child_that_failed_leaves_the_prompt_as_it_was(backend: Backend) -> None:
    cast = Cast(["Yes."], lambda: ScriptedAgent([down()], system_prompt="other"))

    async def scenario() -> None:
        async with cast.agent() as agent:
            await listen(agent)
            agent._active = 1
            assert (await listen(agent)).text == "Yes."
            assert agent.conversation[0] == Message("system", "prompt 0")

    run_virtual(backend, scenario)
