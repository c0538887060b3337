"""A call with parts that fail, disturbed at every scheduling step: C1 to C7 hold wherever that is."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import anyio
import pytest

from micdrop_agent import ProviderError, tool
from micdrop_agent.call import Call
from micdrop_agent.testing import (
    BACKENDS,
    CALL_INJECTIONS,
    ScriptedAgent,
    ScriptedSTT,
    ScriptedTTS,
    VoiceFault,
    memory_link,
    run_call,
    sweep_call,
)
from micdrop_agent.testing import Call as ToolUse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from micdrop_agent.testing import Backend, CallRun, CallScenario

_points: list[int] = []


@pytest.fixture(autouse=True)
def _no_log() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@tool
async def look() -> str:
    """Look it up."""
    await anyio.sleep(0.1)
    return "seen"


def an_agent() -> ScriptedAgent:
    return ScriptedAgent(
        ["One two ", 0.1, "three four five six."],
        [ToolUse("look"), "I have seen it."],
        [ProviderError("down", kind="server")],
        ["All good."],
        tools=[look],
    )


async def failing_parts(run: CallRun) -> None:
    """A speech-to-text that fails, a voice that fails, one that hangs, an agent that fails, and barge-ins."""
    link, client = memory_link()
    agent = an_agent()
    tts = ScriptedTTS(None, None, None, VoiceFault(error=ConnectionError("cut"), after=1), VoiceFault())
    stt = ScriptedSTT("Hello?", [ConnectionError("down")], "Again?", "And now?", "Bye", "Still there?")
    call = Call(link, agent=agent, stt=stt, tts=tts, first_message="Hi!", failure_text="Sorry?")

    async def act() -> None:
        await anyio.sleep(0.5)
        client.speak()
        await anyio.sleep(0.5)
        client.put("StartSpeaking")
        client.put(bytes(3200))
        client.put("StopSpeaking")
        await anyio.sleep(1)
        for _ in range(3):
            client.speak()
            await anyio.sleep(6)

    async with agent:
        await run.play(call, client, tts, act=act)


async def only_a_sound(run: CallRun) -> None:
    """Sounds of agreement, after which the answer goes on, and one that is none."""
    link, client = memory_link()
    run.probe.resumes = True
    agent = ScriptedAgent(["One two three four five six seven eight."])
    tts = ScriptedTTS(delay=0.1)
    stt = ScriptedSTT("Tell me", "mhm", "", "stop it now")
    call = Call(link, agent=agent, stt=stt, tts=tts, min_words=2)

    async def act() -> None:
        client.speak()
        for _ in range(3):
            await anyio.sleep(0.5)
            client.put("StartSpeaking")
            client.put(bytes(3200))
            await anyio.sleep(0.2)
            client.put("StopSpeaking")
        await anyio.sleep(1)

    async with agent:
        await run.play(call, client, tts, act=act)


SCENARIOS = [failing_parts, only_a_sound]


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_undisturbed_call_does_what_it_is_for(backend: Backend) -> None:
    run = run_call(failing_parts, backend)
    assert run.call is not None
    assert run.client is not None
    turns = run.call.result.turns
    assert [turn.transcript for turn in turns] == ["", "Hello?", "", "Again?", "And now?", "Bye"]
    assert [bool(turn.audio_seconds) for turn in turns] == [True, True, True, True, False, True]
    assert run.client.names.count("SkipAnswer") == 1


@pytest.mark.parametrize("inject", sorted(CALL_INJECTIONS))
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_every_invariant_of_a_call_holds_wherever_it_is_disturbed(scenario: CallScenario, inject: str) -> None:
    every = 3 if scenario is failing_parts else 8  # the other one is mostly audio
    _points.append(sweep_call(scenario, inject=inject, every=every).points)


def test_the_sweep_of_calls_covers_at_least_two_thousand_points() -> None:
    if len(_points) == len(SCENARIOS) * len(CALL_INJECTIONS):  # not when only some of them were selected
        assert sum(_points) >= 2000, sum(_points)
