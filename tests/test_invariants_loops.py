"""Invariant 15: the same scenario gives the same trace on asyncio, uvloop and Trio."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
from hypothesis import given
from hypothesis import strategies as st
from property_support import Host, quickly, scripts

from micdrop_agent import AnswerFailed, AnswerFinished, ChatAgent, Message, ProviderError
from micdrop_agent.testing import (
    BACKENDS,
    Probe,
    ScriptedAgent,
    ScriptedProvider,
    fault,
    read,
    run_scenario,
    run_virtual,
    say,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


def _same_everywhere(hosted: Callable[[Probe], Awaitable[None]]) -> None:
    asyncio_trace, trio_trace = (run_scenario(hosted, backend).summary() for backend in BACKENDS)
    assert asyncio_trace == trio_trace


@quickly
@given(turns=st.lists(scripts, min_size=1, max_size=3))
def test_invariant_15_the_same_scenario_gives_the_same_trace_on_both_loops(turns: list[list[Any]]) -> None:
    _same_everywhere(Host(turns, {"parallel_tools": False}))


@quickly
@given(script=scripts, moments=st.lists(st.sampled_from((0.005, 0.035, 0.055, 0.075, 0.15)), min_size=1, max_size=3))
def test_invariant_15_interruptions_at_the_same_moments_give_the_same_trace(
    script: list[Any], moments: list[float]
) -> None:
    """Moments lie between those of the script, so that nothing depends on an order within one instant."""

    class Interrupted(Host):
        async def __call__(self, probe: Probe) -> None:
            options: dict[str, Any] = {"raise_on_failure": False, "parallel_tools": False}
            async with ScriptedAgent(script, **options) as agent, anyio.create_task_group() as tasks:
                probe.watch(agent)
                for moment in moments:
                    agent.add_user_message("Well?")
                    tasks.start_soon(read, probe, agent.answer())
                    await anyio.sleep(moment)
                    agent.cancel()

    _same_everywhere(Interrupted([]))


@quickly
@given(name=st.sampled_from(("status", "reset_after_text", "end_without_mark", "keepalives_only")))
def test_invariant_15_a_failing_provider_gives_the_same_trace_on_both_loops(name: Any) -> None:
    async def hosted(probe: Probe) -> None:
        async with ScriptedProvider([fault(name), say("Fine.")]) as provider:
            agent = ChatAgent(
                model="m", api_key="k", base_url=provider.base_url, connect=provider.connect, raise_on_failure=False
            )
            async with agent:
                probe.watch(agent)
                agent.add_user_message("Well?")
                await read(probe, agent.answer())

    _same_everywhere(hosted)


def test_invariant_15_holds_on_uvloop_too() -> None:
    """In real time, so without any wait in the script."""

    async def scenario() -> tuple[list[str], list[Any], list[str]]:
        async with ScriptedAgent(
            ["One ", "two."], [ProviderError("x", kind="server")], raise_on_failure=False
        ) as agent:
            agent.logger.disabled = True
            events: list[str] = []
            agent.on(AnswerFinished, lambda event: events.append(event.result.status))
            agent.on(AnswerFailed, lambda event: events.append("failure"))
            agent.add_user_message("Well?")
            chunks = [chunk async for chunk in agent.answer()]
            await agent.answer().wait()
            agent.answer()
            agent.cancel()
            agent.logger.disabled = False
            return chunks, list(agent.conversation), events

    wanted = run_virtual("asyncio", scenario)
    assert anyio.run(scenario, backend="asyncio", backend_options={"use_uvloop": True}) == wanted
    assert wanted[1][-1] == Message("assistant", "One two.")
    assert wanted[2] == ["completed", "failure", "failed", "cancelled"]
