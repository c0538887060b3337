"""Invariants 11, 13 and 14: what a host may rely on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st
from property_support import Host, at_fraction, fractions, quickly, scripts

from micdrop_agent import (
    ChatAgent,
    MessageAdded,
    ProviderError,
)
from micdrop_agent.events import EVENT_TYPES
from micdrop_agent.testing import (
    BACKENDS,
    HANG,
    INJECTIONS,
    NATIVE,
    Call,
    ScriptedAgent,
    ScriptedProvider,
    run_virtual,
    say,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from micdrop_agent.testing import Backend


@pytest.mark.parametrize("backend", BACKENDS)
@quickly
@given(script=scripts, fraction=fractions, inject=st.sampled_from(sorted(INJECTIONS)))
def test_invariant_11_no_task_outlives_the_agents_block(
    backend: Backend, script: list[Any], fraction: float, inject: str
) -> None:
    if inject in NATIVE and backend == "trio":
        return
    trace = at_fraction(Host([script, script]), backend, inject, fraction)
    assert trace.tasks_left == 0


@pytest.mark.parametrize("backend", BACKENDS)
def test_invariant_11_after_a_thousand_cancelled_answers_the_agent_still_answers(backend: Backend) -> None:
    async def scenario() -> list[str]:
        cut: list[Any] = [["One ", 0.01, "two."]] * 1000
        async with ScriptedAgent(*cut, ["Still ", "here."]) as agent:
            for number in range(1000):
                answer = agent.answer()
                await anyio.sleep(0.004 * (number % 4))
                agent.cancel()
                assert answer.status in {"cancelled", "completed"}
            agent.asked = 1000  # those that were cancelled before their first step never asked
            return [chunk async for chunk in agent.answer()]

    assert run_virtual(backend, scenario) == ["Still ", "here."]


@pytest.mark.parametrize("backend", BACKENDS)
def test_invariant_11_cancelled_requests_leave_no_connection(backend: Backend) -> None:
    async def scenario() -> tuple[int, int, list[str]]:
        async with ScriptedProvider([say("One ", "two ", "three.", gap=0.01)]) as provider:
            agent = ChatAgent(model="m", api_key="k", base_url=provider.base_url, connect=provider.connect)
            async with agent:
                for number in range(60):
                    agent.answer()
                    await anyio.sleep(0.003 * (number % 12))
                    agent.cancel()
                await anyio.sleep(1)
                alive = provider.open_connections
                chunks = [chunk async for chunk in agent.answer()]
            await anyio.sleep(0.1)
            return alive, provider.open_connections, chunks

    alive, left, chunks = run_virtual(backend, scenario)
    assert alive <= 2
    assert left == 0
    assert "".join(chunks) == "One two three."


@pytest.mark.parametrize("backend", BACKENDS)
@quickly
@given(script=scripts, fraction=fractions, inject=st.sampled_from(("cancel", "cancel(heard)", "answer", "aclose")))
def test_invariant_13_the_events_replayed_rebuild_the_conversation(
    backend: Backend, script: list[Any], fraction: float, inject: str
) -> None:
    """``check_invariants`` replays them; this adds that nothing is told twice."""
    trace = at_fraction(Host([script, script]), backend, inject, fraction)
    added = [id(event.message) for event in trace.events if isinstance(event, MessageAdded)]
    assert len(added) == len(set(added))


@pytest.mark.parametrize("backend", BACKENDS)
@quickly
@given(script=scripts, reaction=st.sampled_from(("add", "cancel", "answer", "raise")))
def test_invariant_13_every_listener_sees_the_same_order_whatever_one_of_them_does(
    backend: Backend, script: list[Any], reaction: str
) -> None:
    async def scenario() -> tuple[list[Any], list[Any], list[Any]]:
        first: list[Any] = []
        last: list[Any] = []
        changes: list[Any] = []
        async with ScriptedAgent(script, ["Fine."], raise_on_failure=False) as agent:
            agent.logger.disabled = True
            reactions: dict[str, Callable[[], object]] = {
                "add": lambda: agent.add_message("system", "note"),
                "cancel": agent.cancel,
                "answer": agent.answer,
            }

            def react(event: Any) -> None:
                if reaction == "raise":
                    raise LookupError("a listener failed")
                if isinstance(event, MessageAdded) and reactions:
                    act = reactions[reaction]
                    reactions.clear()  # once is enough
                    act()

            for kind in EVENT_TYPES:
                agent.on(kind, first.append)
                agent.on(kind, react)
                agent.on(kind, last.append)
            stream = agent.events()
            agent.add_user_message("Well?")
            await agent.answer().wait()
            await anyio.sleep(5)
            await agent.aclose()
            changes.extend([event async for event in stream])
            agent.logger.disabled = False
        return first, last, changes

    first, last, streamed = run_virtual(backend, scenario)
    assert first == last == streamed


@pytest.mark.parametrize("backend", BACKENDS)
@quickly
@given(script=scripts, wait=st.sampled_from((0.0, 0.01, 0.1, 2.0)))
def test_invariant_14_a_hosts_own_error_leaves_the_block_as_itself(
    backend: Backend, script: list[Any], wait: float
) -> None:
    mine = LookupError("the host's own")

    async def scenario() -> None:
        async with ScriptedAgent(script, raise_on_failure=False) as agent:
            agent.answer()
            await anyio.sleep(wait)
            raise mine

    with pytest.raises(LookupError) as caught:
        run_virtual(backend, scenario)
    assert caught.value is mine


@pytest.mark.parametrize("backend", BACKENDS)
def test_invariant_14_a_hosts_own_group_leaves_the_block_as_itself(backend: Backend) -> None:
    inner = LookupError("a")
    mine = ExceptionGroup("the host's own", [inner])

    async def scenario() -> None:
        async with ScriptedAgent(["One "]) as agent:
            agent.answer()
            raise mine

    with pytest.raises(ExceptionGroup) as caught:
        run_virtual(backend, scenario)
    # Trio rebuilds a group that passes a cancelled scope; what is in it, and how deep, stays.
    assert caught.value.message == mine.message
    assert caught.value.exceptions == (inner,)


@pytest.mark.parametrize("backend", BACKENDS)
@quickly
@given(good=st.integers(0, 3), error=st.sampled_from((ProviderError("down", kind="server"), ValueError("a bug"))))
def test_invariant_14_a_failed_answer_raises_its_error_after_the_last_good_chunk(
    backend: Backend, good: int, error: Exception
) -> None:
    async def scenario() -> tuple[list[str], BaseException | None]:
        got: list[str] = []
        async with ScriptedAgent([*["One "] * good, error]) as agent:
            agent.logger.disabled = True
            try:
                async for chunk in agent.answer():
                    got.append(chunk)  # noqa: PERF401  # what came before the error counts
            except type(error) as raised:
                return got, raised
            finally:
                agent.logger.disabled = False
        return got, None

    got, raised = run_virtual(backend, scenario)
    assert got == ["One "] * good
    assert raised is error


@pytest.mark.parametrize("backend", BACKENDS)
@quickly
@given(script=scripts, after=st.sampled_from((0.0, 0.01, 0.05, 0.1)))
def test_invariant_14_the_hosts_own_deadline_passes_through(backend: Backend, script: list[Any], after: float) -> None:
    async def scenario() -> bool:
        with anyio.move_on_after(after) as scope:
            async with ScriptedAgent([*script, HANG], raise_on_failure=False) as agent:
                async for _ in agent.answer():
                    pass
                await anyio.sleep_forever()
        return scope.cancelled_caught

    assert run_virtual(backend, scenario)


@pytest.mark.parametrize(
    "script", [[["One ", 0.1, "two."]], [[Call("x"), "One."]], [[0.2, ProviderError("x", kind="server")]]]
)
def test_invariant_14_a_native_cancellation_of_the_host_passes_through(script: Any) -> None:
    import asyncio

    async def host() -> None:
        async with ScriptedAgent(*script, raise_on_failure=False) as agent:
            async for _ in agent.answer():
                pass
            await anyio.sleep(10)

    async def scenario(after: float) -> bool:
        task = asyncio.get_running_loop().create_task(host())
        await asyncio.sleep(after)
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    for after in (0.0, 0.05, 0.1, 0.15, 1.0):
        assert run_virtual("asyncio-native", scenario, after)
