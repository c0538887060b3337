"""More scenarios for the sweep: what an answer is made of, beside plain text. ``sweep_expected`` says how each ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
from property_support import Runs, toolbox

from micdrop_agent import (
    Agent,
    ChatAgent,
    EndCallRequested,
    FallbackAgent,
    MessageAdded,
    ProviderError,
    Retry,
    Timeouts,
    ToolCall,
    tool,
)
from micdrop_agent.testing import Call, Probe, ScriptedAgent, ScriptedProvider, call_tool, fault, parts, read, say

if TYPE_CHECKING:
    from sweep_scenarios import Scenario

    from micdrop_agent import Answer, Turn

TOOLS = toolbox(Runs())


def _asked(agent: Agent, text: str) -> Answer | None:
    """An answer to ``text``; none once the agent was closed."""
    agent.add_user_message(text)
    return agent.answer() if agent._core.state == "open" else None


async def _read(probe: Probe, answer: Answer | None) -> None:
    if answer is not None:
        await read(probe, answer)


# -- the end of a call, and turns without words


async def farewell(probe: Probe) -> None:
    """The end of the call is told to nobody before the last chunk is read."""
    async with ScriptedAgent([[Call("end_call")], "Good ", "bye."], auto_end_call=True) as agent:
        probe.watch(agent)
        answer = _asked(agent, "That is all.")

        def at_the_end(_event: EndCallRequested) -> None:
            current = probe.current
            heard_all = current is None or "".join(current.received) == "".join(current.written)
            if current is not None and not heard_all and not probe.stop_reading:
                probe.trace.broken(3, f"the end of the call was told after {current.received} of {current.written}")

        agent.on(EndCallRequested, at_the_end)
        if answer is not None:
            async for _ in answer:
                if probe.stop_reading:
                    break
                await anyio.sleep(0.1)
        await anyio.sleep(1)


async def silent_turns(probe: Probe) -> None:
    """Noise is taken out by identity; a turn that waits leaves the history as it was."""
    noise: list[Any] = [0.1, Call("ignore_user_noise")]
    wait: list[Any] = [0.1, Call("semantic_turn")]
    async with ScriptedAgent(noise, wait, auto_ignore_user_noise=True, auto_semantic_turn=True) as agent:
        probe.watch(agent)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_read, probe, _asked(agent, "Hm."))
            await anyio.sleep(0.05)
            agent.add_message("user", "Hm.", {"second": True})
        await _read(probe, _asked(agent, "I would like"))


async def model_silent(probe: Probe) -> None:
    """After a control tool nothing is asked and nothing is said."""
    async with ScriptedProvider([call_tool("semantic_turn"), say("No.")]) as provider:
        agent = _model(provider, auto_semantic_turn=True)
        async with agent:
            probe.watch(agent)
            await _read(probe, _asked(agent, "I would like"))


# -- who speaks into it


async def talked_over(probe: Probe) -> None:
    """The caller speaks into a text and into one behind a tool: the words stand where they were said."""
    script: list[Any] = [Call("quick"), "Fine ", 0.1, "then."]
    async with ScriptedAgent(["One ", 0.1, "two."], script, tools=TOOLS) as agent:
        probe.watch(agent)
        for _ in range(2):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_read, probe, _asked(agent, "Well?"))
                await anyio.sleep(0.05)
                agent.add_user_message("Stop!")
                agent.cancel()
            await anyio.lowlevel.checkpoint()


async def listeners(probe: Probe) -> None:
    """One raises, one changes something, the probe comes last and still sees everything in order."""
    async with ScriptedAgent(["One ", 0.1, "two."]) as agent:

        def raises(_event: MessageAdded) -> None:
            raise LookupError("a bad listener")

        def adds(event: MessageAdded) -> None:
            if getattr(event.message, "role", "") == "user":
                agent.add_message("system", "the caller spoke")

        agent.on(MessageAdded, raises)
        agent.on(MessageAdded, adds)
        probe.watch(agent)
        await _read(probe, _asked(agent, "Well?"))


async def cancelled_at_its_call(probe: Probe) -> None:
    """A listener cancels as a call is stored: its tool does not begin."""

    @tool
    def must_not_run() -> str:
        """Stay away."""
        probe.trace.broken(2, "the tool of a cancelled call has run")
        return ""

    async with ScriptedAgent([Call("must_not_run"), "No."], tools=[must_not_run]) as agent:
        probe.watch(agent)
        agent.on(MessageAdded, lambda event: agent.cancel() if isinstance(event.message, ToolCall) else None)
        await _read(probe, _asked(agent, "Well?"))


@tool
def hang_up(agent: Agent) -> str:
    """Cancel the answer that runs this, and return."""
    agent.cancel()
    return "hung up"


@tool
async def ask_again(agent: Agent) -> str:
    """Answer anew from within, and go on for a while."""
    if agent._core.state == "open":
        agent.answer()
    await anyio.sleep(0.1)
    return "too late"


async def tools_that_interrupt(probe: Probe) -> None:
    async with ScriptedAgent([Call("hang_up")], [Call("ask_again")], ["One."], tools=[hang_up, ask_again]) as agent:
        probe.watch(agent)
        await _read(probe, _asked(agent, "Hang up."))
        await _read(probe, _asked(agent, "Again."))
        if probe.current is not None:
            await read(probe, probe.current.answer)


async def host_raises(probe: Probe) -> None:
    """The host's own error leaves as itself, while an answer runs."""
    async with ScriptedAgent([0.1, "One."]) as agent:
        probe.watch(agent)
        _asked(agent, "Well?")
        await anyio.sleep(0.05)
        raise LookupError("the host")


