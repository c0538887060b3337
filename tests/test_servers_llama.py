"""The agents for hosted models on a real llama.cpp server and a real small model; opt-in: ``nox -s servers``.

What the model says is its own business. That each dialect is understood by a server that others wrote, that
a barge-in ends the model's work, and that refusals are named, is ours.
"""

from __future__ import annotations

import logging
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import anyio
import pytest
from llmock_support import run

from micdrop_agent import ChatAgent, Message, OpenaiAgent, ProviderError, Retry, Timeouts
from micdrop_agent.providers.llama import EmbeddedServer, ServerOptions, default_model
from micdrop_agent.testing import assert_no_leaks

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

pytestmark = pytest.mark.skipif(find_spec("xllamacpp") is None, reason="opt-in, needs llama.cpp: nox -s servers")
each_backend = pytest.mark.parametrize("backend", ["asyncio", "trio"])
PATIENT: Final = Timeouts(first_chunk=60, between_chunks=30, total=120)
AGENTS: Final = [
    (ChatAgent, {"dialect": "template"}, "max_tokens"),
    (OpenaiAgent, {"dialect": "typed"}, "max_output_tokens"),
]
each_agent = pytest.mark.parametrize(("make", "options", "limit"), AGENTS)


class Running(NamedTuple):
    url: str
    api_key: str


@pytest.fixture(scope="module")
def server() -> Generator[Running]:
    running = EmbeddedServer(ServerOptions(model=default_model(), context=512, threads=None))
    url = anyio.run(running.start)
    yield Running(url, running.api_key)
    anyio.run(running.stop)


def open_agent(server: Running, make: Callable[..., Any], **options: Any) -> Any:
    given: dict[str, Any] = {
        "api_key": server.api_key,
        "base_url": f"{server.url}/v1",
        "timeouts": PATIENT,
        "model": "smol",
        **options,
    }
    return make(**given)


@each_backend
@each_agent
def test_it_answers_twice_and_says_how_much_that_cost(
    server: Running, backend: str, make: Callable[..., Any], options: dict[str, Any], limit: str
) -> None:
    async def scenario() -> None:
        async with assert_no_leaks(), open_agent(server, make, settings={limit: 20}, **options) as agent:
            for question in ("Hello, who are you?", "And what do you like?"):
                agent.add_user_message(question)
                answer = agent.answer()
                chunks = [chunk async for chunk in answer]
                assert len(chunks) > 1
                assert agent.conversation[-1] == Message("assistant", "".join(chunks))
                assert answer.result.usage.output_tokens > 0

    run(backend, scenario)


@each_backend
@each_agent
def test_a_barge_in_stops_the_model_and_the_next_answer_comes(
    server: Running, backend: str, make: Callable[..., Any], options: dict[str, Any], limit: str
) -> None:
    async def scenario() -> None:
        async with assert_no_leaks(), open_agent(server, make, settings={limit: 300}, **options) as agent:
            for _ in range(3):
                agent.add_user_message("Tell me a long story about the sea.")
                heard = await agent.answer().receive()
                agent.cancel()
                assert agent.conversation[-1] == Message("assistant", heard, {"interrupted": True})

    run(backend, scenario)


@each_backend
@each_agent
def test_a_wrong_key_and_a_conversation_that_is_too_long_are_named(
    server: Running,
    backend: str,
    make: Callable[..., Any],
    options: dict[str, Any],
    limit: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def kind_of(question: str, **more: Any) -> str:
        async with open_agent(server, make, retry=Retry(max_retries=0), **{**options, **more}) as agent:
            agent.add_user_message(question)
            with pytest.raises(ProviderError) as caught:
                _ = [chunk async for chunk in agent.answer()]
            return caught.value.kind

    async def scenario() -> None:
        assert await kind_of("Hello", api_key="sk-wrong-0123456789") == "auth"
        assert await kind_of("word " * 2000) == "context_length"
        assert await kind_of("Hello", base_url=f"{server.url}/v7") == "not_found"

    with caplog.at_level(logging.DEBUG):
        run(backend, scenario)
    assert server.api_key not in caplog.text
    assert "sk-wrong" not in caplog.text
