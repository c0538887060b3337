"""Tools of an MCP server: over the official client and server, in one process, on both loops."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
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
    from mcp.server.mcpserver import Context

    globals()["Context"] = Context  # annotations are read by the server, by their names

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

    @server.tool()
    async def search(context: Context) -> str:
        """Search, and tell how far it got."""
        await context.report_progress(1, 2, "I look in the book.")
        await context.report_progress(2, 2)
        return "table 2"

    async with mcp.Client(server) as client:
        yield client.session


def test_its_tools_are_tools_of_an_agent(backend: str) -> None:
    async def main() -> None:
        async with connected(Log()) as session:
            made = {each.name: each for each in await tools_from_mcp(session)}
            assert set(made) == {"free_tables", "fails", "slow", "search"}
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


@pytest.mark.parametrize(("asked", "heard"), [(True, ["I look in the book. ", "Table 2."]), (False, ["Table 2."])])
def test_progress_is_said_to_the_caller_when_asked_for(backend: str, asked: bool, heard: list[str]) -> None:
    async def main() -> None:
        async with connected(Log()) as session:
            tools = await tools_from_mcp(session, names=["search"], say_progress=asked)
            async with ScriptedAgent([Call("search"), "Table 2."], tools=tools) as agent:
                assert [chunk async for chunk in agent.answer()] == heard
                assert [item.content for item in agent.conversation.messages[1:]] == ["Table 2."]
                assert pairs(agent)[0][0] == "search"

    anyio.run(main, backend=backend)


def test_what_is_not_offered_and_what_is_no_session_is_refused(backend: str) -> None:
    async def main() -> None:
        async with connected(Log()) as session:
            with pytest.raises(ValueError, match="offers no tool 'nope'"):
                await tools_from_mcp(session, names=["nope"])
        with pytest.raises(TypeError, match=r"mcp\.ClientSession"):
            await tools_from_mcp(object())

    anyio.run(main, backend=backend)


def test_a_barge_in_sends_the_cancellation_of_the_protocol(backend: str) -> None:
    """Seen by a server that is nothing but a reader of its messages."""

    async def main() -> None:
        told, reads = anyio.create_memory_object_stream[Any](8)
        writes, said = anyio.create_memory_object_stream[Any](8)
        seen: list[dict[str, Any]] = []
        cancelled = anyio.Event()

        async def serve() -> None:
            async for message in said:
                request = message.message.model_dump(by_alias=True, mode="json", exclude_none=True)
                seen.append(request)
                reply = _RESULTS.get(request["method"])
                if reply is not None:
                    await told.send(SessionMessage(JSONRPCResponse(jsonrpc="2.0", id=request["id"], result=reply)))
                if request["method"] == "notifications/cancelled":
                    cancelled.set()

        from mcp.shared.message import SessionMessage
        from mcp.types import JSONRPCResponse

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve)
            async with told, said, mcp.ClientSession(reads, writes) as session:
                await session.initialize()
                tools = await tools_from_mcp(session)
                async with ScriptedAgent([Call("book", {"people": 2})], tools=tools) as agent:
                    agent.answer()
                    with anyio.fail_after(10):
                        while not any(each["method"] == "tools/call" for each in seen):
                            await anyio.lowlevel.checkpoint()
                        agent.cancel()
                        await cancelled.wait()
            tasks.cancel_scope.cancel()
        (call,) = (each for each in seen if each["method"] == "tools/call")
        assert call["params"]["arguments"] == {"people": 2}
        assert seen[-1]["params"]["requestId"] == call["id"]

    anyio.run(main, backend=backend)


_RESULTS: dict[str, dict[str, Any]] = {
    "initialize": {
        "protocolVersion": "2025-06-18",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "shop", "version": "1"},
    },
    "tools/list": {
        "tools": [
            {"name": "book", "inputSchema": {"type": "object", "properties": {"people": {"type": "integer"}}}},
        ]
    },
}
