"""A thousand barge-ins over real sockets: nothing is left of them, and the next answer works."""

from __future__ import annotations

import gc
import random
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.lowlevel
import httpx2
import openai
import pytest
from llmock_support import until

from micdrop_agent import ChatAgent, Message, OpenaiAgent, Retry, tool
from micdrop_agent.testing import ScriptedProvider, assert_no_leaks, call_tool, fault, parts, say

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from micdrop_agent import Answer
    from micdrop_agent.result import TraceKind
    from micdrop_agent.testing import ReceivedRequest, Reply

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="counts sockets in /proc")
each_backend = pytest.mark.parametrize("backend", ["asyncio", "asyncio+uvloop", "trio"])
POINTS: Final = ("connect", "headers", "head", "first chunk", "middle", "tool", "retry wait", "end")
WORDS: Final = ["Good ", "morning, ", "we ", "open ", "at ", "nine."]
STREAM: Final = parts([{"text": WORDS[:4]}, {"silence": True}])
REPLIES: Final[dict[str, Reply]] = {
    "connect": say(*WORDS),
    "headers": fault("stall_before_headers"),
    "head": fault("stall_after_headers"),
    "first chunk": STREAM,
    "middle": STREAM,
    "tool": call_tool("look_up", {"what": "hours"}),
    "retry wait": fault("status", status=503),
    "end": say(*WORDS),
}


