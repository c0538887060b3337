"""``on_cancel="detach"``: a tool outlives its answer, and its result comes as a turn of its own."""

from __future__ import annotations

import contextvars
import json
import threading
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import pytest
from core_support import log_of, nobody_listens, replayed
from step_support import CALLS, STOP, Model, call
from toolrun_support import CANCELLED, pairs

from micdrop_agent import (
    Agent,
    FallbackAgent,
    MessageAdded,
    MessageCorrected,
    ProviderError,
    ToolCall,
    ToolCalled,
    ToolFinishedLate,
    tool,
)
from micdrop_agent.testing import BACKENDS, HANG, Call, ScriptedAgent, cancel_everywhere, read, run_virtual

if TYPE_CHECKING:
    from micdrop_agent import Answer, Turn
    from micdrop_agent.testing import Backend, Probe
    from micdrop_agent.tools import Tool

both = pytest.mark.parametrize("backend", BACKENDS)
FOLLOWS = '{"status":"still running","note":"the result follows"}'


def _slow(seconds: float = 1.0, **options: Any) -> Tool:
    async def book(n: int = 0) -> str:
        """Book a table."""
        await anyio.sleep(seconds + n / 100)
        return f"booked {n}"

    made: Tool = tool(book, on_cancel="detach", **options)
    return made


async def _rest(answer: Answer) -> str:
    return "".join([chunk async for chunk in answer])


@both
@pytest.mark.parametrize("nested", [False, True])
def test_its_result_comes_when_nobody_speaks_behind_a_call_of_its_own(backend: Backend, nested: bool) -> None:
    models: list[Model] = []

    def make() -> Model:
        replies: Any = (
            [["I book. ", call("book", "1", '{"n":7}'), *CALLS]],
            [0.5, ["At six.", *STOP]],
            [["Booked.", *STOP]],
        )
        models.append(Model(*replies, tools=[_slow(emit_output=True)]))
        return models[-1]

    async def scenario() -> None:
        async with FallbackAgent([make]) if nested else make() as agent:
            events = log_of(agent, MessageAdded, MessageCorrected)
            late = log_of(agent, ToolFinishedLate, ToolCalled)
            agent.add_user_message("Book a table")
            answer = agent.answer()
            assert await answer.receive() == "I book. "
            await anyio.sleep(0.6)
            agent.cancel()
            assert pairs(agent) == [("book", FOLLOWS)]
            agent.add_user_message("When do you close?")
            second = agent.answer()
            await anyio.sleep(0.49)  # the tool has ended, and the answer runs
            assert len(pairs(agent)) == 1
            assert await _rest(second) == "At six."
            await anyio.sleep(0.01)
            assert pairs(agent) == [("book", FOLLOWS), ("book", '"booked 7"')]
            (finished,) = [event for event in late if isinstance(event, ToolFinishedLate)]
            first, last = [item for item in agent.conversation if item.role == "tool_call"]
            assert finished.call is first
            assert finished.result is agent.conversation[-1]
            assert first.tool_call_id != last.tool_call_id
            assert (first.parameters, last.parameters) == ('{"n":7}', '{"n":7}')
            assert replayed(events) == list(agent.conversation[1:])
            assert await _rest(agent.answer()) == "Booked."
        assert models[0].served.requests[-1][1][-1].output == '"booked 7"'

    run_virtual(backend, scenario)


@both
def test_undisturbed_it_is_a_tool_like_any_other(backend: Backend) -> None:
    async def scenario() -> None:
        replies: Any = [["I book. ", call("book"), call("book", "2", '{"n":1}'), *CALLS]], [["Booked.", *STOP]]
        async with Model(*replies, tools=[_slow()]) as agent:
            events = log_of(agent, ToolFinishedLate)
            assert await _rest(agent.answer()) == "I book. Booked."
            assert pairs(agent) == [("book", '"booked 0"'), ("book", '"booked 1"')]
            assert not events

    run_virtual(backend, scenario)


