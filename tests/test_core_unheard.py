"""A barge-in that nobody listens to: its message is made when somebody looks, and nobody can tell the difference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import anyio
import pytest
from core_support import log_of, nobody_listens, said
from hypothesis import given
from hypothesis import strategies as st
from property_support import searching

from micdrop_agent import Agent, Answer, Message, Turn
from micdrop_agent.events import MessageCorrected
from micdrop_agent.testing import BACKENDS, run_virtual

if TYPE_CHECKING:
    from micdrop_agent.testing import Backend

pytestmark = pytest.mark.parametrize("backend", BACKENDS)

Op: TypeAlias = tuple[Any, ...]

texts = st.sampled_from(["Good ", "morning. ", "42", "…", " ", "Is there more?"])
ops: st.SearchStrategy[list[Op]] = st.lists(
    st.one_of(
        st.tuples(st.just("answer"), st.lists(texts, max_size=4), st.booleans()),
        st.tuples(st.just("receive")),
        st.tuples(st.just("cancel"), st.none() | st.integers(0, 30) | texts),
        st.tuples(st.just("stop"), st.integers(0, 3), st.none() | st.integers(0, 30)),
        st.tuples(st.just("user"), texts),
        st.tuples(st.just("take_back")),
        st.tuples(st.just("replace")),
        st.tuples(st.just("wait")),
        st.tuples(st.just("look")),
        st.tuples(st.just("version")),
    ),
    max_size=14,
)


@pytest.fixture(autouse=True)
def _unheard(monkeypatch: pytest.MonkeyPatch) -> None:
    nobody_listens(monkeypatch)


class Speaker(Agent):
    """Says its chunks, and then goes on or not."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.chunks: list[str] = []
        self.stays = False

    async def generate_answer(self, turn: Turn) -> None:
        for chunk in self.chunks:
            await turn.write(chunk)
        if self.stays:
            await anyio.sleep_forever()


class Host:
    """Does one thing after the other, and takes down what it sees."""

    def __init__(self, agent: Speaker) -> None:
        self.agent = agent
        self.answers: list[Answer] = []
        self.seen: list[Any] = []

    async def do(self, op: Op) -> None:
        name, *details = op
        step: Any = getattr(self, name)(*details)
        if step is not None:
            await step

    def answer(self, chunks: list[str], stays: bool) -> None:
        self.agent.chunks, self.agent.stays = chunks, stays
        self.answers.append(self.agent.answer())

    async def receive(self) -> None:
        with anyio.move_on_after(1):
            for answer in self.answers[-1:]:
                try:
                    self.seen.append(await answer.receive())
                except anyio.EndOfStream:
                    self.seen.append(None)
        await self.wait()  # Trio runs the reader and the speaker in any order

    def cancel(self, heard: int | str | None) -> None:
        self.agent.cancel(heard)

    def stop(self, number: int, heard: int | None) -> None:
        for answer in self.answers[number : number + 1]:
            answer.cancel(heard)

    def user(self, text: str) -> None:
        self.agent.add_user_message(text)

    def take_back(self) -> None:
        self.agent.cancel_last_user_message()

    def replace(self) -> None:
        if not self.agent.answering:
            self.agent.conversation.replace([Message("system", "Be brief."), *self.agent.conversation[1:3]])

    async def wait(self) -> None:
        await anyio.sleep(1)

    def look(self) -> None:
        self.seen += [said(self.agent), [(one.status, one.text) for one in self.answers]]

    def version(self) -> None:
        self.seen.append(self.agent.conversation.version)


def course(backend: Backend, script: list[Op], *, heard: bool, record: bool) -> list[Any]:
    """What a host sees that does ``script``, beside a listener or not."""

    async def main() -> list[Any]:
        async with Speaker(record_interrupted=record) as agent:
            if heard:
                log_of(agent)
            host = Host(agent)
            for op in script:
                await host.do(op)
            agent.cancel()
            seen = host.seen
            seen += [said(agent), agent.conversation.version]
        results = [(one.result.status, one.result.text) for one in host.answers]
        return [*seen, said(agent), list(agent.conversation), results]

    return run_virtual(backend, main)


