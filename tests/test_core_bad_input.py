"""Bad input to the core: refused at once, in words that say what happened and what to do."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, cast

import anyio
import anyio.from_thread
import anyio.to_thread
import pytest

from micdrop_agent import (
    Agent,
    Conversation,
    EchoAgent,
    Message,
    ToolCall,
    ToolResult,
)
from micdrop_agent.events import Event, MessageAdded
from micdrop_agent.testing import BACKENDS, HANG, ScriptedAgent, run_virtual

if TYPE_CHECKING:
    from collections.abc import Callable

    from micdrop_agent.testing import Backend

backends = pytest.mark.parametrize("backend", BACKENDS)


def said(agent: Agent) -> list[tuple[str, str]]:
    return [(item.role, getattr(item, "content", "") or getattr(item, "output", "")) for item in agent.conversation[1:]]


# -- where and when an agent may be used


@backends
def test_answer_outside_of_the_block_says_to_open_the_agent(backend: Backend) -> None:
    async def main() -> None:
        agent = EchoAgent()
        with pytest.raises(RuntimeError, match=r"needs an open agent: 'async with EchoAgent\(\.\.\.\) as agent:'"):
            agent.answer()
        agent.cancel()
        assert not agent.answering
        async with agent:
            pass
        with pytest.raises(RuntimeError, match="this EchoAgent was closed; answer"):
            agent.answer()
        agent.cancel()

    run_virtual(backend, main)


@backends
def test_an_agent_is_entered_once(backend: Backend) -> None:
    async def main() -> None:
        agent = EchoAgent()
        async with agent:
            with pytest.raises(RuntimeError, match=r"already been entered|is open already"):
                async with agent:
                    pass
            assert agent.answer().status == "running"
        with pytest.raises(RuntimeError, match=r"was closed and cannot be opened again .* make a new one"):
            async with agent:
                pass

    run_virtual(backend, main)


@backends
def test_an_agent_that_was_closed_before_it_was_opened_stays_closed(backend: Backend) -> None:
    async def main() -> None:
        agent = EchoAgent()
        await agent.aclose()
        with pytest.raises(RuntimeError, match="was closed and cannot be opened again"):
            async with agent:
                pass

    run_virtual(backend, main)


def refusals_in_another_thread(acts: list[Callable[[], object]]) -> list[str]:
    """What each of ``acts`` says when it is called outside the agent's thread."""
    refusals: list[str] = []

    def outside() -> None:
        for act in acts:
            try:
                act()
            except RuntimeError as error:
                refusals.append(str(error))

    thread = threading.Thread(target=outside)
    thread.start()
    thread.join()
    return refusals


@backends
def test_another_thread_is_told_which_way_to_go(backend: Backend) -> None:
    async def main() -> None:
        async with ScriptedAgent(["a", HANG]) as agent:
            answer = agent.answer()
            assert await answer.receive() == "a"
            acts: list[Callable[[], object]] = [
                agent.answer,
                agent.cancel,
                answer.cancel,
                agent.end_call,
                agent.skip_answer,
                agent.cancel_last_user_message,
                lambda: agent.add_user_message("x"),
                lambda: agent.add_tool_message(ToolCall("1", "x", "{}")),
            ]
            problems = refusals_in_another_thread(acts)
            assert len(problems) == 8
            for problem in problems:
                assert "another thread" in problem
                assert "anyio.from_thread.run_sync" in problem
            assert answer.status == "running"
            assert said(agent) == []
            # And the way that the message names works.
            await anyio.to_thread.run_sync(lambda: anyio.from_thread.run_sync(agent.cancel))
            assert answer.result.status == "cancelled"

    run_virtual(backend, main)


@backends
def test_another_thread_is_refused_also_where_there_is_nothing_left_to_cancel(backend: Backend) -> None:
    async def main() -> None:
        async with ScriptedAgent(["a", HANG]) as agent:
            answer = agent.answer()
            assert await answer.receive() == "a"
            agent.cancel()
            assert len(refusals_in_another_thread([agent.cancel, answer.cancel])) == 2

    run_virtual(backend, main)


def test_another_asyncio_loop_in_the_same_thread_is_refused() -> None:
    async def use(agent: Agent) -> None:
        for act in (agent.answer, agent.cancel, agent.end_call):
            with pytest.raises(RuntimeError, match="another event loop than the one in which the agent was opened"):
                act()

    agent = EchoAgent()
    first, second = asyncio.new_event_loop(), asyncio.new_event_loop()
    opened = asyncio.Event()
    leave = asyncio.Event()

    async def main() -> None:
        async with agent:
            opened.set()
            await leave.wait()

    task = first.create_task(main())
    first.run_until_complete(opened.wait())
    second.run_until_complete(use(agent))
    leave.set()
    first.run_until_complete(task)
    for loop in (first, second):
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


