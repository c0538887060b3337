"""Each agent against llmock, a server that others wrote: its streams, its tools, its faults, its journal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from llmock_support import AGENTS, KEY, MockServer, each_agent, each_backend, fresh, needs_llmock, run, until

from micdrop_agent import Message, ProviderError, Retry, Timeouts, ToolCall, ToolResult, tool
from micdrop_agent.testing import assert_no_leaks

if TYPE_CHECKING:
    from collections.abc import Generator

    from micdrop_agent.messages import Item

pytestmark = needs_llmock

HELLO = {"type": "reply", "text": "We open at nine, every day but Sunday."}
WORDS = "We open at nine, every day but Sunday."
EAGER = Retry(max_retries=2, first_wait=0.0)
SPOKEN = {"chat": 1, "openai": 4, "mistral": 1}
"""Chunks that each dialect of llmock sends before the first one with text."""


@pytest.fixture(scope="module")
def server() -> Generator[MockServer]:
    with MockServer() as running:
        yield running


@tool
def weather(city: str) -> str:
    """The weather of a city."""
    return f"21 degrees in {city}"


class Heard:
    """What came of one answer."""

    def __init__(self, chunks: list[str], result: Any, items: list[Item]) -> None:
        self.text = "".join(chunks)
        self.result = result
        self.error = result.error
        self.items = items
        self.stored = "".join(item.content for item in items if isinstance(item, Message))


async def ask(server: MockServer, kind: str, **options: Any) -> Heard:
    """What an agent says to a question, with every trace of it gone afterwards."""
    async with assert_no_leaks():
        agent = server.make(kind, raise_on_failure=False, **{"retry": EAGER, **options})
        async with agent:
            agent.add_user_message("When do you open?")
            answer = agent.answer()
            chunks = [chunk async for chunk in answer]
            await drained(agent)
    heard = Heard(chunks, answer.result, list(agent.conversation)[2:])
    assert heard.stored == heard.text
    return heard


async def drained(agent: Any) -> None:
    """Wait for what is read behind the end mark, beside the answer."""
    await until(lambda: not agent._core.provider.transport.draining.active)


def fault(kind: str, after_chunks: int, **more: Any) -> dict[str, Any]:
    return {"type": "stream_fault", "kind": kind, "after_chunks": after_chunks, **more}


@each_backend
@each_agent
def test_a_stream_is_spoken_whole_with_its_usage_and_its_finish_reason(
    server: MockServer, backend: str, kind: str
) -> None:
    async def scenario() -> None:
        with fresh(server, HELLO):
            heard = await ask(server, kind)
        assert (heard.text, heard.result.status, heard.result.finish_reason) == (WORDS, "completed", "stop")
        if kind != "mistral":  # whose usage llmock leaves out
            assert heard.result.usage.input_tokens > 0
            assert heard.result.usage.output_tokens > 0
        (request,) = server.journal()
        assert (request["completed"], request["stream"], request["fault"]) == (True, True, None)

    run(backend, scenario)


@each_backend
@each_agent
def test_many_turns_go_over_one_connection(server: MockServer, backend: str, kind: str) -> None:
    async def scenario() -> None:
        with fresh(server):
            async with server.make(kind) as agent:
                for turn in range(5):
                    agent.add_user_message(f"Question {turn}")
                    assert [chunk async for chunk in agent.answer()]
                await drained(agent)
                assert len(agent._core.provider.transport._idle) == 1
        requests = server.journal()
        assert [len(asked["body"].get("messages") or asked["body"]["input"]) for asked in requests] == [1, 3, 5, 7, 9]

    run(backend, scenario)


@each_backend
@each_agent
def test_a_tool_runs_and_its_result_is_spoken_about(server: MockServer, backend: str, kind: str) -> None:
    call = {"type": "reply", "text": "One moment. ", "tool_calls": [{"name": "weather", "arguments": {"city": "Rome"}}]}

    async def scenario() -> None:
        with fresh(server, call, HELLO):
            heard = await ask(server, kind, tools=[weather])
        first, called, result, last = heard.items
        assert first == Message("assistant", "One moment. ")
        assert isinstance(called, ToolCall)
        assert (called.tool_name, called.parameters) == ("weather", '{"city": "Rome"}')
        assert isinstance(result, ToolResult)
        assert (result.tool_call_id, result.output) == (called.tool_call_id, '"21 degrees in Rome"')
        assert last == Message("assistant", WORDS)
        assert len(server.journal()) == 2

    run(backend, scenario)


@each_backend
@each_agent
@pytest.mark.parametrize(
    ("broken", "words"), [("malformed_arguments", "not valid JSON"), ("unknown_tool", "there is no tool")]
)
def test_a_broken_tool_call_is_told_to_the_model_which_then_speaks(
    server: MockServer, backend: str, kind: str, broken: str, words: str
) -> None:
    async def scenario() -> None:
        with fresh(server, {"type": "tool_fault", "kind": broken}):
            heard = await ask(server, kind, tools=[weather])
        _, result, last = heard.items
        assert isinstance(result, ToolResult)
        assert words in result.output
        assert isinstance(last, Message)
        assert heard.result.status == "completed"

    run(backend, scenario)


@each_backend
@each_agent
def test_a_short_retry_after_is_kept_to_and_a_long_one_is_no_wait_for_a_caller(
    server: MockServer, backend: str, kind: str
) -> None:
    async def scenario() -> None:
        with fresh(server, {"type": "fail", "status": 429, "retry_after": 0.05, "times": 2}, HELLO):
            heard = await ask(server, kind)
        assert heard.text == WORDS
        assert [request["status"] for request in server.journal()] == [429, 429, 200]
        assert [found for found in server.verdict()["findings"] if found["severity"] == "error"] == []
        with fresh(server, {"type": "fail", "status": 429, "retry_after": 30}):
            heard = await ask(server, kind)
        assert (heard.error.kind, heard.error.status, heard.error.retry_after) == ("rate_limit", 429, 30)
        assert len(server.journal()) == 1

    run(backend, scenario)


@each_backend
@each_agent
@pytest.mark.parametrize(
    ("status", "code", "failure", "requests"),
    [
        (500, None, "server", 3),
        (503, None, "overloaded", 3),
        (400, None, "bad_request", 1),
        (400, "context_length_exceeded", "context_length", 1),
        (401, None, "auth", 1),
        (402, None, "quota", 1),
        (404, "model_not_found", "not_found", 1),
        (429, "insufficient_quota", "quota", 1),
    ],
)
def test_a_refusal_is_named_and_asked_again_only_where_that_may_help(
    server: MockServer, backend: str, kind: str, status: int, code: str | None, failure: str, requests: int
) -> None:
    async def scenario() -> None:
        with fresh(server, {"type": "fail", "status": status, "code": code, "retry_after": 0, "times": None}):
            heard = await ask(server, kind)
        assert (heard.error.kind, heard.error.status, heard.text) == (failure, status, "")
        assert KEY not in f"{heard.error!r}{heard.error}"
        assert len(server.journal()) == requests

    run(backend, scenario)


@each_backend
@each_agent
@pytest.mark.parametrize("cut", ["disconnect", "truncate", "malformed"])
def test_a_stream_that_breaks_behind_words_fails_behind_them_and_is_not_asked_again(
    server: MockServer, backend: str, kind: str, cut: str
) -> None:
    async def scenario() -> None:
        with fresh(server, HELLO, fault(cut, SPOKEN[kind] + 3)):
            heard = await ask(server, kind)
        assert heard.text == "We open at "
        assert (heard.error.kind, heard.error.text_sent, heard.error.retryable) == (
            "protocol" if cut == "malformed" else "truncated",
            True,
            False,
        )
        assert [item.metadata for item in heard.items if isinstance(item, Message)] == [{"interrupted": True}]
        assert len(await server.until_ended(1)) == 1

    run(backend, scenario)


@each_backend
@each_agent
@pytest.mark.parametrize("cut", ["disconnect", "truncate", "malformed"])
def test_a_stream_that_breaks_before_a_word_is_asked_for_again(
    server: MockServer, backend: str, kind: str, cut: str
) -> None:
    async def scenario() -> None:
        with fresh(server, HELLO, HELLO, fault(cut, 0)):
            heard = await ask(server, kind)
        assert (heard.text, heard.result.status) == (WORDS, "completed")
        assert len(await server.until_ended(2)) == 2

    run(backend, scenario)


@each_backend
@each_agent
def test_a_call_that_is_cut_is_never_run_and_a_whole_one_runs_once(server: MockServer, backend: str, kind: str) -> None:
    call = {"type": "reply", "tool_calls": [{"name": "weather", "arguments": {"city": "Rome"}}]}

    async def scenario() -> None:
        cities: list[str] = []

        @tool
        def weather(city: str) -> str:
            """The weather of a city."""
            cities.append(city)
            return "fine"

        # Mistral sends a call in one piece: there it can only be cut before.
        with fresh(server, fault("disconnect", 1 if kind == "mistral" else 3), call, call, HELLO):
            heard = await ask(server, kind, tools=[weather])
        assert cities == ["Rome"]
        assert heard.text == WORDS
        assert [type(item) for item in heard.items] == [ToolCall, ToolResult, Message]

    run(backend, scenario)


@each_backend
@each_agent
def test_a_stall_is_cut_by_our_clock_and_the_server_sees_its_connection_closed(
    server: MockServer, backend: str, kind: str
) -> None:
    async def scenario() -> None:
        with fresh(server, HELLO, fault("stall", SPOKEN[kind] + 3, stall_seconds=600)):
            heard = await ask(server, kind, timeouts=Timeouts(between_chunks=0.1))
            assert (heard.text, heard.error.kind) == ("We open at ", "timeout")
            (request,) = await server.until_ended(1)
        assert not request["completed"]
        assert request["stall_waited"] < 60

    run(backend, scenario)


@each_backend
@each_agent
def test_a_first_token_may_be_slow_but_not_slower_than_its_clock(server: MockServer, backend: str, kind: str) -> None:
    async def scenario() -> None:
        with fresh(server, HELLO, {"type": "slow_first_token", "seconds": 0.2}):
            heard = await ask(server, kind, timeouts=Timeouts(first_chunk=30))
            assert heard.text == WORDS
        with fresh(server, HELLO, {"type": "slow_first_token", "seconds": 600}):
            heard = await ask(server, kind, timeouts=Timeouts(first_chunk=0.1))
            assert (heard.error.kind, heard.text) == ("timeout", "")
            (request,) = await server.until_ended(1)
        assert not request["completed"]

    run(backend, scenario)


@each_backend
@each_agent
@pytest.mark.parametrize("how", ["cancel", "supersede", "leave"])
def test_the_journal_proves_that_a_cancelled_answer_closed_its_connection(
    server: MockServer, backend: str, kind: str, how: str
) -> None:
    """The server would go on for ten minutes: that the request has ended there is the client's doing."""

    async def scenario() -> None:
        with fresh(server, HELLO, fault("stall", SPOKEN[kind] + 2, stall_seconds=600)):
            async with server.make(kind) as agent:
                agent.add_user_message("When do you open?")
                answer = agent.answer()
                heard = await answer.receive()
                while len(heard) < len("We open "):
                    heard += await answer.receive()
                if how == "cancel":
                    agent.cancel()
                elif how == "supersede":
                    agent.add_user_message("Hello?")
                    assert [chunk async for chunk in agent.answer()]
                    await drained(agent)
                if how != "leave":
                    (request, *_) = await server.until_ended(1)
                    assert not request["completed"]
                    assert agent.conversation[2] == Message("assistant", "We open ", {"interrupted": True})
                    agent.add_user_message("Are you still there?")
                    assert [chunk async for chunk in agent.answer()]
                    await drained(agent)
            (request, *rest) = await server.until_ended(1)
        assert (request["completed"], request["chunks_sent"]) == (False, SPOKEN[kind] + 2)
        assert all(later["completed"] for later in rest)

    run(backend, scenario)


@each_backend
@each_agent
def test_a_cancel_before_any_word_reaches_the_server_too(server: MockServer, backend: str, kind: str) -> None:
    async def scenario() -> None:
        with fresh(server, HELLO, {"type": "slow_first_token", "seconds": 600}):
            async with server.make(kind) as agent:
                agent.add_user_message("When do you open?")
                answer = agent.answer()
                await until(lambda: any(noted[1] == "headers" for noted in answer.turn.facts.trace))
                agent.cancel()
                assert [chunk async for chunk in answer] == []
                (request,) = await server.until_ended(1)
                assert (request["completed"], request["chunks_sent"]) == (False, 0)
                assert list(agent.conversation)[1:] == [Message("user", "When do you open?")]

    run(backend, scenario)


@each_backend
def test_the_error_of_an_answer_is_raised_out_of_its_loop_as_itself(server: MockServer, backend: str) -> None:
    async def scenario() -> None:
        for kind in AGENTS:
            with fresh(server, {"type": "fail", "status": 401}):
                async with server.make(kind) as agent:
                    agent.add_user_message("hi")
                    with pytest.raises(ProviderError) as caught:
                        _ = [chunk async for chunk in agent.answer()]
            assert caught.value.kind == "auth"

    run(backend, scenario)
