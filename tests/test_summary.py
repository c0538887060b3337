"""``summarize=``: the oldest turns become a summary, beside the call and between two answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest
from core_support import log_of, nobody_listens
from step_support import CALLS, STOP, Model, call
from toolrun_support import nap

from micdrop_agent import (
    AnswerFinished,
    ConversationSummarized,
    FallbackAgent,
    Message,
    ProviderError,
    Summarize,
    ToolCall,
    ToolResult,
)
from micdrop_agent.pairs import open_calls
from micdrop_agent.testing import BACKENDS, ScriptedAgent, cancel_everywhere, read, run_virtual

if TYPE_CHECKING:
    from collections.abc import Sequence

    from micdrop_agent import Agent, Item
    from micdrop_agent.testing import Backend, Probe

both = pytest.mark.parametrize("backend", BACKENDS)
OLD: list[Item] = [
    Message("user", "My name is Ada. " + "Hm. " * 40),
    ToolCall("c1", "look", "{}"),
    ToolResult("c1", "look", '"a cat"'),
    Message("assistant", "Hello Ada, it is a cat."),
    Message("user", "And now? " + "Hm. " * 40),
    Message("assistant", "It sleeps."),
]


async def _brief(items: Sequence[Item]) -> str:
    await anyio.sleep(0.5)
    return f"{len(items)} items"


def _model(summarize: Summarize, *more: Any, **options: Any) -> Model:
    replies: Any = [0.1, ["One.", *STOP]], *more, *[[["More.", *STOP]]] * 6
    return Model(*replies, max_context_tokens=200, summarize=summarize, system_prompt="Be kind.", **options)


def _short(agent: Agent) -> list[str]:
    return [item.content[:40] if isinstance(item, Message) else item.role for item in agent.conversation]


async def _ask(agent: Agent, text: str = "Well?") -> str:
    agent.add_user_message(text)
    return "".join([chunk async for chunk in agent.answer()])


@both
@pytest.mark.parametrize("nested", [False, True])
def test_the_oldest_turns_become_a_summary_beside_the_call(backend: Backend, nested: bool) -> None:
    model = _model(Summarize(_brief, keep_turns=1, at=0.5))

    async def scenario() -> None:
        async with FallbackAgent([lambda: model]) if nested else model as agent:
            agent.conversation.replace([agent.conversation[0], *OLD])
            events = log_of(agent, ConversationSummarized)
            began = anyio.current_time()
            assert await _ask(agent) == "One."
            assert anyio.current_time() - began == pytest.approx(0.1)  # nobody waits for it
            assert events == []
            await anyio.sleep(1)
            assert _short(agent) == ["Be kind.", "Summary of the conversation so far:\n6 it", "Well?", "One."]
            (event,) = events
            assert isinstance(event, ConversationSummarized)
            assert (event.old, event.summary, event.index) == (tuple(OLD), agent.conversation[1], 1)
            assert await _ask(agent) == "More."
            await anyio.sleep(1)
            assert len(events) == 1
        sent = model.served.requests[-1][1]
        assert [getattr(item, "content", "")[:7] for item in sent] == ["Be kind", "Summary", "Well?", "One.", "Well?"]

    run_virtual(backend, scenario)


@both
def test_it_waits_for_a_moment_in_which_no_answer_runs_or_is_paused(backend: Backend) -> None:
    async def scenario() -> None:
        model = _model(Summarize(_brief, keep_turns=1, at=0.5), [["Two "], 1.0, ["words.", *STOP]])
        async with model as agent:
            agent.conversation.replace([agent.conversation[0], *OLD])
            events = log_of(agent, ConversationSummarized)
            ends = log_of(agent, AnswerFinished)
            await _ask(agent)
            agent.add_user_message("Go on")
            answer = agent.answer()
            assert await answer.receive() == "Two "
            await anyio.sleep(0.7)
            agent.cancel(pause=True)  # the summary is there by now, and the answer runs
            await anyio.sleep(5)
            assert (len(ends), events) == (2, [])
            agent.resume()
            assert [chunk async for chunk in answer] == ["words."]
            await anyio.sleep(0.01)
            assert len(events) == 1
            assert _short(agent)[2:] == ["Well?", "One.", "Go on", "Two words."]

    run_virtual(backend, scenario)


@both
def test_it_costs_no_guess(backend: Backend) -> None:
    async def scenario() -> None:
        async with _model(Summarize(_brief, keep_turns=1, at=0.5)) as agent:
            agent.conversation.replace([agent.conversation[0], *OLD])
            events = log_of(agent, ConversationSummarized)
            await _ask(agent)
            guess = agent.speculate("and")
            await anyio.sleep(1)
            assert events == []
            answer = guess.adopt("And?")
            assert answer is not None
            assert [chunk async for chunk in answer] == ["More."]
            await anyio.sleep(0.01)
            assert len(events) == 1

    run_virtual(backend, scenario)


@both
@pytest.mark.parametrize("how", ["raises", "slow", "no text", "blank", "changed", "fails", "closed"])
def test_a_summary_that_comes_to_nothing_changes_nothing(backend: Backend, how: str) -> None:
    tried: list[int] = []

    async def odd(items: Sequence[Item]) -> Any:
        tried.append(len(items))
        if how == "raises":
            raise LookupError("no")
        await anyio.sleep(60 if how == "closed" or (how == "slow" and len(tried) == 1) else 0.5)
        return {"blank": " \n", "no text": 5}.get(how, "brief")

    async def scenario() -> None:
        broken = ScriptedAgent([0.1, ProviderError("down", kind="server")])
        by: Any = broken if how == "fails" else odd
        async with _model(Summarize(by, keep_turns=1, at=0.5, timeout=2)) as agent:
            agent.conversation.replace([agent.conversation[0], *OLD])
            events = log_of(agent, ConversationSummarized)
            await _ask(agent)
            if how == "changed":
                agent.cancel_last_user_message()
                agent.cancel_last_user_message()
            before = list(agent.conversation)
            if how != "closed":
                await anyio.sleep(10)
                await _ask(agent)  # it is not tried again with each request
                await anyio.sleep(10)
            if how == "slow":  # it is given up, and a later one comes in time
                assert events == []
                await _ask(agent, "Hm. " * 60)
                await anyio.sleep(1)
                assert len(events) == 1
        if how != "slow":
            assert (events, list(agent.conversation)[: len(before)]) == ([], before)
            assert len(tried) == (how != "fails")

    run_virtual(backend, scenario)


@both
def test_an_agent_of_your_own_makes_it_and_is_opened_and_closed_with_the_call(backend: Backend) -> None:
    async def scenario() -> None:
        by = ScriptedAgent([0.3, "Ada has ", "a cat."], ["Ada has a cat that sleeps."], system_prompt="Be brief.")
        async with _model(Summarize(by, keep_turns=1, at=0.5)) as agent:
            agent.conversation.replace([agent.conversation[0], *OLD])
            await _ask(agent)
            await anyio.sleep(1)
            assert _short(agent)[1] == "Summary of the conversation so far:\nAda "
            asked = by.conversation.messages[1].content
            assert "Caller: My name is Ada." in asked
            assert 'look returns "a cat"' in asked
            await _ask(agent, "Hm. " * 120)  # the first summary is a part of the second
            await anyio.sleep(1)
            assert "Note: Summary of the conversation so far:\nAda has a cat." in by.conversation.messages[1].content
            assert agent.conversation.messages[1].content.endswith("Ada has a cat that sleeps.")
            assert len(agent.conversation) == 4
            states = [str(by._core.state)]
        assert [*states, str(by._core.state)] == ["open", "closed"]

    run_virtual(backend, scenario)


@both
@pytest.mark.parametrize("keep", [1, 2, 3])
def test_pairs_and_the_last_turns_stay_whole(backend: Backend, keep: int) -> None:
    async def scenario() -> None:
        calls: Any = [[call(), *CALLS]], [["A cat.", *STOP]]
        summarize = Summarize(_brief, keep_turns=keep, at=0.1)
        async with _model(summarize, *calls, tools=[nap("look", 1)]) as agent:
            agent.conversation.replace([agent.conversation[0], *OLD])
            events = log_of(agent, ConversationSummarized)
            await _ask(agent, "Look")
            await _ask(agent, "Look again")  # a summary is ready while the tool runs
            await anyio.sleep(1)
            assert len(events) == 1
            assert open_calls(list(agent.conversation)) == []
            assert sum(item.role == "user" for item in agent.conversation) >= keep

    run_virtual(backend, scenario)


def test_what_it_cannot_be_is_refused() -> None:
    bad: list[tuple[type[Exception], Any]] = [
        (TypeError, lambda: Summarize(5)),  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        (ValueError, lambda: Summarize(_brief, at=0.0)),
        (ValueError, lambda: Summarize(_brief, keep_turns=0)),
        (ValueError, lambda: Summarize(_brief, timeout=0)),
        (TypeError, lambda: _model(_brief)),  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        (ValueError, lambda: Model([STOP], summarize=Summarize(_brief))),
    ]
    for kind, make in bad:
        with pytest.raises(kind, match="by|at|keep_turns|timeout|summarize"):  # noqa: RUF043 - names of options
            make()


async def summarized(probe: Probe) -> None:
    """The old turns are there from the beginning, so that what the answers say is still there at the end."""
    async with _model(Summarize(_brief, keep_turns=2, at=0.1), [0.3, ["Two "], 0.5, ["words.", *STOP]]) as agent:
        agent.conversation.replace([agent.conversation[0], *OLD])
        probe.watch(agent)
        for text in ("Well?", "Go on"):
            if agent._core.state == "open":
                agent.add_user_message(text)
                await read(probe, agent.answer())
        await anyio.sleep(1)


@pytest.mark.parametrize("listen", [True, False])
def test_every_invariant_holds_wherever_it_is_interrupted(listen: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not listen:
        nobody_listens(monkeypatch)
    names = ["cancel", "answer", "pause", "aclose", "task.cancel + scope"]
    assert cancel_everywhere(summarized, inject=names if listen else names[:1], listen=listen, every=4).points > 10
