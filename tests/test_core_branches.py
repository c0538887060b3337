"""Rare turns of the core that no other test takes: what is misused, gone, or cancelled in the middle of something else."""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from step_support import CALLS, Model, Provider, Stream, call, down

import micdrop_agent
from fallback_kit import listen
from micdrop_agent import (
    Agent,
    Conversation,
    EchoAgent,
    ExtractJson,
    FallbackAgent,
    Message,
    ToolCall,
    ToolResult,
)
from micdrop_agent._core.answer import Answer
from micdrop_agent._core.groups import lone_error_unwrapped
from micdrop_agent._core.history import History
from micdrop_agent._core.ledger import Ledger
from micdrop_agent._core.race import Race
from micdrop_agent.model.budget import PER_ITEM, TokenBudget
from micdrop_agent.testing import BACKENDS, HANG, Backend, ScriptedAgent, run_virtual

if TYPE_CHECKING:
    from micdrop_agent import Turn
    from micdrop_agent.model.protocol import Request

both = pytest.mark.parametrize("backend", BACKENDS)


def texts(agent: Agent) -> list[str]:
    return [item.content for item in agent.conversation if isinstance(item, Message)]


# -- what is misused


@both
def test_an_agent_that_is_open_cannot_be_opened_again(backend: Backend) -> None:
    async def scenario() -> None:
        async with EchoAgent() as agent:
            with pytest.raises(RuntimeError, match="already been entered"):
                await agent.__aenter__()
            agent.add_user_message("Hello?")
            assert [chunk async for chunk in agent.answer()] == ['You said: "Hello?"']

    run_virtual(backend, scenario)


@both
def test_a_child_of_a_fallback_cannot_be_opened_by_itself(backend: Backend) -> None:
    async def scenario() -> None:
        async with FallbackAgent([lambda: ScriptedAgent(["One."])]) as agent:
            await listen(agent)
            child = agent.active
            assert child is not None
            with pytest.raises(RuntimeError, match="belongs to a FallbackAgent"):
                await child.__aenter__()

    run_virtual(backend, scenario)


def test_the_library_lists_its_names_also_those_that_are_loaded_late_and_refuses_others() -> None:
    assert dir(micdrop_agent) == sorted(micdrop_agent.__all__)
    assert {"Agent", "ChatAgent", "FallbackAgent", "SqliteStore"} <= set(dir(micdrop_agent))
    with pytest.raises(AttributeError, match=r"'micdrop_agent'.*'no_such_name'"):
        micdrop_agent.no_such_name  # noqa: B018  # asking is the test


def test_an_async_callback_of_a_value_needs_an_open_agent_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    async def keep(value: Any) -> None: ...

    agent = EchoAgent(extract=ExtractJson(callback=keep, save_in_metadata=True))

    assert agent.extract('Fine. {"a": 1}') == ("Fine.", {"extracted": {"a": 1}})
    assert "needs an open agent" in caplog.text


def test_without_the_option_extract_gives_the_text_back() -> None:
    assert EchoAgent().extract('Fine. {"a": 1}') == ('Fine. {"a": 1}', None)


