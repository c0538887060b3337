"""``cancel(pause=True)``: the consumer waits, the answer goes on, ``resume()`` plays it without a request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import pytest
from core_support import log_of, nobody_listens, said
from step_support import CALLS, STOP, Model, call

from micdrop_agent import Agent, EndCallRequested, FallbackAgent, MessageAdded, MessageCorrected, ProviderError, tool
from micdrop_agent.speech import Speech
from micdrop_agent.testing import BACKENDS, HANG, Call, ScriptedAgent, cancel_everywhere, read, run_virtual

if TYPE_CHECKING:
    from collections.abc import Callable

    from micdrop_agent import Answer
    from micdrop_agent.testing import Backend, Probe

both = pytest.mark.parametrize("backend", BACKENDS)


async def _rest(answer: Answer) -> str:
    return "".join([chunk async for chunk in answer])


@both
@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("heard", [None, 0, 5, "One "], ids=str)
def test_a_paused_answer_goes_on_by_itself_and_is_played_without_a_request(
    backend: Backend, heard: int | str | None, nested: bool
) -> None:
    models: list[Model] = []

    def make() -> Model:
        models.append(Model([["One two "], 0.2, ["three ", "four.", *STOP]]))
        return models[-1]

    async def scenario() -> None:
        got: list[str] = []
        async with FallbackAgent([make]) if nested else make() as agent, anyio.create_task_group() as tasks:
            agent.add_user_message("Count")
            answer = agent.answer()

            async def listen() -> None:
                async for chunk in answer:
                    got.append(chunk)  # noqa: PERF401 - looked at while it grows

            tasks.start_soon(listen)
            await anyio.sleep(0.1)
            agent.cancel(heard, pause=True)
            await anyio.sleep(5)
            assert (got, answer.status) == (["One two "], "completed")  # generated, and not heard
            upto = {"None": 8, "One ": 4}.get(str(heard)) or int(heard or 0)
            assert answer.text == "One two "[:upto]
            assert agent.resume() is answer
            await anyio.sleep(0.01)
            assert "".join(got[1:]) == "One two three four."[upto:]
            assert (answer.text, said(agent)[-1]) == ("One two three four.", ("assistant", "One two three four."))
        assert len(models[0].served.requests) == 1

    run_virtual(backend, scenario)


@both
def test_what_was_read_to_its_end_is_read_again_from_where_it_was_heard(backend: Backend) -> None:
    async def scenario() -> None:
        async with ScriptedAgent(["One ", "two ", "three."]) as agent:
            answer = agent.answer()
            assert await _rest(answer) == "One two three."
            agent.cancel(heard=4, pause=True)
            agent.cancel(heard=2, pause=True)
            assert await _rest(agent.resume()) == "e two three."
            agent.cancel(heard=6, pause=True)
            agent.cancel()  # for good: it is stored as far as it was heard
            assert said(agent) == [("assistant", "One tw")]
            agent.cancel(pause=True)  # too late
            assert await _rest(agent.resume()) == "o three."

    run_virtual(backend, scenario)


@both
@pytest.mark.parametrize("ended", [False, True])
@pytest.mark.parametrize("how", ["message", "answer", "cancel", "call", "replace", "close", "hand over"])
def test_whatever_ends_a_pause_cuts_the_answer_where_it_was_heard(backend: Backend, how: str, ended: bool) -> None:
    async def scenario() -> None:
        async with ScriptedAgent(["One ", "two ", *([] if ended else [HANG])], [HANG]) as agent:
            agent.add_user_message("Count")
            events = log_of(agent, MessageAdded, MessageCorrected)
            answer = agent.answer()
            got: list[str] = []

            async def listen() -> None:
                got.extend([chunk async for chunk in answer])
                got.append("ended")

            async with anyio.create_task_group() as tasks:
                assert await answer.receive() == "One "
                await anyio.sleep(0.1)
                agent.cancel(heard=2, pause=True)
                tasks.start_soon(listen)
                await anyio.sleep(0.1)
                assert got == []
                if how == "replace" and not ended:
                    with pytest.raises(RuntimeError, match="while an answer runs"):
                        agent.conversation.replace([])
                    agent.cancel()
                else:
                    ends: dict[str, Callable[[], object]] = {
                        "message": lambda: agent.add_user_message("Stop"),
                        "answer": agent.answer,
                        "cancel": agent.cancel,
                        "call": lambda: agent.cancel(heard=1),
                        "replace": lambda: agent.conversation.replace([]),
                        "close": agent._core.close,
                        "hand over": lambda: agent.hand_off(note="x"),
                    }
                    ends[how]()
                await anyio.sleep(0.1)
                assert got == ["ended"]
            texts = [m.content for m in agent.conversation.messages if m.role == "assistant"]
            assert texts == {"replace": [] if ended else ["On"], "call": ["O"]}.get(how, ["On"])
            if how == "message":
                assert said(agent)[-2:] == [("assistant", "On"), ("user", "Stop")]
                with pytest.raises(RuntimeError, match="has changed"):
                    agent.resume()
            assert events or how == "close"

    run_virtual(backend, scenario)


@both
def test_tools_go_on_during_a_pause_and_what_they_say_waits(backend: Backend) -> None:
    @tool(filler="One moment.", filler_after=0.1)
    async def look(agent: Agent) -> str:
        """Look."""
        await anyio.sleep(0.5)
        agent.add_message("system", "A note of the tool")  # its own word ends no pause
        return "a cat"

    async def scenario() -> None:
        model = Model([["Let me see. ", call("look"), *CALLS]], [["A cat.", *STOP]], tools=[look])
        async with model as agent:
            answer = agent.answer()
            assert await answer.receive() == "Let me see. "
            agent.cancel(pause=True)
            await anyio.sleep(5)
            assert answer.status == "completed"
            assert await _rest(agent.resume()) == "A cat."  # and no filler: its moment has passed
            assert [role for role, _ in said(agent)] == ["assistant", "tool_call", "tool_result", "system", "assistant"]

    run_virtual(backend, scenario)


@both
@pytest.mark.parametrize("buffer_size", [None, 0])
def test_the_buffer_of_a_pause_is_bounded(backend: Backend, buffer_size: int | None) -> None:
    async def scenario() -> None:
        script: list[str | float] = ["x" * 10, 0.1] * 30
        options: Any = {"buffer_size": buffer_size} if buffer_size is not None else {"pause_buffer": 100}
        async with ScriptedAgent(script, ["and so on."], **options) as agent:
            agent.add_user_message("Count")
            answer = agent.answer()
            await answer.receive()
            agent.cancel(pause=True)
            await anyio.sleep(60)
            if buffer_size is None:
                assert (answer.status, len(answer.unheard)) == ("cancelled", 110)
                resumed = agent.resume()
                assert await _rest(resumed) == "x" * 110 + "and so on."
            else:
                assert answer.status == "running"  # the producer waits for its reader
                assert agent.resume() is answer
                assert await _rest(answer) == "x" * 290
            assert len(agent.conversation.messages) == 3

    run_virtual(backend, scenario)


@both
def test_a_failure_during_a_pause_is_told_when_it_is_over(backend: Backend) -> None:
    async def scenario() -> None:
        async with ScriptedAgent(["One ", 0.2, "two ", ProviderError("down", kind="server")]) as agent:
            answer = agent.answer()
            await answer.receive()
            agent.cancel(pause=True)
            with anyio.move_on_after(1) as limit:
                await answer.receive()
            assert limit.cancelled_caught
            assert answer.status == "failed"
            agent.resume()
            assert await answer.receive() == "two "
            with pytest.raises(ProviderError):
                await answer.receive()

    run_virtual(backend, scenario)


@both
@pytest.mark.parametrize("upto", range(0, 24, 3))
def test_sentences_for_a_voice_are_said_again_from_where_they_were_heard(backend: Backend, upto: int) -> None:
    async def scenario() -> None:
        text = "One **two** three. And four five! Then six."
        async with ScriptedAgent([text[:9], text[9:30], 0.1, text[30:]], speech=Speech()) as agent:
            answer = agent.answer()
            got = [await answer.receive(), await answer.receive()]
            agent.cancel(heard=upto, pause=True)
            await anyio.sleep(1)
            whole = "".join(got)[:upto] + await _rest(agent.resume())
            assert whole == "One two three. And four five! Then six."
            assert said(agent) == [("assistant", text)]

    run_virtual(backend, scenario)


@both
def test_the_end_of_a_call_is_told_when_its_farewell_was_heard(backend: Backend) -> None:
    async def scenario() -> None:
        ends: list[float] = []
        async with ScriptedAgent([[Call("end_call")], "Good ", "bye."], auto_end_call=True) as agent:
            agent.on(EndCallRequested, lambda _: ends.append(anyio.current_time()))
            answer = agent.answer()
            await answer.receive()
            agent.cancel(pause=True)
            await anyio.sleep(300)
            assert ends == []
            agent.resume()
            await _rest(answer)
            await anyio.sleep(0.1)
            assert len(ends) == 1

    run_virtual(backend, scenario)


# -- at every step


def _open(agent: Agent) -> bool:
    return agent._core.state == "open"


async def paused_in_the_middle(probe: Probe) -> None:
    @tool
    async def look() -> str:
        """Look."""
        await anyio.sleep(0.1)
        return "a cat"

    async with ScriptedAgent(["One ", "two ", 0.1, Call("look"), "three."], ["Fine."], tools=[look]) as agent:
        probe.watch(agent)
        async with anyio.create_task_group() as tasks:
            for wait in (0.0, 0.05):
                if _open(agent):
                    tasks.start_soon(read, probe, agent.answer())
                await anyio.sleep(wait)
                if agent._core.current is not None and agent._core.current.status == "running":
                    agent.cancel(heard=2, pause=True)
                await anyio.sleep(0.1)
                if agent._core.current is not None and agent._core.current.paused:
                    agent.resume()
                await anyio.sleep(1)


@pytest.mark.parametrize("listen", [True, False])
def test_every_invariant_holds_wherever_a_pause_is_interrupted(listen: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not listen:
        nobody_listens(monkeypatch)
    names = ["cancel", "cancel(heard)", "answer", "pause", "aclose", "host scope", "task.cancel", "stop reading"]
    report = cancel_everywhere(paused_in_the_middle, inject=names if listen else names[:4], listen=listen, every=3)
    assert report.points > 50
