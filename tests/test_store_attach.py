from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest

from micdrop_agent import (
    CallInUseError,
    FallbackAgent,
    Message,
    ProviderError,
    SqliteStore,
    ToolCall,
    ToolResult,
    tool,
)
from micdrop_agent.store import Change, UnknownCallError, repaired
from micdrop_agent.testing import BACKENDS, HANG, Backend, Call, ScriptedAgent, run_virtual

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from pathlib import Path

    from micdrop_agent import Agent, Item
    from micdrop_agent.testing import Act

pytestmark = pytest.mark.parametrize("backend", BACKENDS)


@tool
def look() -> str:
    """Look."""
    return "a cat"


async def talk(agent: Agent, *texts: str) -> None:
    for text in texts:
        agent.add_user_message(text)
        await agent.answer().wait()


def run(backend: Backend, scenario: Callable[..., Awaitable[None]], *args: Any) -> None:
    run_virtual(backend, scenario, *args)


def test_a_call_goes_on_where_it_stopped(backend: Backend, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with SqliteStore(tmp_path / "calls.db") as store:
            async with ScriptedAgent(["Hello."], system_prompt="Be brief.") as agent:
                kept = await agent.attach(store, "a")
                assert kept.resumed == 0
                await talk(agent, "Hi!")
                before = list(agent.conversation)
            assert await store.load("a") == before
            async with ScriptedAgent(["Again."], system_prompt="Be brief.") as agent:
                kept = await agent.attach(store, "a")
                assert kept.resumed == 3
                assert agent.conversation == before
                await talk(agent, "Bye!")
                assert len(agent.conversation) == 5
                after = list(agent.conversation)
            assert await store.load("a") == after

    run(backend, scenario)


def test_every_kind_of_change_is_stored_in_its_place(backend: Backend, tmp_path: Path) -> None:
    async def barge_in(agent: Agent) -> None:
        agent.add_user_message("Tell me everything.")
        answer = agent.answer()
        await answer.receive()
        agent.add_user_message("Stop!")
        agent.cancel()

    async def scenario() -> None:
        async with SqliteStore(tmp_path / "calls.db") as store:
            scripts: list[Sequence[Act]] = [
                ["Well, ", "you know", HANG],
                ["Let me see.", Call("look"), "A cat."],
                ["One ", "two."],
            ]
            async with ScriptedAgent(*scripts, tools=[look]) as agent:
                await agent.attach(store, "a")

                async def same() -> None:
                    await agent.flush()
                    assert await store.load("a") == list(agent.conversation)

                await barge_in(agent)
                await same()
                await talk(agent, "What is there?")
                await same()
                agent.add_user_message("Count.")
                answer = agent.answer()
                async for _ in answer:
                    pass
                answer.cancel(heard="One ")
                await same()
                agent.add_user_message("noise")
                agent.cancel_last_user_message()
                await same()
                agent.conversation.replace([*agent.conversation[:3], Message("user", "Shorter.", {"a": [1, None]})])
                await same()
                agent.add_message("system", "half a pair: \ud800")
                await same()
            assert len(agent.conversation) == 5

    run(backend, scenario)


def test_what_a_cancelled_block_leaves_behind_is_stored(backend: Backend, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with SqliteStore(tmp_path / "calls.db") as store:
            agent = ScriptedAgent(["Well, ", HANG])
            with anyio.move_on_after(1):
                async with agent:
                    await agent.attach(store, "a")
                    agent.add_user_message("Hi!")
                    async for _ in agent.answer():
                        pass
            stored = await store.load("a")
            assert stored == list(agent.conversation)
            assert stored[-1] == Message("assistant", "Well, ", {"interrupted": True})

    run(backend, scenario)


def test_the_prompt_of_the_child_that_answers_is_stored(backend: Backend, tmp_path: Path) -> None:
    down = ProviderError("down", kind="server")

    async def scenario() -> None:
        async with SqliteStore(tmp_path / "calls.db") as store:
            children = [
                lambda: ScriptedAgent([down], system_prompt="I am the first."),
                lambda: ScriptedAgent(["Hello."], system_prompt="I am the second."),
            ]
            async with FallbackAgent(children) as agent:
                await agent.attach(store, "a")
                assert (await store.load("a"))[0] == Message("system", "I am the first.")
                await talk(agent, "Hi!")
            stored = await store.load("a")
            assert stored == list(agent.conversation)
            assert stored[0] == Message("system", "I am the second.")

    run(backend, scenario)


def test_the_agents_own_prompt_replaces_the_stored_one_and_an_empty_one_does_not(
    backend: Backend, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with SqliteStore(tmp_path / "calls.db") as store:
            for prompt, seen in (("Old.", "Old."), ("New.", "New."), ("", "New.")):
                async with ScriptedAgent(["Yes."], system_prompt=prompt) as agent:
                    await agent.attach(store, "a")
                    assert agent.conversation[0] == Message("system", seen)
                    await talk(agent, "And?")
                assert await store.load("a") == list(agent.conversation)
            assert len(await store.load("a")) == 7

    run(backend, scenario)


def test_what_was_said_before_attaching_comes_behind_what_is_stored(backend: Backend, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with SqliteStore(tmp_path / "calls.db") as store:
            for number in range(3):
                async with ScriptedAgent() as agent:
                    agent.add_assistant_message(f"Welcome back {number}.")
                    await agent.attach(store, "a")
                    assert len(agent.conversation) == 2 + number
                assert await store.load("a") == list(agent.conversation)

    run(backend, scenario)


def test_a_call_that_a_crash_cut_off_gets_an_error_as_its_result(backend: Backend, tmp_path: Path) -> None:
    cut: list[Item] = [
        Message("system", ""),
        Message("user", "Look!"),
        ToolCall("1", "look", "{}"),
        ToolCall("2", "look", "{}"),
    ]

    async def scenario() -> None:
        async with SqliteStore(tmp_path / "calls.db") as store:
            log = await store.open_call("a")
            await log.apply([Change(1, 0, 0, tuple(cut))])
            await log.aclose()
            async with ScriptedAgent(["Sorry."], tools=[look]) as agent:
                await agent.attach(store, "a")
                assert [type(item).__name__ for item in agent.conversation[2:]] == [
                    "ToolCall",
                    "ToolResult",
                    "ToolCall",
                    "ToolResult",
                ]
                assert await store.load("a") == list(agent.conversation) == repaired(cut)
                assert "interrupted" in agent.conversation[3].output  # type: ignore[union-attr]

    run(backend, scenario)


def test_a_whole_history_is_not_touched_by_the_repair(backend: Backend) -> None:
    items: list[Item] = [
        ToolCall("1", "look", "{}"),
        Message("user", "well?"),
        ToolResult("1", "look", "1"),
        ToolCall("1", "look", "{}"),
        ToolResult("1", "look", "2"),
    ]
    assert repaired(items) == items
    assert repaired(items[:-1])[-1] == repaired(items[3:4])[-1]


def test_two_writers_of_one_call_are_refused_and_the_next_one_is_not(backend: Backend, tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "calls.db"
        async with SqliteStore(path) as store, SqliteStore(path) as other:
            async with ScriptedAgent() as first:
                await first.attach(store, "a")
                for place in (store, other):
                    async with ScriptedAgent() as second:
                        with pytest.raises(CallInUseError, match="one writer") as caught:
                            await second.attach(place, "a")
                        assert caught.value.call_id == "a"
                        assert caught.value.writer is not None
                        with pytest.raises(CallInUseError):
                            await place.delete("a")
                        await second.attach(place, f"another {id(place)}")
            async with ScriptedAgent() as second:
                await second.attach(other, "a")
            await store.delete("a")
            with pytest.raises(UnknownCallError):
                await other.load("a")

    run(backend, scenario)


def test_an_agent_that_cannot_be_attached_says_why(backend: Backend, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with SqliteStore(tmp_path / "calls.db") as store:
            agent = ScriptedAgent(["Hello", HANG])
            with pytest.raises(RuntimeError, match="open agent"):
                await agent.attach(store, "a")
            async with agent:
                answer = agent.answer()
                with pytest.raises(RuntimeError, match="before the first answer"):
                    await agent.attach(store, "a")
                answer.cancel()
                for bad in ("", "a\nb"):
                    with pytest.raises(ValueError, match="call_id"):
                        await agent.attach(store, bad)
                with pytest.raises(TypeError, match="call_id"):
                    await agent.attach(store, 7)  # type: ignore[arg-type]
                with pytest.raises(TypeError, match="on_error"):
                    await agent.attach(store, "a", on_error=7)  # type: ignore[arg-type]
                with pytest.raises(TypeError, match="would never run"):
                    await agent.attach(store, "a", on_error=anyio.sleep)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
                await agent.flush()
                await agent.attach(store, "a")
                with pytest.raises(RuntimeError, match="attached already"):
                    await agent.attach(store, "b")
            async with FallbackAgent([ScriptedAgent]) as outer:
                assert outer.active is not None
                with pytest.raises(RuntimeError, match="FallbackAgent"):
                    await outer.active.attach(store, "c")

    run(backend, scenario)
