"""What one worker learns, all know; one of them tries; without a bus each decides for itself."""

from __future__ import annotations

import gc
import logging
import random
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from redis_support import Server, needs_server

from micdrop_agent import FallbackAgent, ProviderError
from micdrop_agent.fallback import MemoryBus, SharedHealth
from micdrop_agent.testing import BACKENDS, Backend, ScriptedAgent, run_virtual

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from micdrop_agent import Turn
    from micdrop_agent.testing import Act

DOWN = ProviderError("down", kind="server")


def workers(
    backend: Backend, number: int, scenario: Callable[[MemoryBus, list[SharedHealth]], Awaitable[None]]
) -> None:
    async def main() -> None:
        bus = MemoryBus()
        async with AsyncExitStack() as stack:
            registries = [await stack.enter_async_context(SharedHealth(bus, chance=lambda: 0.9)) for _ in range(number)]
            await anyio.sleep(0.1)
            await scenario(bus, registries)

    run_virtual(backend, main)


@pytest.mark.parametrize("backend", BACKENDS)
def test_all_know_within_50_milliseconds_and_one_tries(backend: Backend) -> None:
    async def scenario(bus: MemoryBus, registries: list[SharedHealth]) -> None:
        for _ in range(3):
            registries[0].failed("a", DOWN)
        await anyio.sleep(0.05)
        assert [registry.state("a") for registry in registries] == ["open"] * 20
        await anyio.sleep(5)
        for _ in range(3):
            states = [registry.state("a") for registry in registries]
            await anyio.sleep(0.05)
        states = [registry.state("a") for registry in registries]
        assert states.count("half_open") == 1
        prober = registries[states.index("half_open")]
        assert prober.started("a")
        prober.succeeded("a", 0.2)
        await anyio.sleep(0.05)
        assert {registry.state("a") for registry in registries} == {"closed"}
        assert bus.sent < 50

    workers(backend, 20, scenario)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_failed_try_keeps_it_out_for_all(backend: Backend) -> None:
    async def scenario(_bus: MemoryBus, registries: list[SharedHealth]) -> None:
        registries[0].failed("a", ProviderError("slow down", kind="rate_limit", retry_after=30))
        await anyio.sleep(31)
        assert registries[1].state("a") == "open"  # asks for the right to try
        await anyio.sleep(0.05)
        assert registries[1].state("a") == "half_open"
        registries[1].started("a")
        registries[1].failed("a", DOWN)
        await anyio.sleep(0.05)
        assert {registry.state("a") for registry in registries} == {"open"}
        registries[2].reset("a")
        await anyio.sleep(0.05)
        assert {registry.state("a") for registry in registries} == {"closed"}

    workers(backend, 4, scenario)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_times_of_all_make_the_percentile(backend: Backend) -> None:
    async def scenario(_bus: MemoryBus, registries: list[SharedHealth]) -> None:
        for registry in registries:
            for _ in range(3):
                registry.succeeded("a", 0.4)
        assert registries[0].p95("a") is None
        await anyio.sleep(2)
        assert registries[0].p95("a") == 0.4

    workers(backend, 5, scenario)


