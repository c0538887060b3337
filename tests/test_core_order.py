"""What a cut answer leaves stands where it was said, whatever was added, removed or exchanged meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest
from core_support import log_of, replayed, said

from micdrop_agent import FallbackAgent, ProviderError
from micdrop_agent.testing import BACKENDS, HANG, ScriptedAgent, run_virtual

if TYPE_CHECKING:
    from micdrop_agent import Agent
    from micdrop_agent.testing import Backend

pytestmark = pytest.mark.parametrize("backend", BACKENDS)


async def interrupted(agent: Agent, words: str = "Hi, I") -> None:
    """Read the answer until the caller talks into it, 3 s later."""

    async def read() -> None:
        async for _chunk in agent.answer():
            pass

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        await anyio.sleep(3)
        agent.add_user_message(words)
        agent.cancel()


def test_a_greeting_that_another_child_went_on_with_stands_before_what_interrupted_it(backend: Backend) -> None:
    """The system prompt, which is all that stands before it, was exchanged for that of the other child."""
    cut = ProviderError("cut", kind="truncated")

    async def main() -> None:
        agent = FallbackAgent(
            [
                lambda: ScriptedAgent(["Hello ", 1, cut], system_prompt="A"),
                lambda: ScriptedAgent(["dear caller", HANG], system_prompt="B"),
            ]
        )
        async with agent:
            await interrupted(agent)
            assert said(agent) == [("assistant", "Hello dear caller"), ("user", "Hi, I")]

    run_virtual(backend, main)


@pytest.mark.parametrize("start", [[], None])
def test_a_greeting_stands_before_what_interrupted_it(backend: Backend, start: list[Any] | None) -> None:
    async def main() -> None:
        async with ScriptedAgent(["Hello ", HANG]) as agent:
            if start is not None:
                agent.conversation.replace(start)
            await interrupted(agent)
            assert [item.role for item in agent.conversation][-2:] == ["assistant", "user"]

    run_virtual(backend, main)


def test_words_stand_where_they_were_said_when_the_message_before_them_was_taken_out(backend: Backend) -> None:
    async def main() -> None:
        async with ScriptedAgent(["Well ", HANG]) as agent:
            agent.add_user_message("One.")
            events = log_of(agent)
            answer = agent.answer()
            assert await answer.receive() == "Well "
            agent.cancel_last_user_message()
            agent.add_user_message("Two.")
            agent.cancel()
            assert said(agent) == [("assistant", "Well "), ("user", "Two.")]
            assert replayed(events) == list(agent.conversation[1:])

    run_virtual(backend, main)
