"""Scenarios for the sweep: what a host does with one agent, from plain to nested fallbacks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import anyio.from_thread
from property_support import Runs, toolbox

from micdrop_agent import (
    Agent,
    ChatAgent,
    ExtractTag,
    FallbackAgent,
    MessageAdded,
    ProviderError,
    Retry,
    Timeouts,
    tool,
)
from micdrop_agent.testing import Call, Probe, ScriptedAgent, ScriptedProvider, call_tool, fault, read, say

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from micdrop_agent import Turn
    from micdrop_agent.testing import Act

    Scenario = Callable[[Probe], Awaitable[None]]


TOOLS = toolbox(Runs())  # made once: reading signatures would take longer than the answers


async def _talk(probe: Probe, agent: Agent, turns: int = 2) -> None:
    """Ask and read, as long as the agent is open."""
    async with agent:
        probe.watch(agent)
        for number in range(turns):
            if agent._core.state == "open":
                agent.add_user_message(f"Question {number}")
                await read(probe, agent.answer())


async def plain(probe: Probe) -> None:
    await _talk(probe, ScriptedAgent(["One ", 0.1, "two, ", 0.1, "three."]))


async def tools_at_once(probe: Probe) -> None:
    script: list[Any] = ["Let me see. ", [Call("quick"), Call("slow"), Call("raises"), Call("finishes")], "There."]
    await _talk(probe, ScriptedAgent(script, tools=TOOLS))


async def tools_in_turn(probe: Probe) -> None:
    script: list[Any] = [Call("slow"), "Well. ", [Call("finishes"), Call("quick")], "There."]
    await _talk(probe, ScriptedAgent(script, tools=TOOLS, parallel_tools=False))


@tool(thread=True)
def blocks(agent: Agent) -> int:
    """Work in a thread, and ask the event loop for something in the middle of it."""
    # Not the length of the conversation: another tool may have stored its result meanwhile.
    return anyio.from_thread.run_sync(len, agent.tools)


@tool(thread=True, on_cancel="finish")
def blocks_to_the_end() -> str:
    """Work in a thread, and keep the result after a barge-in."""
    return "done"


async def tools_in_threads(probe: Probe) -> None:
    script: list[Any] = ["Let me see. ", [Call("blocks"), Call("blocks_to_the_end"), Call("slow")], "There."]
    await _talk(probe, ScriptedAgent(script, tools=[*TOOLS, blocks, blocks_to_the_end]), turns=1)


async def failing(probe: Probe) -> None:
    script: list[Any] = ["One ", 0.1, "two.", ProviderError("scripted", kind="server")]
    await _talk(probe, ScriptedAgent(script, ["Fine."], raise_on_failure=False))


async def small_buffer(probe: Probe) -> None:
    await _talk(probe, ScriptedAgent(["One ", "two, ", "three."], buffer_size=0))


async def slow_reader(probe: Probe) -> None:
    async with ScriptedAgent(["One ", "two, ", "three."]) as agent:
        probe.watch(agent)
        async for _ in agent.answer():
            await anyio.sleep(0.1)


async def speculative(probe: Probe) -> None:
    """Each answer is superseded by the next before it has said anything."""
    async with ScriptedAgent([0.05, "One ", 0.05, "two."]) as agent, anyio.create_task_group() as tasks:
        probe.watch(agent)
        for wait in (0.0, 0.04, 0.06):
            if agent._core.state == "open":
                tasks.start_soon(read, probe, agent.answer())
            await anyio.sleep(wait)


async def never_read(probe: Probe) -> None:
    async with ScriptedAgent(["One ", 0.1, "two."]) as agent:
        probe.watch(agent)
        agent.answer()
        await anyio.sleep(1)


async def hook(probe: Probe) -> None:
    async def think(agent: Agent, turn: Turn) -> None:
        del agent
        await anyio.sleep(0.05)

    await _talk(probe, ScriptedAgent(["One ", 0.1, "two."], on_before_answer=think))


async def extracting(probe: Probe) -> None:
    options = ExtractTag(start_tag="<x>", end_tag="</x>", save_in_metadata=True)
    await _talk(probe, ScriptedAgent(["One ", "two", 0.1, "<x>", 0.1, "4", "2</x>"], extract=options))


async def reentrant_listener(probe: Probe) -> None:
    async with ScriptedAgent(["One ", 0.1, "two."], ["Three."]) as agent:
        probe.watch(agent)
        agent.on(MessageAdded, lambda event: agent.cancel() if event.message.role == "system" else None)
        agent.add_user_message("Well?")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read, probe, agent.answer())
            await anyio.sleep(0.05)
            agent.add_message("system", "stop")
        if agent._core.state == "open":
            await read(probe, agent.answer())


@tool
async def look(n: int) -> int:
    """Look."""
    await anyio.sleep(0.05)
    return n


async def model(probe: Probe) -> None:
    replies = [call_tool("look", {"n": 1}, "c1", text="Let me see. "), say("It is ", "1.", gap=0.02), say("Fine.")]
    async with ScriptedProvider(replies) as provider:
        agent = ChatAgent(model="m", api_key="k", base_url=provider.base_url, connect=provider.connect, tools=[look])
        await _talk(probe, agent)


async def model_retries(probe: Probe) -> None:
    async with ScriptedProvider([fault("status"), fault("reset_after_text", text=()), say("Fine.")]) as provider:
        agent = ChatAgent(
            model="m",
            api_key="k",
            base_url=provider.base_url,
            connect=provider.connect,
            retry=Retry(max_retries=2, first_wait=0.1),
            timeouts=Timeouts(first_chunk=1.0),
        )
        await _talk(probe, agent, turns=1)


def _children(*scripts: Sequence[Act], **options: Any) -> FallbackAgent:
    """A fallback whose children play one script each."""
    factories = [lambda script=script: ScriptedAgent(script, tools=TOOLS) for script in scripts]
    return FallbackAgent(factories, raise_on_failure=False, **options)


_DOWN = ProviderError("scripted", kind="server")


async def fallback_before_text(probe: Probe) -> None:
    await _talk(probe, _children([0.05, _DOWN], [0.05, _DOWN], ["One ", 0.1, "two."]))


async def fallback_after_text(probe: Probe) -> None:
    await _talk(probe, _children(["One ", 0.1, _DOWN], ["One ", 0.1, "two."]), turns=1)


async def fallback_restarts(probe: Probe) -> None:
    agent = _children(["One ", 0.1, _DOWN], ["All ", 0.1, "anew."], after_partial="restart")
    await _talk(probe, agent, turns=1)


async def fallback_after_tool(probe: Probe) -> None:
    await _talk(probe, _children([Call("slow"), 0.05, _DOWN], [0.05, "One ", "two."]))


async def fallback_silent_child(probe: Probe) -> None:
    await _talk(probe, _children([5.0, "late"], ["One ", 0.1, "two."], first_chunk_timeout=0.2))


async def fallback_hedged(probe: Probe) -> None:
    await _talk(probe, _children([0.3, "One ", 0.1, "two."], [0.2, "Uno ", 0.1, "dos."], hedge_after=0.1))


async def fallback_all_fail(probe: Probe) -> None:
    await _talk(probe, _children([0.05, _DOWN], [0.05, _DOWN]))


async def fallback_nested(probe: Probe) -> None:
    def inner() -> Agent:
        return _children([0.05, _DOWN], ["One ", 0.1, "two."])

    await _talk(probe, FallbackAgent([lambda: ScriptedAgent([0.05, _DOWN]), inner], raise_on_failure=False))


async def fallback_models(probe: Probe) -> None:
    scripts = {
        "a.test": [fault("status")],
        "b.test": [fault("reset_after_text", text=["One "])],
        "c.test": [say("One ", "two.")],
    }
    async with ScriptedProvider(scripts) as provider:

        def child(host: str) -> Agent:
            return ChatAgent(model="m", api_key="k", base_url=f"http://{host}/v1", connect=provider.connect)

        factories = [lambda host=host: child(host) for host in scripts]
        await _talk(probe, FallbackAgent(factories, raise_on_failure=False), turns=1)


SINGLE: list[Scenario] = [
    plain,
    tools_at_once,
    tools_in_turn,
    tools_in_threads,
    failing,
    small_buffer,
    slow_reader,
    speculative,
    never_read,
    hook,
    extracting,
    reentrant_listener,
    model,
    model_retries,
]

FALLBACK: list[Scenario] = [
    fallback_before_text,
    fallback_after_text,
    fallback_restarts,
    fallback_after_tool,
    fallback_silent_child,
    fallback_hedged,
    fallback_all_fail,
    fallback_nested,
    fallback_models,
]
