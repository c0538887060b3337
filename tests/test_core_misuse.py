"""Mistakes that everybody makes once: each gets a message that says what to write instead."""

from __future__ import annotations

import contextlib
from typing import Any

import anyio
import pytest

from micdrop_agent import Agent, EchoAgent, EndCallRequested, FallbackAgent, MockAgent
from micdrop_agent.testing import BACKENDS, Backend, Call, ScriptedAgent, run_virtual

pytestmark = pytest.mark.parametrize("backend", BACKENDS)


class Yields(Agent):
    async def generate_answer(self, turn: Any) -> Any:
        yield "text"


class Plain(Agent):
    def generate_answer(self, turn: Any) -> Any:
        return None


class Returns(Agent):
    async def generate_answer(self, turn: Any) -> Any:
        return "text"


@pytest.mark.parametrize(("kind", "words"), [(Yields, "yield"), (Plain, "async def"), (Returns, "nobody hears")])
def test_a_generate_answer_of_the_wrong_form_fails_the_answer_and_says_what_to_write(
    backend: Backend, kind: type[Agent], words: str
) -> None:
    async def main() -> None:
        async with kind() as agent:
            with pytest.raises(TypeError, match=r"turn\.write") as caught:
                async for _ in agent.answer():
                    pass
            assert words in str(caught.value)

    run_virtual(backend, main)


def test_a_subclass_that_forgets_super_init_is_told_so(backend: Backend) -> None:
    class Bare(MockAgent):
        def __init__(self) -> None:
            self.answers = 0

    async def main() -> None:
        agent = Bare()
        with pytest.raises(AttributeError, match=r"super\(\)\.__init__"):
            agent.add_user_message("hi")
        with pytest.raises(AttributeError, match=r"super\(\)\.__init__"):
            async with agent:
                pass
        with pytest.raises(AttributeError, match="no attribute 'colour'"):
            _ = MockAgent().colour  # type: ignore[attr-defined]

    run_virtual(backend, main)


def test_with_without_async_and_for_without_async_are_explained(backend: Backend) -> None:
    async def main() -> None:
        agent: Any = MockAgent()
        with pytest.raises(TypeError, match="async with"), agent:
            pass
        async with agent:
            answer: Any = agent.answer()
            with pytest.raises(TypeError, match="async for"):
                iter(answer)

    run_virtual(backend, main)


def test_the_end_of_the_call_is_told_although_the_block_is_left_right_after_the_farewell(backend: Backend) -> None:
    ended: list[EndCallRequested] = []

    async def main() -> None:
        async with ScriptedAgent(["Goodbye.", Call("end_call")], auto_end_call=True) as agent:
            agent.on(EndCallRequested, ended.append)
            agent.add_user_message("Bye.")
            async for _ in agent.answer():
                pass

    run_virtual(backend, main)
    assert len(ended) == 1


def test_a_reader_that_leaves_after_the_last_chunk_holds_the_end_of_the_call_back_only_briefly(
    backend: Backend,
) -> None:
    async def main() -> None:
        async with ScriptedAgent(["Goodbye.", Call("end_call")], auto_end_call=True) as agent:
            told = anyio.Event()
            agent.on(EndCallRequested, lambda _: told.set())
            agent.add_user_message("Bye.")
            async for _ in agent.answer():
                break
            with anyio.fail_after(6):
                await told.wait()

    run_virtual(backend, main)


def test_cancel_after_closing_changes_nothing_any_more(backend: Backend) -> None:
    async def main() -> None:
        async with EchoAgent(delay=0) as agent:
            agent.add_user_message("hi")
            answer = agent.answer()
            await anyio.sleep(1)
        before = list(agent.conversation)
        agent.cancel()
        assert answer.status == "completed"
        assert list(agent.conversation) == before
        assert before[-1].role == "assistant"

    run_virtual(backend, main)


def test_a_loser_that_cleans_up_slowly_does_not_hold_the_end_of_the_call_up(backend: Backend) -> None:
    class Slow(Agent):
        async def generate_answer(self, turn: Any) -> None:
            try:
                await anyio.sleep(100)
            finally:
                with anyio.CancelScope(shield=True):
                    await anyio.sleep(5)

    async def main() -> None:
        def polite() -> Agent:
            return ScriptedAgent(["Bye.", Call("end_call")], auto_end_call=True)

        async with FallbackAgent([Slow, polite], hedge_after=0.5) as agent:
            at: list[float] = []
            agent.on(EndCallRequested, lambda _: at.append(anyio.current_time()))
            agent.add_user_message("Bye.")
            start = anyio.current_time()
            with contextlib.suppress(anyio.EndOfStream):
                answer = agent.answer()
                while True:
                    await answer.receive()
            await anyio.sleep(0.1)
            assert [round(when - start, 1) for when in at] == [0.5]

    run_virtual(backend, main)
