"""Bad input to the core: refused at once, in words that say what happened and what to do."""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
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
    ExtractJson,
    ExtractTag,
    Message,
    MicdropError,
    Retry,
    Timeouts,
    ToolCall,
    ToolResult,
)
from micdrop_agent.events import AnswerFailed, AnswerFinished, Event, MessageAdded
from micdrop_agent.testing import BACKENDS, HANG, Call, ScriptedAgent, run_virtual
from micdrop_agent.tools import Tool, tool

if TYPE_CHECKING:
    from collections.abc import Callable

    from micdrop_agent import Turn
    from micdrop_agent.testing import Backend

backends = pytest.mark.parametrize("backend", BACKENDS)

UNLIKELY: list[Any] = [None, "1", b"1", 1j, object()]


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
            with pytest.raises(RuntimeError, match="already been entered|is open already"):
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


@backends
def test_another_thread_is_told_which_way_to_go(backend: Backend) -> None:
    async def main() -> None:
        async with ScriptedAgent(["a", HANG]) as agent:
            answer = agent.answer()
            assert await answer.receive() == "a"
            problems: list[str] = []

            def outside() -> None:
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
                for act in acts:
                    try:
                        act()
                    except RuntimeError as error:
                        problems.append(str(error))

            thread = threading.Thread(target=outside)
            thread.start()
            thread.join()
            assert len(problems) == 8
            for problem in problems:
                assert "another thread" in problem
                assert "anyio.from_thread.run_sync" in problem
            assert answer.status == "running"
            assert said(agent) == []
            # And the way that the message names works.
            await anyio.to_thread.run_sync(anyio.from_thread.run_sync, agent.cancel)
            assert answer.status == "cancelled"

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
    with pytest.raises(TypeError, match="^content must be a text, not .*$"):
        agent.add_user_message(text)
    with pytest.raises(TypeError, match="^tool_call_id must be a text, not .*$"):
        ToolCall(text, "x", "{}")
    with pytest.raises(TypeError, match="^output must be a text, not .*$"):
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
            with pytest.raises(TypeError, match="a chunk must be a text, not"):
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


