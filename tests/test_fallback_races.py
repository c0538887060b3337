"""Races of a ``FallbackAgent``: what happens in one step, in either order, harms nobody."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest

from fallback_kit import Cast, Heard, down, listen, stored
from micdrop_agent.events import AgentSwitched, AnswerFailed, MessageAdded
from micdrop_agent.fallback import HealthRegistry
from micdrop_agent.messages import ToolCall, ToolResult
from micdrop_agent.testing import BACKENDS, HANG, Backend, Call, run_virtual
from micdrop_agent.tools import Tool, tool

if TYPE_CHECKING:
    from micdrop_agent._core.turn import Turn

both = pytest.mark.parametrize("backend", BACKENDS)
shuffles = pytest.mark.parametrize("seed", [None, 1, 2, 3])


async def linger(turn: Turn) -> None:
    """Hang, and take five shielded seconds to die."""
    try:
        await anyio.sleep_forever()
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(5)


async def swallow_and_write(turn: Turn) -> None:
    """Hang, swallow the cancellation, and then behave as if nothing had happened."""
    try:
        await anyio.sleep_forever()
    except anyio.get_cancelled_exc_class():
        pass
    with anyio.CancelScope(shield=True):
        await anyio.sleep(1)
        await turn.write("ghost")
        turn.add(ToolCall("ghost", "ghost", "{}"))
        turn.commit()


@both
@shuffles
@pytest.mark.parametrize("lag", [0.0, 0.3])
def test_a_rival_that_fails_in_the_step_in_which_another_claims_is_no_accident(
    backend: Backend, seed: int | None, lag: float
) -> None:
    """The outcome of the rival arrives when it is out of the race already."""
    cast = Cast([1.0, down()], [0.5, "b"])

    async def scenario() -> Heard:
        async with cast.agent(hedge_after=0.5) as agent:
            heard = await listen(agent)
            assert stored(agent) == ["u:Hello?", "a:b"]
            return heard

    heard = run_virtual(backend, scenario, shuffle_seed=seed, lag=lag)
    assert (heard.text, heard.error) == ("b", None)
    assert heard.switches == [("a", "b", False)]


@both
@shuffles
@pytest.mark.parametrize("lag", [0.0, 0.3])
def test_a_child_that_fails_as_its_time_out_rings_fails_once(backend: Backend, seed: int | None, lag: float) -> None:
    cast = Cast([1.0, down()], ["b"])

    async def scenario() -> Heard:
        async with cast.agent(first_chunk_timeout=1.0) as agent:
            return await listen(agent)

    heard = run_virtual(backend, scenario, shuffle_seed=seed, lag=lag)
    assert (heard.text, heard.error) == ("b", None)
    assert [attempt.agent for attempt in heard.result.attempts] == ["a"]


@both
@shuffles
def test_the_first_chunk_in_the_tick_of_the_time_out_counts(backend: Backend, seed: int | None) -> None:
    cast = Cast([1.0, "a"], ["b"])

    async def scenario() -> Heard:
        async with cast.agent(first_chunk_timeout=1.0) as agent:
            return await listen(agent)

    for lag in (0.0, 0.5):
        assert run_virtual(backend, scenario, shuffle_seed=seed, lag=lag).text == "a"


@both
def test_giving_up_does_not_wait_for_a_shielded_loser(backend: Backend) -> None:
    cast = Cast([linger], [down()])

    async def scenario() -> Heard:
        async with cast.agent(first_chunk_timeout=1.0) as agent:
            return await listen(agent)

    heard = run_virtual(backend, scenario)
    assert type(heard.error).__name__ == "AllAgentsFailedError"
    assert heard.ended_at == pytest.approx(1.0)
    assert heard.names().count("AnswerFailed") == heard.names().count("AnswerSkipped") == 1


@both
def test_a_final_failure_does_not_wait_for_a_shielded_loser(backend: Backend) -> None:
    cast = Cast([linger], ["b", 0.5, down()])

    async def scenario() -> Heard:
        async with cast.agent(hedge_after=0.5, after_partial="stop") as agent:
            return await listen(agent)

    heard = run_virtual(backend, scenario)
    assert heard.text == "b"
    assert heard.error is not None
    assert heard.ended_at == pytest.approx(1.0)


@both
def test_the_end_of_the_winner_does_not_wait_for_a_shielded_loser(backend: Backend) -> None:
    cast = Cast([linger], ["b"])

    async def scenario() -> Heard:
        async with cast.agent(hedge_after=0.5) as agent:
            return await listen(agent)

    heard = run_virtual(backend, scenario)
    assert (heard.text, heard.error) == ("b", None)
    assert heard.ended_at == pytest.approx(0.5)


@both
def test_a_nested_supervisor_that_gives_up_hands_over_before_its_losers_are_gone(backend: Backend) -> None:
    inner = Cast([linger], [down()])
    outer = Cast(lambda: inner.agent(first_chunk_timeout=1.0), ["b"])

    async def scenario() -> Heard:
        async with outer.agent() as agent:
            return await listen(agent)

    heard = run_virtual(backend, scenario)
    assert (heard.text, heard.error) == ("b", None)
    assert heard.ended_at == pytest.approx(1.0)


@both
def test_an_attempt_that_swallows_its_cancellation_has_no_effect_afterwards(backend: Backend) -> None:
    cast = Cast([swallow_and_write], ["b", 3.0, "B"])

    async def scenario() -> Heard:
        async with cast.agent(first_chunk_timeout=1.0) as agent:
            heard = await listen(agent)
            assert stored(agent) == ["u:Hello?", "a:bB"]
            return heard

    heard = run_virtual(backend, scenario)
    assert (heard.text, heard.error) == ("bB", None)


@both
@pytest.mark.parametrize("hedge", [None, 0.5])
def test_a_cancel_by_the_listener_of_the_switch_stops_everything(backend: Backend, hedge: float | None) -> None:
    """``cancel()`` inside ``AgentSwitched``: no child is asked after it, nothing is stored."""

    @tool
    def look() -> str:
        """Look."""
        raise AssertionError("no tool may run after the cancel")

    cast = Cast([1.0, down()], [Call("look"), "b"])

    async def scenario() -> None:
        async with cast.agent(hedge_after=hedge, tools=[look]) as agent:
            agent.on(AgentSwitched, lambda _: agent.cancel())
            heard = await listen(agent)
            await anyio.sleep(3)
            assert heard.text == ""
            assert heard.result.status == "cancelled"
            assert stored(agent) == ["u:Hello?"]

    run_virtual(backend, scenario)
    assert cast.asked() == ([1, 0] if hedge is None else [1, 1])


@both
def test_a_child_has_no_effect_through_a_turn_that_it_kept_after_it_failed(backend: Backend) -> None:
    kept: list[Turn] = []

    def use_the_old_one(turn: Turn) -> None:
        kept[0].write_nowait("ghost")
        kept[0].add(ToolCall("ghost", "ghost", "{}"))
        kept[0].skip_answer()

    cast = Cast([kept.append, "a ", down()], [use_the_old_one, "b", use_the_old_one])

    async def scenario() -> Heard:
        async with cast.agent() as agent:
            heard = await listen(agent)
            assert stored(agent) == ["u:Hello?", "a:a b"]
            return heard

    assert run_virtual(backend, scenario).text == "a b"


@both
def test_a_factory_that_cancels_the_answer_starts_nothing(backend: Backend) -> None:
    async def scenario() -> None:
        made: list[Any] = []

        def factory() -> Any:
            agent.cancel()
            made.append(Cast(["b"]).factories[0]())
            return made[-1]

        cast = Cast([down()], factory)
        async with cast.agent() as agent:
            heard = await listen(agent)
            await anyio.sleep(1)
            assert heard.result.status == "cancelled"
            assert made[0].asked == 0
            assert heard.switches == []

    run_virtual(backend, scenario)


@both
def test_an_answer_started_by_the_listener_of_the_switch_is_whole(backend: Backend) -> None:
    """``answer()`` during a switch supersedes the answer that is switching."""
    cast = Cast([down()], ["b"])

    async def scenario() -> None:
        async with cast.agent() as agent:
            later: list[Any] = []

            def again(_: AgentSwitched) -> None:
                if not later:
                    later.append(agent.answer())

            agent.on(AgentSwitched, again)
            first = await listen(agent)
            assert first.text == ""
            assert first.result.status == "cancelled"
            assert "".join([chunk async for chunk in later[0]]) == "b"
            assert stored(agent) == ["u:Hello?", "a:b"]

    run_virtual(backend, scenario)
    # The superseded answer never reached b. Its switch stands: the next one starts with b.
    assert cast.asked() == [1, 1]


@both
def test_closing_during_a_switch_leaves_nothing_running(backend: Backend) -> None:
    cast = Cast([down()], [HANG])

    async def scenario() -> None:
        async with cast.agent() as agent:

            async def close(_: object) -> None:
                await agent.aclose()

            heard = Heard()
            async with anyio.create_task_group() as tasks:
                agent.on(AgentSwitched, lambda event: tasks.start_soon(close, event))
                await listen(agent, heard)
            assert heard.text == ""
            assert heard.result.status == "cancelled"

    run_virtual(backend, scenario)


@both
def test_a_late_failure_of_a_lost_child_changes_no_health(backend: Backend) -> None:
    async def fail_late(turn: Turn) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            raise down("auth")

    cast = Cast([fail_late], ["b", 1.0, "B"])
    health = HealthRegistry()

    async def scenario() -> Heard:
        async with cast.agent(hedge_after=0.5, health=health) as agent:
            heard = await listen(agent)
            await anyio.sleep(1)
            return heard

    heard = run_virtual(backend, scenario)
    assert (heard.text, heard.error) == ("bB", None)
    assert heard.result.attempts == ()
    assert {key: child.state for key, child in health.snapshot().items()} == {"a": "closed", "b": "closed"}
    assert health.snapshot()["a"].failures == 0


@both
def test_a_cancelled_answer_penalises_no_child(backend: Backend) -> None:
    """Also when the child turns the cancellation into an error of its own (invariant 8)."""

    async def turn_it_into_an_error(turn: Turn) -> None:
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class() as cancelled:
            raise down("connection") from cancelled

    cast = Cast([turn_it_into_an_error], ["b"])
    health = HealthRegistry()

    async def scenario() -> None:
        async with cast.agent(health=health) as agent:
            heard = Heard()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(listen, agent, heard)
                await anyio.sleep(1)
                agent.cancel()
            assert heard.names()[-1] == "AnswerFinished"
            assert not any(isinstance(event, AnswerFailed | AgentSwitched) for event in heard.events)

    run_virtual(backend, scenario)
    assert cast.asked() == [1, 0]
    assert health.snapshot()["a"].failures == 0


@both
def test_when_the_first_child_fails_behind_its_hedge_the_switch_is_told(backend: Backend) -> None:
    cast = Cast([1.0, down()], [1.5, "b"])

    async def scenario() -> Heard:
        async with cast.agent(hedge_after=0.5) as agent:
            return await listen(agent)

    heard = run_virtual(backend, scenario)
    assert heard.text == "b"
    assert heard.switches == [("a", "b", False)]
    switch = next(event for event in heard.events if isinstance(event, AgentSwitched))
    assert switch.reason is heard.result.attempts[0].error


@both
def test_a_hedge_that_fails_is_no_switch_and_the_chain_of_switches_has_no_gap(backend: Backend) -> None:
    cast = Cast([3.0, "a"], [0.1, down()], [HANG])

    async def scenario() -> Heard:
        async with cast.agent(hedge_after=0.5, first_chunk_timeout=None) as agent:
            return await listen(agent)

    heard = run_virtual(backend, scenario)
    assert heard.text == "a"
    assert heard.switches == []


@both
def test_a_nested_supervisor_that_loses_a_race_tells_of_no_switch(backend: Backend) -> None:
    """Invariant 9: the switches within a rival are not told unless it wins."""
    inner = Cast([0.1, down()], [5.0, "inner"])
    outer = Cast([2.0, "a"], inner.agent)

    async def scenario() -> Heard:
        async with outer.agent(hedge_after=0.5) as agent:
            return await listen(agent)

    heard = run_virtual(backend, scenario)
    assert heard.text == "a"
    assert heard.switches == []


@both
def test_a_nested_supervisor_that_wins_tells_its_switches_from_the_outside_in(backend: Backend) -> None:
    inner = Cast([0.1, down()], [0.2, "inner"])
    outer = Cast([2.0, "a"], lambda: inner.agent(names=["x", "y"]))

    async def scenario() -> Heard:
        async with outer.agent(hedge_after=0.5) as agent:
            return await listen(agent)

    heard = run_virtual(backend, scenario)
    assert heard.text == "inner"
    assert heard.switches == [("a", "b", False), ("x", "y", False)]


@both
def test_a_half_open_child_is_tried_as_the_hedge_of_a_healthy_one_and_no_other(backend: Backend) -> None:
    """A probe whose factory raises does not become a hedge with the next child."""

    def broken() -> Any:
        if made:
            raise RuntimeError("no more")
        made.append(Cast([down("rate_limit", retry_after=1.0)]).factories[0]())
        return made[0]

    made: list[Any] = []
    cast = Cast(broken, [1.0, "b"], [0.1, "c"])

    async def scenario() -> None:
        async with cast.agent(prefer="first") as agent:
            assert (await listen(agent)).text == "b"
            await anyio.sleep(2)
            assert (await listen(agent)).text == "b"

    run_virtual(backend, scenario)
    assert cast.asked()[1:] == [2, 0]


@both
def test_a_tool_of_the_winner_is_stored_before_nothing_of_the_loser(backend: Backend) -> None:
    """Both ask for the tool in the same tick: it runs once."""
    runs: list[int] = []

    def look() -> str:
        runs.append(1)
        return "ok"

    shared = Tool(name="look", description="Look.", execute=look)
    cast = Cast([1.0, Call("look"), "a"], [0.5, Call("look"), "b"])

    async def scenario() -> Heard:
        async with cast.agent(hedge_after=0.5, tools=[shared]) as agent:
            heard = await listen(agent)
            kinds = [type(item).__name__ for item in agent.conversation]
            assert kinds == ["Message", "Message", "ToolCall", "ToolResult", "Message"]
            return heard

    for seed in range(4):
        runs.clear()
        heard = run_virtual(backend, scenario, shuffle_seed=seed)
        assert heard.text in {"a", "b"}
        assert runs == [1]
        added = [event.message for event in heard.events if isinstance(event, MessageAdded)]
        assert sum(isinstance(item, ToolCall | ToolResult) for item in added) == 2


def test_a_child_that_is_cancelled_from_within_asyncio_has_failed() -> None:
    """A future that somebody else cancelled raises ``CancelledError`` into the child: no barge-in."""
    import asyncio

    async def await_a_cancelled_future(turn: Turn) -> None:
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        await future

    cast = Cast([await_a_cancelled_future], ["b"])

    async def scenario() -> Heard:
        async with cast.agent() as agent:
            return await listen(agent)

    heard = run_virtual("asyncio", scenario)
    assert heard.text == "b"


@both
def test_a_trial_that_was_cancelled_is_free_at_once_though_its_child_takes_long_to_die(backend: Backend) -> None:
    cast = Cast([linger])
    health = HealthRegistry()

    async def scenario() -> None:
        health.failed("a", down("rate_limit", retry_after=0.0))
        async with cast.agent(health=health) as agent:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(listen, agent)
                await anyio.sleep(1)
                assert health.state("a") == "open"
                agent.cancel()
            await anyio.sleep(0.01)
            assert health.state("a") == "half_open"

    run_virtual(backend, scenario)
