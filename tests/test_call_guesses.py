"""A call that answers before the transcript is final, sounds of agreement by language, and tools that end late."""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import pytest

from micdrop_agent import tool
from micdrop_agent.call import Call, backchannels
from micdrop_agent.testing import (
    AUDIO_END,
    BACKENDS,
    HANG,
    MemoryClient,
    Partial,
    ScriptedAgent,
    ScriptedSTT,
    ScriptedTTS,
    memory_link,
    run_virtual,
    sweep_call,
)
from micdrop_agent.testing import Call as ToolUse

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator

    from micdrop_agent.testing import Backend, CallRun

both = pytest.mark.parametrize("backend", BACKENDS)


@pytest.fixture(autouse=True)
def _no_log() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@asynccontextmanager
async def calling(**options: Any) -> AsyncGenerator[tuple[Call, MemoryClient]]:
    link, client = memory_link()
    everything: dict[str, Any] = {"tts": ScriptedTTS(), "speculate": True, **options}
    call = Call(link, **everything)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call.run)
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
        yield call, client
        client.close()


def _said(agent: ScriptedAgent) -> list[str]:
    return [message.content for message in agent.conversation.messages[1:]]


@both
@pytest.mark.parametrize(
    ("partials", "asked", "wait"),
    [
        (["When do", "when do you open"], 1, 0.0),  # what was understood when the caller stopped
        (["When do", AUDIO_END, 0.01, "when do you open"], 2, 0.0),  # a partial after that
        (["When do"], 2, 0.3),  # a wrong guess costs no time
        ([], 1, 0.3),
    ],
)
def test_the_answer_is_ready_when_the_transcript_is_final(
    backend: Backend, partials: list[Any], asked: int, wait: float
) -> None:
    async def scenario() -> None:
        final = "When do you open?"
        heard = [Partial(act) if isinstance(act, str) else act for act in partials]
        stt = ScriptedSTT([*heard, *([] if AUDIO_END in heard else [AUDIO_END]), 0.4, final])
        agent = ScriptedAgent([0.3, "At nine."])
        async with calling(agent=agent, stt=stt) as (call, client):
            client.speak()
            await anyio.sleep(3)
            assert _said(agent) == [final, "At nine."]
            assert agent.asked == asked
            (turn,) = [turn for turn in call.result.turns if turn.transcript]
            assert turn.transcript == final
            assert turn.first_audio_at is not None
            assert turn.speech_end is not None
            assert turn.first_audio_at - turn.speech_end == pytest.approx(0.4 + wait, abs=0.02)

    run_virtual(backend, scenario)


@both
def test_nothing_is_guessed_while_the_caller_speaks(backend: Backend) -> None:
    async def scenario() -> None:
        words = ["I", "would", "like", "a", "table", "for", "two"]
        partials: list[Any] = [act for end in range(1, 8) for act in (Partial(" ".join(words[:end])), 0.1)]
        agent = ScriptedAgent([0.3, "At nine."])
        async with calling(agent=agent, stt=ScriptedSTT([*partials, AUDIO_END, 0.4, " ".join(words)])) as (_, client):
            client.put("StartSpeaking")
            client.put(bytes(3200))
            await anyio.sleep(1)
            assert agent.asked == 0
            client.put("StopSpeaking")
            await anyio.sleep(2)
            assert (agent.asked, _said(agent)) == (1, [" ".join(words), "At nine."])

    run_virtual(backend, scenario)


@both
@pytest.mark.parametrize("how", ["goes on", "mutes", "said nothing", "hangs up", "off"])
def test_a_guess_that_is_not_needed_has_no_effect(backend: Backend, how: str) -> None:
    async def scenario() -> None:
        finals: dict[str, list[Any]] = {"said nothing": [" "], "hangs up": [HANG], "mutes": ["Hello?"]}
        final = finals.get(how, ["Well?"])
        stt = ScriptedSTT([Partial("hello"), AUDIO_END, 0.4, *final], [AUDIO_END, 0.1, "Never mind."])
        agent = ScriptedAgent([0.1, "Hi."])
        async with calling(agent=agent, stt=stt, speculate=how != "off") as (_, client):
            client.speak()
            await anyio.sleep(0.2)
            assert agent.asked == (how != "off")
            assert _said(agent) == []
            if how == "mutes":
                client.put("Mute")
            if how == "goes on":
                client.speak()
            if how != "hangs up":
                await anyio.sleep(3)
        expected = {
            "goes on": ["Never mind.", "Well?", "Hi."],
            "mutes": ["Hello?"],
            "said nothing": [],
            "hangs up": [],
            "off": ["Well?", "Hi."],
        }[how]
        assert sorted(_said(agent)) == sorted(expected) or (how, _said(agent).count("Hi.")) == ("goes on", 2)

    run_virtual(backend, scenario)


