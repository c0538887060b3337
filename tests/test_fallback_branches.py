"""Rare turns of a fallback: factories and listeners that cancel or raise, and what is asked of it without a child."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

import pytest

from fallback_kit import Cast, down, listen
from micdrop_agent import FallbackAgent, HealthRegistry, Message, ToolResult, tool
from micdrop_agent.testing import BACKENDS, Backend, Call, ScriptedAgent, run_virtual

if TYPE_CHECKING:
    from micdrop_agent import Agent


def test_a_slot_is_shown_by_the_name_of_its_child() -> None:
    assert repr(Cast([]).agent(names=["ada"])._core.slots[0]) == "<Slot ada>"


both = pytest.mark.parametrize("backend", BACKENDS)


@both
def test_a_factory_may_cancel_the_answer_and_raise(backend: Backend) -> None:
    asked: list[str] = []

    async def scenario() -> None:
        def broken() -> Agent:
            asked.append("broken")
            agent.cancel()
            raise LookupError("no such model")

        factories = [lambda: ScriptedAgent([down()]), broken, broken]
        agent = FallbackAgent(factories, prebuild=False)
        async with agent:
            assert (await agent.answer().wait()).status == "cancelled"

    run_virtual(backend, scenario)
    assert asked == ["broken"]


@both
def test_a_listener_of_the_health_may_cancel_the_answer_that_has_just_failed(backend: Backend) -> None:
    health = HealthRegistry(failures=1)
    cast = Cast(["One ", 0.1, down()], ["Fine."])

    async def scenario() -> None:
        async with cast.agent(after_partial="stop", health=health) as agent:
            health.on_change(lambda change: agent.cancel())
            heard = await listen(agent)
            assert heard.chunks == ["One "]
            assert heard.error is None
            assert heard.result.status == "cancelled"

    run_virtual(backend, scenario)


@both
def test_a_factory_that_raises_while_names_are_learned_is_passed_over(
    backend: Backend, caplog: pytest.LogCaptureFixture
) -> None:
    """A registry that calls share knows children by name, so they are made before the first one is asked."""
    caplog.set_level(logging.DEBUG)

    def broken() -> Agent:
        raise LookupError("no such model")

    async def scenario() -> None:
        factories = [lambda: ScriptedAgent(["Fine."]), broken]
        async with FallbackAgent(factories, health=HealthRegistry(), prebuild=False) as agent:
            assert (await agent.answer().wait()).text == "Fine."

    run_virtual(backend, scenario)
    assert "factory 1 raised" in caplog.text


@both
def test_a_fallback_offers_the_tools_of_its_active_child(backend: Backend) -> None:
    @tool
    def look() -> str:
        """Look."""
        return "a cat"

    async def scenario() -> None:
        async with FallbackAgent([lambda: ScriptedAgent([Call("look"), "There."], tools=[look])]) as agent:
            assert agent.get_tool("look") is look
            assert agent.get_tool("listen") is None
            await agent.answer().wait()
            outputs = [json.loads(item.output) for item in agent.conversation if isinstance(item, ToolResult)]
            assert outputs == ["a cat"]

    run_virtual(backend, scenario)


@both
def test_a_fallback_whose_child_was_discarded_has_nothing_to_warm(backend: Backend) -> None:
    cast = Cast([down()])

    async def scenario() -> None:
        async with cast.agent(raise_on_failure=False) as agent:
            assert (await agent.answer().wait()).status == "failed"
            assert agent.active is None
            await agent.prewarm()

    run_virtual(backend, scenario)
    assert len(cast.made[0]) == 1


@both
def test_a_conversation_without_a_system_prompt_stays_so_when_a_child_takes_over(backend: Backend) -> None:
    cast = Cast([down()], ["Fine."])

    async def scenario() -> None:
        async with cast.agent() as agent:
            agent.conversation.replace([Message("user", "Hello?")])
            assert (await agent.answer().wait()).text == "Fine."
            assert [item.content for item in agent.conversation if isinstance(item, Message)] == ["Hello?", "Fine."]

    run_virtual(backend, scenario)
    assert len(cast.made[1]) == 1
