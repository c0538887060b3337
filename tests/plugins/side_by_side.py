"""Our fixtures beside pytest-asyncio, AnyIO's plugin and pytest-trio, all installed; opt-in: ``nox -s plugins``.

Each kind of test does the same: an agent and a scripted server, in the loop that the plugin has started.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
import pytest

from micdrop_agent import ChatAgent
from micdrop_agent.testing import AssertNoLeaks, Cassette, InterruptEverywhere, RunVirtual, ScriptedAgent, say, talk

if TYPE_CHECKING:
    from micdrop_agent.testing import MakeProvider

RECORDED: Final = str(Path(__file__).parents[1] / "cassettes" / "llmock-chat")


async def answered(make: MakeProvider, check: AssertNoLeaks) -> str:
    async with (
        check(),
        make(say("We open ", "at nine.")) as server,
        ChatAgent(model="m", api_key="k", base_url=server.base_url, connect=server.connect) as agent,
    ):
        return (await talk(agent, "When do you open?")).said("nine").text


def test_a_plain_function_in_virtual_time(
    run_virtual: RunVirtual, scripted_provider: MakeProvider, assert_no_leaks: AssertNoLeaks
) -> None:
    async def scenario() -> str:
        await anyio.sleep(3600)
        return await answered(scripted_provider, assert_no_leaks)

    assert run_virtual(scenario) == "We open at nine."


def test_a_sweep(interrupt_everywhere: InterruptEverywhere) -> None:
    assert interrupt_everywhere(lambda: ScriptedAgent(["One ", 1, "two."]), "Count!", inject="cancel").points > 10


@pytest.mark.asyncio
async def test_under_pytest_asyncio(scripted_provider: MakeProvider, assert_no_leaks: AssertNoLeaks) -> None:
    assert await answered(scripted_provider, assert_no_leaks) == "We open at nine."


@pytest.mark.trio
async def test_under_pytest_trio(scripted_provider: MakeProvider, assert_no_leaks: AssertNoLeaks) -> None:
    assert await answered(scripted_provider, assert_no_leaks) == "We open at nine."


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_under_the_plugin_of_anyio(
    anyio_backend: str, scripted_provider: MakeProvider, assert_no_leaks: AssertNoLeaks
) -> None:
    assert await answered(scripted_provider, assert_no_leaks) == "We open at nine."


@pytest.mark.cassette(RECORDED, speed=0)
@pytest.mark.asyncio
async def test_a_cassette_under_pytest_asyncio(cassette: Cassette) -> None:
    assert not cassette.recording
    assert len(cassette.requests) == 3


@pytest.mark.cassette(RECORDED, speed=0)
@pytest.mark.trio
async def test_a_cassette_under_pytest_trio(cassette: Cassette) -> None:
    assert not cassette.recording
    assert len(cassette.requests) == 3
