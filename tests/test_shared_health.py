"""What one worker learns, all know; one of them tries; without a bus each decides for itself."""

from __future__ import annotations

import gc
import logging
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import anyio
import pytest
from redis_support import Server, needs_server

from micdrop_agent import FallbackAgent, ProviderError
from micdrop_agent.fallback import MemoryBus, SharedHealth
from micdrop_agent.testing import BACKENDS, Backend, ScriptedAgent, run_virtual

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

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


@pytest.mark.parametrize("backend", BACKENDS)
def test_after_the_first_opened_its_circuit_at_most_one_request_of_a_worker_reaches_it(backend: Backend) -> None:
    asked: list[tuple[int, float]] = []
    opened: list[float] = []

    class Dying(ScriptedAgent):
        worker = 0

        async def generate_answer(self, turn: object) -> None:
            asked.append((self.worker, anyio.current_time()))
            raise DOWN

    async def scenario(_bus: MemoryBus, registries: list[SharedHealth]) -> None:
        async def call(worker: int) -> None:
            def dying() -> ScriptedAgent:
                agent = Dying()
                agent.worker = worker
                return agent

            factories = [dying, lambda: ScriptedAgent(*[["Yes."]] * 20)]
            async with FallbackAgent(factories, names=["a", "b"], health=registries[worker], prefer="first") as agent:
                for turn in range(5):
                    await anyio.sleep(0.01 * ((7 * worker + turn) % 11))
                    await agent.answer().wait()

        for registry in registries:
            registry.on_change(lambda change: opened.append(anyio.current_time()) if change.state == "open" else None)
        async with anyio.create_task_group() as tasks:
            for number in range(4 * 50):
                tasks.start_soon(call, number % 4)

    workers(backend, 4, scenario)
    assert opened
    late = [worker for worker, at in asked if at > min(opened) + 0.002]
    assert all(late.count(worker) <= 1 for worker in range(4))


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