@searching(200)
@given(script=ops, record=st.booleans())
def test_a_listener_changes_nothing_of_what_a_host_can_see(backend: Backend, script: list[Op], record: bool) -> None:
    alone = course(backend, script, heard=False, record=record)
    assert alone == course(backend, script, heard=True, record=record)


def test_the_message_is_there_for_whoever_looks_first(backend: Backend) -> None:
    async def interrupted(look: str) -> Any:
        async with Speaker() as agent:
            agent.add_user_message("Hello?")
            agent.chunks, agent.stays = ["Good ", "morning."], True
            answer = agent.answer()
            await answer.receive()
            await answer.receive()
            before = agent.conversation.version
            agent.cancel()
            match look:
                case "version":
                    return agent.conversation.version - before
                case "length":
                    return len(agent.conversation)
                case "last":
                    return agent.conversation[-1].role
                case "equal":
                    return agent.conversation == [*agent.conversation]
                case "text":
                    return "morning" in repr(agent.conversation)
                case _:
                    agent.add_user_message("Wait")
                    agent.cancel(heard=4)
                    return said(agent)

    expected = {
        "version": 1,
        "length": 3,
        "last": "assistant",
        "equal": True,
        "text": True,
        "next": [("user", "Hello?"), ("assistant", "Good"), ("user", "Wait")],
    }
    assert {look: run_virtual(backend, interrupted, look) for look in expected} == expected


async def speaking(agent: Speaker, *chunks: str) -> Answer:
    """An answer whose chunks were all received, and that goes on."""
    agent.chunks, agent.stays = list(chunks), True
    answer = agent.answer()
    for _ in chunks:
        await answer.receive()
    return answer


def test_two_answers_that_are_cut_in_one_step_are_both_stored(backend: Backend) -> None:
    async def main() -> None:
        async with Speaker() as agent:
            agent.chunks = ["All ", "of it."]
            unread = agent.answer()
            await anyio.sleep(1)
            await speaking(agent, "Good ", "morning.")
            agent.cancel()
            unread.cancel()
            assert said(agent) == [("assistant", "Good morning.")]

    run_virtual(backend, main)


def test_whoever_listens_after_the_cut_hears_its_correction_and_not_the_cut(backend: Backend) -> None:
    async def main() -> None:
        async with Speaker() as agent:
            await speaking(agent, "Good ", "morning.")
            agent.cancel()
            events = log_of(agent)
            agent.cancel(heard=4)
            assert [(type(event), getattr(event, "index", None)) for event in events] == [(MessageCorrected, 1)]
            assert said(agent) == [("assistant", "Good")]

    run_virtual(backend, main)


def test_a_store_is_told_of_the_cut_before_cancel_returns(backend: Backend) -> None:
    async def main() -> None:
        async with Speaker() as agent:
            await speaking(agent, "Good ", "morning.")
            told: list[Any] = []
            agent._core.conversation.follow(lambda index, gone, come: told.append((index, gone, len(come))))
            agent.cancel()
            assert told == [(1, 0, 1)]

    run_virtual(backend, main)


def test_the_message_is_made_by_the_answers_own_task_when_nobody_looks(backend: Backend) -> None:
    async def main() -> None:
        async with Speaker() as agent:
            await speaking(agent, "Good ", "morning.")
            agent.cancel()
            assert [item.role for item in agent.conversation._list] == ["system"]  # not yet
            await anyio.sleep(1)
            assert [item.role for item in agent.conversation._list] == ["system", "assistant"]

    run_virtual(backend, main)


def test_what_is_owed_is_made_before_more_is_owed(backend: Backend) -> None:
    # No answer begins without a look at the conversation today; should one, the cut before it is kept all the same.
    async def main() -> None:
        async with Speaker() as agent:
            agent._core.conversation.defer(lambda: agent._core.conversation.push(Message("assistant", "first")))
            agent._core.conversation.defer(lambda: agent._core.conversation.push(Message("assistant", "second")))
            assert said(agent) == [("assistant", "first"), ("assistant", "second")]

    run_virtual(backend, main)