async def filler(probe: Probe) -> None:
    """What a hook says is heard and not stored."""

    async def hook(agent: Agent, turn: Turn) -> None:
        del agent
        await turn.write("Hm. ")
        await anyio.sleep(0.05)

    probe.trace.hook_text = "Hm. "
    async with ScriptedAgent(["One ", 0.1, "two."], on_before_answer=hook) as agent:
        probe.watch(agent)
        await _read(probe, _asked(agent, "Well?"))


# -- models


@tool
async def look(n: int) -> int:
    """Look."""
    return n


def _model(provider: ScriptedProvider, **options: Any) -> ChatAgent:
    return ChatAgent(
        model="m",
        api_key="k",
        base_url=provider.base_url,
        connect=provider.connect,
        raise_on_failure=False,
        timeouts=Timeouts(first_chunk=1.0, between_chunks=1.0),
        retry=Retry(max_retries=1, first_wait=0.1, jitter=0),
        **options,
    )


async def model_gives_up(probe: Probe) -> None:
    """One retry and no more; none after a word; a server that only keeps the connection alive has failed."""
    down = fault("status")
    async with (
        ScriptedProvider([down, down, fault("cut_after_text"), fault("keepalives_only"), say("Fine.")]) as provider,
        _model(provider) as agent,
    ):
        probe.watch(agent)
        for number in range(4):
            await _read(probe, _asked(agent, f"Question {number}"))


async def model_steps(probe: Probe) -> None:
    """After ``max_steps`` requests for tools comes one without."""
    calls = parts(
        [{"if_tools_offered": [{"tool": "look", "args": {"n": 1}, "id": "c1"}], "else": [{"text": ["Fine."]}]}]
    )
    async with ScriptedProvider([calls]) as provider, _model(provider, tools=[look], max_steps=1) as agent:
        probe.watch(agent)
        await _read(probe, _asked(agent, "Well?"))


# -- fallbacks


def _children(*scripts: list[Any], **options: Any) -> FallbackAgent:
    factories = [lambda script=script: ScriptedAgent(script, tools=TOOLS) for script in scripts]
    return FallbackAgent(factories, names=["a", "b", "c"][: len(scripts)], raise_on_failure=False, **options)


async def _ask_children(probe: Probe, agent: FallbackAgent, turns: int = 1) -> None:
    async with agent:
        probe.watch(agent)
        for number in range(turns):
            await _read(probe, _asked(agent, f"Question {number}"))


async def fallback_must_not_go_on(probe: Probe) -> None:
    """Behind a content filter the answer fails, and the next child has the next turn."""
    filtered = ProviderError("filtered", kind="content_filter")
    await _ask_children(probe, _children(["One ", 0.1, filtered], ["And ", "two."]), turns=2)


async def fallback_not_behind_a_tool(probe: Probe) -> None:
    cut = ProviderError("cut", kind="truncated")
    ran: list[Any] = [Call("quick"), "One ", 0.1, cut]
    await _ask_children(probe, _children(ran, ["And ", "two."]))


async def fallback_cut_in_a_tool(probe: Probe) -> None:
    """A child fails while its tool runs: the call has a result before the next one begins."""

    async def fails_meanwhile(turn: Turn) -> None:
        turn.add(ToolCall("c1", "quick", "{}"))
        await anyio.sleep(0.05)
        raise ProviderError("cut", kind="truncated")

    await _ask_children(probe, _children([fails_meanwhile], [0.1, "One ", "two."]))


async def fallback_slow_words(probe: Probe) -> None:
    """The clocks for the first word, and hedges, are over with it."""
    agent = _children(["One ", 0.5, "two."], ["never"], first_chunk_timeout=0.3, hedge_after=0.1)
    await _ask_children(probe, agent)


async def fallback_stubborn_loser(probe: Probe) -> None:
    """Nobody waits for a loser that takes five seconds to die: not for the end of the answer."""

    async def stubborn(turn: Turn) -> None:
        try:
            await anyio.sleep(0.5)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(5)
        await turn.write("ghost")

    async with _children([stubborn], ["One ", "two."], hedge_after=0.1) as agent:
        probe.watch(agent)
        begun = anyio.current_time()
        answer = _asked(agent, "Well?")
        await _read(probe, answer)
        if answer is not None and anyio.current_time() - begun > 1 and answer.status == "completed":
            probe.trace.broken(9, "the consumer waited for the clean-up of a loser")


_SINGLE: list[Scenario] = [farewell, silent_turns, talked_over, listeners, cancelled_at_its_call, tools_that_interrupt]
_HOSTS: list[Scenario] = [host_raises, filler, model_silent, model_gives_up, model_steps]
_FALLBACK: list[Scenario] = [fallback_must_not_go_on, fallback_not_behind_a_tool, fallback_cut_in_a_tool]
STORIES = [*_SINGLE, *_HOSTS, *_FALLBACK, fallback_slow_words, fallback_stubborn_loser]
