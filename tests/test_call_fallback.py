"""Several speech services in a row: one that fails, is silent, or stops in mid-sentence."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from property_support import searching

from micdrop_agent import AgentSwitched, HealthRegistry
from micdrop_agent.call import AsItComes, Call, FallbackSTT, FallbackTTS
from micdrop_agent.testing import (
    AUDIO_END,
    BACKENDS,
    HANG,
    Partial,
    ScriptedAgent,
    ScriptedSTT,
    ScriptedTTS,
    VoiceFault,
    assert_no_leaks,
    memory_link,
    run_virtual,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from anyio.abc import ObjectReceiveStream

    from micdrop_agent.call import Hearing
    from micdrop_agent.testing import Backend, MemoryClient

DOWN = ConnectionError("down")


@pytest.fixture(autouse=True)
def _no_log() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


async def one_turn(
    stt: Any, tts: Any, text: str = "One two three four. Five six seven eight.", seconds: float = 30
) -> MemoryClient:
    """A call of one turn."""
    link, client = memory_link()
    pieces = [piece + " " for piece in text.split(" ")]
    call = Call(link, agent=ScriptedAgent(pieces), stt=stt, tts=tts)
    async with assert_no_leaks(), anyio.create_task_group() as tasks:
        tasks.start_soon(call.run)
        client.put("StartSpeaking")
        for _ in range(10):
            client.put(bytes(3200))
            await anyio.sleep(0.1)
        client.put("StopSpeaking")
        await anyio.sleep(seconds)
        client.close()
    return client


def messages(client: MemoryClient) -> list[str]:
    return [text for text in client.texts if text.startswith("Message")]


# ---------------------------------------------------------------------------------- speech to text


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "first",
    [
        [DOWN],
        [AUDIO_END, DOWN],
        [HANG],
        [AUDIO_END, HANG],
        [Partial("Hel"), AUDIO_END, HANG],
        [Partial("Hel"), AUDIO_END, DOWN],
    ],
)
def test_the_next_one_hears_all_of_the_audio(backend: Backend, first: list[Any]) -> None:
    async def scenario() -> None:
        second = ScriptedSTT("Hello?")
        stt = FallbackSTT([ScriptedSTT(first), second], text_timeout=2)
        switches: list[AgentSwitched] = []
        stt.on(AgentSwitched, switches.append)
        client = await one_turn(stt, ScriptedTTS())
        assert messages(client)[0] == 'Message {"role":"user","content":"Hello?"}'
        assert second.audio == [32_000]
        assert [(event.from_, event.to) for event in switches] == [("ScriptedSTT", "ScriptedSTT #2")]
        assert stt.active_name == "ScriptedSTT #2"

    run_virtual(backend, scenario)


class Halves:
    """Hears the first half, and then fails; tells what a second one is given."""

    def __init__(self, fails: bool) -> None:
        self.fails = fails
        self.heard = 0

    async def transcribe(self, audio: ObjectReceiveStream[bytes], hearing: Hearing) -> None:
        async for pcm in audio:
            self.heard += len(pcm)
            if self.fails and self.heard == 64_000:
                hearing.final("I have")
            if self.fails and self.heard == 80_000:
                raise DOWN
        hearing.final("a question")


@pytest.mark.parametrize("backend", BACKENDS)
def test_after_a_text_only_the_audio_behind_it_is_heard_again(backend: Backend) -> None:
    """With a second before it: a word twice is the smaller fault."""

    async def scenario() -> None:
        link, client = memory_link()
        first, second = Halves(fails=True), Halves(fails=False)
        call = Call(link, agent=ScriptedAgent(["Yes?"]), stt=FallbackSTT([first, second]), tts=ScriptedTTS())
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call.run)
            client.put("StartSpeaking")
            for _ in range(40):
                client.put(bytes(3200))
                await anyio.sleep(0.1)
            client.put("StopSpeaking")
            await client.receives("audio")
            client.close()
        assert call.result.turns[-1].transcript == "I have a question"
        assert second.heard == 40 * 3200 - 64_000 + 32_000

    run_virtual(backend, scenario)


@pytest.mark.parametrize("backend", BACKENDS)
def test_all_that_hear_fail_and_the_caller_is_told(backend: Backend) -> None:
    async def scenario() -> None:
        link, client = memory_link()
        stt = FallbackSTT([ScriptedSTT([DOWN]), ScriptedSTT([AUDIO_END, HANG])], text_timeout=2)
        call = Call(
            link, agent=ScriptedAgent(["Yes?"]), stt=stt, tts=ScriptedTTS(), failure_text="Sorry?", end_on_failure=True
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call.run)
            client.speak()
            await client.receives("EndCall")
            assert client.names[1:] == ["audio"] * (len(client.names) - 2) + ["EndCall"]
            client.close()

    run_virtual(backend, scenario)


# ---------------------------------------------------------------------------------- text to speech


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("after", range(9))
@pytest.mark.parametrize("error", [DOWN, None])
@pytest.mark.parametrize("stamps", [True, False])
def test_the_next_one_says_the_rest_of_the_sentence(
    backend: Backend, after: int, error: Exception | None, stamps: bool
) -> None:
    """Nothing is lost, and at most the word that was cut is said twice."""

    async def scenario() -> None:
        text = "One two three four. Five six seven eight."
        first = ScriptedTTS(VoiceFault(error=error, after=after), stamps=stamps)
        second = ScriptedTTS(stamps=stamps)
        client = await one_turn(ScriptedSTT("Hello?"), FallbackTTS([first, second]), text)
        assert '"content":"One two three four. Five six seven eight. "' in messages(client)[-1]
        if first.said and len(second.said) == 1:
            rest = "".join(second.said[0])
            assert (text + " ").endswith(rest)
        whole = len(text + " ") / 16 * 32_000
        word = 8 / 16 * 32_000
        assert whole - 3200 <= len(client.audio) <= whole + word + 3200

    run_virtual(backend, scenario)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_voice_is_not_late_while_there_is_nothing_to_say(backend: Backend) -> None:
    """The agent is silent for longer than any clock of the voices."""

    async def scenario() -> None:
        link, client = memory_link()
        first, second = ScriptedTTS(), ScriptedTTS()
        tts = FallbackTTS([first, second], first_audio_timeout=1, audio_gap_timeout=1)
        agent = ScriptedAgent(["One moment. ", 9, "Here ", 9, "it is. ", 9, "Bye"])
        call = Call(link, agent=agent, stt=ScriptedSTT("Go"), tts=tts, speech=AsItComes)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call.run)
            client.speak()
            await anyio.sleep(40)
            client.close()
        assert first.said == [["One moment. ", "Here ", "it is. ", "Bye"]]
        assert second.said == []

    run_virtual(backend, scenario)


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_that_is_out_is_not_asked_again_while_another_works(backend: Backend) -> None:
    async def scenario() -> None:
        health = HealthRegistry(failures=1)
        bad, good = ScriptedTTS(*[VoiceFault(error=DOWN)] * 9), ScriptedTTS()
        for _ in range(3):
            await one_turn(ScriptedSTT("Hello?"), FallbackTTS([bad, good], health=health), seconds=1)
        assert len(bad.said) == 1
        assert health.state("ScriptedTTS") != "closed"

    run_virtual(backend, scenario)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_slow_one_is_overtaken_and_only_one_is_heard(backend: Backend) -> None:
    async def scenario() -> None:
        slow, quick = ScriptedTTS(delay=1.5, label=100), ScriptedTTS(label=200)
        tts = FallbackTTS([slow, quick], hedge_after=0.5)
        client = await one_turn(ScriptedSTT("Hello?"), tts)
        assert set(client.audio[::2]) == {200}
        assert tts.active_name == "ScriptedTTS #2"

    run_virtual(backend, scenario)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_barge_in_is_no_failure(backend: Backend) -> None:
    async def scenario() -> None:
        health = HealthRegistry(failures=1)
        link, client = memory_link()
        tts = FallbackTTS([ScriptedTTS(delay=0.5), ScriptedTTS()], health=health)
        call = Call(link, agent=ScriptedAgent(["One ", "two ", "three"]), stt=ScriptedSTT("Go"), tts=tts)
        async with assert_no_leaks(), anyio.create_task_group() as tasks:
            tasks.start_soon(call.run)
            for seconds in (0.1, 0.6, 1.2):
                client.speak()
                await anyio.sleep(seconds)
            client.put("Mute")
            await anyio.sleep(1)
            client.close()
        assert tts.active_name == "ScriptedTTS"
        assert all(child.failures == 0 for child in health.snapshot().values())

    run_virtual(backend, scenario)


faults = st.one_of(st.none(), st.builds(VoiceFault, after=st.integers(0, 6), error=st.sampled_from([DOWN, None])))


@pytest.mark.parametrize("backend", BACKENDS)
@given(first=faults, second=faults, gap=st.floats(0, 0.4), hedge=st.sampled_from([None, 0.3]), cut=st.floats(0, 12))
@searching(40)
def test_whatever_fails_each_word_is_said_by_one_of_them(
    backend: Backend, first: Any, second: Any, gap: float, hedge: float | None, cut: float
) -> None:
    """The last one never fails: all is said, or what was said is a beginning if the caller interrupts."""

    async def scenario() -> None:
        link, client = memory_link()
        words = ["One", "two", "three", "four", "five", "six", "seven", "eight"]
        script = [part for word in words for part in (word + " ", gap)]
        voices = [ScriptedTTS(first, stamps=True), ScriptedTTS(second, stamps=True), ScriptedTTS(stamps=True)]
        tts = FallbackTTS(voices, hedge_after=hedge, first_audio_timeout=1, audio_gap_timeout=1)
        agent = ScriptedAgent(script)
        call = Call(link, agent=agent, stt=ScriptedSTT("Go"), tts=tts)
        async with assert_no_leaks(), agent, anyio.create_task_group() as tasks:
            tasks.start_soon(call.run)
            client.speak()
            await anyio.sleep(cut)
            if cut < 6:
                client.put("StartSpeaking")
            await anyio.sleep(10)
            client.close()
        stored = "".join(item.content for item in agent.conversation[2:])  # type: ignore[union-attr]  # messages
        assert (" ".join(words) + " ").startswith(stored.rstrip())
        if cut >= 6:
            size = sum(len(word) + 1 for word in words) / 16 * 32_000
            assert size <= len(client.audio) <= size + 3 * 6 / 16 * 32_000

    run_virtual(backend, scenario)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (([],), ValueError),
        (([object()],), TypeError),
        (([ScriptedTTS],), TypeError),
    ],
)
def test_what_is_no_service_is_refused(arguments: tuple[Any, ...], error: type[Exception]) -> None:
    with pytest.raises(error):
        FallbackTTS(*arguments)
    with pytest.raises(ValueError, match="names"):
        FallbackTTS([ScriptedTTS()], names=["a", "b"])
    with pytest.raises(ValueError, match="prefer"):
        FallbackSTT([ScriptedSTT()], prefer="last")  # type: ignore[arg-type]  # what is tested
