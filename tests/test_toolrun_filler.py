"""What the caller hears while a tool runs, and the application's own object in a tool."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import attrs
import pytest
from toolrun_support import chunks_of

from micdrop_agent import Agent, Deps, FallbackAgent, Message, Tool, Turn, tool
from micdrop_agent.testing import BACKENDS, Call, ScriptedAgent, run_virtual

if TYPE_CHECKING:
    from shop import Shop  # type: ignore[import-not-found]  # for type checkers only, on purpose

    from micdrop_agent.testing import Backend

pytestmark = pytest.mark.parametrize("backend", BACKENDS)


def slow(seconds: float, name: str = "look", **options: Any) -> Tool:
    async def look() -> str:
        await anyio.sleep(seconds)
        return "found"

    return tool(look, name=name, description="Look.", **options)


def spoken(agent: Agent) -> list[str]:
    return [item.content for item in agent.conversation if isinstance(item, Message) and item.role == "assistant"]


@pytest.mark.parametrize(("seconds", "heard"), [(0.7, ["Here."]), (0.9, ["One moment.", "Here."])])
def test_a_filler_is_said_while_the_tool_runs_and_is_not_stored(
    backend: Backend, seconds: float, heard: list[str]
) -> None:
    async def main() -> None:
        async with ScriptedAgent([Call("look"), "Here."], tools=[slow(seconds, filler="One moment.")]) as agent:
            assert await chunks_of(agent) == heard
            assert spoken(agent) == ["Here."]
            assert agent.answering is False

    run_virtual(backend, main)


def test_it_comes_after_the_time_that_was_asked_for(backend: Backend) -> None:
    async def main() -> None:
        made = slow(5, filler="One moment.", filler_after=2)
        async with ScriptedAgent([Call("look"), "Here."], tools=[made]) as agent:
            began = anyio.current_time()
            times = [anyio.current_time() - began async for _ in agent.answer()]
            assert times == pytest.approx([2, 5])

    run_virtual(backend, main)


@pytest.mark.parametrize("parallel", [True, False])
def test_it_is_said_once_in_an_answer_and_another_one_in_the_next(backend: Backend, *, parallel: bool) -> None:
    async def main() -> None:
        fillers = ["One moment.", "Let me see."]
        tools = [slow(2, filler=fillers), slow(3, name="ask", filler="Wait.")]
        script: list[Any] = [[Call("look"), Call("ask")], Call("look"), "Here."]
        agent = ScriptedAgent(script, script, script, tools=tools, parallel_tools=parallel)
        async with agent:
            heard = [await chunks_of(agent) for _ in range(3)]
            assert heard == [["One moment.", "Here."], ["Let me see.", "Here."], ["One moment.", "Here."]]

    run_virtual(backend, main)


def test_nothing_is_said_after_a_barge_in_or_by_a_filler_that_raises(backend: Backend) -> None:
    def broken() -> str:
        raise RuntimeError("no words")

    async def main() -> None:
        async with ScriptedAgent([Call("look")], tools=[slow(5, filler="One moment.")]) as agent:
            answer = agent.answer()
            await anyio.sleep(0.5)
            agent.cancel()
            assert [chunk async for chunk in answer] == []
            await anyio.sleep(3)
        async with ScriptedAgent([Call("look"), "Here."], tools=[slow(5, filler=broken)]) as agent:
            assert await chunks_of(agent) == ["Here."]

    run_virtual(backend, main)


def test_a_barge_in_counts_what_was_heard_of_it(backend: Backend) -> None:
    async def main() -> None:
        async with ScriptedAgent([Call("look"), "Here."], tools=[slow(5, filler="One moment.")]) as agent:
            answer = agent.answer()
            await anyio.sleep(1)
            assert await answer.receive() == "One moment."
            agent.cancel()
            assert answer.text == "One moment."
            assert spoken(agent) == []

    run_virtual(backend, main)


def test_a_tool_tells_of_its_progress(backend: Backend) -> None:
    async def main() -> None:
        kept: list[Turn] = []

        @tool
        async def book(day: str, turn: Turn) -> str:
            turn.say(f"I look at {day}. ")
            await anyio.sleep(1)
            turn.say("Nearly there. ", store=True)
            kept.append(turn)
            return "booked"

        async with ScriptedAgent([Call("book", {"day": "friday"}), "Done."], tools=[book]) as agent:
            assert list(book.parameters["properties"]) == ["day"]
            assert await chunks_of(agent) == ["I look at friday. ", "Nearly there. ", "Done."]
            assert spoken(agent) == ["Nearly there. ", "Done."]
            kept[0].say("Too late.")
            assert spoken(agent) == ["Nearly there. ", "Done."]

    run_virtual(backend, main)


class Database:
    def tables(self) -> list[int]:
        return [2, 5]


@pytest.mark.parametrize("around", [False, True])
def test_a_tool_gets_what_the_application_gave_its_agent(backend: Backend, *, around: bool) -> None:
    async def main() -> None:
        @tool
        async def free(db: Deps[Database], day: str) -> list[int]:
            return db.tables()

        @tool
        async def by_name(shop: Deps[Shop]) -> bool:
            return isinstance(shop, Database)

        script: list[Any] = [[Call("free", {"day": "friday"}), Call("by_name")], "Two are free."]
        inner = ScriptedAgent(script, tools=[free, by_name], deps=None if around else Database())
        agent = FallbackAgent([lambda: inner], deps=Database()) if around else inner
        async with agent:
            assert list(free.parameters["properties"]) == ["day"]
            assert await chunks_of(agent) == ["Two are free."]
            assert [item.output for item in agent.conversation if item.role == "tool_result"] == ["[2,5]", "true"]
            assert isinstance(agent.deps, Database)

    run_virtual(backend, main)


@attrs.frozen
class Address:
    street: str


@attrs.frozen
class Settings:
    city: str
    home: Address


@pytest.mark.parametrize("around", [False, True])
def test_a_parameter_of_the_type_of_deps_needs_no_mark(backend: Backend, *, around: bool) -> None:
    """A class that JSON could give as well is an argument only where the application gives none."""

    @tool
    async def free(db: Database, day: str) -> list[int]:
        return db.tables()

    @tool
    async def where(settings: Settings | None, floor: int = 0) -> str:
        return f"{settings.home.street if settings else ''} {floor}"

    def agent_with(made: Tool, deps: Any, arguments: dict[str, Any]) -> Agent:
        inner = ScriptedAgent([Call(made.name, arguments), "Fine."], tools=[made], deps=None if around else deps)
        return FallbackAgent([lambda: inner], deps=deps) if around else inner

    async def main() -> None:
        deps: Any
        for made, deps, arguments, output in (
            (free, Database(), {"day": "friday"}, "[2,5]"),
            (where, Settings("Rome", Address("Via Appia")), {"floor": 2}, '"Via Appia 2"'),
        ):
            async with agent_with(made, deps, arguments) as agent:
                assert await chunks_of(agent) == ["Fine."]
                assert [item.output for item in agent.conversation if item.role == "tool_result"] == [output]
                (offered,) = agent.tools
                assert list(offered.parameters["properties"]) == list(arguments)
                assert "$defs" not in offered.parameters
        assert list(free.parameters["properties"]) == ["day"]
        assert list(where.parameters["properties"]) == ["settings", "floor"]  # the tool itself stays as it was

    run_virtual(backend, main)


@pytest.mark.parametrize("deps", [None, "a text"])
def test_a_tool_that_wants_other_deps_fails_and_the_log_says_why(
    backend: Backend, deps: Any, caplog: pytest.LogCaptureFixture
) -> None:
    @tool
    async def free(db: Database, day: str) -> list[int]:
        return db.tables()

    async def main() -> None:
        async with ScriptedAgent([Call("free", {"day": "friday"}), "Hm."], tools=[free], deps=deps) as agent:
            assert await chunks_of(agent) == ["Hm."]
            assert [item.output for item in agent.conversation if item.role == "tool_result"] == [
                '{"error":"the tool failed"}'
            ]

    run_virtual(backend, main)
    assert "db is a Database, but the agent's deps are" in caplog.text


@pytest.mark.parametrize("bad", ["", [], [1], 5])
def test_what_is_no_filler_is_refused(backend: Backend, bad: Any) -> None:
    with pytest.raises(TypeError, match="filler"):
        slow(1, filler=bad)
