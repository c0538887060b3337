"""Two servers on real sockets, the first of which fails in every way: the caller hears one whole answer, once."""

from __future__ import annotations

import gc
import random
import socket
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.abc
import pytest
from llmock_support import MockServer, fresh, needs_llmock, run, until

from micdrop_agent import (
    ChatAgent,
    FallbackAgent,
    HealthRegistry,
    Message,
    OpenaiAgent,
    Retry,
    Timeouts,
    ToolCall,
    tool,
)
from micdrop_agent.testing import ScriptedProvider, assert_no_leaks, parts, say

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from micdrop_agent.testing import ReceivedRequest, Reply

each_backend = pytest.mark.parametrize("backend", ["asyncio", "trio"])
WORDS: Final = [f"word{number} " for number in range(8)]
"""All different, so that one that is said twice or left out is seen."""
NOTHING_LEFT: Final = "That is all."
"""What the second server says to a text that is whole: a busy machine may be silent for too long right before the end."""
QUICK: Final = Timeouts(first_chunk=0.02, between_chunks=0.02)
NEVER: Final = Retry(max_retries=0)


def faulty(name: str, dice: random.Random) -> Reply:
    """What the first server does; most ways come after any number of words."""
    words = WORDS[: dice.randrange(len(WORDS))]
    text: list[dict[str, Any]] = [{"text": words}]
    scripts: dict[str, list[dict[str, Any]]] = {
        "status": [{"status": dice.choice([500, 503, 429, 401, 400]), "headers": {"retry-after": "9"}}],
        "silent before the head": [{"silence": "before_headers"}],
        "silent": [*text, {"silence": True}],
        "only keep-alives": [*text, {"keepalives": 0.005}],
        "ends": [*text, {"cut": "eof"}],
        "resets": [*text, {"cut": "reset"}],
        "closes at once": [{"cut": "before_status"}],
        # Reached over a kept connection only, which is the end of that.
        "refused": [{"cut": "before_status"}],
        "ends without its mark": [*text, {"stop": True}],
        "tells an error": [*text, {"error": "Internal error"}],
        "cut in a call": [*text, {"tool_begun": "look_up"}, {"cut": "reset"}],
        "fails behind a tool": [{"tool": "look_up", "args": {}}],
        "healthy": [{"text": WORDS}],
    }
    return parts(scripts[name])


FAULTS: Final = (
    "status",
    "silent before the head",
    "silent",
    "only keep-alives",
    "ends",
    "resets",
    "closes at once",
    "refused",
    "ends without its mark",
    "tells an error",
    "cut in a call",
    "fails behind a tool",
    "healthy",
)


def history(request: ReceivedRequest) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = request.body.get("messages") or request.body["input"]
    return items


def goes_on(request: ReceivedRequest) -> Reply:
    """The second server: a model that goes on where the text stopped, as it is asked to."""
    partial = ""
    for item in reversed(history(request)):
        if item.get("role") == "user" and item["content"] == "go":
            break
        if item.get("role") == "assistant" and isinstance(item.get("content"), str):
            partial = item["content"] + partial
    said = len(partial.split())
    assert [f"{word} " for word in partial.split()] == WORDS[:said]
    return say(*WORDS[said:]) if said < len(WORDS) else say(NOTHING_LEFT)


class Call:
    """One supervisor over two servers, asked again and again."""

    agent: FallbackAgent

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.fault = "healthy"
        self.ran: Counter[str] = Counter()
        self.ends: Counter[str] = Counter()

    async def connect(self, host: str, port: int, tls: bool) -> anyio.abc.ByteStream:
        """Over TCP, to a port where nobody listens if that is the fault."""
        del tls
        if self.fault != "refused":
            return await anyio.connect_tcp(host, port)
        with socket.socket() as nobody:
            nobody.bind((host, 0))
            return await anyio.connect_tcp(host, nobody.getsockname()[1])

    def first(self, request: ReceivedRequest) -> Reply:
        if self.fault == "fails behind a tool" and any(
            item.get("role") == "tool" or item.get("type") == "function_call_output" for item in history(request)
        ):
            return parts([{"status": 500}])
        return faulty(self.fault, self.dice)

    async def turn(self, fault: str) -> None:
        agent, dice = self.agent, self.dice
        self.fault = fault
        agent.health.reset()
        agent.conversation.replace([])
        agent.add_user_message("go")
        self.ran.clear()
        barge_in = dice.randrange(len(WORDS)) if dice.random() < 0.3 else None
        answer = agent.answer()
        heard = ""
        if barge_in == 0:
            await anyio.sleep(dice.choice([0, 0.001, 0.005, 0.035]))
        else:
            async for chunk in answer:
                heard += chunk
                if barge_in is not None and len(heard.split()) >= barge_in:
                    break
        if barge_in is not None:
            agent.cancel()
            assert [chunk async for chunk in answer] == []
        self._check(heard if barge_in != 0 else answer.text, whole=barge_in is None)
        self.ends[answer.status] += 1

    def _check(self, heard: str, *, whole: bool) -> None:
        items = list(self.agent.conversation)
        stored = [item.content for item in items if isinstance(item, Message) and item.role == "assistant"]
        assert "".join(stored) == heard, (self.fault, stored, heard)
        words = [f"{word} " for word in heard.removesuffix(NOTHING_LEFT).split()]
        assert words == WORDS[: len(words)], (self.fault, heard)
        assert not whole or words == WORDS, (self.fault, heard)
        calls = [item for item in items if isinstance(item, ToolCall)]
        assert self.ran["look_up"] == len(calls) <= 1, (self.fault, items)