@both
def test_a_value_that_is_none_is_not_spoken_and_one_warning_says_why(
    backend: Backend, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with ScriptedAgent(["Fine. ", '{"a": oops}'], extract=ExtractJson()) as agent:
            result = await agent.answer().wait()
            assert result.text == "Fine."
            assert result.extracted is None

    run_virtual(backend, scenario)
    assert [record.levelname for record in caplog.records] == ["WARNING"]


@both
def test_an_echo_of_nothing_is_silence(backend: Backend) -> None:
    async def scenario() -> None:
        async with EchoAgent() as agent:
            assert [chunk async for chunk in agent.answer()] == []

    run_virtual(backend, scenario)


def test_a_conversation_of_its_own_may_always_be_replaced() -> None:
    conversation = Conversation()
    conversation.replace([Message("user", "Hello?")])

    assert list(conversation) == [Message("user", "Hello?")]


def test_an_answer_that_was_never_made_goes_quietly() -> None:
    Answer.__new__(Answer).__del__()


@both
def test_two_errors_stay_a_group_and_one_does_not(backend: Backend) -> None:
    async def scenario() -> None:
        with pytest.raises(ExceptionGroup, match="both"), lone_error_unwrapped():
            raise ExceptionGroup("both", [ValueError("a"), KeyError("b")])
        with pytest.raises(ValueError, match="a"), lone_error_unwrapped():
            raise ExceptionGroup("one", [ValueError("a")])

    run_virtual(backend, scenario)


class BargedInto(Provider):
    """The second request is cancelled while it is opened, and fails all the same."""

    agent: Agent

    async def open(self, request: Request) -> Stream:
        if self.requests:
            self.agent.cancel()
            raise down()
        return await super().open(request)


@both
def test_a_farewell_that_fails_in_a_barge_in_leaves_no_more_than_the_barge_in(backend: Backend) -> None:
    async def scenario() -> None:
        model = Model(auto_end_call=True)
        model.served = served = BargedInto([[call("end_call"), *CALLS]])
        async with model:
            served.agent = model
            answer = model.answer()
            assert [chunk async for chunk in answer] == []
            assert answer.status == "cancelled"
            assert [type(item).__name__ for item in model.conversation] == ["Message", "ToolCall", "ToolResult"]

    run_virtual(backend, scenario)


# -- what runs beside an answer


@both
def test_background_work_that_fails_is_logged_and_none_begins_in_a_closed_agent(
    backend: Backend, caplog: pytest.LogCaptureFixture
) -> None:
    begun: list[str] = []

    async def work() -> None:
        begun.append("work")
        raise LookupError("no luck")

    async def scenario() -> None:
        agent = ScriptedAgent(["One."])
        agent._core.spawn(work, "too early")
        async with agent:
            agent._core.spawn(work, "in time")
            await anyio.sleep(1)
            assert [chunk async for chunk in agent.answer()] == ["One."]
        agent._core.spawn(work, "too late")

    run_virtual(backend, scenario)
    assert begun == ["work"]
    assert "background work of the agent failed" in caplog.text
    assert "no luck" in caplog.text


@both
def test_any_number_of_tasks_may_wait_for_one_answer(backend: Backend) -> None:
    ends: list[str] = []

    async def scenario() -> None:
        async with ScriptedAgent([0.5, "One."]) as agent, anyio.create_task_group() as tasks:
            answer = agent.answer()

            async def wait() -> None:
                ends.append((await answer.wait()).text)

            for _ in range(3):
                tasks.start_soon(wait)

    run_virtual(backend, scenario)
    assert ends == ["One."] * 3


@both
def test_tasks_of_one_answer_that_wait_for_room_all_get_it(backend: Backend) -> None:
    async def both_speak(turn: Turn) -> None:
        async with anyio.create_task_group() as tasks:
            for word in ("a", "b", "c"):
                tasks.start_soon(turn.write, word)

    async def scenario() -> None:
        async with ScriptedAgent([both_speak], buffer_size=0) as agent:
            answer = agent.answer()
            await anyio.sleep(1)
            assert sorted([chunk async for chunk in answer]) == ["a", "b", "c"]

    run_virtual(backend, scenario)


# -- what is gone


@both
def test_the_cut_of_an_answer_whose_conversation_was_replaced_changes_nothing(backend: Backend) -> None:
    async def scenario() -> None:
        async with ScriptedAgent(["One ", "two."]) as agent:
            agent.answer()
            await anyio.sleep(1)  # it has ended, unread
            assert texts(agent) == ["", "One two."]
            agent.conversation.replace([Message("system", "New."), Message("user", "Hello?")])
            agent.cancel()
            assert texts(agent) == ["New.", "Hello?"]

    run_virtual(backend, scenario)


def test_a_budget_begins_anew_when_the_item_of_its_last_cut_is_gone() -> None:
    budget = TokenBudget(3 * (PER_ITEM + 1), lambda text: len(text.split()))
    head = Message("system", "s")
    old = [Message("user", "a"), Message("assistant", "b"), Message("user", "c"), Message("assistant", "d")]
    assert budget.trim([head, *old]) == [head, *old[2:]]

    new = [Message("user", "e"), Message("assistant", "f")]
    assert budget.trim([head, *new]) == [head, *new]


def test_a_result_finds_its_call_among_several_and_one_without_a_call_is_added() -> None:
    conversation = History()
    ledger = Ledger(conversation)
    calls = [ToolCall(name, "look", "{}") for name in ("c1", "c2")]
    for made in calls:
        ledger.open_call(made, ledger)
    result, stray = ToolResult("c2", "look", "2"), ToolResult("c3", "look", "3")
    ledger.add(result)
    ledger.add(stray)

    assert list(conversation) == [calls[0], calls[1], result, stray]


@both
def test_a_cut_text_stands_behind_the_open_call_that_it_follows(backend: Backend) -> None:
    """Whatever was added while it was spoken comes after it."""

    async def speak_on(turn: Turn) -> None:
        turn.add(ToolCall("c1", "look", "{}"))
        await turn.write("Hm. ")

    async def scenario() -> None:
        async with ScriptedAgent([speak_on, HANG]) as agent:
            answer = agent.answer()
            assert await answer.receive() == "Hm. "
            agent.add_user_message("Well?")
            agent.cancel()
            shape = [item.content if isinstance(item, Message) else type(item).__name__ for item in agent.conversation]
            assert shape == ["", "ToolCall", "ToolResult", "Hm. ", "Well?"]

    run_virtual(backend, scenario)


# -- turns and races


@both
def test_an_attempt_within_a_fenced_turn_is_fenced_from_its_beginning(backend: Backend) -> None:
    async def scenario() -> None:
        async with ScriptedAgent(["One.", HANG]) as agent:
            answer = agent.answer()
            await answer.receive()
            agent.cancel()
            race: Race[Any] = Race()
            late = answer.turn.child(agent._core, race, anyio.CancelScope())
            assert late.fenced
            late.end()
            race.tell()
            assert race.winner is None
            assert answer.status == "cancelled"

    run_virtual(backend, scenario)


@both
@pytest.mark.parametrize("suppressed", [False, True])
def test_a_lone_error_keeps_what_its_author_said_of_its_cause(backend: Backend, suppressed: bool) -> None:
    cause, context = KeyError("cause"), KeyError("context")
    error = ValueError("alone")
    error.__cause__ = cause if suppressed else None
    error.__context__ = context
    error.__suppress_context__ = suppressed

    async def main() -> None:
        with pytest.raises(ValueError, match="alone") as caught, lone_error_unwrapped():
            raise ExceptionGroup("unhandled errors in a TaskGroup", [error])
        assert caught.value is error

    run_virtual(backend, main)
    assert (error.__cause__, error.__context__) == (cause if suppressed else None, context)
    assert error.__suppress_context__ is suppressed


class AloneError(Exception):
    pass


@both
def test_a_lone_error_is_gone_with_its_last_reader_and_waits_for_no_collection(backend: Backend) -> None:
    def told() -> weakref.ref[AloneError]:
        try:
            with lone_error_unwrapped():
                raise ExceptionGroup("unhandled errors in a TaskGroup", [AloneError()])
        except AloneError as error:
            return weakref.ref(error)
        raise AssertionError("it was not raised")

    async def main() -> None:
        gc.disable()
        try:
            assert told()() is None
        finally:
            gc.enable()

    run_virtual(backend, main)


@both
def test_what_an_agent_and_a_turn_hold_has_slots(backend: Backend) -> None:
    class Bare(Agent):
        async def generate_answer(self, turn: Turn) -> None:
            assert vars(turn) == {}

    async def main() -> None:
        async with Bare() as agent:
            assert (await agent.answer().wait()).status == "completed"
            assert {*vars(agent)} <= {"_AsyncContextManagerMixin__cm"}  # AnyIO's own

    run_virtual(backend, main)


@both
def test_the_stream_of_chunks_is_made_while_the_model_thinks(backend: Backend) -> None:
    async def main() -> None:
        async with ScriptedAgent([HANG]) as agent:
            answer = agent.answer()
            assert answer.pipe._outbox is None, "made while the caller waits for answer()"
            await anyio.sleep(1)
            if backend == "asyncio":  # on Trio nothing can be put behind a task's first step
                assert answer.pipe._outbox is not None
            answer.cancel()
            late = agent.answer()
            late.cancel()
            await anyio.sleep(1)
            assert late.pipe._outbox is None, "made for an answer that had ended"

    run_virtual(backend, main)