# -- options


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("system_prompt", [None, 5, b""]),
        ("auto_end_call", [5, 1, b"x", []]),
        ("auto_semantic_turn", [5]),
        ("auto_ignore_user_noise", [5]),
        ("extract", [5, "json", ExtractJson, {"start_tag": "x"}]),
        ("on_before_answer", [5, "x"]),
        ("tools", [5, None, "look", Tool(name="x")]),
        ("record_interrupted", [0, 1, None, "yes"]),
        ("raise_on_failure", [0, None]),
        ("parallel_tools", [1, None]),
        ("buffer_size", [-1, 1.5, True, "1", math.nan]),
        ("delay", [-1, True, None, "1", math.nan, math.inf]),
    ],
)
def test_an_option_of_the_wrong_type_or_range_is_named(name: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises((TypeError, ValueError), match=name) as caught:
            EchoAgent(**{name: value})
        assert "\n" not in str(caught.value)
        assert "Attribute(" not in str(caught.value)


@pytest.mark.parametrize(
    ("make", "name", "values"),
    [
        (Retry, "max_retries", [-1, 1.5, True, *UNLIKELY]),
        (Retry, "first_wait", [-1, math.nan, math.inf, True, *UNLIKELY]),
        (Retry, "factor", [0, 0.5, math.nan, math.inf, True, *UNLIKELY]),
        (Retry, "max_wait", [-1, math.nan, math.inf, *UNLIKELY]),
        (Retry, "jitter", [-0.1, 1.1, math.nan, True, *UNLIKELY]),
        *[
            (Timeouts, name, [0, -1, math.nan, math.inf, True, "1"])
            for name in ("connect", "first_chunk", "between_chunks", "total")
        ],
        (ExtractJson, "callback", [5, "x"]),
        (ExtractJson, "save_in_metadata", [1, None]),
    ],
)
def test_a_member_of_an_option_group_is_named_too(make: Any, name: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises((TypeError, ValueError), match=name) as caught:
            make(**{name: value})
        assert "Attribute(" not in str(caught.value)


def test_tags_are_texts_and_not_empty() -> None:
    for bad in (None, 5, ""):
        with pytest.raises((TypeError, ValueError), match="start_tag"):
            ExtractTag(start_tag=cast("Any", bad), end_tag="x")
        with pytest.raises((TypeError, ValueError), match="end_tag"):
            ExtractTag(start_tag="x", end_tag=cast("Any", bad))


def test_options_are_keyword_only_and_frozen() -> None:
    with pytest.raises(TypeError):
        EchoAgent(1)  # type: ignore[misc] # pyright: ignore[reportCallIssue]
    with pytest.raises(AttributeError):
        Retry().max_retries = 5  # type: ignore[misc] # pyright: ignore[reportAttributeAccessIssue]
    assert Retry(first_wait=1, factor=2, max_wait=3, jitter=0.5).wait_before(3, 1.0) == 1.5


def test_every_option_of_the_agent_is_checked_above() -> None:
    options = {
        name
        for name, parameter in inspect.signature(Agent).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    }
    marks = cast("Any", test_an_option_of_the_wrong_type_or_range_is_named).pytestmark
    assert options <= {name for name, _values in marks[0].args[1]}


# -- tools


@pytest.mark.parametrize("name", ["", "with space", "ü", "x" * 65, "a.b"])
def test_a_bad_tool_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="cannot be named"):
        Tool(name=name)


def test_a_tool_needs_a_name() -> None:
    with pytest.raises(TypeError):
        Tool()  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    with pytest.raises((TypeError, ValueError), match="name"):
        EchoAgent().add_tool(lambda: None)


def test_a_second_tool_of_one_name_is_refused_everywhere() -> None:
    first, second = Tool(name="look"), Tool(name="look")
    agent = EchoAgent(tools=[first])
    with pytest.raises(ValueError, match="a tool named 'look' already; remove it first"):
        agent.add_tool(second)
    with pytest.raises(ValueError, match="'look' already"):
        EchoAgent(tools=[first, second])
    with pytest.raises(ValueError, match="'end_call' already"):
        EchoAgent(auto_end_call=True, tools=[Tool(name="end_call")])
    agent.remove_tool("look")
    agent.remove_tool("look")
    agent.add_tool(second)
    assert agent.get_tool("look") is second
    assert agent.get_tool("none") is None
    assert agent.tools == (second,)


@backends
def test_an_output_that_is_no_json_is_told_to_the_model(backend: Backend) -> None:
    async def main() -> None:
        @tool
        def odd() -> Any:
            return object()

        @tool
        def infinite() -> float:
            return math.nan

        async with ScriptedAgent([Call("odd"), Call("infinite"), "ok"], tools=[odd, infinite]) as agent:
            assert [chunk async for chunk in agent.answer()] == ["ok"]
            outputs = [item.output for item in agent.conversation if isinstance(item, ToolResult)]
            assert len(outputs) == 2
            assert all("error" in output for output in outputs)

    run_virtual(backend, main)


# -- foreign code that raises


@pytest.mark.parametrize("is_async", [False, True])
@backends
def test_a_hook_that_raises_fails_the_answer_and_says_so(backend: Backend, *, is_async: bool) -> None:
    async def main() -> None:
        def hook(_agent: Agent, _turn: Turn) -> None:
            raise KeyError("broken")

        async def async_hook(agent: Agent, turn: Turn) -> None:
            hook(agent, turn)

        async with ScriptedAgent(["a"], on_before_answer=async_hook if is_async else hook) as agent:
            failed: list[AnswerFailed] = []
            agent.on(AnswerFailed, failed.append)
            with pytest.raises(MicdropError, match="on_before_answer raised KeyError: 'broken'") as caught:
                await agent.answer().receive()
            assert isinstance(caught.value.__cause__, KeyError)
            assert [event.error for event in failed] == [caught.value]
            assert agent.asked == 0

    run_virtual(backend, main)


@backends
def test_everything_that_raises_at_once_loses_nothing(backend: Backend, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        def raises(*_args: Any) -> Any:
            raise ValueError("foreign")

        def raises_now() -> None:
            raises()

        extract = ExtractTag(start_tag="<v>", end_tag="</v>", callback=raises, save_in_metadata=True)
        script = ["Hm.", Call("raises"), "Well.", "<v>1</v>"]
        async with ScriptedAgent(
            script, tools=[Tool(name="raises", execute=raises_now)], extract=extract
        ) as agent:
            events: list[Event] = []
            agent.on(MessageAdded, raises)
            agent.on(AnswerFinished, raises)
            agent.on(MessageAdded, events.append)
            assert [chunk async for chunk in agent.answer()] == ["Hm.", "Well."]
            assert said(agent) == [
                ("assistant", "Hm."),
                ("tool_call", ""),
                ("tool_result", '{"error":"foreign"}'),
                ("assistant", "Well."),
            ]
            assert len(events) == 4

    with caplog.at_level(logging.INFO):
        run_virtual(backend, main)
    assert "a listener of MessageAdded raised; it is ignored" in caplog.text
    assert "tool raises raised" in caplog.text
    assert "the extract callback raised; the answer goes on" in caplog.text


@pytest.mark.parametrize("verdict", [True, "Instead.", "", None, False])
@backends
def test_what_a_hook_may_return(backend: Backend, verdict: Any) -> None:
    async def main() -> None:
        async def hook(_agent: Agent, turn: Turn) -> Any:
            await turn.write("Hm, ")
            return verdict

        async with ScriptedAgent(["a"], on_before_answer=hook) as agent:
            answer = agent.answer()
            chunks = [chunk async for chunk in answer]
            rest = {True: [], "Instead.": ["Instead."], "": []}.get(verdict, ["a"])
            assert chunks == ["Hm, ", *rest]
            # The filler is spoken and no part of the conversation.
            assert said(agent) == [("assistant", text) for text in rest]
            assert agent.asked == (1 if verdict in (None, False) else 0)

    run_virtual(backend, main)
