"""Tool calls and their host: a result that the host gives, and a tool that closes its agent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest
from core_support import log_of
from toolrun_support import CANCELLED, nap, pairs

from micdrop_agent import ToolResult, tool
from micdrop_agent.events import MessageAdded
from micdrop_agent.testing import BACKENDS, Call, ScriptedAgent, run_virtual

if TYPE_CHECKING:
    from micdrop_agent.testing import Backend

pytestmark = pytest.mark.parametrize("backend", BACKENDS)


def test_a_result_that_the_host_gives_is_the_result_of_the_running_call(backend: Backend) -> None:
    async def main() -> None:
        async with ScriptedAgent(
            [[Call("slow", call_id="1"), Call("quick", call_id="2")], "ok"], tools=[nap("slow", 4), nap("quick", 2)]
        ) as agent:
            added = log_of(agent, MessageAdded)
            answer = agent.answer()
            await anyio.sleep(1)
            agent.add_tool_message(ToolResult("1", "slow", '"from the host"'))
            assert agent.conversation[2] == ToolResult("1", "slow", '"from the host"')
            assert (await answer.wait()).text == "ok"
            assert pairs(agent) == [("slow", '"from the host"'), ("quick", '"quick slept"')]
            assert [event.index for event in added if isinstance(event, MessageAdded)] == [1, 2, 2, 4, 5]
            # No call waits for this one.
            agent.add_tool_message(ToolResult("3", "slow", "null"))
            assert agent.conversation[-1] == ToolResult("3", "slow", "null")

    run_virtual(backend, main)


@pytest.mark.parametrize("how", ["cancel", "finish"])
def test_a_tool_that_closes_its_agent_does_not_wait_for_itself(backend: Backend, how: Any) -> None:
    async def main() -> None:
        @tool(on_cancel=how)
        async def leave() -> None:
            await agent.aclose()
            left.append(anyio.current_time())

        left: list[float] = []
        async with ScriptedAgent([1, Call("leave"), "x"], tools=[leave]) as agent:
            assert (await agent.answer().wait()).status == "cancelled"
        assert anyio.current_time() == 1
        assert left == ([1] if how == "finish" else [])
        assert pairs(agent) == [("leave", CANCELLED)]

    run_virtual(backend, main)
