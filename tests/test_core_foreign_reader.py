"""Another thread may read the conversation while a call goes on: nothing is lost by it."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

import anyio
import pytest
from core_support import nobody_listens

from micdrop_agent.testing import HANG, ScriptedAgent

if TYPE_CHECKING:
    from collections.abc import Generator

ROUNDS = 400


@pytest.fixture
def impatient() -> Generator[None]:
    """Threads take turns as often as Python allows."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.usefixtures("impatient")
def test_a_thread_that_reads_all_the_time_loses_no_message(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    nobody_listens(monkeypatch)  # then what a barge-in leaves is made by whoever reads first
    stop = threading.Event()
    seen: list[int] = []

    async def main() -> list[tuple[str, str]]:
        async with ScriptedAgent(["We open ", HANG]) as agent:

            def read() -> None:
                while not stop.is_set():
                    seen.append(len(agent.conversation))

            readers = [threading.Thread(target=read) for _ in range(3)]
            for reader in readers:
                reader.start()
            try:
                for number in range(ROUNDS):
                    agent.add_user_message(f"Question {number}")
                    await agent.answer().receive()
                    agent.cancel()
            finally:
                stop.set()
                with anyio.CancelScope(shield=True):
                    for reader in readers:
                        await anyio.to_thread.run_sync(reader.join)
            return [(message.role, message.content) for message in agent.conversation.messages[1:]]

    said = anyio.run(main, backend=backend)

    assert said == [
        each for number in range(ROUNDS) for each in (("user", f"Question {number}"), ("assistant", "We open "))
    ]
    assert len(seen) > 1
