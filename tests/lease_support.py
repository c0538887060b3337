"""What both stores with a lease must do, asked in the same way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest

from micdrop_agent import CallMovedError, Message
from micdrop_agent.testing import ScriptedAgent

if TYPE_CHECKING:
    from collections.abc import Callable

    from micdrop_agent.store import PostgresStore, RedisStore


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what a recorder has no event for."""
    while not condition():  # noqa: ASYNC110 - a recorder has no event for what these tests ask
        await anyio.sleep(0.02)


async def check_take_over(old: RedisStore | PostgresStore, new: RedisStore | PostgresStore) -> None:
    """A call that ``new`` takes over is lost to the writer of ``old`` at once, and what that adds is not stored."""
    reported: list[Exception] = []
    async with ScriptedAgent(["Yes."]) as agent, ScriptedAgent(["No."]) as other:
        recorder = await agent.attach(old, "moved", on_error=reported.append)
        agent.add_user_message("One.")
        await agent.flush()
        await other.attach(new, "moved")
        other.add_user_message("Two.")
        await other.flush()
        with anyio.fail_after(10):  # the lease tells it, without a change of its own
            await until(lambda: recorder.moved)
        agent.add_user_message("Nobody else's.")
        with pytest.raises(CallMovedError):
            await agent.flush()
    assert [type(error) for error in reported] == [CallMovedError]
    stored = await new.load("moved")
    assert stored == list(other.conversation)
    assert Message("user", "Nobody else's.") not in stored
