"""Hedging: a second child is asked early, and the loser leaves no trace (invariant 9)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest

from fallback_kit import Cast, Heard, down, listen, stored
from micdrop_agent.errors import AllAgentsFailedError
from micdrop_agent.events import AgentSwitched
from micdrop_agent.fallback import HealthRegistry
from micdrop_agent.messages import Message
from micdrop_agent.testing import BACKENDS, HANG, Backend, Call, run_virtual
from micdrop_agent.tools import tool

if TYPE_CHECKING:
    from micdrop_agent._core.turn import Turn

both = pytest.mark.parametrize("backend", BACKENDS)


def ask(backend: Backend, cast: Cast, **options: Any) -> Heard:
    async def scenario() -> Heard:
        async with cast.agent(**options) as agent:
            return await listen(agent)

    return run_virtual(backend, scenario)


@both
def test_a_stalling_child_is_overtaken_by_its_hedge(backend: Backend) -> None:
    heard = ask(backend, Cast([9.0, "a"], [0.1, "b"]), hedge_after=0.5)
    assert heard.text == "b"
    assert heard.ended_at == pytest.approx(0.6)
    assert heard.result.attempts == ()
    switch = next(event for event in heard.events if isinstance(event, AgentSwitched))
    assert (switch.from_, switch.to, switch.restarted) == ("a", "b", False)
    assert isinstance(switch.reason, TimeoutError)


@both
def test_a_child_that_answers_in_time_has_no_rival(backend: Backend) -> None:
    cast = Cast([0.4, "a", 9.0, "A"], ["b"])
    assert ask(backend, cast, hedge_after=0.5).text == "aA"
    assert cast.asked() == [1, 0]


@both
def test_a_hedge_that_is_slower_is_as_if_it_had_never_been(backend: Backend) -> None:
    cast = Cast([1.0, "a", 1.0, "A"], [0.7, "b"])
    heard = ask(backend, cast, hedge_after=0.5)
    assert heard.text == "aA"
    assert heard.names() == ["MessageAdded", "MessageAdded", "AnswerFinished"]
    assert cast.asked() == [1, 1]


@both
def test_hedges_follow_each_other(backend: Backend) -> None:
    cast = Cast([HANG], [HANG], [0.1, "c"])
    heard = ask(backend, cast, hedge_after=0.5, first_chunk_timeout=None)
    assert heard.text == "c"
    assert heard.ended_at == pytest.approx(1.1)
    assert heard.switches == [("a", "c", False)]


@both
def test_after_the_first_output_nobody_is_asked_early(backend: Backend) -> None:
    """Also not for the child that goes on in mid-answer."""
    cast = Cast(["One ", down()], [3.0, "two."], ["three"])
    heard = ask(backend, cast, hedge_after=0.5)
    assert heard.text == "One two."
    assert cast.asked() == [1, 1, 0]


@both
@pytest.mark.parametrize("nested", [False, True])
def test_behind_a_tool_nobody_is_asked_early_either_also_not_further_in(backend: Backend, nested: bool) -> None:
    """A tool is the first output too: a step in which two children are at work would not be the same answer."""

    @tool
    def look() -> str:
        """Look."""
        return "rain"

    inner = Cast([3.0, "two."], ["three"])
    cast = Cast([Call("look"), down()], (lambda: inner.agent(hedge_after=0.5)) if nested else [3.0, "two."], ["three"])
    heard = ask(backend, cast, hedge_after=0.5, tools=[look])
    assert heard.text == "two."
    assert [len(made) for made in cast.made] == [1, 1, 0]
    assert not nested or inner.asked() == [1, 0]


@both
def test_a_loser_has_run_no_tool_and_left_no_message_and_no_event(backend: Backend) -> None:
    ran: list[str] = []

    @tool
    def look() -> str:
        """Look."""
        ran.append("look")
        return "rain"

    async def try_everything(turn: Turn) -> None:
        """A loser that does all it can once it has lost."""
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(0.1)
                await turn.write("ghost")
                turn.write_nowait("ghost")
                turn.add(Message("assistant", "ghost"))
                turn.add(Message("user", "ghost"))
                turn.commit()
                turn.skip_answer()
                turn.end_call()
                turn.cancel_prompt()
                turn.cancel_last_user_message()
                turn.end()
                turn.emit(AgentSwitched("x", "y", ValueError("ghost")))
                outcome = await turn.run_tools([_call()])
                assert outcome.ran == 0

    def _call() -> Any:
        from micdrop_agent.messages import ToolCall

        return ToolCall("ghost", "look", "{}")

    cast = Cast([try_everything], ["b", 3.0, "B"])

    async def scenario() -> Heard:
        async with cast.agent(hedge_after=0.5, tools=[look]) as agent:
            heard = await listen(agent)
            await anyio.sleep(3)
            assert stored(agent) == ["u:Hello?", "a:bB"]
            return heard

    heard = run_virtual(backend, scenario)
    assert heard.text == "bB"
    assert heard.names() == ["MessageAdded", "AgentSwitched", "MessageAdded", "AnswerFinished"]
    assert ran == []


@both
def test_a_rival_that_only_calls_a_tool_wins_by_it(backend: Backend) -> None:
    ran: list[str] = []

    @tool
    def look() -> str:
        """Look."""
        ran.append("look")
        return "rain"

    cast = Cast([2.0, Call("look"), "a"], [Call("look"), 5.0, "b"])
    heard = ask(backend, cast, hedge_after=0.5, tools=[look])
    assert heard.text == "b"
    assert ran == ["look"]


@both
def test_the_budget_bounds_the_hedges(backend: Backend) -> None:
    """Five in a hundred by default, after a burst of ten."""
    cast = Cast([1.0, "a"], [1.0, "b"])

    async def scenario() -> None:
        async with cast.agent(hedge_after=0.5) as agent:
            for _ in range(210):
                await listen(agent)

    run_virtual(backend, scenario)
    assert cast.asked()[0] == 210
    assert 18 <= cast.asked()[1] <= 20


@both
def test_without_a_budget_nobody_is_asked_early(backend: Backend) -> None:
    cast = Cast([1.0, "a"], ["b"])
    heard = ask(backend, cast, hedge_after=0.5, health=HealthRegistry(hedge_budget=0))
    assert heard.text == "a"
    assert cast.asked() == [1, 0]


@both
def test_a_child_that_is_out_is_no_hedge_and_costs_no_budget_of_requests(backend: Backend) -> None:
    health = HealthRegistry()
    health.failed("b", down("auth"))
    cast = Cast([2.0, "a"], ["b"], [0.2, "c"])
    heard = ask(backend, cast, hedge_after=0.5, health=health)
    assert heard.text == "c"
    assert cast.asked() == [1, 0, 1]


@both
def test_when_the_others_are_out_nobody_is_asked_early(backend: Backend) -> None:
    health = HealthRegistry()
    health.failed("b", down("auth"))
    cast = Cast([2.0, "a"], ["b"])
    assert ask(backend, cast, hedge_after=0.5, health=health).text == "a"
    assert cast.asked() == [1, 0]


@both
def test_p95_hedges_after_what_19_of_20_answers_needed(backend: Backend) -> None:
    health = HealthRegistry()
    cast = Cast([9.0, "a"], [0.1, "b"])
    for index in range(20):
        health.succeeded("a", 0.25 if index else 5.0)
    heard = ask(backend, cast, hedge_after="p95", health=health)
    assert heard.text == "b"
    assert heard.ended_at == pytest.approx(0.35)


@both
def test_p95_without_a_history_does_not_hedge(backend: Backend) -> None:
    cast = Cast([2.0, "a"], ["b"])
    assert ask(backend, cast, hedge_after="p95").text == "a"


@both
def test_the_history_is_the_time_to_the_first_output_of_each_child(backend: Backend) -> None:
    cast = Cast([0.3, down()], [0.2, "b", 7.0, "B"])
    health = HealthRegistry()

    async def scenario() -> None:
        async with cast.agent(health=health) as agent:
            for _ in range(10):
                await listen(agent)

    run_virtual(backend, scenario)
    assert health.p95("b") == pytest.approx(0.2)


@both
def test_an_answer_without_output_says_nothing_of_the_time_to_the_first_one(backend: Backend) -> None:
    cast = Cast([3.0])
    health = HealthRegistry()

    async def scenario() -> None:
        async with cast.agent(health=health) as agent:
            for _ in range(10):
                await listen(agent)

    run_virtual(backend, scenario)
    assert health.p95("a") is None


@both
def test_when_child_and_hedge_both_time_out_the_next_one_is_asked(backend: Backend) -> None:
    cast = Cast([HANG], [HANG], [HANG], ["d"])
    heard = ask(backend, cast, hedge_after=0.6, first_chunk_timeout=1.0)
    assert heard.text == "d"
    assert heard.switches[-1][1] == "d"
    assert all(before[1] == after[0] for before, after in zip(heard.switches, heard.switches[1:], strict=False))


@both
def test_when_child_and_hedge_fail_in_the_same_tick_the_answer_fails_once(backend: Backend) -> None:
    cast = Cast([1.0, down()], [0.5, down()])
    for seed in range(5):

        async def scenario() -> Heard:
            async with cast.agent(hedge_after=0.5) as agent:
                return await listen(agent)

        heard = run_virtual(backend, scenario, shuffle_seed=seed)
        assert isinstance(heard.error, AllAgentsFailedError)
        assert sorted(attempt.agent for attempt in heard.error.attempts) == ["a", "b"]
        assert heard.names().count("AnswerFailed") == 1


@both
def test_a_factory_that_raises_for_a_hedge_leaves_the_first_child_alone(backend: Backend) -> None:
    def broken() -> Any:
        raise OSError("no key")

    cast = Cast([1.0, "a"], broken)
    heard = ask(backend, cast, hedge_after=0.5)
    assert (heard.text, heard.switches) == ("a", [])


@both
def test_a_hedged_tie_has_one_winner(backend: Backend) -> None:
    cast = Cast([1.0, "a", "A"], [0.5, "b", "B"])
    for seed in range(8):
        for lag in (0.0, 0.2):

            async def scenario() -> Heard:
                async with cast.agent(hedge_after=0.5) as agent:
                    heard = await listen(agent)
                    assert stored(agent) == ["u:Hello?", f"a:{heard.text}"]
                    return heard

            heard = run_virtual(backend, scenario, shuffle_seed=seed, lag=lag)
            assert heard.text in {"aA", "bB"}
            assert heard.switches == ([] if heard.text == "aA" else [("a", "b", False)])