@pytest.mark.parametrize("backend", BACKENDS)
def test_without_a_bus_each_decides_for_itself_and_says_so_once(
    backend: Backend, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(bus: MemoryBus, registries: list[SharedHealth]) -> None:
        bus.gone = True
        for _ in range(3):
            registries[0].failed("a", DOWN)
        await anyio.sleep(0.1)
        assert [registry.state("a") for registry in registries] == ["open", "closed"]
        assert not registries[0].connected
        await anyio.sleep(6)
        assert registries[0].state("a") == "half_open"
        registries[0].failed("late", ProviderError("no", kind="auth"))
        registries[0].succeeded("a")
        await anyio.sleep(0.1)
        bus.gone = False
        await anyio.sleep(1.5)
        assert registries[1].state("late") == "open"  # what was not delivered comes when the bus is back
        registries[1].failed("a", ProviderError("no", kind="auth"))
        await anyio.sleep(0.1)
        assert [registry.state("a") for registry in registries] == ["open", "open"]

    with caplog.at_level(logging.WARNING):
        workers(backend, 2, scenario)
    assert caplog.text.count("not shared") == 1


def slow_and_sure() -> ScriptedAgent:
    answer: list[Act] = [0.2, "Yes."]
    return ScriptedAgent(*[answer] * 99)


class Provider:
    """A model server: when each worker asked it, and whether it is dead. A dead one refuses, or says nothing."""

    def __init__(self, *, silent: bool) -> None:
        self.silent = silent
        self.dead = False
        self.asked: list[tuple[int, float]] = []

    def agent(self, worker: int) -> ScriptedAgent:
        provider = self

        class Asking(ScriptedAgent):
            async def generate_answer(self, turn: Turn) -> None:
                provider.asked.append((worker, anyio.current_time()))
                if not provider.dead:
                    await anyio.sleep(0.05)
                    await turn.write("Yes.")
                elif provider.silent:
                    await anyio.sleep_forever()
                else:
                    raise DOWN

        return Asking()


@pytest.mark.parametrize(("backend", "silent"), [("asyncio", False), ("trio", True)])
def test_once_one_worker_opened_its_circuit_each_asks_once_at_most_and_one_tries(
    backend: Backend, silent: bool
) -> None:
    """4 workers with 50 calls each; the provider dies at 5 s and is back at 9 s."""
    provider = Provider(silent=silent)
    opened: list[float] = []
    closed: list[float] = []
    dice = random.Random(7)

    async def call(worker: int, health: SharedHealth) -> None:
        factories = [lambda: provider.agent(worker), slow_and_sure]
        async with FallbackAgent(
            factories, names=["a", "b"], health=health, prefer="first", first_chunk_timeout=0.5
        ) as agent:
            while anyio.current_time() < 12:
                await anyio.sleep(dice.expovariate(1 / 4))
                result = await agent.answer().wait()
                assert result.status == "completed"

    async def scenario(_bus: MemoryBus, registries: list[SharedHealth]) -> None:
        for registry in registries:
            registry.on_change(
                lambda change: (opened if change.state == "open" else closed).append(anyio.current_time())
            )
        async with anyio.create_task_group() as tasks:
            for number in range(4 * 50):
                tasks.start_soon(call, number % 4, registries[number % 4])
            await anyio.sleep_until(5)
            provider.dead = True
            await anyio.sleep_until(9)
            provider.dead = False

    workers(backend, 4, scenario)
    assert len(opened) >= 4
    assert opened[3] <= opened[0] + 0.05
    # Its time out is drawn once (the others take it over), and only then one worker may try it.
    tries = [at for _, at in provider.asked if at > opened[3]]
    first_try = tries[0]
    late = [worker for worker, at in provider.asked if opened[0] < at < first_try]
    assert all(late.count(worker) <= 1 for worker in range(4)), late
    assert first_try - opened[0] >= 4
    # The first try after 9 s succeeds; until then there was one at a time.
    assert len([at for at in tries if at <= closed[0]]) == 1
    assert closed[0] <= closed[3] <= closed[0] + 0.05


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_right_to_try_is_given_back_and_outlives_no_worker(backend: Backend) -> None:
    async def scenario(bus: MemoryBus, registries: list[SharedHealth]) -> None:
        one, two = registries
        one.failed("a", ProviderError("slow down", kind="rate_limit", retry_after=1))
        await anyio.sleep(1.1)
        assert (one.state("a"), two.state("a")) == ("open", "open")  # both ask
        await anyio.sleep(0.1)
        states = [one.state("a"), two.state("a")]
        assert states.count("half_open") == 1
        holder, other = (one, two) if states[0] == "half_open" else (two, one)
        sent = bus.sent
        for _ in range(5):
            assert other.state("a") == "open"
            await anyio.sleep(1)
        assert bus.sent <= sent + 1  # who was refused waits for news, and does not ask again and again
        holder.started("a")
        holder.failed("a", ProviderError("slow down", kind="rate_limit", retry_after=1))
        await anyio.sleep(1.1)
        other.state("a")
        await anyio.sleep(0.1)
        assert other.state("a") == "half_open"  # it has the right now, which the first one gave back
        holder.state("a")
        await anyio.sleep(10.5)  # it dies with it
        holder.state("a")
        await anyio.sleep(0.1)
        assert holder.state("a") == "half_open"

    workers(backend, 2, scenario)


@pytest.mark.parametrize("backend", BACKENDS)
def test_news_that_were_lost_are_learned_later(backend: Backend) -> None:
    """A worker whose connection is made again has missed that a child is back, and one that is out."""

    async def scenario(bus: MemoryBus, registries: list[SharedHealth]) -> None:
        one, two = registries
        one.failed("a", ProviderError("no key", kind="auth"))
        await anyio.sleep(0.05)
        assert two.state("a") == "open"
        bus._listeners.remove(two._receive)
        one.reset("a")
        one.failed("b", ProviderError("no key", kind="auth"))
        two.failed("c", ProviderError("no key", kind="auth"))
        await anyio.sleep(0.05)
        assert (two.state("a"), two.state("b")) == ("open", "closed")
        bus._listeners.append(two._receive)
        await anyio.sleep(16)
        assert (two.state("a"), two.state("b"), two.state("c")) == ("closed", "open", "open")

    workers(backend, 2, scenario)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_child_whose_time_is_over_does_not_come_back_without_a_try(backend: Backend) -> None:
    async def scenario(_bus: MemoryBus, registries: list[SharedHealth]) -> None:
        registries[0].failed("a", ProviderError("slow down", kind="rate_limit", retry_after=1))
        await anyio.sleep(40)  # the bus has told several times that nobody is out
        assert [registry.state("a") for registry in registries] == ["open"] * 3
        await anyio.sleep(0.1)
        assert sorted(registry.state("a") for registry in registries) == ["half_open", "open", "open"]

    workers(backend, 3, scenario)


@pytest.mark.parametrize("backend", BACKENDS)
def test_more_workers_do_not_report_more(backend: Backend) -> None:
    async def scenario(bus: MemoryBus, registries: list[SharedHealth]) -> None:
        async def answers() -> None:
            while True:
                for registry in registries:
                    registry.succeeded("a", 0.4)
                await anyio.sleep(0.5)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(answers)
            await anyio.sleep(30)
            before = bus.sent
            await anyio.sleep(60)
            assert 400 <= bus.sent - before <= 900
            tasks.cancel_scope.cancel()

    workers(backend, 60, scenario)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("news", [{}, {"out": 1}, {"key": "a", "out": "x"}, {"seen": 3, "every": 1}, {"known": 4}])
def test_news_that_cannot_be_read_change_nothing(backend: Backend, news: dict[str, Any]) -> None:
    async def scenario(bus: MemoryBus, registries: list[SharedHealth]) -> None:
        for receive in tuple(bus._listeners):
            receive(news)
        assert [registry.state("a") for registry in registries] == ["closed"] * 2
        registries[0].failed("a", ProviderError("no key", kind="auth"))
        await anyio.sleep(0.05)
        assert registries[1].state("a") == "open"

    workers(backend, 2, scenario)


@needs_server
@pytest.mark.filterwarnings("ignore:Unclosed <MemoryObject:ResourceWarning")  # coredis leaves them behind
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_workers_share_by_redis_also_what_was_before_them_and_live_without_it(tmp_path: Path) -> None:
    server = Server(tmp_path)
    try:
        async with SharedHealth(server.url) as one, SharedHealth(server.url) as two:
            with anyio.fail_after(20):
                one.failed("a", ProviderError("no key", kind="auth"))
                await until(lambda: two.state("a") == "open")
                async with SharedHealth(server.url) as late:
                    await until(lambda: late.state("a") == "open")
                two.reset("a")
                await until(lambda: one.state("a") == "closed")
            server.stop()
            one.failed("b", ProviderError("no key", kind="auth"))
            with anyio.fail_after(20):
                await until(lambda: not one.connected)
            assert (one.state("b"), two.state("b")) == ("open", "closed")
    finally:
        server.stop()
        gc.collect()


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - a registry has no event for what this test asks
        await anyio.sleep(0.01)