@pytest.mark.parametrize(
    ("text", "languages", "expected"),
    [
        ("Mhm.", (), True),
        ("mm-hm", ("en",), True),
        ("はい、はい", ("ja",), True),
        ("D'accord !", ("fr",), True),
        ("Uh huh, okay, yeah", ("en",), True),
        ("ja ja ja ja", ("de",), False),
        ("Ja, aber", ("de",), False),
        ("genau", ("en",), False),
        ("No", (), False),
        ("Stop", (), False),
        ("", (), False),
        ("...", (), False),
    ],
)
def test_sounds_of_agreement_are_known_by_language(text: str, languages: tuple[str, ...], expected: bool) -> None:
    assert backchannels(*languages)(text) is expected


def test_an_unknown_language_is_refused() -> None:
    with pytest.raises(ValueError, match="xx; there are ar, de, en"):
        backchannels("de", "xx")


@both
def test_after_a_sound_of_the_callers_language_the_answer_goes_on(backend: Backend) -> None:
    async def scenario() -> None:
        agent = ScriptedAgent(["One two three four five six seven eight."])
        stt = ScriptedSTT("Zähl", [Partial("ja"), AUDIO_END, 0.2, "Ja, genau."])
        async with calling(agent=agent, stt=stt, backchannel=backchannels("de")) as (_, client):
            client.speak()
            await anyio.sleep(1)
            client.speak()
            await anyio.sleep(5)
            assert _said(agent) == ["Zähl", "One two three four five six seven eight."]
            assert agent.conversation.messages[-1].metadata is None
            assert agent.asked == 1

    run_virtual(backend, scenario)


@tool(on_cancel="detach")
async def book() -> str:
    """Book a table."""
    await anyio.sleep(2)
    return "table 5"


@both
@pytest.mark.parametrize("busy", [False, True])
def test_the_result_of_a_late_tool_is_spoken_when_nobody_speaks(backend: Backend, busy: bool) -> None:
    async def scenario() -> None:
        agent = ScriptedAgent(
            ["I book it.", ToolUse("book")], ["At nine. " * (8 if busy else 1)], ["You have table 5."], tools=[book]
        )
        async with calling(agent=agent, stt=ScriptedSTT("A table", "When do you open?")) as (_, client):
            client.speak()
            await anyio.sleep(1)
            client.speak()  # interrupts
            await anyio.sleep(1.5)
            assert (_said(agent)[-1] == "You have table 5.") is not busy
            await anyio.sleep(20)
            assert _said(agent)[-2:] == ["At nine. " * (8 if busy else 1), "You have table 5."]
            assert [item.output for item in agent.conversation.results][1:] == ['"table 5"']

    run_virtual(backend, scenario)


async def _guessing(run: CallRun) -> None:
    link, client = memory_link()
    stt = ScriptedSTT([Partial("a table"), AUDIO_END, 0.2, "A table."], [Partial("when"), AUDIO_END, 0.1, "How long?"])
    agent = ScriptedAgent([0.1, "I book it. ", ToolUse("book"), "Done."], [0.1, "Two hours."], tools=[book])
    tts = ScriptedTTS()
    call = Call(link, agent=agent, stt=stt, tts=tts, speculate=True, backchannel=backchannels("en"))

    async def act() -> None:
        await anyio.sleep(0.1)
        client.speak()
        await anyio.sleep(0.7)
        client.speak()
        await anyio.sleep(3)

    await run.play(call, client, tts, act=act)


def test_every_invariant_of_a_call_holds_wherever_it_is_interrupted() -> None:
    names = ["agent.cancel", "barge in", "pause", "speak", "stop speaking"]
    assert sweep_call(_guessing, inject=names, every=8).points > 20
