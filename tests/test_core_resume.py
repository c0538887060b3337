"""An answer that was cut by mistake goes on: nothing lost, nothing twice, one message in the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest
from core_support import log_of, replayed
from step_support import STOP, Model

from micdrop_agent import FallbackAgent, Message, MessageAdded, MessageCorrected
from micdrop_agent.testing import BACKENDS, HANG, Call, ScriptedAgent, run_virtual
from micdrop_agent.tools import tool

if TYPE_CHECKING:
    from micdrop_agent import Agent, Answer
    from micdrop_agent.testing import Backend

both = pytest.mark.parametrize("backend", BACKENDS)


def _stored(agent: Agent) -> list[Any]:
    return [(m.role, m.content, m.metadata) for m in agent.conversation.messages][1:]


async def _rest(answer: Answer) -> str:
    return "".join([chunk async for chunk in answer])


@both
@pytest.mark.parametrize("heard", [None, 0, 4, 8], ids=str)
def test_a_complete_answer_that_was_cut_goes_on_without_a_request(backend: Backend, heard: int | None) -> None:
    async def scenario() -> None:
        model = Model([["One two ", "three.", *STOP]])
        async with model as agent:
            agent.add_user_message("Count")
            events = log_of(agent, MessageAdded, MessageCorrected)
            answer = agent.answer()
            assert await answer.receive() == "One two "
            await anyio.sleep(1)
            agent.cancel(heard)
            upto = 8 if heard is None else heard
            assert answer.unheard == "One two three."[upto:]
            resumed = agent.resume()
            assert await _rest(resumed) == "One two three."[upto:]
            assert resumed.text == "One two three."
            assert _stored(agent) == [("user", "Count", None), ("assistant", "One two three.", None)]
            assert replayed([MessageAdded(Message("user", "Count"), 1), *events]) == list(agent.conversation[1:])
        assert len(model.served.requests) == 1

    run_virtual(backend, scenario)


@both
@pytest.mark.parametrize("nested", [False, True])
def test_what_was_still_to_come_is_asked_for_as_a_continuation(backend: Backend, nested: bool) -> None:
    models: list[Model] = []

    def make() -> Model:
        models.append(Model([["One two ", "three "], "hang"], [["four.", *STOP]]))
        return models[-1]

    async def scenario() -> None:
        async with FallbackAgent([make]) if nested else make() as agent:
            agent.add_user_message("Count")
            answer = agent.answer()
            assert await answer.receive() == "One two "
            await anyio.sleep(1)
            agent.cancel(heard=4)
            assert _stored(agent)[-1] == ("assistant", "One ", {"interrupted": True})
            resumed = agent.resume()
            assert await _rest(resumed) == "two three four."
            assert _stored(agent)[-1] == ("assistant", "One two three four.", None)
            assert len(agent.conversation) == 3
        _, items, _, continued = models[0].served.requests[-1]
        assert continued == "One two three "
        assert [item.role for item in items] == ["system", "user"]

    run_virtual(backend, scenario)


@both
def test_a_resumed_answer_may_be_cut_and_resumed_again(backend: Backend) -> None:
    async def scenario() -> None:
        async with ScriptedAgent(["One ", "two ", "three ", HANG], [HANG]) as agent:
            agent.add_user_message("Count")
            answer: Any = agent.answer()
            said = [await answer.receive()]
            for more in (0, 1):
                await anyio.sleep(1)
                agent.cancel()
                assert _stored(agent)[-1] == ("assistant", "".join(said), {"interrupted": True})
                answer = agent.resume()
                if more:
                    said.append(await answer.receive())
            agent.cancel(heard=6)
            assert _stored(agent)[1:] == [("assistant", "One tw", {"interrupted": True})]

    run_virtual(backend, scenario)


@both
def test_one_that_had_said_nothing_is_asked_again(backend: Backend) -> None:
    async def scenario() -> None:
        async with ScriptedAgent([HANG], ["Hello."]) as agent:
            agent.add_user_message("Hi")
            agent.answer()
            await anyio.sleep(1)
            agent.cancel()
            assert await _rest(agent.resume()) == "Hello."
            assert _stored(agent) == [("user", "Hi", None), ("assistant", "Hello.", None)]

    run_virtual(backend, scenario)


@tool
def look() -> str:
    """Look."""
    return "a cat"


@both
@pytest.mark.parametrize("why", ["nothing", "ended", "message", "tool", "new answer"])
def test_what_cannot_be_resumed_is_refused_with_the_reason(backend: Backend, why: str) -> None:
    async def scenario() -> None:
        script: list[Any] = ["One ", *([Call("look")] if why == "tool" else []), "two.", HANG]
        async with ScriptedAgent(["One."] if why == "ended" else script, [HANG], tools=[look]) as agent:
            if why != "nothing":
                answer = agent.answer()
                await answer.receive()
                await anyio.sleep(1)
                if why == "ended":
                    assert await _rest(answer) == ""
                agent.cancel()
            if why == "message":
                agent.add_user_message("Stop!")
            if why == "new answer":
                agent.answer()
            before = list(agent.conversation)
            words = {"message": "has changed", "tool": "tools"}.get(why, "there is none")
            with pytest.raises(RuntimeError, match=words):
                agent.resume()
            assert list(agent.conversation) == before

    run_virtual(backend, scenario)


@both
def test_wherever_a_resumed_answer_is_cut_the_stored_text_is_what_was_received(backend: Backend) -> None:
    """The cut at every scheduling step, with the text of both answers as one."""

    async def scenario(cut_at: int, state: dict[str, Any]) -> int:
        async with ScriptedAgent(["One ", "two ", 0.1, "three ", HANG], ["and ", 0.1, "four."]) as agent:
            agent.add_user_message("Count")
            first = agent.answer()
            assert await first.receive() == "One "
            await anyio.sleep(0.05)
            agent.cancel()
            state["agent"], answer = agent, agent.resume()
            got = ["One ", *[chunk async for chunk in answer]]
            state.pop("agent")
            texts = [m.content for m in agent.conversation.messages if m.role == "assistant"]
            assert texts == ["".join(got)], cut_at
            if texts != ["One two and four."]:
                assert (agent.conversation.messages[-1].metadata or {}) == {"interrupted": True}
            return 0

    steps = [0]

    def run(cut_at: int) -> None:
        state: dict[str, Any] = {}
        seen = [0]

        def on_step(_number: int) -> None:
            agent = state.get("agent")
            if agent is not None:
                seen[0] += 1
                steps[0] = max(steps[0], seen[0])
                if seen[0] == cut_at:
                    agent.cancel()

        run_virtual(backend, scenario, cut_at, state, on_step=on_step)

    run(0)
    assert steps[0] > 5
    for step in range(1, steps[0] + 1):
        run(step)
