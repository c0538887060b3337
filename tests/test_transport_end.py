"""The end mark is the end (DESIGN D14): no answer, no tool step and no failover waits for a connection to end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import anyio
import pytest

from micdrop_agent import ChatAgent, FallbackAgent, Message, Retry, ToolResult
from micdrop_agent.testing import BACKENDS, ScriptedProvider, fault, run_virtual, say
from micdrop_agent.tools import tool

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from micdrop_agent.testing import Backend, Exchange

each_backend = pytest.mark.parametrize("backend", BACKENDS)
AT_ONCE: Final = 0.02
"""Seconds, in virtual time: the wait for a connection to come back is 5 ms."""

HELLO: Final = b'data: {"choices":[{"index":0,"delta":{"content":"Hello."},"finish_reason":null}]}\n\n'
STOP: Final = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
CALLS: Final = (
    b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"1","type":"function",'
    b'"function":{"name":"look","arguments":"{}"}}]},"finish_reason":null}]}\n\n'
    b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}\n\n'
)
USAGE: Final = b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2}}\n\n'
DONE: Final = b"data: [DONE]\n\n"


def held(*pieces: bytes, after: float | None = None, gap: float = 0) -> Callable[[Exchange], Awaitable[None]]:
    """Send ``pieces`` and keep the body open: for ever, or for ``after`` seconds."""

    async def reply(exchange: Exchange) -> None:
        for piece in pieces:
            await anyio.sleep(gap)
            await exchange.send(piece)
        if after is None:
            await exchange.until_closed()
        else:
            await anyio.sleep(after)
            await exchange.end()

    return reply


def refusing(status: int, *pieces: bytes, **headers: str) -> Callable[[Exchange], Awaitable[None]]:
    async def reply(exchange: Exchange) -> None:
        await exchange.head(status, headers)
        for piece in pieces:
            await exchange.send(piece)
        await exchange.until_closed()

    return reply


def agent_of(provider: ScriptedProvider, host: str = "provider.test", **options: Any) -> ChatAgent:
    return ChatAgent(model="m", base_url=f"http://{host}/v1", connect=provider.connect, **options)


@tool
def look() -> str:
    return "a cat"


ENDS: Final = {
    "[DONE]": held(HELLO + STOP + USAGE + DONE),
    "usage without [DONE]": held(HELLO + STOP + USAGE),
    "usage later, without [DONE]": held(HELLO, STOP, USAGE),
    "[DONE] alone": held(HELLO + STOP, DONE),
}


@each_backend
@pytest.mark.parametrize("end", ENDS)
def test_the_readers_loop_ends_at_the_end_mark_although_the_body_stays_open(backend: Backend, end: str) -> None:
    async def scenario() -> None:
        async with ScriptedProvider([ENDS[end]]) as provider, agent_of(provider) as agent:
            began = 0.0
            for _ in range(2):
                agent.add_user_message("hi")
                began = anyio.current_time()
                answer = agent.answer()
                assert [chunk async for chunk in answer] == ["Hello."]
                assert anyio.current_time() - began < AT_ONCE
                assert answer.status == "completed"
                usage = answer.result.usage
                assert (None if usage is None else usage.output_tokens) == (2 if end != "[DONE] alone" else None)
            # A connection that did not come to its end is not used again; the body is given up in time.
            assert [request.connection for request in provider.requests] == [1, 2]
            await provider.until(lambda: provider.open_connections == 0)
            assert anyio.current_time() - began < 1

    run_virtual(backend, scenario)


@each_backend
def test_a_finish_reason_alone_is_the_end_but_for_a_moment_for_the_usage(backend: Backend) -> None:
    async def scenario() -> None:
        script = [held(HELLO + STOP), held(HELLO + STOP, USAGE, gap=0.04)]
        async with ScriptedProvider(script) as provider, agent_of(provider) as agent:
            for usage in (None, 2):
                agent.add_user_message("hi")
                began = anyio.current_time()
                answer = agent.answer()
                assert [chunk async for chunk in answer] == ["Hello."]
                assert anyio.current_time() - began < 0.1
                known = answer.result.usage
                assert (None if known is None else known.output_tokens) == usage

    run_virtual(backend, scenario)


@each_backend
@pytest.mark.parametrize("end", [CALLS + USAGE, CALLS + DONE, CALLS + USAGE + DONE])
def test_a_tool_step_asks_again_at_the_end_mark(backend: Backend, end: bytes) -> None:
    async def scenario() -> None:
        async with ScriptedProvider([held(end), say("A cat.")]) as provider, agent_of(provider, tools=[look]) as agent:
            agent.add_user_message("hi")
            began = anyio.current_time()
            assert "".join([chunk async for chunk in agent.answer()]) == "A cat."
            assert anyio.current_time() - began < AT_ONCE
            assert any(isinstance(item, ToolResult) for item in agent.conversation)

    run_virtual(backend, scenario)


@each_backend
@pytest.mark.parametrize("pause", [0, 0.001, 0.1])
def test_a_body_that_ends_a_moment_later_costs_no_connection(backend: Backend, pause: float) -> None:
    async def scenario() -> None:
        script = [held(CALLS + DONE, after=pause), held(HELLO + STOP + DONE, after=pause)]
        async with ScriptedProvider(script) as provider, agent_of(provider, tools=[look]) as agent:
            agent.add_user_message("hi")
            assert [chunk async for chunk in agent.answer()] == ["Hello."]
            await anyio.sleep(1)
            agent.add_user_message("and?")
            assert [chunk async for chunk in agent.answer()] == ["Hello."]
            # Within a tool step nobody waits for it for long; between turns there is time.
            assert provider.connections == (2 if pause > 0.01 else 1)

    run_virtual(backend, scenario)


@each_backend
@pytest.mark.parametrize("wait", [0, 0.01, 0.1, 0.3])
def test_a_barge_in_behind_the_end_mark_leaves_the_answer_complete(backend: Backend, wait: float) -> None:
    async def scenario() -> None:
        async with ScriptedProvider([held(HELLO + STOP + DONE)]) as provider, agent_of(provider) as agent:
            agent.add_user_message("hi")
            answer = agent.answer()
            assert [chunk async for chunk in answer] == ["Hello."]
            await anyio.sleep(wait)
            agent.cancel()
            assert answer.status == "completed"
            message = agent.conversation[-1]
            assert isinstance(message, Message)
            assert (message.content, message.metadata) == ("Hello.", None)

    run_virtual(backend, scenario)


REFUSALS: Final = {
    "no body at all": refusing(503),
    "a complete error": refusing(503, b'{"error": {"message": "later"}}'),
    "half an error": refusing(500, b'{"error": {"mess'),
    "a complete refusal": refusing(400, b'{"error": {"message": "no"}}'),
    "an empty account": refusing(429, b'{"error": {"code": "insufficient_quota"}}'),
    "in pieces": refusing(429, b'{"error": {"code": ', b'"insufficient_quota"}}'),
}


@each_backend
@pytest.mark.parametrize("refusal", REFUSALS)
def test_the_next_child_is_asked_although_the_body_of_the_error_stays_open(backend: Backend, refusal: str) -> None:
    async def scenario() -> None:
        hosts = {"one.test": [REFUSALS[refusal]], "two.test": [say("Okay.")]}
        async with ScriptedProvider(hosts) as provider:
            children = [lambda host=host: agent_of(provider, host) for host in hosts]
            async with FallbackAgent(factories=children) as agent:
                agent.add_user_message("hi")
                began = anyio.current_time()
                answer = agent.answer()
                assert "".join([chunk async for chunk in answer]) == "Okay."
                assert anyio.current_time() - began <= 0.025
                (attempt,) = answer.result.attempts
                error: Any = attempt.error
                assert error.kind == {"429": "quota", "400": "bad_request"}.get(
                    str(error.status), "overloaded" if error.status == 503 else "server"
                )

    run_virtual(backend, scenario)


@each_backend
def test_a_refusal_whose_body_never_comes_is_waited_for_a_quarter_of_a_second(backend: Backend) -> None:
    async def scenario() -> None:
        never = Retry(max_retries=0)
        async with (
            ScriptedProvider([refusing(429)]) as provider,
            agent_of(provider, retry=never, raise_on_failure=False) as agent,
        ):
            agent.add_user_message("hi")
            began = anyio.current_time()
            answer = agent.answer()
            assert [chunk async for chunk in answer] == []
            assert anyio.current_time() - began == pytest.approx(0.25)
            error: Any = answer.result.error
            assert (error.kind, error.status) == ("rate_limit", 429)

    run_virtual(backend, scenario)


@each_backend
def test_leaving_the_agent_while_a_response_is_drained_leaves_nothing(backend: Backend) -> None:
    async def scenario() -> None:
        async with ScriptedProvider([held(HELLO + STOP + DONE)]) as provider:
            async with agent_of(provider) as agent:
                agent.add_user_message("hi")
                assert [chunk async for chunk in agent.answer()] == ["Hello."]
                began = anyio.current_time()
            assert anyio.current_time() - began < AT_ONCE
            await provider.until(lambda: provider.open_connections == 0)

    run_virtual(backend, scenario)


@each_backend
def test_an_answer_that_was_cut_short_before_its_mark_is_no_answer(backend: Backend) -> None:
    async def scenario() -> None:
        async with (
            ScriptedProvider([fault("cut_after_text", text=["Hello "])]) as provider,
            agent_of(provider, retry=Retry(max_retries=0), raise_on_failure=False) as agent,
        ):
            agent.add_user_message("hi")
            answer = agent.answer()
            assert [chunk async for chunk in answer] == ["Hello "]
            error: Any = answer.result.error
            assert error.kind == "truncated"

    run_virtual(backend, scenario)
