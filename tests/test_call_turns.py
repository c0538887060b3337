"""Whose turn it is, and what is said between the answers: detectors, silence, goodbyes, pauses, dictation."""

from __future__ import annotations

import json
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import pytest

from micdrop_agent import MessageCorrected, ProviderError, tool
from micdrop_agent.call import AsItComes, Call, Idle
from micdrop_agent.testing import (
    AUDIO_END,
    BACKENDS,
    HANG,
    MemoryClient,
    Partial,
    ScriptedAgent,
    ScriptedSTT,
    ScriptedTTS,
    VoiceFault,
    memory_link,
    run_virtual,
)

if TYPE_CHECKING:
    from array import array
    from collections.abc import AsyncGenerator, Iterator

    from micdrop_agent import Turn
    from micdrop_agent.testing import Backend


@pytest.fixture(autouse=True)
def _no_log() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> Backend:
    found: Backend = request.param
    return found


@asynccontextmanager
async def calling(**options: Any) -> AsyncGenerator[tuple[Call, MemoryClient]]:
    """A running call and its client, who hangs up at the end."""
    link, client = memory_link()
    everything: dict[str, Any] = {"stt": ScriptedSTT("Hello?"), "tts": ScriptedTTS(), **options}
    call = Call(link, **everything)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call.run)
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
        yield call, client
        client.close()


def said(client: MemoryClient) -> list[tuple[str, str]]:
    """The messages that the client has, as role and text."""
    items = [json.loads(text.partition(" ")[2]) for text in client.texts if text.startswith("Message ")]
    return [(item["role"], item.get("content", "")) for item in items]


# -------------------------------------------------------------------------------------- detectors


class Detector:
    """Says what it is told to; counts what it is given."""

    def __init__(self, *verdicts: Any) -> None:
        self.verdicts = list(verdicts)
        self.samples = 0
        self.resets = 0

    def push(self, samples: array[int]) -> None:
        self.samples += len(samples)

    def predict(self) -> Any:
        verdict = self.verdicts.pop(0)
        if isinstance(verdict, Exception):
            raise verdict
        return self._later(*verdict) if isinstance(verdict, tuple) else verdict

    async def _later(self, seconds: float, verdict: bool | Exception) -> bool:
        await anyio.sleep(seconds)
        if isinstance(verdict, Exception):
            raise verdict
        return verdict

    def reset(self) -> None:
        self.resets += 1


@pytest.mark.parametrize(
    ("verdict", "answered_after"),
    [
        (True, 0.0),
        (False, 2.0),
        ((0.5, True), 0.5),
        ((0.5, False), 2.0),
        ((99, True), 2.0),
        (ValueError("broken"), 0.0),
        ((0.5, ValueError("broken")), 0.5),
    ],
)
def test_a_turn_detector_says_when_the_caller_has_finished(
    backend: Backend, verdict: Any, answered_after: float
) -> None:
    async def scenario() -> None:
        detector = Detector(verdict)
        async with calling(agent=ScriptedAgent(["Yes."]), turn_detector=detector, turn_max_wait=2) as (_, client):
            client.speak(0.5)
            await client.receives("audio")
            assert anyio.current_time() == pytest.approx(answered_after)
            # Who is to go on is listened to: the client stops waiting for audio.
            assert client.names.count("SkipAnswer") == 1 + (verdict in {False, (0.5, False)})
            assert (detector.samples, detector.resets) == (8000, 1)

    run_virtual(backend, scenario)


def test_who_goes_on_speaking_is_not_answered_in_between(backend: Backend) -> None:
    async def scenario() -> None:
        agent = ScriptedAgent(["Yes."])
        stt = ScriptedSTT("I have", "a question")
        async with calling(agent=agent, stt=stt, turn_detector=Detector(False, True)) as (_, client):
            client.speak()
            await anyio.sleep(1)
            assert agent.asked == 0
            client.speak()
            await anyio.sleep(5)
            assert [item.role for item in agent.conversation] == ["system", "user", "user", "assistant"]

    run_virtual(backend, scenario)


def test_an_answer_that_more_words_replace_was_not_interrupted(backend: Backend) -> None:
    async def scenario() -> None:
        stt = ScriptedSTT("I have", "a question")
        async with calling(agent=ScriptedAgent(["Yes."]), stt=stt, turn_detector=Detector(False, True)) as (
            call,
            client,
        ):
            client.speak()
            await anyio.sleep(1)
            client.speak()
            await anyio.sleep(5)
            assert [len(turn.answers) for turn in call.result.turns] == [0, 2]
            assert call.result.interruptions == 0

    run_virtual(backend, scenario)


# ---------------------------------------------------------------------------------------- silence


