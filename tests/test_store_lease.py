"""What a leased call asks of its server, with a server that is a list: no change is prepared twice, none is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import anyio
import pytest

from micdrop_agent import Message, StoreError
from micdrop_agent.store.lease import LeasedCall, Owner
from micdrop_agent.testing import ScriptedAgent, run_virtual

if TYPE_CHECKING:
    from collections.abc import Sequence

    from micdrop_agent.messages import Item
    from micdrop_agent.store import Change

    Backend = Literal["asyncio", "trio"]


class ListServer:
    """Takes changes, or refuses them for a while."""

    lease = 3.0

    def __init__(self) -> None:
        self.away = False
        self.asked: list[list[tuple[Change, Sequence[str]]]] = []
        self.number = 0
        self.bodies: list[str] = []

    async def open_call(self, call_id: str) -> LeasedCall:
        return LeasedCall(self, Owner(call_id, 1, "me", ""), 0, [])

    async def load(self, call_id: str) -> Sequence[Item]:
        raise NotImplementedError(call_id)

    async def apply(self, owner: Owner, changes: Sequence[tuple[Change, Sequence[str]]]) -> int:
        await anyio.sleep(0.001)
        self.asked.append(list(changes))
        if self.away:
            raise StoreError("full", retryable=True)
        for change, bodies in changes:
            if change.number > self.number:
                self.number = change.number
                self.bodies[change.index : change.index + change.gone] = bodies
        return self.number

    async def renew(self, owner: Owner, number: int) -> int:
        await anyio.sleep(0.001)
        return 0

    async def restore(self, owner: Owner, number: int, bodies: Sequence[str]) -> int:
        raise NotImplementedError

    async def release(self, owner: Owner) -> None:
        await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_server_that_refuses_is_asked_with_a_little_that_is_prepared_once(backend: Backend) -> None:
    """Else each word of a long call would wait while all that is not stored is made ready once more, in vain."""
    server = ListServer()

    async def scenario() -> int:
        async with ScriptedAgent() as agent:
            await agent.attach(server, "a")
            server.away, server.asked = True, []
            for number in range(200):
                agent.add_user_message(f"message {number}")
                await anyio.sleep(0.05)
            refused = list(server.asked)
            server.away = False
            await anyio.sleep(20)
            return check(refused)

    def check(refused: list[list[tuple[Change, Sequence[str]]]]) -> int:
        assert len(refused) > 3
        assert max(map(len, refused[1:])) <= 8
        first = [bodies for batch in refused for change, bodies in batch if change.number == refused[0][0][0].number]
        assert all(bodies is first[0] for bodies in first)
        return len(refused)

    run_virtual(backend, scenario)
    assert [f"message {number}" in body for number, body in enumerate(server.bodies[1:])] == [True] * 200
    assert Message("user", "message 199").content in server.bodies[-1]