def test_an_asyncio_loop_inside_a_trio_task_is_refused() -> None:
    async def use(agent: Agent) -> None:
        with pytest.raises(RuntimeError, match="another event loop"):
            agent.answer()

    async def main() -> None:
        async with EchoAgent() as agent:
            asyncio.run(use(agent))
            assert agent.answer().status == "running"

    run_virtual("trio", main)


# -- what is said


@pytest.mark.parametrize("text", ["", " ", "\n\t", "\u200b", "\ufeff \u2060", "\u00a0"])
@backends
def test_a_blank_message_is_ignored_wherever_it_comes_from(backend: Backend, text: str) -> None:
    async def main() -> None:
        async with ScriptedAgent([text], [Message("assistant", text)], on_before_answer=None) as agent:
            events: list[Event] = []
            agent.on(MessageAdded, events.append)
            agent.add_user_message(text)
            agent.add_assistant_message(text)
            agent.add_message("system", text)
            await agent.answer().wait()
            await agent.answer().wait()
            assert said(agent) == []
            assert events == []

    run_virtual(backend, main)


@pytest.mark.parametrize("role", ["bot", "User", "", None, "tool_call"])
def test_an_unknown_role_is_refused_with_the_known_ones(role: Any) -> None:
    agent = EchoAgent()
    with pytest.raises(ValueError, match="role must be one of system, user, assistant, not"):
        agent.add_message(role, "x")
    assert len(agent.conversation) == 1


@pytest.mark.parametrize("text", [None, 5, b"x", ["x"]])
def test_a_text_that_is_none_is_refused_in_one_line(text: Any) -> None:
    agent = EchoAgent()
    with pytest.raises(TypeError, match=r"^content must be a string, not .*$"):
        agent.add_user_message(text)
    with pytest.raises(TypeError, match=r"^tool_call_id must be a string, not .*$"):
        ToolCall(text, "x", "{}")
    with pytest.raises(TypeError, match=r"^output must be a string, not .*$"):
        ToolResult("1", "x", text)
    assert len(agent.conversation) == 1


def test_add_tool_message_takes_tool_messages() -> None:
    with pytest.raises(TypeError, match="takes a ToolCall or a ToolResult, not Message"):
        EchoAgent().add_tool_message(cast("Any", Message("user", "x")))


@backends
def test_a_conversation_is_replaced_by_items_and_not_under_a_running_answer(backend: Backend) -> None:
    async def main() -> None:
        async with ScriptedAgent([HANG]) as agent:
            with pytest.raises(TypeError, match="holds messages and tool calls, not 'hi'"):
                agent.conversation.replace(["hi"])  # type: ignore[list-item] # pyright: ignore[reportArgumentType]
            agent.answer()
            with pytest.raises(RuntimeError, match="while an answer runs; cancel it"):
                agent.conversation.replace([])
            agent.cancel()
            agent.conversation.replace([Message("user", "x")])
            assert agent.conversation == [Message("user", "x")]

    run_virtual(backend, main)


@pytest.mark.parametrize("chunk", [None, 5, b"x"])
@backends
def test_a_chunk_that_is_no_text_fails_the_answer_in_words(backend: Backend, chunk: Any) -> None:
    async def main() -> None:
        async with ScriptedAgent([lambda turn: turn.write(chunk)]) as agent:
            with pytest.raises(TypeError, match="a chunk must be a string, not"):
                await agent.answer().receive()

        async with ScriptedAgent([lambda turn: turn.add(chunk)]) as agent:
            with pytest.raises(TypeError, match="takes a message, a tool call or a tool result, not"):
                await agent.answer().receive()

    run_virtual(backend, main)


def test_a_conversation_behaves_like_a_sequence() -> None:
    items = [Message("system", "s"), Message("user", "u"), Message("user", "u")]
    conversation = Conversation(items)
    assert conversation == items == list(conversation)
    assert conversation == Conversation(items)
    assert conversation != [*items, items[0]]
    assert (conversation == 5) is False
    assert conversation[-1] is items[2]
    assert conversation[1:] == items[1:]
    assert list(reversed(conversation)) == items[::-1]
    assert "Message" in repr(conversation)
    assert [conversation.index_of(item) for item in items] == [0, 1, 2]
    assert conversation.index_of(Message("user", "u")) is None
    with pytest.raises(TypeError):
        hash(conversation)