def test_silence_is_broken_so_often_and_then_the_call_ends(backend: Backend) -> None:
    async def scenario() -> None:
        idle = Idle(after=10, say="Are you still there?", times=2, end=True)
        async with calling(idle=idle, agent=ScriptedAgent(["Yes."])) as (_, client):
            client.speak()
            await client.receives("EndCall")
            assert said(client)[2:] == [("assistant", "Are you still there?")] * 2
            # Ten seconds each, from the moment at which the caller has heard everything.
            spoken = len("Yes.") / 16 + 2 * len("Are you still there?") / 16
            assert anyio.current_time() == pytest.approx(30 + spoken, abs=0.1)

    run_virtual(backend, scenario)


def test_nobody_is_asked_while_somebody_speaks_or_has_paused(backend: Backend) -> None:
    async def scenario() -> None:
        async with calling(idle=Idle(after=5, say="Hello?"), agent=ScriptedAgent(["Yes."])) as (_, client):
            client.put("StartSpeaking")
            await anyio.sleep(60)
            client.put("Mute")
            await anyio.sleep(60)
            assert said(client) == []

    run_virtual(backend, scenario)


# -------------------------------------------------------------------------------- the end, pauses


def test_the_call_ends_when_the_goodbye_was_heard(backend: Backend) -> None:
    def bye(turn: Turn) -> None:
        turn.end_call()

    async def scenario() -> None:
        agent = ScriptedAgent([bye, "Goodbye, and thank you for calling."])
        async with calling(agent=agent) as (_, client):
            client.speak()
            await client.receives("EndCall")
            assert anyio.current_time() == pytest.approx(len("Goodbye, and thank you for calling.") / 16, abs=0.01)

    run_virtual(backend, scenario)


def test_who_speaks_into_the_goodbye_stays(backend: Backend) -> None:
    def bye(turn: Turn) -> None:
        turn.end_call()

    async def scenario() -> None:
        async with calling(agent=ScriptedAgent([bye, "Goodbye, then."], ["Yes?"])) as (_, client):
            client.speak()
            await anyio.sleep(0.3)
            client.speak()
            await anyio.sleep(30)
            assert "EndCall" not in client.names
            assert said(client)[-1] == ("assistant", "Yes?")

    run_virtual(backend, scenario)


def test_after_a_pause_a_late_text_is_stored_and_not_answered(backend: Backend) -> None:
    async def scenario() -> None:
        agent = ScriptedAgent(["Yes."])
        async with calling(agent=agent, stt=ScriptedSTT([AUDIO_END, 1.0, "Hello?"])) as (_, client):
            client.speak()
            client.put("Mute")
            await anyio.sleep(5)
            assert said(client) == [("user", "Hello?")]
            assert agent.asked == 0

    run_virtual(backend, scenario)


# ------------------------------------------------------------------------------- parts that are out


def test_without_an_agent_it_is_a_dictation(backend: Backend) -> None:
    async def scenario() -> None:
        async with calling(tts=None, stt=ScriptedSTT("One", "Two", "")) as (call, client):
            for number in range(3):
                client.speak()
                await client.receives("SkipAnswer", number + 2)
            assert said(client) == [("user", "One"), ("user", "Two")]
            assert [item.content for item in call.result.conversation] == ["One", "Two"]  # type: ignore[union-attr]  # messages

    run_virtual(backend, scenario)


def test_without_a_voice_answers_are_messages(backend: Backend) -> None:
    async def scenario() -> None:
        agent = ScriptedAgent(["Yes, ", 1.0, "I am here."])
        async with calling(agent=agent, tts=None, partial_messages=True, first_message="Hi") as (_, client):
            client.speak()
            await client.receives("SkipAnswer", 2)
            assert said(client) == [("assistant", "Hi"), ("user", "Hello?"), ("assistant", "Yes, I am here.")]
            partials = [text for text in client.texts if text.startswith("Partial")]
            assert (
                partials
                == ['PartialAssistantMessage "Yes, "', 'PartialAssistantMessage "Yes, I am here."'][: len(partials)]
            )
            assert partials
            client.speak()
            await anyio.sleep(0.5)
            client.put("StartSpeaking")
            await anyio.sleep(0.1)
            assert said(client)[-1] == ("assistant", "Yes, ")

    run_virtual(backend, scenario)


