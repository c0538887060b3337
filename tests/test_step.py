"""One turn of a model: text and clocks, with a provider of scripted events in virtual time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest
from step_support import CALLS, STOP, Act, Model, call, chunks_of, look, said, with_model

from micdrop_agent import ProviderError, Timeouts
from micdrop_agent.events import MessageAdded
from micdrop_agent.model.protocol import PROGRESS, TEXT_DONE, Refusal, Usage
from micdrop_agent.testing import BACKENDS

if TYPE_CHECKING:
    from micdrop_agent.testing import Backend

pytestmark = pytest.mark.parametrize("backend", BACKENDS)


# -- text


def test_text_is_spoken_as_it_comes_and_stored_as_one_message(backend: Backend) -> None:
    async def check(agent: Model) -> None:
        assert await chunks_of(agent) == ["Hel", "lo", " you"]
        assert said(agent) == [("user", "hi"), ("assistant", "Hello you")]
        (request,) = agent.served.requests
        assert [item.role for item in request[1]] == ["system", "user"]

    with_model(backend, [[["Hel", "lo"], 1, [" you", *STOP]]], check)


def test_the_first_chunk_goes_out_before_the_rest_of_its_burst_is_handled(backend: Backend) -> None:
    async def check(agent: Model) -> None:
        stored: list[str] = []
        agent.on(MessageAdded, lambda event: stored.append(event.message.content))  # type: ignore[union-attr] # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownArgumentType]
        answer = agent.answer()
        assert await answer.receive() == "first"
        assert answer.ledger.length == len("first")
        assert stored == []
        assert len([chunk async for chunk in answer]) == 200

    with_model(backend, [[["first", *["x"] * 200, *STOP]]], check)


def test_a_stretch_of_text_that_is_whole_is_stored_while_the_response_goes_on(backend: Backend) -> None:
    async def check(agent: Model) -> None:
        answer = agent.answer()
        assert [await answer.receive(), await answer.receive()] == ["one", "two"]
        agent.cancel()
        assert said(agent)[1:] == [("assistant", "one"), ("assistant", "two", {"interrupted": True})]

    with_model(backend, [[["one", TEXT_DONE], ["two"], "hang"]], check)


def test_a_refusal_is_spoken_and_marked(backend: Backend) -> None:
    async def check(agent: Model) -> None:
        assert await chunks_of(agent) == ["I ", "cannot."]
        assert said(agent)[1:] == [("assistant", "I cannot.", {"refusal": True})]

    with_model(backend, [[[Refusal("I ")], [Refusal("cannot."), *STOP]]], check)


def test_a_refusal_that_is_cut_is_still_one(backend: Backend) -> None:
    async def check(agent: Model) -> None:
        answer = agent.answer()
        assert await answer.receive() == "I "
        agent.cancel()
        assert said(agent)[1:] == [("assistant", "I ", {"refusal": True, "interrupted": True})]

    with_model(backend, [[[Refusal("I ")], "hang"]], check)


def test_usage_is_summed_over_all_requests(backend: Backend) -> None:
    async def check(agent: Model) -> None:
        answer = agent.answer()
        result = await answer.wait()
        assert result.usage == Usage(input_tokens=30, output_tokens=3, cached_tokens=5)
        assert (result.requests, result.finish_reason, result.text) == (2, "stop", "A cat.")

    first = [call(), *CALLS, Usage(input_tokens=10, output_tokens=1)]
    second = ["A cat.", *STOP, Usage(input_tokens=20, output_tokens=2, cached_tokens=5)]
    with_model(backend, [[first], [second]], check, tools=[look])


# -- clocks


@pytest.mark.parametrize(
    ("script", "after", "which"),
    [
        (["hang"], 5, "5 seconds, Timeouts: first chunk"),
        ([[], "hang"], 5, "first chunk"),
        ([*[[], 1] * 20], 5, "first chunk"),
        ([2, ["a"], "hang"], 5, "3 seconds, Timeouts: between chunks"),
        ([2, [PROGRESS], "hang"], 5, "between chunks"),
        ([1, [PROGRESS], 2, [PROGRESS], 2, ["a"], *[1, []] * 20], 8, "between chunks"),
        ([1, [Usage(input_tokens=1)], "hang"], 5, "first chunk"),
        # A provider of somebody else's may know more kinds of events than this version.
        ([1, [object()], 1, ["a"], 1, [object()], "hang"], 5, "between chunks"),
    ],
)
@pytest.mark.parametrize("buffer_size", [None, 0, 3])
def test_the_clocks_are_moved_by_useful_output_only(
    backend: Backend, script: list[Act], after: float, which: str, buffer_size: int | None
) -> None:
    async def check(agent: Model) -> None:
        answer = agent.answer()
        with pytest.raises(ProviderError, match=which) as caught:
            async for _ in answer:
                pass
        assert (caught.value.kind, caught.value.retryable) == ("timeout", False)
        assert caught.value.text_sent is bool(answer.text)
        assert anyio.current_time() == after
        assert len(agent.served.requests) == 1

    timeouts = Timeouts(first_chunk=5, between_chunks=3)
    with_model(backend, [script], check, timeouts=timeouts, buffer_size=buffer_size)


@pytest.mark.parametrize("buffer_size", [0, 1])
def test_a_slow_consumer_is_not_the_providers_fault(backend: Backend, buffer_size: int) -> None:
    async def check(agent: Model) -> None:
        answer = agent.answer()
        chunks = list[str]()
        await anyio.sleep(9)
        async for chunk in answer:
            chunks += [chunk]
            await anyio.sleep(9)
        assert chunks == ["a", "b", "c"]
        assert answer.status == "completed"

    timeouts = Timeouts(first_chunk=5, between_chunks=3, total=7)
    with_model(backend, [[["a"], ["b"], 1, ["c", *STOP]]], check, timeouts=timeouts, buffer_size=buffer_size)


def test_without_limits_nothing_runs_out(backend: Backend) -> None:
    async def check(agent: Model) -> None:
        assert await chunks_of(agent) == ["a", "b"]
        assert anyio.current_time() == 2000

    limits = Timeouts(connect=None, first_chunk=None, between_chunks=None, total=None, min_rate=None)
    with_model(backend, [[1000, ["a"], 1000, ["b", *STOP]]], check, timeouts=limits)


def test_the_total_counts_everything_and_gives_a_running_tool_its_result(backend: Backend) -> None:
    async def check(agent: Model) -> None:
        answer = agent.answer()
        result = await answer.wait()
        assert isinstance(result.error, ProviderError)
        assert (result.error.kind, result.error.text_sent) == ("timeout", True)
        assert "longer than 1.5 seconds in all" in str(result.error)
        assert anyio.current_time() == 1.5
        assert said(agent)[1:] == [
            ("assistant", "Let me see."),
            ("tool_call", "look"),
            ("tool_result", '{"error":"no result"}'),
        ]

    with_model(backend, [[1, ["Let me see.", call(), *CALLS]]], check, tools=[look], timeouts=Timeouts(total=1.5))


def test_after_the_finish_reason_a_silent_server_is_not_waited_for(backend: Backend) -> None:
    async def check(agent: Model) -> None:
        assert await chunks_of(agent) == ["a"]
        assert anyio.current_time() == 0.05

    with_model(backend, [[["a", *STOP], "hang"]], check)
