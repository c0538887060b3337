"""C1 to C7, whatever a client does and whatever fails; each test names the invariant that it is about."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from call_support import FRAME, actions, answers, faults, hearings, play
from hypothesis import given
from hypothesis import strategies as st
from property_support import searching

from micdrop_agent.call import Call
from micdrop_agent.call._budget import Budget
from micdrop_agent.testing import (
    BACKENDS,
    CallProbe,
    ScriptedAgent,
    ScriptedSTT,
    ScriptedTTS,
    check_call,
    memory_link,
    run_virtual,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from micdrop_agent.testing import Backend, MemoryClient


@pytest.fixture(autouse=True)
def _no_log() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("backend", BACKENDS)
@given(story=actions, script=answers, heard=hearings, wrong=faults)
@searching(60)
def test_c1_c2_c3_c5_c6_hold_whatever_happens(
    backend: Backend, story: list[tuple[str, float]], script: list[Any], heard: list[Any], wrong: list[Any]
) -> None:
    """No old audio, no client that waits for ever, frames in order, nothing left; and the next turn works (C6)."""
    played = run_virtual(backend, play, story, script, heard, wrong)
    check_call(played.probe)
    assert played.recovered, played.client.names


@pytest.mark.parametrize("backend", BACKENDS)
@given(story=actions, script=answers, heard=hearings, wrong=faults)
@searching(30)
def test_c2_c3_c5_c6_hold_where_a_sound_of_agreement_interrupts_nothing(
    backend: Backend, story: list[tuple[str, float]], script: list[Any], heard: list[Any], wrong: list[Any]
) -> None:
    async def scenario() -> None:
        played = await play(story, script, heard, wrong, min_words=2)
        played.probe.resumes = True
        check_call(played.probe)
        assert played.recovered, played.client.names

    run_virtual(backend, scenario)


words = st.lists(st.sampled_from(["a", "the", "king", "lived", "wonderfully"]), min_size=1, max_size=8)


def _words_played(client: MemoryClient, words: list[str], rate: float, now: float) -> int:
    """How many words had been played to their end: a loudspeaker of our own, from the times of the frames.

    The words are longer than the 100 ms that the client collects before it plays.
    """
    clock, played = 0.0, 0.0
    for at, frame in zip(client.times, client.frames, strict=True):
        if isinstance(frame, bytes):
            begin = max(clock, at)
            clock = begin + len(frame) / 32_000
            played += min(clock, max(begin, now)) - begin
    ends = [sum(len(word) + 1 for word in words[: number + 1]) / rate for number in range(len(words))]
    return sum(end <= played + 1e-6 for end in ends)


@pytest.mark.parametrize("backend", BACKENDS)
@given(said=words, after=st.floats(0, 6), gap=st.floats(0, 0.5), written=st.integers(1, 4))
@searching(60)
def test_c4_the_stored_text_of_a_cut_answer_is_what_was_played(
    backend: Backend, said: list[str], after: float, gap: float, written: int
) -> None:
    """With stamps to the word, however the text was cut into chunks and whenever the caller speaks."""

    async def scenario() -> None:
        link, client = memory_link()
        text = " ".join(said)
        size = max(1, len(text) // written)
        chunks = [text[at : at + size] for at in range(0, len(text), size)]
        agent = ScriptedAgent([part for chunk in chunks for part in (chunk, gap)])
        # Whole sentences go to the voice here, so that no word is in two pieces.
        call = Call(
            link,
            agent=agent,
            stt=ScriptedSTT("Go"),
            tts=ScriptedTTS(stamps=True, characters_per_second=8),
            speech=_Whole,
        )
        async with agent, anyio.create_task_group() as tasks:
            tasks.start_soon(call.run)
            client.speak()
            await anyio.sleep(after)
            client.put("StartSpeaking")
            now = anyio.current_time()
            await anyio.sleep(0.01)
            heard = _words_played(client, said, 8, now)
            stored = " ".join(item.content for item in agent.conversation[2:])  # type: ignore[union-attr]  # messages
            assert stored.split() == said[:heard]
            client.close()

    run_virtual(backend, scenario)


class _Whole:
    """A splitter that waits for the whole text."""

    def __init__(self) -> None:
        self._text = ""

    def feed(self, text: str) -> list[str]:
        self._text += text
        return []

    def finish(self) -> list[str]:
        return [self._text] if self._text else []

    def original(self, spoken: int) -> int:
        return spoken


@pytest.mark.parametrize("backend", BACKENDS)
def test_c5_a_cancelled_host_leaves_nothing_of_the_call(backend: Backend) -> None:
    async def scenario() -> None:
        link, client = memory_link()
        agent = ScriptedAgent(["One two three four five six."])
        call = Call(link, agent=agent, stt=ScriptedSTT("Go"), tts=ScriptedTTS(delay=1), first_message="Hi")
        before = len(anyio.get_running_tasks())
        with anyio.move_on_after(2.5) as scope:
            client.put("StartSpeaking")
            client.put(FRAME)
            client.put("StopSpeaking")
            await call.run()
        assert scope.cancelled_caught
        assert len(anyio.get_running_tasks()) == before
        assert call.result.turns[-1].transcript == "Go"
        with pytest.raises(RuntimeError, match="new Call"):
            await call.run()

    run_virtual(backend, scenario)


frames = st.lists(
    st.one_of(
        st.sampled_from(["StartSpeaking", "StopSpeaking", "Mute", "", "x", "{}"]), st.binary(max_size=40), st.text()
    ),
    max_size=60,
)


@pytest.mark.parametrize("backend", BACKENDS)
@given(sent=frames)
@searching(60)
def test_c7_a_client_may_send_anything(backend: Backend, sent: list[str | bytes]) -> None:
    async def scenario() -> None:
        link, client = memory_link()
        agent, probe, tts = ScriptedAgent(["Yes."]), CallProbe(), ScriptedTTS()
        call = Call(link, agent=agent, stt=ScriptedSTT("Go"), tts=tts)
        async with agent, anyio.create_task_group() as tasks:
            probe.watch(call, client, tts)
            tasks.start_soon(call.run)
            for frame in sent:
                await client.send(frame)
            await anyio.sleep(40)
            client.close()
        check_call(probe)

    run_virtual(backend, scenario)


def test_c7_small_frames_that_come_a_little_too_fast_are_no_flood() -> None:
    """A gateway that sends 10 ms a frame, for ten minutes."""
    budget, now = Budget(0.0), 0.0
    for _ in range(60_000):
        now += 0.0098 + budget.spend(320, now)
        assert not budget.is_flood


@pytest.mark.parametrize("backend", BACKENDS)
def test_c7_who_sends_a_flood_and_leaves_keeps_no_call_alive(backend: Backend) -> None:
    async def scenario() -> None:
        link, client = memory_link()
        async with anyio.create_task_group() as tasks:
            for _ in range(10_000):
                client.put(b"x" * 20)
            with anyio.fail_after(20):
                await Call(link, stt=ScriptedSTT("x")).run()
            tasks.cancel_scope.cancel()
        assert client.closed == (4400, "Too many frames")

    async def speech_that_waited() -> None:
        """Two minutes of speech that come at once, after the network stood still."""
        link, client = memory_link()
        stt = ScriptedSTT("x")
        client.speak(120)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(Call(link, stt=stt).run)
            await client.receives("Message")
            client.close()
        assert stt.audio == [120 * 32_000]

    run_virtual(backend, scenario)
    run_virtual(backend, speech_that_waited)


@pytest.mark.parametrize("backend", BACKENDS)
def test_c7_a_flood_is_bounded_and_disturbs_no_other_call(backend: Backend) -> None:
    """10 MB in a second, in a turn and outside of one: what waits on our side stays small."""

    async def flood(client: MemoryClient, kept: list[int], call: Call) -> None:
        for number in range(5000):
            await client.send("StartSpeaking" if number % 1000 == 0 else bytes(2048))
            session = call._session
            assert session is not None
            kept.append(sum(one.bytes for one in session.ear.listenings) + session.mouth.outbox.audio_bytes)

    async def scenario() -> None:
        link, client = memory_link()
        other_link, other = memory_link()
        kept: list[int] = []
        hang = ScriptedSTT(["x", 1000.0])
        call = Call(link, stt=hang, max_turn=30)
        quiet = Call(
            other_link, agent=ScriptedAgent(["One two three. " * 20]), stt=ScriptedSTT("Go"), tts=ScriptedTTS()
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call.run)
            tasks.start_soon(quiet.run)
            await anyio.sleep(0.1)
            tasks.start_soon(flood, client, kept, call)
            other.speak()
            await anyio.sleep(1)
            assert len(other.audio) > 32_000 * 10  # at once, as without a flood
            with anyio.move_on_after(10):
                await client.until(lambda: len(kept) == 5000)
            tasks.cancel_scope.cancel()
        assert max(kept) <= 4 * 30 * 32_000
        assert len(kept) < 5000, "a flood is read slowly"

    run_virtual(backend, scenario)
