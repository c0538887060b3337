"""A whole call over a link without a network, turn by turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest

from micdrop_agent.call import Call
from micdrop_agent.testing import (
    BACKENDS,
    ScriptedAgent,
    ScriptedSTT,
    ScriptedTTS,
    assert_no_leaks,
    memory_link,
    run_virtual,
)

if TYPE_CHECKING:
    from micdrop_agent.testing import Backend


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_call_hears_answers_and_is_interrupted(backend: Backend) -> None:
    async def scenario() -> None:
        link, client = memory_link()
        agent = ScriptedAgent(["Fine ", "thanks"], ["Once upon a time there was a king."])
        stt, tts = ScriptedSTT("How are you?", "And then?"), ScriptedTTS()
        call = Call(link, agent=agent, stt=stt, tts=tts, first_message="Good morning")
        async with assert_no_leaks(), anyio.create_task_group() as tasks:
            tasks.start_soon(call.run)
            await client.receives("audio")
            await anyio.sleep(3)
            client.speak(0.5)
            await anyio.sleep(3)
            client.speak(0.5)
            await anyio.sleep(1)
            client.put("StartSpeaking")
            await anyio.sleep(1)
            client.close()
        assert [item.content for item in agent.conversation if item.role == "assistant"] == [
            "Good morning",
            "Fine thanks",
            "Once upon a time",  # a second of sixteen characters
        ]
        assert stt.audio == [16_000, 16_000, 0]
        assert [turn.transcript for turn in call.result.turns] == ["", "How are you?", "And then?", ""]
        assert [turn.interrupted for turn in call.result.turns] == [False, False, True, False]
        assert call.result.interruptions == 1

    run_virtual(backend, scenario)
