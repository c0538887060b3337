"""Rotation, giving up, health and the events of a ``FallbackAgent``."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from fallback_kit import Cast, Heard, down, listen, series, stored
from micdrop_agent.errors import AllAgentsFailedError, ProviderError
from micdrop_agent.events import AgentSwitched, AnswerFailed, MessageAdded
from micdrop_agent.fallback import FallbackAgent, HealthRegistry
from micdrop_agent.messages import Message
from micdrop_agent.testing import BACKENDS, HANG, Backend, ScriptedAgent, run_virtual

both = pytest.mark.parametrize("backend", BACKENDS)


@both
def test_the_child_that_answered_stays_active(backend: Backend) -> None:
    cast = Cast([down()], ["b"])

    async def scenario() -> None:
        async with cast.agent() as agent:
            assert agent.active_name == "a"
            assert (await listen(agent)).switches == [("a", "b", False)]
            assert agent.active_name == "b"
            assert (await listen(agent)).switches == []
            assert stored(agent) == ["u:Hello?", "a:b", "u:Hello?", "a:b"]

    run_virtual(backend, scenario)
    assert cast.asked() == [1, 2]


@both
def test_prefer_first_goes_back_to_the_first_child(backend: Backend) -> None:
    cast = Cast(series([down()], ["a"]), ["b"])

    async def scenario() -> None:
        async with cast.agent(prefer="first") as agent:
            assert (await listen(agent)).text == "b"
            assert (await listen(agent)).text == "a"

    run_virtual(backend, scenario)


@both
def test_the_rotation_is_circular(backend: Backend) -> None:
    cast = Cast(series([down()], ["A"]), [down()], series(["c"], [down()]))

    async def scenario() -> None:
        async with cast.agent() as agent:
            heard = await listen(agent)
            assert (heard.text, heard.switches) == ("c", [("a", "b", False), ("b", "c", False)])
            heard = await listen(agent)
            assert (heard.text, heard.switches) == ("A", [("c", "a", False)])

    run_virtual(backend, scenario)


@both
def test_one_answer_asks_each_child_at_most_once(backend: Backend) -> None:
    cast = Cast([down()], [0.1, down("auth")], [down("overloaded")])

    async def scenario() -> Heard:
        async with cast.agent() as agent:
            heard = await listen(agent)
            assert agent.active_name == "a", "a full rotation ends where it began"
            return heard

    heard = run_virtual(backend, scenario)
    assert cast.asked() == [1, 1, 1]
    assert isinstance(heard.error, AllAgentsFailedError)
    assert [(attempt.agent, getattr(attempt.error, "kind", None)) for attempt in heard.error.attempts] == [
        ("a", "server"),
        ("b", "auth"),
        ("c", "overloaded"),
    ]
    assert heard.error.__cause__ is heard.error.attempts[-1].error
    assert heard.result.attempts == heard.error.attempts
    assert heard.names() == [
        "MessageAdded",
        "AgentSwitched",
        "AgentSwitched",
        "AnswerFailed",
        "AnswerSkipped",
        "AnswerFinished",
    ]


@both
def test_after_giving_up_the_next_answer_asks_everybody_again(backend: Backend) -> None:
    cast = Cast([down()], [down()])

    async def scenario() -> None:
        async with cast.agent() as agent:
            for _ in range(2):
                assert isinstance((await listen(agent)).error, AllAgentsFailedError)

    run_virtual(backend, scenario)
    assert cast.asked() == [2, 2]
    assert [len(made) for made in cast.made] == [2, 2], "a child that failed is built anew when needed"


@both
def test_the_text_for_giving_up_is_said_and_stored_like_an_answer(backend: Backend) -> None:
    cast = Cast([down()], [down()])

    async def scenario() -> Heard:
        async with cast.agent(give_up_text="I am lost.") as agent:
            heard = await listen(agent)
            assert stored(agent) == ["u:Hello?", "a:I am lost."]
            return heard

    heard = run_virtual(backend, scenario)
    assert heard.text == "I am lost."
    assert isinstance(heard.error, AllAgentsFailedError)
    assert heard.names()[-4:] == ["MessageAdded", "AnswerFailed", "AnswerSkipped", "AnswerFinished"]


@both
def test_the_text_for_giving_up_is_not_said_into_half_an_answer(backend: Backend) -> None:
    cast = Cast(["Half a ", down()], [down()])

    async def scenario() -> Heard:
        async with cast.agent(give_up_text="I am lost.") as agent:
            heard = await listen(agent)
            assert stored(agent) == ["u:Hello?", "a!:Half a "]
            return heard

    assert run_virtual(backend, scenario).text == "Half a "


@both
def test_the_text_for_giving_up_of_a_nested_supervisor_is_not_said_while_others_are_left(backend: Backend) -> None:
    inner = Cast([down()], [down()])
    outer = Cast(lambda: inner.agent(give_up_text="I am lost."), ["b"])

    async def scenario() -> Heard:
        async with outer.agent() as agent:
            return await listen(agent)

    assert run_virtual(backend, scenario).text == "b"


@both
def test_an_answer_that_says_nothing_is_an_answer(backend: Backend) -> None:
    cast = Cast([], ["b"])

    async def scenario() -> Heard:
        async with cast.agent() as agent:
            return await listen(agent)

    heard = run_virtual(backend, scenario)
    assert (heard.text, heard.result.status, heard.switches) == ("", "completed", [])


@both
def test_a_factory_that_raises_is_a_child_that_failed(backend: Backend) -> None:
    def broken() -> Any:
        raise OSError("no key")

    cast = Cast([down()], broken, ["c"])

    async def scenario() -> Heard:
        async with cast.agent() as agent:
            return await listen(agent)

    heard = run_virtual(backend, scenario)
    assert heard.text == "c"
    assert heard.switches == [("a", "c", False)]
    assert [attempt.agent for attempt in heard.result.attempts] == ["a", "b"]


@both
def test_when_every_factory_raises_the_answer_fails(backend: Backend) -> None:
    made: list[Any] = []

    def once() -> Any:
        if made:
            raise OSError("gone")
        made.append(ScriptedAgent([down()]))
        return made[0]

    async def scenario() -> None:
        async with FallbackAgent([once]) as agent:
            for kind in (ProviderError, OSError):
                heard = await listen(agent)
                assert isinstance(heard.error, AllAgentsFailedError)
                assert isinstance(heard.error.attempts[0].error, kind)

    run_virtual(backend, scenario)


@both
def test_the_listener_of_a_switch_sees_the_new_child_as_active(backend: Backend) -> None:
    cast = Cast([down()], ["b"])

    async def scenario() -> None:
        async with cast.agent() as agent:
            seen: list[str] = []
            agent.on(AgentSwitched, lambda event: seen.append(agent.active_name))
            await listen(agent)
            assert seen == ["b"]

    run_virtual(backend, scenario)


@both
def test_a_barge_in_during_a_switch_does_not_send_the_next_answer_back_to_the_failed_child(backend: Backend) -> None:
    cast = Cast([down()], [1.0, "b"])

    async def scenario() -> None:
        async with cast.agent() as agent:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(listen, agent)
                await anyio.sleep(0.5)
                agent.cancel()
            assert (await listen(agent)).text == "b"

    run_virtual(backend, scenario)
    assert cast.asked() == [1, 2]


@both
def test_children_share_the_conversation_under_their_own_prompts(backend: Backend) -> None:
    seen: list[list[str]] = []

    def look(turn: Any) -> None:
        seen.append([item.content for item in turn.conversation if isinstance(item, Message)])

    cast = Cast([look, down()], [look, "b"])

    async def scenario() -> None:
        async with cast.agent() as agent:
            await listen(agent)
            assert agent.conversation[0] == Message("system", "prompt 1")
            await listen(agent, say="And?")

    run_virtual(backend, scenario)
    assert [words[1:] for words in seen] == [["Hello?"], ["Hello?"], ["Hello?", "b", "And?"]]
    assert seen[2][0] == "prompt 1"


# -- health


@both
def test_a_child_that_is_out_is_not_asked(backend: Backend) -> None:
    cast = Cast([down("auth")], ["b"])

    async def scenario() -> None:
        async with cast.agent(prefer="first") as agent:
            for _ in range(5):
                heard = await listen(agent)
                assert heard.text == "b"
            assert agent.health.snapshot()["a"].state == "open"

    run_virtual(backend, scenario)
    assert cast.asked() == [1, 5]


@both
def test_when_all_are_out_the_least_bad_one_is_tried_first(backend: Backend) -> None:
    cast = Cast(["a"], ["b"], ["c"])
    health = HealthRegistry()

    async def scenario() -> Heard:
        async with cast.agent(health=health) as agent:
            health.failed("a", down("auth"))
            health.failed("b", down("rate_limit", retry_after=9.0))
            health.failed("c", down("quota"))
            return await listen(agent)

    assert run_virtual(backend, scenario).text == "b"
    assert health.snapshot()["b"].state == "closed"


@both
def test_a_child_comes_back_as_the_hedge_of_a_healthy_one(backend: Backend) -> None:
    """The half-open child gets real traffic, and the caller does not wait for it."""
    cast = Cast(series([down("rate_limit", retry_after=5.0)], [HANG], [0.1, "a"]), [0.3, "b"])

    async def scenario() -> None:
        async with cast.agent(prefer="first") as agent:
            assert (await listen(agent)).text == "b"
            await anyio.sleep(6)
            heard = await listen(agent)
            assert (heard.text, heard.switches) == ("b", [])
            assert agent.health.state("a") == "half_open", "it was abandoned: nothing is known of it"
            heard = await listen(agent)
            assert (heard.text, heard.switches) == ("a", [("b", "a", False)])
            assert agent.health.state("a") == "closed"

    run_virtual(backend, scenario)


@both
def test_a_child_that_is_not_preferred_is_not_tried_beside_a_healthy_one(backend: Backend) -> None:
    cast = Cast([0.5, "a"], ["b"])

    async def scenario() -> None:
        async with cast.agent(prefer="first") as agent:
            agent.health.failed("b", down("rate_limit", retry_after=0.0))
            assert (await listen(agent)).text == "a"
            assert agent.health.state("b") == "half_open"

    run_virtual(backend, scenario)
    assert cast.asked() == [1, 0]


@both
def test_agents_with_one_registry_share_what_they_learned(backend: Backend) -> None:
    health = HealthRegistry()
    one, two = Cast([down("auth")], ["b"]), Cast([down("auth")], ["b"])

    async def scenario() -> None:
        async with one.agent(health=health) as agent, two.agent(health=health) as other:
            assert (await listen(agent)).text == "b"
            assert (await listen(other)).text == "b"

    run_virtual(backend, scenario)
    assert one.asked() == [1, 1]
    assert two.asked() == [0, 1]


@both
def test_a_shared_registry_knows_children_by_their_own_names(backend: Backend) -> None:
    class Alice(ScriptedAgent):
        pass

    health = HealthRegistry()

    async def scenario() -> None:
        factories = [lambda: Alice([down("auth")]), lambda: Alice(["b"])]
        async with FallbackAgent(factories, health=health) as agent:
            assert (await listen(agent)).switches == [("Alice", "Alice #2", False)]
            assert set(health.snapshot()) == {"Alice", "Alice #2"}

    run_virtual(backend, scenario)


@both
def test_a_listener_of_the_registry_may_cancel_the_answer(backend: Backend) -> None:
    cast = Cast([down("auth")], ["b"])

    async def scenario() -> None:
        async with cast.agent() as agent:
            agent.health.on_change(lambda _: agent.cancel())
            heard = await listen(agent)
            assert heard.result.status == "cancelled"
            assert heard.switches == []

    run_virtual(backend, scenario)
    assert cast.asked() == [1, 0]


# -- clocks


@both
def test_the_time_for_the_whole_answer_ends_at_its_first_output(backend: Backend) -> None:
    """``give_up_after`` is over once something was heard: a later switch has the time it needs."""
    cast = Cast(["One ", 9.0, down()], [1.0, "two."])

    async def scenario() -> Heard:
        async with cast.agent(give_up_after=5.0) as agent:
            return await listen(agent)

    assert run_virtual(backend, scenario).text == "One two."


@both
def test_the_time_for_the_whole_answer_covers_all_children(backend: Backend) -> None:
    cast = Cast([3.0, down()], [HANG], ["c"])

    async def scenario() -> Heard:
        async with cast.agent(give_up_after=5.0, first_chunk_timeout=None) as agent:
            return await listen(agent)

    heard = run_virtual(backend, scenario)
    assert isinstance(heard.error, AllAgentsFailedError)
    assert heard.ended_at == pytest.approx(5.0)
    assert [attempt.agent for attempt in heard.error.attempts] == ["a", "b"]
    assert cast.asked() == [1, 1, 0]


@both
def test_the_first_chunk_time_out_is_lifted_by_the_first_output(backend: Backend) -> None:
    cast = Cast([0.9, "a", 20.0, "A"], ["b"])

    async def scenario() -> Heard:
        async with cast.agent(first_chunk_timeout=1.0) as agent:
            return await listen(agent)

    assert run_virtual(backend, scenario).text == "aA"


@both
def test_a_silent_child_is_replaced_when_its_time_is_up(backend: Backend) -> None:
    cast = Cast([HANG], [0.5, "b"])

    async def scenario() -> Heard:
        async with cast.agent(first_chunk_timeout=1.0) as agent:
            return await listen(agent)

    heard = run_virtual(backend, scenario)
    assert heard.text == "b"
    assert heard.ended_at == pytest.approx(1.5)
    error = heard.result.attempts[0].error
    assert isinstance(error, ProviderError)
    assert (error.kind, error.provider) == ("timeout", "a")


@both
def test_one_failed_event_even_of_nested_supervisors(backend: Backend) -> None:
    inner = Cast([down()], [down()])
    outer = Cast(inner.agent, [down()])

    async def scenario() -> Heard:
        async with outer.agent() as agent:
            return await listen(agent)

    heard = run_virtual(backend, scenario)
    assert sum(isinstance(event, AnswerFailed) for event in heard.events) == 1
    assert isinstance(heard.error, AllAgentsFailedError)
    assert isinstance(heard.error.attempts[0].error, AllAgentsFailedError)
    assert [type(event) for event in heard.events if isinstance(event, MessageAdded)] == [MessageAdded]
