"""The minimum rate of a response (``Timeouts.min_rate``): a drip is a time-out, a slow model is none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest
from step_support import NEVER, STOP, Model, call, with_model

from micdrop_agent import Timeouts
from micdrop_agent.model.protocol import PROGRESS, Refusal
from micdrop_agent.testing import BACKENDS
from micdrop_agent.tools import tool

if TYPE_CHECKING:
    from micdrop_agent.testing import Backend

each_backend = pytest.mark.parametrize("backend", BACKENDS)


def drip(event: Any, gap: float, times: int) -> list[Any]:
    return [act for _ in range(times) for act in ([event], gap)]


@each_backend
@pytest.mark.parametrize("gap", [1.5, 2, 4, 4.9])
@pytest.mark.parametrize("event", ["a", "é", "🙂"])
def test_a_server_that_drips_letters_is_a_time_out_long_before_the_total(
    backend: Backend, gap: float, event: str
) -> None:
    async def check(agent: Model) -> None:
        result = await agent.answer().wait()
        error: Any = result.error
        assert (result.status, error.kind) == ("failed", "timeout")
        assert "min_rate" in str(error)
        # The credit of ten seconds shrinks by a gap and grows by a letter each time.
        assert anyio.current_time() == pytest.approx(10 + len(result.text) - 1, abs=0.01)
        assert anyio.current_time() <= 31

    with_model(backend, [drip(event, gap, 60)], check, retry=NEVER, raise_on_failure=False)


@each_backend
@pytest.mark.parametrize(
    ("event", "gap"),
    [("a", 0.9), ("word ", 4), ("A whole sentence. ", 4.9), (PROGRESS, 4.9), (Refusal("Sorry. "), 4.5)],
)
def test_the_slowest_of_models_is_fast_enough(backend: Backend, event: Any, gap: float) -> None:
    async def check(agent: Model) -> None:
        result = await agent.answer().wait()
        assert (result.status, result.error) == ("completed", None)

    script = [*drip(event, gap, int(50 / gap)), ["End.", *STOP]]
    with_model(backend, [script], check, retry=NEVER, raise_on_failure=False)


@each_backend
def test_a_pause_within_its_limit_behind_slow_letters_is_none(backend: Backend) -> None:
    async def check(agent: Model) -> None:
        result = await agent.answer().wait()
        assert result.status == "completed"

    script = [*drip("ab", 2, 8), 2.9, ["More. "], 4.9, ["End.", *STOP]]
    with_model(backend, [script], check, retry=NEVER, raise_on_failure=False)


@each_backend
def test_the_rate_can_be_chosen_and_switched_off(backend: Backend) -> None:
    async def slow(agent: Model) -> None:
        assert (await agent.answer().wait()).status == "completed"

    async def fast(agent: Model) -> None:
        result = await agent.answer().wait()
        assert (result.status, getattr(result.error, "kind", None)) == ("failed", "timeout")

    script = [*drip("a", 4, 12), ["End.", *STOP]]
    with_model(backend, [script], slow, timeouts=Timeouts(min_rate=None), retry=NEVER)
    script = [*drip("words ", 1, 40), ["End.", *STOP]]
    with_model(backend, [script], fast, timeouts=Timeouts(min_rate=10), retry=NEVER, raise_on_failure=False)


@each_backend
@pytest.mark.parametrize("parallel", [True, False])
def test_the_time_of_a_tool_and_of_a_slow_reader_is_nobodys_drip(backend: Backend, parallel: bool) -> None:
    @tool
    async def dig() -> str:
        await anyio.sleep(20)
        return "gold"

    async def check(agent: Model) -> None:
        heard = ""
        async for chunk in agent.answer():
            heard += chunk
            await anyio.sleep(8)
        assert heard == "One. abcEnd."

    script = [["One. ", call("dig")], [*STOP]]
    second = [["a"], ["b"], ["c"], 1, ["End.", *STOP]]
    timeouts = Timeouts(total=None)
    with_model(backend, [script, second], check, tools=[dig], parallel_tools=parallel, buffer_size=0, timeouts=timeouts)


@pytest.mark.parametrize(("rate", "error"), [(0, ValueError), (-1, ValueError), ("1", TypeError), (True, TypeError)])
def test_what_is_no_rate_is_refused(rate: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="min_rate"):
        Timeouts(min_rate=rate)