def run(backend: str, scenario: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        with anyio.fail_after(60):
            await scenario()

    name, _, uvloop = backend.partition("+")
    anyio.run(bounded, backend=name, backend_options={"use_uvloop": True} if uvloop else {})
    gc.collect()  # what warns when it is collected warns here


def point_of(request: ReceivedRequest) -> Reply:
    """The reply that the last user message asks for."""
    history = request.body.get("messages") or request.body["input"]
    return REPLIES[[item for item in history if item.get("role") == "user"][-1]["content"]]


def open_sockets() -> int:
    """How many this process has (uvloop also opens /dev/null once)."""
    count = 0
    for file in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # that of the listing itself is gone already
            count += str(file.readlink()).startswith("socket:")
    return count


class Caller:
    """Asks one agent, and barges in at a point of choice."""

    def __init__(self, agent: Any, provider: ScriptedProvider, dice: random.Random) -> None:
        self.agent = agent
        self.provider = provider
        self.dice = dice
        self.in_tool = anyio.Event()
        self.trace: list[tuple[float, TraceKind, dict[str, Any]]] = []
        self.marks: list[tuple[float, TraceKind, dict[str, Any]]] = []
        """What the traces tell of failures."""
        agent.add_tool(self._tool())

    def _tool(self) -> Any:
        @tool
        async def look_up(what: str) -> str:
            """Look something up, for ever."""
            self.in_tool.set()
            await anyio.sleep_forever()
            return what

        return look_up

    async def barge_in(self, point: str) -> None:
        """One answer that is cancelled at ``point``; what is stored of it is what was heard."""
        agent = self.agent
        # A call does not get longer and longer here: memory has to stay where it is.
        agent.conversation.replace([])
        agent.add_user_message(point)
        asked = len(self.provider.requests)
        self.in_tool = anyio.Event()
        answer: Answer = agent.answer()
        heard = await self._until(point, answer, asked)
        agent.cancel()
        assert [chunk async for chunk in answer] == []
        stored = [item for item in agent.conversation if isinstance(item, Message) and item.role == "assistant"]
        assert "".join(item.content for item in stored) == heard == answer.text
        self.provider.requests.clear()
        # Looked at in the next round: the task of this answer is still on its way out.
        trace, self.trace = self.trace, ([] if point == "retry wait" else answer.turn.facts.trace)
        self.marks += [noted for noted in trace if noted[1] == "retry" or noted[2].get("error")]

    async def _until(self, point: str, answer: Answer, asked: int) -> str:
        """Go on up to ``point``; what was heard on the way."""
        chunks = {"first chunk": 1, "middle": self.dice.randrange(2, 5), "end": len(WORDS)}.get(point)
        if chunks is not None:
            return "".join([await answer.receive() for _ in range(chunks)])
        if point != "connect":
            await self.provider.until(lambda: len(self.provider.requests) > asked)
        if point == "tool":
            await self.in_tool.wait()
        elif point == "retry wait":
            await until(lambda: any(kind == "retry" for _, kind, _ in answer.turn.facts.trace))
        else:
            for _ in range(self.dice.randrange(12)):
                await anyio.lowlevel.checkpoint()
        return ""


@each_backend
@pytest.mark.parametrize("make", [ChatAgent, OpenaiAgent])
def test_after_a_thousand_barge_ins_at_any_point_nothing_is_left_and_the_next_answer_works(
    backend: str, make: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    dice = random.Random(3)

    async def scenario() -> None:
        async with assert_no_leaks(), ScriptedProvider(point_of) as provider, provider.listening() as url:
            before = open_sockets()
            async with make(model="m", api_key="k", base_url=url, retry=Retry(first_wait=999)) as agent:
                caller = Caller(agent, provider, dice)
                sizes: list[int] = []
                for number in range(1000):
                    await caller.barge_in(POINTS[number % len(POINTS)] if number < 40 else dice.choice(POINTS))
                    assert len(agent._core.provider.transport._live) <= 2
                    assert len(agent._core.provider.transport._idle) <= 2
                    if number in {299, 999}:
                        await provider.until(lambda: provider.open_connections <= 2)
                        gc.collect()
                        sizes.append(len(gc.get_objects()))
                # Trio keeps up to a thousand cancelled deadlines before it clears them away.
                assert sizes[1] - sizes[0] < 2500, sizes
                agent.add_user_message("end")
                assert "".join([chunk async for chunk in agent.answer()]) == "".join(WORDS)
                assert provider.open_connections <= 2
                # Client and server are one process here: two descriptors per connection.
                assert open_sockets() <= before + 4
            await provider.until(lambda: provider.open_connections == 0)
            await until(lambda: open_sockets() <= before)
            # Invariant 8: a barge-in is no failure, although it cuts its connection.
            assert caplog.records == []
            assert caller.marks == []

    run(backend, scenario)


def shared_client(kind: str, url: str, connections: int) -> tuple[Any, Any]:
    """A client of few connections, and its pool."""
    limits = httpx2.Limits(max_connections=connections, max_keepalive_connections=connections)
    http = httpx2.AsyncClient(limits=limits)
    pool: Any = http._transport
    return (http if kind == "httpx2" else openai.AsyncOpenAI(api_key="k", base_url=url, http_client=http)), pool._pool


@each_backend
@pytest.mark.parametrize("kind", ["httpx2", "openai"])
def test_fifty_agents_that_fight_for_one_client_leave_every_connection_usable(backend: str, kind: str) -> None:
    agents, rounds, connections = 50, 12, 10

    async def scenario() -> None:
        async with assert_no_leaks(), ScriptedProvider(point_of) as provider, provider.listening() as url:
            before = open_sockets()
            client, pool = shared_client(kind, url, connections)
            async with anyio.create_task_group() as calls:

                async def call(number: int) -> None:
                    dice = random.Random(number)
                    more: dict[str, Any] = {"base_url": url, "api_key": "k"} if kind == "httpx2" else {}
                    async with ChatAgent(model="m", client=client, retry=Retry(first_wait=999), **more) as agent:
                        for _ in range(rounds):
                            agent.conversation.replace([])
                            agent.add_user_message(dice.choice(POINTS))
                            answer = agent.answer()
                            with anyio.move_on_after(dice.choice([0, 0.001, 0.01, 0.03])):
                                async for _ in answer:
                                    pass
                            agent.cancel()
                        agent.add_user_message("end")
                        assert "".join([chunk async for chunk in agent.answer()]) == "".join(WORDS)

                for number in range(agents):
                    calls.start_soon(call, number)
            assert len(pool.connections) <= connections
            assert all(connection.is_idle() or connection.is_closed() for connection in pool.connections)
            await (client.aclose() if kind == "httpx2" else client.close())
            await provider.until(lambda: provider.open_connections == 0)
            await until(lambda: open_sockets() <= before)

    run(backend, scenario)


def test_these_tests_see_an_open_socket() -> None:
    before = open_sockets()
    with socket.socket():
        assert open_sockets() == before + 1