@both
@pytest.mark.parametrize("how", ["reading", "paused", "guess", "unread", "left"])
def test_it_disturbs_nobody(backend: Backend, how: str) -> None:
    """Not an answer that is being read or has been paused, nor a guess that may still be right."""

    async def scenario() -> None:
        async with ScriptedAgent([Call("book")], ["One ", "two."], ["Three."], tools=[_slow()]) as agent:
            late = log_of(agent, ToolFinishedLate)
            agent.answer()
            await anyio.sleep(0.5)
            agent.cancel()
            answer = agent.answer() if how != "guess" else None
            guess = agent.speculate("so") if answer is None else None
            if answer is not None and how != "unread":
                await answer.receive()
            if how == "paused":
                agent.cancel(pause=True)
            await anyio.sleep(3.9)
            assert late == []
            if how == "paused":
                agent.resume()
            if guess is not None:
                answer = guess.adopt("so")
            assert answer is not None
            if how in {"left", "unread"}:
                await anyio.sleep(31)  # its reader does not come back
            else:
                assert (await _rest(answer)).endswith("two.")
                await anyio.sleep(0.01)
            assert len(late) == 1
            assert answer.status == "completed"

    run_virtual(backend, scenario)


@both
def test_beyond_the_bound_it_is_cancelled_with_its_answer(backend: Backend) -> None:
    async def scenario() -> None:
        script = [[Call("book", {"n": n}, call_id=f"c{n}") for n in range(3)]]
        async with ScriptedAgent(script, ["Fine."], tools=[_slow()], max_detached=2) as agent:
            late = log_of(agent, ToolFinishedLate)
            agent.answer()
            await anyio.sleep(0.5)
            agent.cancel()
            assert [output for _, output in pairs(agent)] == [FOLLOWS, FOLLOWS, CANCELLED]
            await anyio.sleep(1)
            assert len(late) == 2
            assert [output for _, output in pairs(agent)][3:] == ['"booked 0"', '"booked 1"']
            agent.answer()  # there is room again
            await anyio.sleep(0.1)

    run_virtual(backend, scenario)


@both
def test_tools_that_end_in_one_moment_are_told_in_the_order_of_their_calls(backend: Backend) -> None:
    async def scenario() -> None:
        calls = [Call("book", call_id=f"c{n}") for n in range(4)]
        async with ScriptedAgent([calls], ["Fine."], tools=[_slow()]) as agent:
            late = log_of(agent, ToolFinishedLate)
            agent.on(ToolFinishedLate, lambda _: agent.answer())  # and each is spoken of before the next comes
            agent.answer()
            await anyio.sleep(0.5)
            agent.cancel()
            await anyio.sleep(200)
            told = [event.call.tool_call_id for event in late if isinstance(event, ToolFinishedLate)]
            assert told == ["c0", "c1", "c2", "c3"]
            assert len(pairs(agent)) == 8

    run_virtual(backend, scenario)


@both
@pytest.mark.parametrize("what", ["raises", "times out", "thread", "native"])
def test_how_it_ends_late(backend: Backend, what: str) -> None:
    if what == "native" and backend == "trio":
        pytest.skip("Trio has no native cancellation")
    place: contextvars.ContextVar[str] = contextvars.ContextVar("place", default="nowhere")
    here: list[Any] = []

    async def fails() -> str:
        """Fail."""
        import asyncio

        here.append(asyncio.current_task() if backend == "asyncio" else None)
        await anyio.sleep(1)
        raise LookupError(place.get())

    gate = threading.Event()

    def blocks() -> str:
        """Block."""
        gate.wait(60)
        return place.get()

    options: dict[str, Any] = {"timeout": 0.7} if what == "times out" else {"thread": True} if what == "thread" else {}
    made = tool(blocks if what == "thread" else fails, name="work", on_cancel="detach", **options)

    async def scenario() -> None:
        async with ScriptedAgent([Call("work")], tools=[made]) as agent:
            late = log_of(agent, ToolFinishedLate)
            place.set("here")
            agent.answer()
            for _ in range(20):  # the clock of a test stands still while a thread is at work
                await anyio.lowlevel.checkpoint()
            agent.cancel()
            gate.set()
            if what == "native":
                await anyio.sleep(0.1)
                here[0].cancel()
            await anyio.sleep(2)
            assert len(late) == 1
            output = json.loads(pairs(agent)[-1][1])
            assert (
                output
                == {
                    "raises": {"error": "the tool failed"},
                    "times out": {"error": "the tool took longer than 0.7 seconds"},
                    "thread": "here",
                    "native": {"error": "cancelled"},
                }[what]
            )

    run_virtual(backend, scenario)


