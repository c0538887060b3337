"""When a request is sent again, and when it is not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest
from step_support import ONCE, STOP, Act, Model, call, chunks_of, down, look, mute, said, with_model

from micdrop_agent import FallbackAgent, ProviderError, Retry
from micdrop_agent.events import EVENT_TYPES, AnswerFailed, AnswerFinished, Event
from micdrop_agent.model.protocol import PROGRESS, Usage
from micdrop_agent.testing import BACKENDS, run_virtual

if TYPE_CHECKING:
    from micdrop_agent.testing import Backend

pytestmark = pytest.mark.parametrize("backend", BACKENDS)


# -- retries


def test_a_failed_request_is_sent_again_with_growing_waits(backend: Backend) -> None:
    async def check(agent: Model) -> None:
        assert await chunks_of(agent) == ["ok"]
        assert agent.served.times == [0, 1, 3, 6]

    retry = Retry(max_retries=3, first_wait=1, factor=2, max_wait=3, jitter=0)
    with_model(backend, [[down()], [down("connection")], [down("overloaded")], [["ok", *STOP]]], check, retry=retry)


@pytest.mark.parametrize(
    ("error", "requests"),
    [
        (down("server"), 2),
        (down("overloaded"), 2),
        (down("connection"), 2),
        (down("timeout"), 1),
        (down("timeout", retryable=True), 2),
        (down("bad_request"), 1),
        (down("context_length"), 1),
        (down("content_filter"), 1),
        (down("auth"), 1),
        (down("not_found"), 1),
        (down("quota"), 1),
        (down("rate_limit"), 1),
        (down("rate_limit", retry_after=1.5), 2),
        (down("rate_limit", retry_after=2.5), 1),
        (down("server", retry_after=2.0), 2),
        (down("server", retry_after=30.0), 1),
        (down("truncated"), 1),
        (down("protocol"), 1),
    ],
)
def test_what_is_sent_again(backend: Backend, error: ProviderError, requests: int) -> None:
    async def check(agent: Model) -> None:
        with pytest.raises(ProviderError) as caught:
            await chunks_of(agent)
        assert caught.value is error
        assert len(agent.served.requests) == requests
        waited = (1 if error.retry_after is None else error.retry_after) if requests > 1 else 0
        assert anyio.current_time() == waited

    with_model(backend, [[error]], check, retry=ONCE)


def test_nothing_is_sent_again_once_something_was_said(backend: Backend) -> None:
    async def check(agent: Model) -> None:
        answer = agent.answer()
        failed: list[Event] = []
        agent.on(AnswerFailed, failed.append)
        assert await answer.receive() == "Hel"
        with pytest.raises(ProviderError) as caught:
            await answer.receive()
        assert caught.value.text_sent
        assert len(agent.served.requests) == len(failed) == 1
        assert said(agent)[1:] == [("assistant", "Hel", {"interrupted": True})]

    with_model(backend, [[["Hel"], down()]], check, retry=ONCE)


def test_nothing_said_yet_may_be_sent_again_whatever_else_came(backend: Backend) -> None:
    async def check(agent: Model) -> None:
        assert await chunks_of(agent) == ["ok"]
        assert len(agent.served.requests) == 2

    with_model(backend, [[[PROGRESS], [Usage(input_tokens=1)], down()], [["ok", *STOP]]], check, retry=ONCE)


@pytest.mark.parametrize("parallel", [True, False])
def test_a_cut_response_lets_the_tools_it_started_end_and_asks_on_with_their_results(
    backend: Backend, *, parallel: bool
) -> None:
    async def check(agent: Model) -> None:
        assert await chunks_of(agent) == ["A cat."]
        assert said(agent)[1:] == [("tool_call", "look"), ("tool_result", '"a cat"'), ("assistant", "A cat.")]
        assert agent.served.times == [0, 2]
        assert [item.role for item in agent.served.requests[1][1]][2:] == ["tool_call", "tool_result"]

    script: list[list[Act]] = [[[call()], down()], [["A cat.", *STOP]]]
    with_model(backend, script, check, tools=[look], retry=ONCE, parallel_tools=parallel)


def test_a_cut_response_fails_with_its_tools_results_when_there_is_no_retry(backend: Backend) -> None:
    async def check(agent: Model) -> None:
        result = await agent.answer().wait()
        assert result.status == "failed"
        assert said(agent)[1:] == [("tool_call", "look"), ("tool_result", '"a cat"')]

    with_model(backend, [[[call()], down("truncated")]], check, tools=[look])


def test_a_cut_after_a_tool_that_ends_the_turn_is_of_no_interest(backend: Backend) -> None:
    async def check(agent: Model) -> None:
        result = await agent.answer().wait()
        assert (result.status, result.error) == ("skipped", None)
        assert said(agent)[1:] == [("tool_call", "mute"), ("tool_result", "null")]

    with_model(backend, [[[call("mute")], 1, down()]], check, tools=[mute])


def test_a_barge_in_during_the_wait_before_a_retry_is_no_failure(backend: Backend) -> None:
    async def check(agent: Model) -> None:
        events: list[Event] = []
        for kind in EVENT_TYPES:
            agent.on(kind, events.append)
        answer = agent.answer()
        await anyio.sleep(0.5)
        agent.cancel()
        assert [chunk async for chunk in answer] == []
        await anyio.sleep(10)
        assert [type(event) for event in events] == [AnswerFinished]
        assert len(agent.served.requests) == 1

    with_model(backend, [[down()]], check, retry=ONCE)


def test_a_bug_in_a_provider_is_not_retried_and_is_raised_as_it_is(backend: Backend) -> None:
    async def check(agent: Model) -> None:
        with pytest.raises(KeyError, match="broken"):
            await chunks_of(agent)
        assert said(agent)[1:] == [("tool_call", "look"), ("tool_result", '{"error":"no result"}')]

    with_model(backend, [[[call()], 0.5, KeyError("broken")]], check, tools=[look])


def test_a_barge_in_warms_a_connection_for_the_next_answer(backend: Backend) -> None:
    async def check(agent: Model) -> None:
        agent.served.warming = down("connection")
        agent.answer()
        await anyio.sleep(1)
        agent.cancel()
        await anyio.sleep(1)
        assert agent.served.warm == 1
        agent.answer()
        agent.cancel()  # nothing was sent: no connection was lost
        await anyio.sleep(1)
        assert agent.served.warm == 1

    with_model(backend, [["hang"]], check)


def test_prewarm_after_the_end_opens_nothing_that_nobody_would_close(backend: Backend) -> None:
    async def main() -> None:
        agent = Model([["a", *STOP]])
        await agent.prewarm()
        async with agent:
            assert agent.served.warm == 1
            await agent.aclose()
            await agent.prewarm()
        await agent.prewarm()
        assert (agent.served.warm, agent.served.closed) == (1, 1)
        assert agent._core._provider is None

    run_virtual(backend, main)


@pytest.mark.parametrize(
    ("retry", "asked", "spare"),
    [
        pytest.param(None, [0], 0, id="the default gives way at once"),
        pytest.param(ONCE, [0, 1], 1, id="one of the application's own is kept"),
    ],
)
def test_a_retry_by_default_is_for_who_has_nobody_else_to_ask(
    backend: Backend, retry: Retry | None, asked: list[float], spare: float
) -> None:
    async def main() -> None:
        first, last = Model([down()], retry=retry), Model([down()], [["ok", *STOP]], retry=retry)
        async with FallbackAgent([lambda: first, lambda: last], first_chunk_timeout=10) as agent:
            assert await chunks_of(agent) == ["ok"]
            assert first.served.times == asked
            # The last one is patient: nobody is left who could answer in its place.
            assert last.served.times[0] == spare
            assert len(last.served.times) == 2

    run_virtual(backend, main)


def test_a_rate_limit_is_not_waited_for_while_another_child_could_answer(backend: Backend) -> None:
    async def main() -> None:
        first, last = Model([down("rate_limit", retry_after=1.0)], retry=ONCE), Model([["ok", *STOP]])
        async with FallbackAgent([lambda: first, lambda: last], first_chunk_timeout=10) as agent:
            assert await chunks_of(agent) == ["ok"]
            assert (first.served.times, last.served.times) == ([0], [0])

    run_virtual(backend, main)
