"""Tools of an MCP server: over the official client and server, in one process, on both loops."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from toolrun_support import pairs

from micdrop_agent.testing import BACKENDS, Call, ScriptedAgent
from micdrop_agent.tools import tools_from_mcp

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

mcp = pytest.importorskip("mcp")

pytestmark = [pytest.mark.parametrize("backend", BACKENDS), pytest.mark.filterwarnings("default")]


class Log:
    def __init__(self) -> None:
        self.started = anyio.Event()
        self.cancelled = anyio.Event()


@asynccontextmanager
async def connected(log: Log) -> AsyncGenerator[Any]:
    from mcp.server import MCPServer

    server = MCPServer("shop")

    @server.tool()
    async def free_tables(day: str, people: int = 2) -> list[int]:
        """Numbers of the tables that are free."""
        return [2, people]

    @server.tool()
    async def fails(day: str) -> str:
        """Fails."""
        raise ValueError(f"closed on {day}")

    @server.tool()
    async def slow() -> None:
        """Never ends."""
        log.started.set()
        try:
            await anyio.sleep_forever()
        finally:
            log.cancelled.set()

    async with mcp.Client(server) as client:
        yield client.session


def test_its_tools_are_tools_of_an_agent(backend: str) -> None:
    async def main() -> None:
        async with connected(Log()) as session:
            made = {each.name: each for each in await tools_from_mcp(session)}
            assert set(made) == {"free_tables", "fails", "slow"}
            assert made["free_tables"].description == "Numbers of the tables that are free."
            assert set(made["free_tables"].loose_parameters["properties"]) == {"day", "people"}
            script: list[Any] = [
                Call("free_tables", {"day": "friday", "people": 4.0}),
                Call("fails", {"day": "monday"}),
            ]
            async with ScriptedAgent([script, "Table 2."], tools=made.values()) as agent:
                await agent.answer().wait()
                (_, free), (_, failed) = pairs(agent)
                assert "4" in free
                assert "error" in failed

    anyio.run(main, backend=backend)


def test_a_barge_in_cancels_the_call_on_the_server(backend: str) -> None:
    async def main() -> None:
        log = Log()
        async with connected(log) as session:
            tools = await tools_from_mcp(session, names=["slow"], prefix="shop_", timeout=30)
            async with ScriptedAgent([Call("shop_slow")], tools=tools) as agent:
                agent.answer()
                with anyio.fail_after(10):
                    await log.started.wait()
                    agent.cancel()
                    await log.cancelled.wait()
                assert pairs(agent) == [("shop_slow", '{"error":"cancelled"}')]

    anyio.run(main, backend=backend)


def test_what_is_not_offered_and_what_is_no_session_is_refused(backend: str) -> None:
    async def main() -> None:
        async with connected(Log()) as session:
            with pytest.raises(ValueError, match="offers no tool 'nope'"):
                await tools_from_mcp(session, names=["nope"])
        with pytest.raises(TypeError, match=r"mcp\.ClientSession"):
            await tools_from_mcp(object())

    anyio.run(main, backend=backend)