@each_backend
@pytest.mark.parametrize(("make", "answers"), [(ChatAgent, 1000), (OpenaiAgent, 300)])
def test_a_thousand_answers_over_a_failing_server_are_heard_whole_once_and_stored_as_heard(
    backend: str, make: Callable[..., Any], answers: int
) -> None:
    async def scenario() -> None:
        call = Call(seed=11)

        @tool
        def look_up() -> str:
            """Look something up."""
            call.ran["look_up"] += 1
            return "found"

        async with (
            assert_no_leaks(),
            ScriptedProvider(call.first) as first,
            ScriptedProvider(goes_on) as second,
            first.listening() as first_url,
            second.listening() as second_url,
        ):
            call.agent = FallbackAgent(
                [
                    lambda: make(
                        model="m", api_key="k", base_url=first_url, retry=NEVER, timeouts=QUICK, connect=call.connect
                    ),
                    lambda: make(model="m", api_key="k", base_url=second_url),
                ],
                prefer="first",
                first_chunk_timeout=None,
                health=HealthRegistry(),
                tools=[look_up],
            )
            async with call.agent:
                for number in range(answers):
                    await call.turn(FAULTS[number % len(FAULTS)] if number < answers / 2 else call.dice.choice(FAULTS))
            assert set(call.ends) == {"completed", "cancelled"}, call.ends
            assert min(call.ends.values()) > answers / 10, call.ends
            await first.until(lambda: first.open_connections == 0)
            await second.until(lambda: second.open_connections == 0)
        gc.collect()

    run(backend, scenario)


@pytest.fixture(scope="module")
def servers() -> Generator[tuple[MockServer, MockServer]]:
    with MockServer() as first, MockServer() as second:
        yield first, second


TEXT: Final = "We open at nine, every day but Sunday."
ANSWER: Final = {"type": "reply", "text": TEXT, "times": None}


def stream_fault(kind: str, after_chunks: int) -> dict[str, Any]:
    return {"type": "stream_fault", "kind": kind, "after_chunks": after_chunks, "stall_seconds": 600}


@needs_llmock
@each_backend
@pytest.mark.parametrize("kind", ["chat", "openai", "mistral"])
@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ({"type": "fail", "status": 500}, "server"),
        ({"type": "fail", "status": 429, "retry_after": 60}, "rate_limit"),
        ({"type": "fail", "status": 401}, "auth"),
        ({"type": "delay", "seconds": 600}, "timeout"),
        (stream_fault("stall", 0), "timeout"),
        ({"type": "slow_first_token", "seconds": 600}, "timeout"),
        (stream_fault("disconnect", 0), "truncated"),
        (stream_fault("truncate", 0), "truncated"),
        (stream_fault("malformed", 0), "protocol"),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(map(str, list(value.values())[:3])),
)
def test_a_second_llmock_answers_when_the_first_one_fails_before_a_word(
    servers: tuple[MockServer, MockServer], backend: str, kind: str, fault: dict[str, Any], reason: str
) -> None:
    first, second = servers

    async def scenario() -> None:
        with fresh(first, ANSWER, fault), fresh(second, ANSWER):
            agent = FallbackAgent(
                [lambda: first.make(kind, retry=NEVER), lambda: second.make(kind)],
                first_chunk_timeout=0.3 if reason == "timeout" else None,
            )
            async with assert_no_leaks(), agent:
                agent.add_user_message("When do you open?")
                answer = agent.answer()
                assert "".join([chunk async for chunk in answer]) == TEXT
                assert agent.conversation[-1] == Message("assistant", TEXT)
                assert len(agent.conversation) == 3
                (attempt,) = answer.result.attempts
                assert getattr(attempt.error, "kind", None) == reason
            assert len(await second.until_ended(1)) == 1
            # A delay of the whole response is slept through by llmock, whoever goes.
            if fault["type"] != "delay":
                assert len(await first.until_ended(1)) == 1

    run(backend, scenario)


@needs_llmock
@each_backend
def test_after_random_barge_ins_and_failovers_between_two_llmocks_no_request_is_left_running(
    servers: tuple[MockServer, MockServer], backend: str
) -> None:
    first, second = servers
    dice = random.Random(5)

    async def scenario() -> None:
        asked = 0
        with fresh(first), fresh(second):
            marks = [(server, server.mark()) for server in servers]
            second.plan(ANSWER)
            agent = FallbackAgent(
                [lambda: first.make("chat", retry=NEVER, timeouts=QUICK), lambda: second.make("chat")],
                first_chunk_timeout=None,
                after_partial="restart",
                prefer="first",
            )
            async with assert_no_leaks(), agent:
                for _ in range(60):
                    agent.health.reset()
                    agent.conversation.replace([])
                    kind = dice.choice(["disconnect", "truncate", "malformed", "stall"])
                    first.plan(dict(ANSWER, times=1), stream_fault(kind, dice.randrange(9)))
                    agent.add_user_message("When do you open?")
                    answer = agent.answer()
                    cut = False
                    async for _ in answer:
                        if dice.random() < 0.05:
                            agent.cancel()
                            cut = True
                    asked += answer.turn.facts.requests
                    stored = "".join(item.content for item in agent.conversation if item.role == "assistant")
                    # One that had ended before it was read to its end stays completed when it is cut.
                    assert answer.status == "completed" or (cut and answer.status == "cancelled")
                    assert TEXT.startswith(stored) if cut else stored == TEXT
            # Whatever a server has begun to answer has ended. A request that was given up before it was read, as on a
            # busy machine, never begins.
            for server, begin in marks:
                end = server.mark()
                await until(lambda: server.all_ended(begin, end))  # noqa: B023 - called in this round
            assert len(first.journal()) + len(second.journal()) <= asked + 2 * len(marks)

    run(backend, scenario)
