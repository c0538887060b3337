"""Typed values at the end of an answer: read by the machinery of tools, never spoken."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import anyio
import attrs
import pydantic
import pytest
from step_support import STOP, said, with_model
from step_support import Model as ModelOf

from micdrop_agent import AllAgentsFailedError, ExtractJson, FallbackAgent, Message, ProviderError, Timeouts
from micdrop_agent.testing import BACKENDS, ScriptedAgent, run_virtual

if TYPE_CHECKING:
    from micdrop_agent.testing import Backend


@attrs.frozen
class Mood:
    mood: Literal["happy", "angry"]
    score: int = 5


@dataclasses.dataclass
class Data:
    mood: str
    score: int = 5


class Dict(TypedDict):
    mood: str
    score: int


class Model(pydantic.BaseModel):
    mood: str
    score: int = 5


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", [Mood, Data, Dict, Model])
def test_a_value_becomes_an_instance_of_its_class(backend: Backend, kind: Any) -> None:
    async def main() -> None:
        got: list[Any] = []
        extract = ExtractJson(kind, callback=got.append, save_in_metadata=True)
        async with ScriptedAgent(['Fine. {"mood": "happy", "score": 4.0}'], extract=extract) as agent:
            answer = agent.answer()
            assert (await answer.wait()).text == "Fine."
            assert answer.result is not None
            assert answer.result.extracted == kind(mood="happy", score=4)
            assert got == [kind(mood="happy", score=4)]
            message = agent.conversation[-1]
            assert isinstance(message, Message)
            assert message.metadata == {"extracted": {"mood": "happy", "score": 4.0}}

    run_virtual(backend, main)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "value", ['{"mood": "sad"}', '{"mood": "happy", "more": 1}', "{}", '{"mood": "happy", "score": "4"}']
)
def test_a_value_that_does_not_fit_is_logged_and_not_spoken(
    backend: Backend, caplog: pytest.LogCaptureFixture, value: str
) -> None:
    async def main() -> None:
        got: list[Any] = []
        async with ScriptedAgent([f"Fine. {value}"], extract=ExtractJson(Mood, callback=got.append)) as agent:
            answer = agent.answer()
            assert (await answer.wait()).text == "Fine."
            assert answer.result is not None
            assert answer.result.extracted is None
            assert got == []

    run_virtual(backend, main)
    assert "no Mood: " in caplog.text


def test_what_no_value_can_have_as_its_type_is_refused_when_the_agent_is_made() -> None:
    with pytest.raises(TypeError, match="input must be"):
        ScriptedAgent(extract=ExtractJson(int))
    with pytest.raises(TypeError, match="type must be a class"):
        ExtractJson("Mood")  # type: ignore[arg-type]  # on purpose


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_typed_question_is_answered_beside_the_conversation(backend: Backend) -> None:
    async def check(agent: ModelOf) -> None:
        assert await agent.ask(Mood, "I love it!") == Mood("happy", 9)
        assert said(agent) == [("user", "hi")]
        (request,) = agent.served.requests
        system, user = request[1]
        assert "JSON Schema" in system.content
        assert user.content == "I love it!"

    thought = '<think>{"mood": "angry"}</think>```json\n{"mood": "happy", "score": 9}\n```'
    with_model(backend, [[[thought[:30]], [thought[30:], STOP]]], check)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("script", "kind"),
    [
        ([["I cannot say.", STOP]], "empty"),
        ([['{"mood": "sad"}', STOP]], "empty"),
        ([ProviderError("down", kind="server")], "server"),
        (["hang"], "timeout"),
    ],
)
def test_a_typed_question_that_gets_no_answer_is_a_failure_of_the_provider(
    backend: Backend, script: Any, kind: str
) -> None:
    async def check(agent: ModelOf) -> None:
        with pytest.raises(ProviderError) as caught:
            await agent.ask(Mood, "I love it!", retries=0)
        assert caught.value.kind == kind

    with_model(backend, [script], check, timeouts=Timeouts(total=3))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("retries", [0, 1, 2])
def test_a_model_is_told_what_does_not_fit_and_asked_again(backend: Backend, retries: int) -> None:
    async def check(agent: ModelOf) -> None:
        if retries < 2:
            with pytest.raises(ProviderError, match="did not answer with a Mood"):
                await agent.ask(Mood, "I love it!", retries=retries)
        else:
            assert await agent.ask(Mood, "I love it!", retries=retries) == Mood("happy", 9)
        assert len(agent.served.requests) == retries + 1
        assert said(agent) == [("user", "hi")]
        items = agent.served.requests[-1][1]
        assert [item.role for item in items] == ["system", "user", *["assistant", "user"] * retries]
        if retries:
            assert "no JSON object" in items[3].content

    right = '{"mood": "happy", "score": 9}'
    with_model(backend, [[["Hm.", STOP]], [['{"mood": "sad"}', STOP]], [[right, STOP]]], check)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_fallback_asks_its_children_until_one_answers_with_what_fits(backend: Backend) -> None:
    async def main() -> None:
        down = ModelOf([ProviderError("down", kind="auth")])
        wrong = ModelOf([["Hm.", *STOP]], [["Hm.", *STOP]])
        right = ModelOf([['{"mood": "happy", "score": 9}', *STOP]])
        children = [lambda: ScriptedAgent(["Hello."]), lambda: down, lambda: wrong, lambda: right]
        async with FallbackAgent(children, names=["mute", "down", "wrong", "right"]) as agent:
            assert await agent.ask(Mood, "I love it!") == Mood("happy", 9)
            assert agent.health.state("down") == "open"
            assert agent.health.snapshot()["wrong"].failures == 1
            assert len(wrong.served.requests) == 2
            answer = agent.answer()
            assert (await answer.wait()).text == "Hello."  # asking has changed nobody's turn
        async with FallbackAgent([lambda: ScriptedAgent(["Hello."])]) as agent:
            with pytest.raises(TypeError, match="asks a model"):
                await agent.ask(Mood, "I love it!")
        async with FallbackAgent([lambda: ModelOf(["hang"])]) as agent:
            with anyio.move_on_after(1):
                await agent.ask(Mood, "I love it!")
            assert next(iter(agent.health.snapshot().values())).failures == 0  # a caller that leaves is no failure

    run_virtual(backend, main)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_fallback_whose_children_all_fail_to_answer_says_who_and_why(backend: Backend) -> None:
    async def main() -> None:
        children = [lambda: ModelOf([["Hm.", *STOP]]), lambda: ModelOf([ProviderError("down", kind="server")])]
        async with FallbackAgent(children, names=["a", "b"]) as agent:
            with pytest.raises(AllAgentsFailedError) as caught:
                await agent.ask(Mood, "I love it!", retries=0)
            assert [attempt.agent for attempt in caught.value.attempts] == ["a", "b"]

    run_virtual(backend, main)