@pytest.mark.parametrize(
    ("stt", "agent", "tts", "told"),
    [
        ([ConnectionError("down")], ["Yes."], None, ["audio", "EndCall"]),
        ([AUDIO_END, HANG], ["Yes."], None, ["audio", "EndCall"]),
        (["Hello?"], [ProviderError("down", kind="server")], None, ["Message", "audio", "EndCall"]),
        (
            ["Hello?"],
            ["Yes."],
            VoiceFault(error=ConnectionError("down")),
            ["Message", "Message", "SkipAnswer", "EndCall"],
        ),
        (["Hello?"], ["Yes."], VoiceFault(), ["Message", "Message", "SkipAnswer", "EndCall"]),
    ],
)
def test_what_fails_is_told(backend: Backend, stt: list[Any], agent: list[Any], tts: Any, told: list[str]) -> None:
    async def scenario() -> None:
        voice = ScriptedTTS(tts, audio_bytes=640)
        options = {"failure_text": "Sorry?", "end_on_failure": True}
        async with calling(agent=ScriptedAgent(agent), stt=ScriptedSTT(stt), tts=voice, **options) as (_, client):
            client.speak()
            await client.receives("EndCall")
            assert [name for name in client.names[1:] if name != "Message" or "Message" in told][: len(told)] == told

    run_virtual(backend, scenario)


# ------------------------------------------------------------------------------------------ frames


@tool(emit_output=True)
def weather(city: str) -> dict[str, str]:
    """The weather."""
    return {"sky": f"blue in {city}"}


@pytest.mark.parametrize("shown", [True, False])
def test_tools_and_system_messages_stay_at_home_unless_asked_for(backend: Backend, shown: bool) -> None:
    from micdrop_agent.testing import Call as ToolUse

    async def scenario() -> None:
        agent = ScriptedAgent([ToolUse("weather", {"city": "Oslo"}), "It is fine."], tools=[weather])
        async with calling(agent=agent, send_tools=shown, send_system=shown) as (_, client):
            agent.add_message("system", "Be brief.")
            client.speak()
            await client.receives("audio")
            roles = [role for role, _ in said(client)]
            hidden = ["system", "user", "tool_call", "tool_result", "assistant"]
            assert roles == (hidden if shown else ["user", "assistant"])
            assert (
                'ToolCall {"name":"weather","parameters":{"city":"Oslo"},"output":{"sky":"blue in Oslo"}}'
                in client.texts
            )

    run_virtual(backend, scenario)


class Moods:
    """Classifies by length."""

    async def classify(self, text: str) -> Any:
        await anyio.sleep(0.3)
        if text == "fail":
            raise ValueError(text)
        return {"long": len(text) > 3}


def test_what_the_caller_says_is_classified_beside_the_answer(backend: Backend) -> None:
    async def scenario() -> None:
        stt = ScriptedSTT("Hello?", "fail")
        async with calling(agent=ScriptedAgent(["Yes."]), stt=stt, classifier=Moods()) as (_, client):
            client.speak()
            await client.receives("Classification")
            frame = 'Classification {"input":"Hello?","result":{"long":true},"duration":300}'
            assert frame in client.texts
            assert client.names.index("audio") < client.names.index("Classification")
            client.speak()
            await anyio.sleep(5)
            assert client.names.count("Classification") == 1
            assert said(client)[-1] == ("assistant", "Yes.")

    run_virtual(backend, scenario)


def test_a_first_message_that_is_interrupted_is_corrected(backend: Backend) -> None:
    async def scenario() -> None:
        agent = ScriptedAgent(["Yes."])
        corrected: list[Any] = []
        async with agent:
            agent.on(MessageCorrected, corrected.append)
            async with calling(agent=agent, first_message="Good morning, dear caller, what can I do?") as (_, client):
                await anyio.sleep(1)
                client.put("StartSpeaking")
                await anyio.sleep(0.1)
                assert agent.conversation[1].content == "Good morning, "  # type: ignore[union-attr]  # a message
                assert len(corrected) == 1

    run_virtual(backend, scenario)


# ----------------------------------------------------------------------------- sounds of agreement


@pytest.mark.parametrize("sound", ["mhm", "", " "])
def test_after_a_sound_of_agreement_the_answer_goes_on_where_it_was(backend: Backend, sound: str) -> None:
    async def scenario() -> None:
        text = "One two three four five six seven eight."
        agent = ScriptedAgent([text])
        stt = ScriptedSTT("Tell me", sound)
        options = {"backchannel": lambda heard: heard in {"mhm", "ja"}, "speech": AsItComes}
        async with calling(agent=agent, stt=stt, **options) as (_, client):
            client.speak()
            await anyio.sleep(1)
            client.put("StartSpeaking")
            client.put(bytes(3200))
            await anyio.sleep(0.5)
            before = len(client.audio)
            client.put("StopSpeaking")
            await anyio.sleep(5)
            again = len(client.audio) - before
            assert again == len(text) * 2000 - 32_000  # a second was heard
            assert said(client) == [("user", "Tell me"), ("assistant", text)]
            assert agent.conversation[-1].metadata is None  # type: ignore[union-attr]  # a message

    run_virtual(backend, scenario)


