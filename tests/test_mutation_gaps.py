"""What only a deliberate fault showed to be untested (see tests/mutants/faults.toml): one test for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest

from fallback_kit import Cast, Heard, down, listen, stored
from micdrop_agent import Agent, Message, ToolCall, ToolResult, tool
from micdrop_agent.events import EVENT_TYPES, AnswerSkipped, MessageAdded, MessageCorrected, UserMessageCancelled
from micdrop_agent.testing import BACKENDS, Backend, Call, ScriptedAgent, run_virtual

if TYPE_CHECKING:
    from collections.abc import Callable

    from micdrop_agent._core.turn import Turn
    from micdrop_agent.events import Event

both = pytest.mark.parametrize("backend", BACKENDS)


class KeepsItsTurn(Agent):
    """Fails at once; what it does with its turn afterwards is up to the test."""

    def __init__(self, kept: list[Turn]) -> None:
        super().__init__()
        self._turns = kept

    async def generate_answer(self, turn: Turn) -> None:
        self._turns.append(turn)
        raise down()


LATE: dict[str, Callable[[Turn], Any]] = {
    "write": lambda turn: turn.write_nowait("ghost"),
    "message": lambda turn: turn.add(Message("assistant", "ghost")),
    "call": lambda turn: turn.add(ToolCall("ghost", "ghost", "{}")),
    "event": lambda turn: turn.emit(AnswerSkipped()),
    "skip": lambda turn: turn.skip_answer(),
    "prompt": lambda turn: turn.cancel_prompt(),
    "end": lambda turn: turn.end(),
}


@both
@pytest.mark.parametrize("late", LATE)
def test_a_failed_attempt_has_no_effect_while_the_next_child_still_thinks(backend: Backend, late: str) -> None:
    """Fault "claim ignores its fence": only a turn that never had an effect and was not cancelled shows it."""
    kept: list[Turn] = []
    cast = Cast(lambda: KeepsItsTurn(kept), [1.0, "b"])

    async def scenario() -> Heard:
        heard = Heard()
        async with cast.agent() as agent, anyio.create_task_group() as tasks:
            tasks.start_soon(listen, agent, heard)
            await anyio.sleep(0.5)
            LATE[late](kept[0])
            await anyio.sleep(1.0)
            assert stored(agent) == ["u:Hello?", "a:b"]
        return heard

    heard = run_virtual(backend, scenario)
    assert (heard.text, heard.error) == ("b", None)
    assert AnswerSkipped() not in heard.events


@both
def test_what_a_turn_does_after_its_scope_was_cancelled_has_no_effect(backend: Backend) -> None:
    """Fault "claim ignores a deadline that has fired": a cancellation counts before it is delivered."""

    def cancelled_and_speaks(turn: Turn) -> None:
        turn.scope.cancel()
        turn.write_nowait("ghost")
        turn.add(Message("assistant", "ghost"))

    async def scenario() -> list[str]:
        async with ScriptedAgent([cancelled_and_speaks]) as agent:
            chunks = [chunk async for chunk in agent.answer()]
            assert stored(agent) == []
            return chunks

    assert run_virtual(backend, scenario) == []


@both
def test_a_hook_whose_clock_has_run_out_says_no_filler_any_more(backend: Backend) -> None:
    """The same for a filler, which claims nothing."""

    def too_late(_agent: Agent, turn: Turn) -> None:
        turn.scope.cancel()
        turn.write_nowait("One moment. ")

    async def scenario() -> None:
        async with ScriptedAgent(["ghost"], on_before_answer=too_late) as agent:
            answer = agent.answer()
            assert [chunk async for chunk in answer] == []
            assert (answer.result.text, answer.result.time_to_first_chunk, stored(agent)) == ("", None, [])

    run_virtual(backend, scenario)


@both
def test_a_producer_that_cannot_be_cancelled_is_woken_when_its_reader_is_gone(backend: Backend) -> None:
    """Fault "a producer waits for a reader that is gone": behind a shield nothing else wakes it."""

    async def stubborn(turn: Turn) -> None:
        with anyio.CancelScope(shield=True):
            await turn.write("One ")
            await turn.write("two.")

    async def scenario() -> None:
        async with ScriptedAgent([stubborn], buffer_size=0) as agent:
            agent.answer()
            await anyio.sleep(1)
            agent.cancel()

    run_virtual(backend, scenario)


@both
def test_a_listener_finds_the_change_that_its_event_reports(backend: Backend) -> None:
    """Fault "an event comes before its change": whoever looks at the conversation must not look too early."""
    reported: list[tuple[str, bool]] = []

    def look(event: Event) -> None:
        seen = False
        match event:
            case MessageAdded(message, index):
                seen = agent.conversation[index] is message
            case MessageCorrected(old, new, index):
                seen = agent.conversation.index_of(old) is None and new in (
                    None,
                    *agent.conversation[index : index + 1],
                )
            case UserMessageCancelled(message):
                seen = message is not None and agent.conversation.index_of(message) is None
            case _:
                return
        reported.append((type(event).__name__, seen))

    @tool
    def look_up() -> str:
        """Look it up."""
        return "found"

    agent = ScriptedAgent(["Let me see. ", Call("look_up"), "It is one."], tools=[look_up])

    async def scenario() -> None:
        async with agent:
            for kind in EVENT_TYPES:
                agent.on(kind, look)
            agent.add_user_message("Well?")
            agent.add_message("system", "Be brief.")
            agent.add_tool_message(ToolCall("c0", "look_up", "{}"))
            agent.add_tool_message(ToolResult("c0", "look_up", '"found"'))
            assert "".join([chunk async for chunk in agent.answer()]) == "Let me see. It is one."
            agent.cancel(heard=len("Let me see. It"))
            agent.cancel(heard=0)
            agent.cancel_last_user_message()

    run_virtual(backend, scenario)
    kinds = ["MessageAdded"] * 8 + ["MessageCorrected"] * 3 + ["UserMessageCancelled"]
    assert reported == [(kind, True) for kind in kinds]


@both
def test_an_error_of_a_cancelled_host_leaves_as_itself(backend: Backend) -> None:
    """Invariant 14, found by the sweep on Trio: the cancellation of our task must not make a group of it."""

    async def scenario() -> None:
        with anyio.CancelScope() as host:
            async with ScriptedAgent(["One ", 1.0, "two."]) as agent:
                agent.answer()
                await anyio.sleep(0.5)
                host.cancel()
                raise LookupError("the host")

    with pytest.raises(LookupError, match="the host"):
        run_virtual(backend, scenario)
