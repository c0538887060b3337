from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import anyio
import pytest

from micdrop_agent import StoreError
from micdrop_agent.testing import BACKENDS, Backend, ScriptedAgent, run_virtual

if TYPE_CHECKING:
    from collections.abc import Sequence

    from micdrop_agent import Agent, Item
    from micdrop_agent.store import Change

pytestmark = pytest.mark.parametrize("backend", BACKENDS)


async def talk(agent: Agent, *texts: str) -> None:
    for text in texts:
        agent.add_user_message(text)
        await agent.answer().wait()


class Flaky:
    """A store that fails when told to, also after it has written."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.number = 0
        self.failing = 0
        self.closed = False
        self.delay = 0.0

    async def open_call(self, call_id: str) -> Flaky:
        del call_id
        return self

    async def load(self, call_id: str) -> Sequence[Item]:
        del call_id
        return self.items

    async def apply(self, changes: Sequence[Change]) -> None:
        await anyio.sleep(self.delay)
        for change in changes:
            if change.number <= self.number:
                continue
            assert change.number == self.number + 1
            self.items = [*self.items]
            self.items[change.index : change.index + change.gone] = change.come
            self.number = change.number
            if self.failing:
                self.failing -= 1
                raise OSError("no space left on device")

    async def aclose(self) -> None:
        self.closed = True


def test_a_store_that_fails_is_told_and_the_call_goes_on(backend: Backend, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        store, told = Flaky(), list[Exception]()
        async with ScriptedAgent(["Hello."]) as agent:
            kept = await agent.attach(store, "a", on_error=told.append)
            store.failing = 2
            await talk(agent, "Hi!")
            await anyio.sleep(1)
            assert told
            assert kept.error is told[-1] or kept.error is None
            store.failing = 1
            agent.add_user_message("And?")
            with pytest.raises(StoreError, match="no space left"):
                await agent.flush()
            assert kept.pending
            await agent.flush()
            assert kept.pending == 0
            assert kept.error is None
        assert store.items == list(agent.conversation)
        assert store.closed

    with caplog.at_level(logging.ERROR):
        run_virtual(backend, scenario)
    assert "not stored" in caplog.text


def test_the_end_of_the_block_raises_when_something_could_not_be_stored(backend: Backend) -> None:
    async def scenario(store: Flaky, error: Exception | None) -> None:
        async with ScriptedAgent() as agent:
            await agent.attach(store, "a")
            store.failing = 1_000
            agent.add_user_message("Hi!")
            if error is not None:
                raise error

    store = Flaky()
    with pytest.raises(StoreError, match="1 changes"):
        run_virtual(backend, scenario, store, None)
    assert store.closed
    with pytest.raises(KeyError):  # the host's own error is not replaced
        run_virtual(backend, scenario, Flaky(), KeyError("mine"))


def test_a_store_that_hangs_does_not_keep_the_block_open(backend: Backend) -> None:
    async def scenario() -> None:
        store = Flaky()
        async with ScriptedAgent(["Hello."]) as agent:
            await agent.attach(store, "a")
            store.delay = 1e6
            with anyio.fail_after(1):
                await talk(agent, "Hi!")

    with pytest.raises(StoreError, match="took longer than 30 seconds"):
        run_virtual(backend, scenario, time_limit=60)


def test_an_attach_that_fails_to_write_leaves_nothing_behind(backend: Backend) -> None:
    async def scenario() -> None:
        store = Flaky()
        store.failing = 1
        async with ScriptedAgent(["Hello."]) as agent:
            with pytest.raises(StoreError):
                await agent.attach(store, "a")
            assert store.closed
            await talk(agent, "Hi!")
            await agent.attach(store, "a")
        assert store.items == list(agent.conversation)

    run_virtual(backend, scenario)
