"""An hour of calls in virtual time: nothing is left of them, and memory does not grow."""

from __future__ import annotations

import gc
import logging
from typing import TYPE_CHECKING

import anyio
import pytest

from micdrop_agent import ProviderError
from micdrop_agent.call import Call, FallbackSTT, FallbackTTS
from micdrop_agent.testing import (
    BACKENDS,
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

    from micdrop_agent.testing import Backend

CALLS = 120
"""Of thirty seconds each."""


@pytest.fixture(autouse=True)
def _no_log() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


async def one_call() -> None:
    """A greeting, an answer, a barge-in, services that fail, and a hang-up in mid-sentence."""
    link, client = memory_link()
    agent = ScriptedAgent(["One two three. ", 0.5, "Four."], [ProviderError("down", kind="server")], ["Once more."])
    voices = [ScriptedTTS(None, VoiceFault(error=ConnectionError("cut"), after=1)), ScriptedTTS()]
    ears = [ScriptedSTT("Hello?", [ConnectionError("down")], "And?"), ScriptedSTT("Still there?")]
    call = Call(link, agent=agent, stt=FallbackSTT(ears), tts=FallbackTTS(voices), first_message="Hi", min_words=2)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call.run)
        for seconds in (7, 0.4, 9, 9, 4):
            client.speak()
            await anyio.sleep(seconds)
        client.close()


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_hour_of_calls_leaves_nothing_and_memory_is_flat(backend: Backend) -> None:
    sizes: list[int] = []

    async def scenario() -> None:
        async with assert_no_leaks():
            for number in range(CALLS):
                await one_call()
                if number in {CALLS // 4, CALLS - 1}:
                    gc.collect()
                    sizes.append(len(gc.get_objects()))

    run_virtual(backend, scenario, max_steps=10_000_000)

    assert sizes[1] - sizes[0] < 200  # objects that the collector knows, of ninety calls
