"""What an answer leaves to be done: a barge-in cost its connection, and another one is there before it is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest
from step_support import STOP, Act, Model, Provider, down

from micdrop_agent import FallbackAgent, Retry
from micdrop_agent.model.agent import REWARM_AFTER
from micdrop_agent.testing import BACKENDS, Backend, run_virtual

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.parametrize("backend", BACKENDS)

JUST: float = REWARM_AFTER / 5


class Warmed(Provider):
    """Knows when a connection was asked for; each takes ``handshake`` seconds."""

    def __init__(self, *scripts: Sequence[Act], handshake: float = 0.0) -> None:
        super().__init__(*scripts)
        self.warmed: list[float] = []
        self.open_connections = 0
        self._handshake = handshake

    async def prewarm(self) -> None:
        self.warmed.append(anyio.current_time())
        await super().prewarm()
        await anyio.sleep(self._handshake)
        self.open_connections += 1


def model(*scripts: Sequence[Act], handshake: float = 0.0, **options: Any) -> tuple[Model, Warmed]:
    agent = Model(**options)
    agent.served = provider = Warmed(*scripts, handshake=handshake)
    return agent, provider


def test_a_connection_is_opened_again_five_milliseconds_after_a_barge_in_and_not_before(backend: Backend) -> None:
    async def scenario() -> None:
        agent, provider = model([["One "], "hang"])
        async with agent:
            answer = agent.answer()
            assert await answer.receive() == "One "
            await anyio.sleep(1)
            agent.cancel()
            await anyio.sleep(REWARM_AFTER - JUST)
            assert provider.streams[0].closed == 1  # the server need not wait that long
            assert provider.warmed == []
            await anyio.sleep(2 * JUST)
            assert provider.warmed == [pytest.approx(1 + REWARM_AFTER)]
            await anyio.sleep(1)
            assert provider.open_connections == 1

    run_virtual(backend, scenario)


def test_an_answer_that_ends_by_itself_leaves_nothing_to_be_done(backend: Backend) -> None:
    async def scenario() -> None:
        agent, provider = model([["One.", *STOP]], [down()], retry=Retry(max_retries=0))
        async with agent:
            for status in ("completed", "failed"):
                assert (await agent.answer().wait()).status == status
                agent.cancel()
                await anyio.sleep(1)
            assert provider.warmed == []

    run_virtual(backend, scenario)


def test_the_next_answer_asks_at_once_and_does_not_wait_for_that_connection(backend: Backend) -> None:
    async def scenario() -> None:
        agent, provider = model(["hang", []], [2, ["Two.", *STOP]], handshake=1)
        async with agent:
            agent.answer()
            await anyio.sleep(1)
            answer = agent.answer()
            assert [chunk async for chunk in answer] == ["Two."]
            assert provider.times == [0, 1]
            assert provider.warmed == [pytest.approx(1 + REWARM_AFTER)]
            assert (anyio.current_time(), provider.open_connections) == (3, 1)

    run_virtual(backend, scenario)


@pytest.mark.parametrize("after", [0.0, JUST, REWARM_AFTER + JUST], ids=["at once", "soon", "in the handshake"])
@pytest.mark.parametrize("how", ["the block is left", "aclose()"])
def test_none_is_opened_for_an_agent_that_is_closed(backend: Backend, after: float, how: str) -> None:
    async def scenario() -> None:
        agent, provider = model(["hang", []], handshake=1)
        async with agent:
            agent.answer()
            await anyio.sleep(1)
            agent.cancel()
            if after:
                await anyio.sleep(after)
            left = anyio.current_time()
            if how == "aclose()":
                await agent.aclose()
                assert anyio.current_time() == left
                await anyio.sleep(1)
                left += 1
        assert anyio.current_time() == left
        assert len(provider.warmed) == (after > REWARM_AFTER)
        assert (provider.open_connections, provider.closed) == (0, 1)

    run_virtual(backend, scenario)


def test_the_child_that_was_cut_has_its_connection_opened_by_the_agent_that_the_application_holds(
    backend: Backend,
) -> None:
    async def scenario() -> None:
        first, provider = model(["hang", []])
        second, other = model([["Two.", *STOP]])
        async with FallbackAgent([lambda: first, lambda: second], first_chunk_timeout=10) as agent:
            agent.answer()
            await anyio.sleep(1)
            agent.cancel()
            await anyio.sleep(1)
            assert provider.warmed == [pytest.approx(1 + REWARM_AFTER)]
            assert other.warmed == []

    run_virtual(backend, scenario)


def test_none_is_opened_for_a_child_that_was_replaced_meanwhile(backend: Backend) -> None:
    """It would never be closed: the supervisor has closed that child already."""

    async def scenario() -> None:
        first, provider = model(["hang", []], [down()])
        second, other = model([["Two.", *STOP]])
        async with FallbackAgent([lambda: first, lambda: second], first_chunk_timeout=10) as agent:
            agent.answer()
            await anyio.sleep(1)
            agent.cancel()
            assert [chunk async for chunk in agent.answer()] == ["Two."]
            assert anyio.current_time() < 1 + REWARM_AFTER
            await anyio.sleep(1)
            assert (provider.times, provider.closed) == ([0, 1], 1)
            assert (provider.warmed, other.warmed) == ([], [])
            assert first._core._provider is None

    run_virtual(backend, scenario)


def test_each_request_that_was_cut_has_its_connection_opened_again(backend: Backend) -> None:
    async def scenario() -> None:
        first, provider = model(["hang", []])
        second, other = model(["hang", []])
        agent = FallbackAgent([lambda: first, lambda: second], first_chunk_timeout=10, hedge_after=0.5)
        async with agent:
            agent.answer()
            await anyio.sleep(1)
            agent.cancel()
            await anyio.sleep(1)
            assert len(provider.times) == len(other.times) == 1
            assert len(provider.warmed) == len(other.warmed) == 1

    run_virtual(backend, scenario)


def test_a_connection_that_cannot_be_opened_is_logged_and_harms_nobody(
    backend: Backend, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "micdrop_agent")

    async def scenario() -> None:
        agent, provider = model(["hang", []], ["hang", []], [["Three.", *STOP]])
        async with agent:
            for warming in (down("connection"), LookupError("a bug of the provider")):
                provider.warming = warming
                agent.answer()
                await anyio.sleep(1)
                agent.cancel()
                await anyio.sleep(1)
            assert [chunk async for chunk in agent.answer()] == ["Three."]
            assert len(provider.warmed) == 2

    run_virtual(backend, scenario)
    assert "no spare connection: down" in caplog.text
    assert "background work of the agent failed" in caplog.text