@pytest.mark.parametrize("acts", [["stop it"], [Partial("stop it"), HANG]])
def test_anything_else_interrupts_and_what_was_heard_is_what_was_heard_then(backend: Backend, acts: list[Any]) -> None:
    async def scenario() -> None:
        agent = ScriptedAgent(["One two three four five six seven eight."], ["All right."])
        stt = ScriptedSTT("Tell me", acts)
        async with calling(agent=agent, stt=stt, min_words=2) as (_, client):
            client.speak()
            await anyio.sleep(1)
            client.put("StartSpeaking")
            client.put(bytes(3200))
            await anyio.sleep(2)
            client.put("StopSpeaking")
            await anyio.sleep(1)
            assert said(client)[1] == ("assistant", "One two three four five six seven eight.")
            assert agent.conversation[2].content == "One two three "  # type: ignore[union-attr]  # a message

    run_virtual(backend, scenario)


# ------------------------------------------------------------------------------------ slow clients


def test_a_client_that_stops_reading_is_cut_and_served_again(backend: Backend) -> None:
    async def scenario() -> None:
        agent = ScriptedAgent(["word " * 400], ["Yes."])
        async with calling(agent=agent, audio_buffer=2) as (_, client):
            client.stall()
            client.speak()
            await anyio.sleep(20)
            assert not agent.answering
            assert agent.conversation[-1].role == "user"  # nothing of it was heard
            client.stall(False)
            await anyio.sleep(1)
            client.speak()
            await anyio.sleep(1)
            assert said(client)[-1] == ("assistant", "Yes.")

    run_virtual(backend, scenario)


def test_speaking_to_the_caller_from_outside(backend: Backend) -> None:
    async def scenario() -> None:
        agent = ScriptedAgent(["Yes."])
        tts = ScriptedTTS()
        async with calling(agent=agent, tts=tts) as (call, client):
            call.speak("Attention")
            call.speak("please")
            await anyio.sleep(2)
            assert tts.said == [["Attention"], ["please"]]
            assert said(client) == []
            call.answer()
            await anyio.sleep(1)
            call.answer()
            await anyio.sleep(1)
            assert agent.asked == 2  # the last item is then the answer, which was not answered
            call.end_call()
            call.stop()
            await anyio.lowlevel.checkpoint()
            assert client.closed is None  # whoever made the link closes it

    run_virtual(backend, scenario)


def test_audio_that_waits_for_a_slow_client_is_not_sent_after_a_barge_in(backend: Backend) -> None:
    async def scenario() -> None:
        agent = ScriptedAgent(["One two three four five six seven eight nine ten."], [HANG])
        async with calling(agent=agent, tts=ScriptedTTS(delay=0.1)) as (_, client):
            client.speak()
            await anyio.sleep(0.05)
            client.stall()
            await anyio.sleep(0.5)
            client.put("StartSpeaking")
            await anyio.sleep(0.1)
            before = len(client.audio)
            client.stall(False)
            await anyio.sleep(1)
            assert before > 0
            assert len(client.audio) == before

    run_virtual(backend, scenario)


def test_a_client_that_waits_for_an_agent_that_hangs_is_released(backend: Backend) -> None:
    async def scenario() -> None:
        async with calling(agent=ScriptedAgent([HANG]), reply_timeout=12) as (_, client):
            client.speak()
            await client.receives("SkipAnswer", 2)
            assert anyio.current_time() == pytest.approx(12)

    run_virtual(backend, scenario)


def test_a_voice_that_is_still_at_work_says_nothing_after_a_barge_in(backend: Backend) -> None:
    async def scenario() -> None:
        agent = ScriptedAgent(["One. ", "Two. ", "Three. "], [HANG])
        async with calling(agent=agent, tts=ScriptedTTS(delay=0.5), speech=AsItComes) as (_, client):
            client.speak()
            await anyio.sleep(0.7)
            client.put("StartSpeaking")
            await anyio.sleep(0.1)
            before = len(client.audio)
            assert before > 0
            await anyio.sleep(5)
            assert len(client.audio) == before

    run_virtual(backend, scenario)


@pytest.mark.parametrize("script", [[], [" "], [ProviderError("down", kind="server")]])
def test_an_answer_without_words_releases_the_client_at_once(backend: Backend, script: list[Any]) -> None:
    async def scenario() -> None:
        async with calling(agent=ScriptedAgent(script)) as (_, client):
            client.speak()
            await client.receives("SkipAnswer", 2)
            assert anyio.current_time() == 0

    run_virtual(backend, scenario)
