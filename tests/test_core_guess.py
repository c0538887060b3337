"""Speculative answers: nothing happens before a guess is adopted, everything at once when it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import pytest
from step_support import CALLS, STOP, Model, call
from step_support import said as short

from micdrop_agent import (
    Agent,
    AgentSwitched,
    AnswerFinished,
    ExtractTag,
    FallbackAgent,
    MessageAdded,
    ProviderError,
    tool,
)
from micdrop_agent._core.core import core_of
from micdrop_agent.model.protocol import Usage
from micdrop_agent.testing import BACKENDS, HANG, Call, ScriptedAgent, cancel_everywhere, read, run_virtual

if TYPE_CHECKING:
    from micdrop_agent import Turn
    from micdrop_agent.testing import Backend, Probe

both = pytest.mark.parametrize("backend", BACKENDS)
DOWN = ProviderError("down", kind="server", retryable=False)


def _events(agent: Agent) -> list[Any]:
    from micdrop_agent.events import EVENT_TYPES

    seen: list[Any] = []
    for kind in EVENT_TYPES:
        agent.on(kind, seen.append)
    return seen


@both
@pytest.mark.parametrize("after", [0.0, 0.15, 1.0], ids=["before a word", "in the middle", "when it is complete"])
@pytest.mark.parametrize("nested", [False, True])
def test_a_right_guess_is_the_answer_and_nothing_was_seen_before(backend: Backend, after: float, nested: bool) -> None:
    async def scenario() -> None:
        def child() -> Agent:
            return ScriptedAgent([0.1, "One ", 0.1, "two."])

        async with FallbackAgent([child]) if nested else child() as agent:
            seen = _events(agent)
            guess = agent.speculate("what time is it")
            await anyio.sleep(after)
            assert (guess.alive, seen, len(agent.conversation), agent.answering) == (True, [], 1, False)
            asked_at = anyio.current_time()
            answer = guess.adopt("What time is it?")
            assert answer is not None
            assert not guess.alive
            assert [item.content for item in agent.conversation.messages][1] == "What time is it?"
            if after:
                assert await answer.receive() == "One "
                assert anyio.current_time() - asked_at <= 0.005  # it was there already
            assert "".join([chunk async for chunk in answer]).endswith("two.")
            assert [item.role for item in agent.conversation] == ["system", "user", "assistant"]
            added = [event.message.role for event in seen if isinstance(event, MessageAdded)]
            assert added == ["user", "assistant"]
            assert isinstance(seen[-1], AnswerFinished)
            assert seen[-1].result is answer.result

    run_virtual(backend, scenario)


@both
@pytest.mark.parametrize("after", [0.05, 0.15, 1.0])
def test_a_wrong_guess_leaves_no_trace_but_its_tokens(backend: Backend, after: float) -> None:
    async def scenario() -> None:
        usage = Usage(input_tokens=7, output_tokens=3)
        model = Model([0.1, ["Wrong.", usage], 0.2, STOP], [["Right.", *STOP]])
        async with model as agent:
            seen = _events(agent)
            guess = agent.speculate("book a table")
            await anyio.sleep(after)
            assert guess.adopt("Book a cab") is None
            assert guess.adopt("book a table") is None
            await anyio.lowlevel.checkpoint()
            assert (seen, len(agent.conversation)) == ([], 1)
            agent.add_user_message("Book a cab")
            answer = agent.answer()
            assert [chunk async for chunk in answer] == ["Right."]
            assert answer.result.wasted == (usage if after > 0.1 else None)
            assert short(agent) == [("user", "Book a cab"), ("assistant", "Right.")]
        assert all(stream.closed for stream in model.served.streams)

    run_virtual(backend, scenario)


@both
@pytest.mark.parametrize("how", ["another", "answer", "message", "cancel", "replace", "prompt", "discard", "close"])
def test_what_discards_a_guess_closes_its_request(backend: Backend, how: str) -> None:
    async def scenario() -> None:
        model = Model([["One ", "two."], "hang"])
        async with model as agent:
            guess = agent.speculate("hello")
            await anyio.sleep(0.1)
            {
                "another": lambda: agent.speculate("hello you"),
                "answer": agent.answer,
                "message": lambda: agent.add_user_message("x"),
                "cancel": agent.cancel,
                "replace": lambda: agent.conversation.replace([]),
                "prompt": lambda: setattr(agent, "system_prompt", "new"),
                "discard": guess.discard,
                "close": core_of(agent).close,
            }[how]()
            assert not guess.alive
            await anyio.sleep(0.005)
            assert model.served.streams[0].closed
            if how != "close":
                assert guess.adopt("hello") is None
            agent.cancel()

    run_virtual(backend, scenario)


@both
@pytest.mark.parametrize("wait", [0.0, 9.0])
def test_a_guess_waits_before_its_tool_however_long_the_caller_takes(backend: Backend, wait: float) -> None:
    ran: list[str] = []

    @tool
    def pay() -> str:
        """Pay."""
        ran.append("pay")
        return "paid"

    async def scenario() -> None:
        model = Model([["One moment. ", call("pay"), *CALLS]], [["Paid.", *STOP]], tools=[pay])
        async with model as agent:
            guess = agent.speculate("pay")
            await anyio.sleep(1 + wait)
            assert (ran, len(agent.conversation)) == ([], 1)
            answer = guess.adopt("Pay!")
            assert answer is not None
            assert "".join([chunk async for chunk in answer]) == "One moment. Paid."
            assert ran == ["pay"]
            roles = [item.role for item in agent.conversation]
            assert roles == ["system", "user", "assistant", "tool_call", "tool_result", "assistant"]

    run_virtual(backend, scenario)


@both
def test_a_hook_runs_when_the_guess_is_adopted_and_a_callback_too(backend: Backend) -> None:
    ran: list[Any] = []

    def hook(agent: Agent, turn: Turn) -> None:
        del agent
        ran.append(turn.conversation.messages[-1].content)

    async def scenario() -> None:
        async with ScriptedAgent(["Hello."], on_before_answer=hook) as agent:
            guess = agent.speculate("hi")
            await anyio.sleep(1)
            assert ran == []
            answer = guess.adopt("Hi!")
            assert answer is not None
            assert [chunk async for chunk in answer] == ["Hello."]
            assert ran == ["Hi!"]
        tag = ExtractTag(start_tag="<x>", end_tag="</x>", callback=ran.append)
        async with ScriptedAgent(["Hello.<x>4</x>"], extract=tag) as agent:
            for right in (False, True):
                guess = agent.speculate("hi")
                await anyio.sleep(1)
                assert ran == ["Hi!"]
                guess.adopt("Hi!" if right else "Ho!")
            await anyio.sleep(1)
            assert ran == ["Hi!", "4"]

    run_virtual(backend, scenario)


@both
def test_the_race_of_a_fallback_runs_within_the_guess(backend: Backend) -> None:
    async def scenario() -> None:
        children = [
            lambda: ScriptedAgent([0.1, DOWN], system_prompt="A"),
            lambda: ScriptedAgent(["B."], system_prompt="B"),
        ]
        async with FallbackAgent(children, names=["a", "b"]) as agent:
            seen = _events(agent)
            wrong = agent.speculate("hi")
            await anyio.sleep(1)
            assert (seen, agent.conversation[0].content) == ([], "A")  # type: ignore[union-attr]
            assert agent.health.snapshot()["a"].failures == 1
            assert wrong.adopt("ho") is None
            assert agent.active_name == "a"
            await anyio.lowlevel.checkpoint()
            assert agent.conversation[0].content == "A"  # type: ignore[union-attr]
            assert seen == []
        async with FallbackAgent(children, names=["a", "b"]) as agent:
            seen = _events(agent)
            guess = agent.speculate("hi")
            await anyio.sleep(1)
            answer = guess.adopt("hi")
            assert answer is not None
            assert [chunk async for chunk in answer] == ["B."]
            assert [type(event) for event in seen] == [MessageAdded, AgentSwitched, MessageAdded, AnswerFinished]
            assert agent.conversation[0].content == "B"  # type: ignore[union-attr]
            assert agent.active_name == "b"

    run_virtual(backend, scenario)


@both
def test_a_failed_guess_is_not_adopted(backend: Backend) -> None:
    async def scenario() -> None:
        async with ScriptedAgent([DOWN], ["Fine."]) as agent:
            seen = _events(agent)
            guess = agent.speculate("hi")
            await anyio.sleep(1)
            assert guess.adopt("hi") is None
            assert seen == []
            agent.add_user_message("hi")
            assert [chunk async for chunk in agent.answer()] == ["Fine."]

    run_virtual(backend, scenario)


@both
def test_none_is_begun_while_an_answer_runs_or_beyond_the_budget(backend: Backend) -> None:
    async def scenario() -> None:
        async with ScriptedAgent(["One ", HANG], max_guesses=2) as agent:
            answer = agent.answer()
            assert await answer.receive() == "One "
            assert not agent.speculate("hi").alive
            assert answer.status == "running"
            agent.cancel()
            await anyio.sleep(0.1)
            assert not agent.speculate("  ").alive
            assert [agent.speculate("hi").alive for _ in range(3)] == [True, True, False]
            agent.add_user_message("hi")
            agent.answer()
            agent.cancel()
            assert agent.speculate("hi").alive

    run_virtual(backend, scenario)


@both
def test_an_answer_that_is_still_read_is_superseded_and_one_that_was_drained_stays(backend: Backend) -> None:
    async def scenario() -> None:
        async with ScriptedAgent(["One ", "two."], ["Three."]) as agent:
            assert [chunk async for chunk in agent.answer()] == ["One ", "two."]
            guess = agent.speculate("and")
            await anyio.sleep(0.1)
            answer = guess.adopt("and")
            assert answer is not None
            assert [chunk async for chunk in answer] == ["Three."]
            first = agent.answer()
            assert await first.receive() == "Three."
            await anyio.sleep(0.1)
            guess = agent.speculate("so")
            await anyio.sleep(0.1)
            assert guess.adopt("so") is None or first.text == "Three."

    run_virtual(backend, scenario)


@both
def test_a_guess_is_refused_where_an_answer_is(backend: Backend) -> None:
    agent = ScriptedAgent(["One."])
    with pytest.raises(RuntimeError, match="async with"):
        agent.speculate("hi")

    async def scenario() -> None:
        async with agent:
            with pytest.raises(TypeError, match="text"):
                agent.speculate(5)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
            guess = agent.speculate("a", matches=lambda guessed, final: final.startswith(guessed))
            assert guess.adopt("abc") is not None

    run_virtual(backend, scenario)


# -- at every step


async def guessed_right(probe: Probe) -> None:
    @tool
    def pay() -> str:
        """Pay."""
        return "paid"

    async with ScriptedAgent(["One ", 0.1, Call("pay"), "two."], tools=[pay]) as agent:
        probe.watch(agent)
        guess = agent.speculate("Well")
        await anyio.sleep(0.05)
        adopted: Any = guess.adopt("Well?")
        if adopted is not None:
            async for _ in adopted:
                pass


async def guessed_wrong(probe: Probe) -> None:
    async with ScriptedAgent(["One ", 0.1, "two."]) as agent:
        probe.watch(agent)
        guess = agent.speculate("Well")
        await anyio.sleep(0.05)
        guess.adopt("No")
        if core_of(agent).state == "open":
            agent.add_user_message("No")
            await read(probe, agent.answer())


@pytest.mark.parametrize("scenario", [guessed_right, guessed_wrong])
def test_every_invariant_holds_wherever_a_guess_is_interrupted(scenario: Any) -> None:
    assert cancel_everywhere(scenario).points > 20
    names = ["answer", "aclose", "host scope", "task.cancel", "task.cancel + scope", "stop reading"]
    assert cancel_everywhere(scenario, inject=names if scenario is guessed_wrong else names[1:5]).points > 50
