"""LocalAgent on the real llama.cpp and the real small model; opt-in: ``nox -s local`` (200 MB).

What the model says is its own business; that it says something, stops when told, and leaves
nothing behind is ours.
"""

from __future__ import annotations

import threading
from importlib.util import find_spec

import anyio
import pytest

from micdrop_agent import LocalAgent, Message, ProviderError

pytestmark = pytest.mark.skipif(find_spec("xllamacpp") is None, reason="opt-in, needs llama.cpp: nox -s local")


async def test_it_answers_and_remembers_the_answer() -> None:
    async with LocalAgent(system_prompt="Answer briefly.", settings={"max_tokens": 20}) as agent:
        agent.add_user_message("Hello, who are you?")
        chunks = [chunk async for chunk in agent.answer()]

        assert len(chunks) > 1
        assert agent.conversation[-1] == Message("assistant", "".join(chunks))


async def test_a_barge_in_stops_it_and_the_next_answer_comes() -> None:
    async with LocalAgent(settings={"max_tokens": 400}) as agent:
        agent.add_user_message("Tell me a long story about the sea.")
        answer = agent.answer()
        heard = await answer.receive()
        agent.cancel()
        assert agent.conversation[-1] == Message("assistant", heard, {"interrupted": True})

        agent.add_user_message("Thank you.")
        # There is one slot: were the story still being written, this would wait for its end.
        assert await agent.answer().receive()


async def test_leaving_in_the_middle_of_an_answer_stops_the_server() -> None:
    for _ in range(2):
        async with LocalAgent(settings={"max_tokens": 400}) as agent:
            agent.add_user_message("Tell me a long story about the sea.")
            await agent.answer().receive()
            address = agent.base_url

        host, port = address.removeprefix("http://").removesuffix("/v1").split(":")
        with pytest.raises(OSError, match=r"attempts failed|refused"):
            await anyio.connect_tcp(host, int(port))


async def test_it_can_be_stopped_right_after_its_start() -> None:
    for _ in range(3):
        async with LocalAgent():
            pass


async def test_two_at_once_do_not_disturb_each_other() -> None:
    settings = {"max_tokens": 10}
    async with LocalAgent(settings=settings) as first:
        async with LocalAgent(settings=settings) as second:
            for agent in (first, second):
                agent.add_user_message("Hello")
                assert [chunk async for chunk in agent.answer()]
        first.add_user_message("Are you still there?")
        assert [chunk async for chunk in first.answer()]


async def test_a_conversation_that_is_too_long_is_named_so() -> None:
    async with LocalAgent(n_ctx=256) as agent:
        agent.add_user_message("hello " * 600)
        answer = agent.answer()
        await answer.wait()

        assert isinstance(answer.result.error, ProviderError)
        assert answer.result.error.kind == "context_length"


async def test_nothing_native_is_left_in_python() -> None:
    before = threading.active_count()
    async with LocalAgent():
        pass

    assert threading.active_count() <= before + 1  # a worker thread may idle
