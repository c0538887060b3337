"""What the property tests of calls share: stories of clients, and speech services that fail in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import attrs
from hypothesis import strategies as st

from micdrop_agent import ProviderError, Turn, tool
from micdrop_agent.call import Call
from micdrop_agent.testing import (
    AUDIO_END,
    HANG,
    CallProbe,
    MemoryClient,
    Partial,
    ScriptedAgent,
    ScriptedSTT,
    ScriptedTTS,
    VoiceFault,
    assert_no_leaks,
    memory_link,
)
from micdrop_agent.testing import Call as ToolUse

if TYPE_CHECKING:
    from anyio.abc import ObjectReceiveStream

    from micdrop_agent.call import Hearing, Voice

FRAME = bytes(3200)

# ------------------------------------------------------------------------------------ the client

ACTIONS = ("start", "audio", "stop", "mute", "speak", "noise", "wait", "stall")
actions = st.lists(st.tuples(st.sampled_from(ACTIONS), st.floats(0, 2).map(lambda s: round(s, 2))), max_size=12)

_NOISE: tuple[str | bytes, ...] = ("", "Start", "StartSpeaking\n", '{"a":1}', b"", b"\0", b"\0" * 3, b"Stop", "\ud800")


_FRAMES: dict[str, str | bytes] = {"start": "StartSpeaking", "audio": FRAME, "stop": "StopSpeaking", "mute": "Mute"}


async def act(client: MemoryClient, story: list[tuple[str, float]]) -> None:
    """Play the client: each action, then the seconds after it."""
    for number, (action, seconds) in enumerate(story):
        if action in _FRAMES:
            client.put(_FRAMES[action])
        elif action == "speak":
            client.speak()
        elif action == "noise":
            client.put(_NOISE[number % len(_NOISE)])
        elif action == "stall":
            client.stall(not client.stalled)
        await anyio.sleep(seconds)


# ------------------------------------------------------------------------------- its other side

texts = st.sampled_from(["Hello?", "a b c", "", " ", "Ja"])
hearings = st.lists(
    st.lists(
        st.one_of(
            texts,
            st.just(AUDIO_END),
            st.just(HANG),
            st.floats(0, 3),
            st.builds(Partial, texts),
            st.just(ConnectionError("down")),
        ),
        max_size=3,
    ),
    max_size=4,
)
faults = st.lists(
    st.one_of(
        st.none(),
        st.builds(VoiceFault, after=st.integers(0, 3), error=st.sampled_from([None, ConnectionError("cut")])),
    ),
    max_size=5,
)


@tool
async def look() -> str:
    """Look it up."""
    await anyio.sleep(0.2)
    return "seen"


def _skip(turn: Turn) -> None:
    turn.skip_answer()


def _forget(turn: Turn) -> None:
    turn.cancel_prompt()


def _hang_up(turn: Turn) -> None:
    turn.end_call()


acts = st.one_of(
    st.sampled_from(["One ", "two three. ", "four", " "]),
    st.floats(0, 2),
    st.just(ToolUse("look")),
    st.just(ProviderError("down", kind="server")),
    st.just(HANG),
    st.sampled_from([_skip, _forget, _hang_up]),
)
answers = st.lists(st.lists(acts, max_size=4), max_size=4)


class Recovering:
    """Speech services and an agent that do what their scripts say until they are healthy again."""

    def __init__(self, stt: ScriptedSTT, tts: ScriptedTTS) -> None:
        self.healthy = False
        self._stt = stt
        self._tts = tts

    async def transcribe(self, audio: ObjectReceiveStream[bytes], hearing: Hearing) -> None:
        if not self.healthy:
            await self._stt.transcribe(audio, hearing)
            return
        async for _ in audio:
            pass
        hearing.final("Are you there?")

    async def synthesize(self, text: ObjectReceiveStream[str], voice: Voice) -> None:
        if self.healthy:
            self._tts.heal()
        await self._tts.synthesize(text, voice)


class RecoveringAgent(ScriptedAgent):
    """Says "I am here." once it is healthy."""

    healthy = False

    async def generate_answer(self, turn: Turn) -> None:
        if self.healthy:
            await turn.write("I am here.")
        else:
            await super().generate_answer(turn)


@attrs.define(eq=False)
class Played:
    """What one story showed."""

    probe: CallProbe
    client: MemoryClient
    call: Call
    agent: ScriptedAgent
    recovered: bool = False


async def play(
    story: list[tuple[str, float]],
    script: list[Any],
    heard: list[Any],
    wrong: list[VoiceFault | None],
    **options: Any,
) -> Played:
    """Play a story, and then a turn in which everything works."""
    link, client = memory_link()
    tts = ScriptedTTS(*wrong)
    parts = Recovering(ScriptedSTT(*heard), tts)
    agent = RecoveringAgent(*script, tools=[look])
    call = Call(link, agent=agent, stt=parts, tts=parts, reply_timeout=20, **options)
    played = Played(CallProbe(), client, call, agent)
    async with assert_no_leaks(), agent:
        played.probe.watch(call, client, tts)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_run, played)
            await act(client, story)
            client.stall(False)
            await anyio.sleep(60)
            parts.healthy = agent.healthy = True
            before = len(client.audio)
            client.speak()
            await anyio.sleep(3)
            played.recovered = len(client.audio) > before and agent.conversation[-1].role == "assistant"
            client.close()
    return played


async def _run(played: Played) -> None:
    try:
        await played.call.run()
    finally:
        played.probe.over()