@both
def test_it_ends_with_the_call_and_nothing_of_it_is_stored(backend: Backend) -> None:
    async def scenario() -> None:
        ended: list[str] = []

        @tool(on_cancel="detach")
        async def book() -> str:
            """Book."""
            try:
                await anyio.sleep(60)
            finally:
                ended.append("ended")
            return "booked"

        async with ScriptedAgent([Call("book")], tools=[book]) as agent:
            late = log_of(agent, ToolFinishedLate)
            agent.answer()
            await anyio.sleep(0.5)
            agent.cancel()
        assert (ended, late, pairs(agent)) == (["ended"], [], [("book", FOLLOWS)])
        async with ScriptedAgent([Call("book")], tools=[book]) as agent:
            agent.answer()
            await anyio.sleep(0.5)
        assert (ended, pairs(agent)) == (["ended"] * 2, [("book", CANCELLED)])

    run_virtual(backend, scenario)


@both
def test_one_that_cancels_its_own_answer_goes_on(backend: Backend) -> None:
    @tool(on_cancel="detach")
    async def book(agent: Agent, wait: float = 0.0) -> str:
        """Book."""
        agent.cancel()
        if wait:
            await anyio.sleep(wait)
        return "booked"

    async def scenario() -> None:
        async with ScriptedAgent([Call("book", {"wait": 1})], [Call("book", call_id="c2")], tools=[book]) as agent:
            await _rest(agent.answer())
            assert pairs(agent) == [("book", FOLLOWS)]
            await anyio.sleep(2)
            assert pairs(agent)[1:] == [("book", '"booked"')]
            await _rest(agent.answer())
            await anyio.sleep(2)
            assert pairs(agent)[2:] == [("book", '"booked"')]  # it had ended: its result is real

    run_virtual(backend, scenario)


@both
def test_a_failed_attempt_takes_its_tool_with_it(backend: Backend) -> None:
    async def fails_meanwhile(turn: Turn) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(turn.run_tools, [ToolCall("c1", "book", "{}")])
            await anyio.sleep(0.05)
            raise ProviderError("cut", kind="truncated")

    async def scenario() -> None:
        children = [lambda: ScriptedAgent([fails_meanwhile], tools=[_slow()]), lambda: ScriptedAgent(["Hello."])]
        async with FallbackAgent(children, raise_on_failure=False) as agent:
            late = log_of(agent, ToolFinishedLate)
            assert await _rest(agent.answer()) == "Hello."
            await anyio.sleep(10)
            assert (late, pairs(agent)) == ([], [("book", CANCELLED)])

    run_virtual(backend, scenario)


# -- at every step


async def detached(probe: Probe) -> None:
    async with ScriptedAgent(["I book. ", Call("book"), "Booked."], [0.1, "At six."], tools=[_slow(0.2)]) as agent:
        probe.watch(agent)
        async with anyio.create_task_group() as tasks:
            if agent._core.state == "open":
                tasks.start_soon(read, probe, agent.answer())
            await anyio.sleep(0.1)
            agent.cancel()
            if agent._core.state == "open":
                await read(probe, agent.answer())
            await anyio.sleep(1)


async def detached_in_a_fallback(probe: Probe) -> None:
    def child() -> Agent:
        return ScriptedAgent(["I book. ", Call("book"), "Booked."], [HANG], tools=[_slow(0.2)])

    async with FallbackAgent([lambda: ScriptedAgent([ProviderError("down", kind="server")]), child]) as agent:
        probe.watch(agent)
        agent.answer()
        await anyio.sleep(0.1)
        agent.cancel()
        await anyio.sleep(1)


@pytest.mark.parametrize("listen", [True, False])
@pytest.mark.parametrize("scenario", [detached, detached_in_a_fallback])
def test_every_invariant_holds_wherever_it_is_interrupted(
    scenario: Any, listen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not listen:
        nobody_listens(monkeypatch)
    names = ["cancel", "answer", "aclose", "task.cancel + scope"]
    report = cancel_everywhere(scenario, inject=names if listen else names[:1], listen=listen, every=5)
    assert report.points > 10
