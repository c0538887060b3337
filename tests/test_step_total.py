"""``Timeouts.total``: one clock for a whole answer, which reaches everything that an answer waits for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest
from step_support import CALLS, STOP, Act, Model, call, down, said, with_model

from micdrop_agent import ProviderError, Retry, Timeouts
from micdrop_agent.events import AnswerFailed, Event
from micdrop_agent.model.protocol import Finish
from micdrop_agent.testing import BACKENDS
from micdrop_agent.tools import tool

if TYPE_CHECKING:
    from micdrop_agent import AnswerResult
    from micdrop_agent.testing import Backend

pytestmark = pytest.mark.parametrize("backend", BACKENDS)

PATIENT = Retry(max_retries=1, first_wait=8, max_wait=8, jitter=0)


@tool
async def dig() -> str:
    """Dig for ten seconds."""
    await anyio.sleep(10)
    return "gold"


def took_too_long(result: AnswerResult, seconds: str) -> bool:
    error = result.error
    assert isinstance(error, ProviderError)
    return (error.kind, error.retryable) == ("timeout", False) and f"longer than {seconds} seconds in all" in str(error)


@pytest.mark.parametrize("buffer_size", [None, 0])
@pytest.mark.parametrize("parallel", [True, False])
@pytest.mark.parametrize(
    ("scripts", "requests"),
    [
        pytest.param([["hang", []]], 1, id="before the status line"),
        pytest.param([[[], "hang"]], 1, id="before the first chunk"),
        pytest.param([[*[["a "], 1] * 20]], 1, id="while it streams"),
        pytest.param([[["a "], 1, [call("dig")], "hang"]], 1, id="in a tool beside its response"),
        pytest.param([[["a "], 1, [call("dig"), *CALLS]]], 1, id="in a tool behind its response"),
        pytest.param([[1, down()], [["a", *STOP]]], 1, id="before a retry"),
        pytest.param([[1, down(retry_after=1.0)], ["hang", []]], 2, id="in a retry"),
    ],
)
def test_it_ends_the_answer_wherever_that_is(
    backend: Backend, scripts: list[list[Act]], requests: int, parallel: bool, buffer_size: int | None
) -> None:
    async def check(agent: Model) -> None:
        failed: list[Event] = []
        agent.on(AnswerFailed, failed.append)
        answer = agent.answer()
        result = await answer.wait()
        assert took_too_long(result, "2.5")
        assert result.error is not None
        assert anyio.current_time() == result.duration == 2.5
        assert failed == [AnswerFailed(result.error)]
        assert len(agent.served.requests) == result.requests == requests
        assert not answer.ledger.calls
        await anyio.sleep(20)
        assert len(agent.served.requests) == requests
        assert "gold" not in str(said(agent))

    options: dict[str, Any] = {"retry": PATIENT, "parallel_tools": parallel, "buffer_size": buffer_size}
    timeouts = Timeouts(first_chunk=5, between_chunks=5, total=2.5)
    with_model(backend, scripts, check, tools=[dig], timeouts=timeouts, **options)


def test_without_it_a_wait_before_a_retry_and_a_tool_take_their_time(backend: Backend) -> None:
    async def check(agent: Model) -> None:
        result = await agent.answer().wait()
        assert (result.status, result.text) == ("completed", "Gold.")
        assert agent.served.times == [0, 8, 18]

    scripts: list[list[Act]] = [[down()], [[call("dig"), *CALLS]], [["Gold.", *STOP]]]
    with_model(backend, scripts, check, tools=[dig], retry=PATIENT, timeouts=Timeouts(total=None))


def test_it_counts_all_requests_of_an_answer_together(backend: Backend) -> None:
    async def check(agent: Model) -> None:
        result = await agent.answer().wait()
        assert took_too_long(result, "12")
        assert (agent.served.times, anyio.current_time()) == ([0, 11], 12)
        assert said(agent)[1:] == [("tool_call", "dig"), ("tool_result", '"gold"')]

    scripts: list[list[Act]] = [[1, [call("dig"), *CALLS]], ["hang", []]]
    with_model(backend, scripts, check, tools=[dig], timeouts=Timeouts(total=12))


@pytest.mark.parametrize("parallel", [True, False])
def test_an_answer_that_the_model_has_ended_is_whole_although_its_end_mark_does_not_come_in_time(
    backend: Backend, parallel: bool
) -> None:
    async def check(agent: Model) -> None:
        result = await agent.answer().wait()
        assert (result.status, result.text, result.error) == ("completed", "One.", None)
        assert anyio.current_time() == 1.02
        assert said(agent)[1:] == [("assistant", "One.")]

    timeouts = Timeouts(total=1.02)  # less than the wait for the usage
    with_model(backend, [[1, ["One.", *STOP], "hang"]], check, tools=[dig], timeouts=timeouts, parallel_tools=parallel)


def test_an_answer_whose_end_is_doubtful_may_be_cut_in_its_middle_and_fails(backend: Backend) -> None:
    async def check(agent: Model) -> None:
        result = await agent.answer().wait()
        assert took_too_long(result, "1.25")
        assert said(agent)[1:] == [("assistant", "One ", {"interrupted": True})]

    finish = Finish("stop", "stop", doubtful=True)
    with_model(backend, [[1, ["One ", finish], "hang"]], check, timeouts=Timeouts(total=1.25))
