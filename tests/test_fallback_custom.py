"""Children of the application's own make: their prompt, and the fillers of their hooks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest

from fallback_kit import Cast, down, listen, series, stored
from micdrop_agent import Agent, FallbackAgent, HealthRegistry, Message
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
        assert conversation.version == self.conversation.version
        assert conversation == [conversation[0], *self.conversation[1:]]
        with pytest.raises(RuntimeError, match="while an answer runs"):
            conversation.replace([])
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
            agent._core.active = 1
            assert (await listen(agent)).text == "Yes."
            assert agent.conversation[0] == Message("system", "prompt 0")

    run_virtual(backend, scenario)


# -- fillers


def filling(*script: Any, words: str = "One moment. ", more: str = "", wait: float = 0.0) -> Callable[[], Agent]:
    """A factory of children whose hook says something before the answer is there."""

    async def hook(_agent: Agent, turn: Turn) -> None:
        await turn.write(words)
        turn.write_nowait(more)
        await anyio.sleep(wait)

    return lambda: ScriptedAgent(script, on_before_answer=hook)


@both
@pytest.mark.parametrize("how", ["continue", "restart", "stop"])
def test_the_filler_of_the_next_child_is_not_said_behind_that_of_the_one_that_failed(
    backend: Backend, how: Any
) -> None:
    agent = FallbackAgent([filling(down(), words="One ", more="moment. "), filling("At nine.")], after_partial=how)

    async def scenario() -> None:
        async with agent:
            assert (await listen(agent)).text == "One moment. At nine."
            assert stored(agent) == ["u:Hello?", "a:At nine."]
            # The next answer has its own.
            assert (await listen(agent)).text == "One moment. At nine."

    run_virtual(backend, scenario)


@both
def test_a_restarted_answer_begins_with_its_filler(backend: Backend) -> None:
    """The host has dropped what it had of the first."""
    agent = FallbackAgent([filling("At ", down()), filling("At nine.")], after_partial="restart")

    async def scenario() -> None:
        async with agent:
            assert (await listen(agent)).text == "One moment. At One moment. At nine."
            assert stored(agent) == ["u:Hello?", "a:At nine."]

    run_virtual(backend, scenario)


@both
@pytest.mark.parametrize("then", ["fails", "is cancelled"])
def test_what_was_heard_before_a_restart_is_kept_when_nothing_but_a_filler_follows(backend: Backend, then: str) -> None:
    agent = FallbackAgent([filling("At ", down()), filling(2, down())], after_partial="restart")

    async def scenario() -> None:
        async with agent, anyio.create_task_group() as tasks:
            tasks.start_soon(listen, agent)
            await anyio.sleep(1)
            if then == "is cancelled":
                agent.add_user_message("Stop!")
                agent.cancel()
            await anyio.sleep(2)
            assert stored(agent)[:2] == ["u:Hello?", "a!:At "]

    run_virtual(backend, scenario)


@both
@pytest.mark.parametrize("wait", [0.0, 20.0])
def test_a_filler_stops_no_clock(backend: Backend, wait: float) -> None:
    """A child that says "one moment" and then nothing is as silent as one that says nothing."""
    agent = FallbackAgent([filling(HANG, wait=wait), filling("At nine.")], first_chunk_timeout=2)

    async def scenario() -> None:
        async with agent:
            heard = await listen(agent)
            assert heard.text == "One moment. At nine."
            assert heard.result.duration == pytest.approx(2)
            assert [attempt.error.kind for attempt in heard.result.attempts] == ["timeout"]  # type: ignore[attr-defined]
            assert len(heard.switches) == 1

    run_virtual(backend, scenario)


@both
def test_output_after_a_filler_stops_the_clocks(backend: Backend) -> None:
    agent = FallbackAgent([filling(1, "At ", 9, "nine."), filling("no")], first_chunk_timeout=2, give_up_after=3)

    async def scenario() -> None:
        async with agent:
            heard = await listen(agent)
            assert heard.text == "One moment. At nine."
            assert heard.switches == []

    run_virtual(backend, scenario)


@both
def test_a_filler_in_a_supervisor_in_a_supervisor_stops_no_clock_either(backend: Backend) -> None:
    inner = Cast(filling(HANG), filling(HANG))
    outer = Cast(lambda: inner.agent(first_chunk_timeout=4), filling("At nine."))

    async def scenario() -> None:
        async with outer.agent(first_chunk_timeout=3) as agent:
            heard = await listen(agent)
            assert heard.text == "One moment. At nine."
            assert heard.result.duration == pytest.approx(3)

    run_virtual(backend, scenario)


@both
def test_a_filler_decides_no_race(backend: Backend) -> None:
    """The hedge may still be faster with the answer; it keeps its own filler to itself."""
    agent = FallbackAgent(
        [filling(5, "slow"), filling("At nine.")], hedge_after=1, health=HealthRegistry(hedge_budget=1)
    )

    async def scenario() -> None:
        async with agent:
            heard = await listen(agent)
            assert heard.text == "One moment. At nine."
            assert heard.result.duration == pytest.approx(1)
            assert stored(agent) == ["u:Hello?", "a:At nine."]

    run_virtual(backend, scenario)


@both
def test_a_preferred_child_comes_back_although_the_other_one_says_its_filler_first(backend: Backend) -> None:
    first = series([down()], ["first"])
    health = HealthRegistry(failures=1, first_back_off=1, chance=lambda: 1.0)
    agent = FallbackAgent([first, filling(1, "spare")], prefer="first", health=health)

    async def scenario() -> None:
        async with agent:
            assert (await listen(agent)).text == "One moment. spare"
            await anyio.sleep(2)
            # Which of the two begins is the event loop's choice.
            assert (await listen(agent)).text in {"first", "One moment. first"}
            assert agent.active_name.startswith("Series")

    run_virtual(backend, scenario)


@both
def test_a_child_that_was_replaced_says_no_filler_any_more(backend: Backend) -> None:
    async def hook(_agent: Agent, turn: Turn) -> None:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(3)
        turn.write_nowait("never")

    agent = FallbackAgent(
        [lambda: ScriptedAgent(["never"], on_before_answer=hook), filling("At nine.")], first_chunk_timeout=2
    )

    async def scenario() -> None:
        async with agent:
            assert (await listen(agent)).text == "One moment. At nine."

    run_virtual(backend, scenario)


@both
def test_giving_up_is_said_also_behind_a_filler(backend: Backend) -> None:
    agent = FallbackAgent(
        [filling(down()), filling(HANG)], first_chunk_timeout=None, give_up_after=3, give_up_text="Call again."
    )

    async def scenario() -> None:
        async with agent:
            heard = await listen(agent)
            assert heard.text == "One moment. Call again."
            assert stored(agent) == ["u:Hello?", "a:Call again."]

    run_virtual(backend, scenario)


@both
def test_an_answer_that_is_only_a_filler_is_one(backend: Backend) -> None:
    agent = FallbackAgent([filling(), filling("no")])

    async def scenario() -> None:
        async with agent:
            heard = await listen(agent)
            assert (heard.text, heard.result.status, heard.switches) == ("One moment. ", "completed", [])

    run_virtual(backend, scenario)


@both
def test_what_was_heard_of_a_restarted_answer_may_be_told_without_what_was_taken_back(backend: Backend) -> None:
    cast = Cast(["We open ", down()], ["We open ", "at nine ", "sharp."])

    async def scenario() -> None:
        async with cast.agent(after_partial="restart") as agent:
            await listen(agent)
            agent.cancel(heard="we open at nine")
            assert stored(agent) == ["u:Hello?", "a!:We open at nine"]

    run_virtual(backend, scenario)
