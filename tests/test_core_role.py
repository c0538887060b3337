"""Context for one answer, another system prompt, another role, and the name of the call in the log."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from step_support import CALLS, STOP, Model, call

from micdrop_agent import Agent, FallbackAgent, Message, ProviderError, RoleChanged, ToolCall, TurnContext, tool
from micdrop_agent.events import EVENT_TYPES
from micdrop_agent.store import SqliteStore
from micdrop_agent.testing import BACKENDS, HANG, ScriptedAgent, cancel_everywhere, read, run_virtual

if TYPE_CHECKING:
    from pathlib import Path

    from micdrop_agent import Turn
    from micdrop_agent.testing import Backend, Probe

both = pytest.mark.parametrize("backend", BACKENDS)
NOTE = Message("system", "It rains in Rome.")


def _says(text: str) -> list[Any]:
    return [[text, *STOP]]


def _calls(name: str) -> list[Any]:
    return [[call(name), *CALLS]]


def _contents(items: Any) -> list[str]:
    return [item.content if isinstance(item, Message) else item.role for item in items]


@both
@pytest.mark.parametrize("inside", ["alone", "child's own", "of the supervisor"])
def test_context_of_a_hook_is_in_the_requests_of_that_answer_only(backend: Backend, inside: str) -> None:
    answers = iter([TurnContext(system="Now: noon.", items=[NOTE]), None])
    models: list[Model] = []

    def hook(agent: Agent, turn: Turn) -> TurnContext | None:
        del agent, turn
        return next(answers)

    def model() -> Model:
        own = None if inside == "of the supervisor" else hook
        models.append(
            Model(_calls("look"), _says("Wet."), _says("Fine."), system_prompt="Be kind.", on_before_answer=own)
        )
        return models[-1]

    async def scenario() -> None:
        hooked = hook if inside == "of the supervisor" else None
        agent = model() if inside == "alone" else FallbackAgent([model], on_before_answer=hooked)
        agent.add_tool(look)
        async with agent:
            for text in ("Weather?", "And you?"):
                agent.add_user_message(text)
                assert (await agent.answer().wait()).status == "completed"
            assert not any("Rome" in text or "noon" in text for text in _contents(agent.conversation))

    run_virtual(backend, scenario)
    first, second, third = [_contents(request[1]) for request in models[0].served.requests]
    assert first == ["Be kind.\n\nNow: noon.", NOTE.content, "Weather?"]
    assert second[:3] == first
    assert second[3:] == ["tool_call", "tool_result"]
    assert third[0] == "Be kind."
    assert NOTE.content not in third


@tool
def look() -> str:
    """Look out of the window."""
    return "rain"


def test_a_context_holds_a_string_and_items() -> None:
    assert TurnContext(items=[NOTE]).items == (NOTE,)
    with pytest.raises(TypeError, match="system"):
        TurnContext(system=5)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="items"):
        TurnContext(items=["x"])  # type: ignore[list-item]


@both
def test_the_system_prompt_is_set_between_answers_only(backend: Backend) -> None:
    told: list[RoleChanged] = []

    async def scenario() -> None:
        async with ScriptedAgent(["a", HANG], system_prompt="old") as agent:
            agent.on(RoleChanged, told.append)
            agent.system_prompt = "new"
            assert agent.system_prompt == agent.conversation[0].content == "new"  # type: ignore[union-attr]
            answer = agent.answer()
            with pytest.raises(RuntimeError, match=r"hand_off\(\)"):
                agent.system_prompt = "third"
            assert await answer.receive() == "a"
            agent.cancel()
            agent.system_prompt = "third"
            with pytest.raises(TypeError, match="system_prompt"):
                agent.system_prompt = None  # type: ignore[assignment]
            assert _contents(agent.conversation) == ["third", "a"]

    run_virtual(backend, scenario)
    assert [(event.old.content, event.new.content) for event in told] == [("old", "new"), ("new", "third")]


@both
@pytest.mark.parametrize("nested", [False, True])
def test_a_tool_hands_the_caller_over_within_its_own_answer(backend: Backend, nested: bool) -> None:
    models: list[Model] = []

    @tool
    def pay() -> str:
        """Pay."""
        return "paid"

    @tool
    def to_billing(agent: Agent) -> str:
        """Hand over."""
        agent.hand_off(system_prompt="You are billing.", tools=[pay], note="The caller is Ada.")
        return "done"

    def model() -> Model:
        models.append(
            Model(_calls("to_billing"), _says("Billing here."), system_prompt="You are sales.", tools=[to_billing])
        )
        return models[-1]

    events: list[Any] = []

    async def scenario() -> None:
        agent = FallbackAgent([model, model]) if nested else model()
        async with agent:
            for kind in EVENT_TYPES:
                agent.on(kind, events.append)
            agent.add_user_message("I want to pay.")
            assert (await agent.answer().wait()).text == "Billing here."
            assert [each.name for each in agent.tools] == ["pay"]
            assert agent.system_prompt == "You are billing."
            items = list(agent.conversation)
            assert isinstance(items[2], ToolCall)
            assert [item.role for item in items] == [
                "system",
                "user",
                "tool_call",
                "tool_result",
                "system",
                "assistant",
            ]

    run_virtual(backend, scenario)
    _, items, names, _ = models[0].served.requests[-1]
    assert _contents(items)[0] == "You are billing."
    assert names == ("pay",)
    (change,) = [event for event in events if isinstance(event, RoleChanged)]
    assert change.tools == ("pay",)


@both
def test_a_child_that_is_built_later_has_the_new_role(backend: Backend) -> None:
    children: list[Model] = []

    def child(*script: Any) -> Any:
        def make() -> Model:
            children.append(Model(*script, system_prompt="Of the child.", tools=[look]))
            return children[-1]

        return make

    async def scenario() -> None:
        down = ProviderError("down", kind="server", retryable=False)
        async with FallbackAgent([child([down]), child(_says("Hello."))]) as agent:
            agent.hand_off(system_prompt="New.", tools=[])
            agent.add_user_message("Hi")
            assert (await agent.answer().wait()).text == "Hello."
            assert agent.tools == ()

    run_virtual(backend, scenario)
    _, items, names, _ = children[-1].served.requests[0]
    assert _contents(items)[0] == "New."
    assert not names


async def hands_off(probe: Probe) -> None:
    async with ScriptedAgent(["One ", 0.1, "two."]) as agent:
        probe.watch(agent)
        async with anyio.create_task_group() as tasks:
            agent.add_user_message("Well?")
            tasks.start_soon(read, probe, agent.answer())
            await anyio.sleep(0.05)
            agent.hand_off(tools=[look])


def test_a_hand_over_at_any_step_breaks_no_invariant() -> None:
    assert cancel_everywhere(hands_off, inject=["cancel", "aclose", "host scope", "task.cancel"]).points > 50


@both
def test_the_name_of_the_call_is_in_every_line_of_its_log(
    backend: Backend, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        down = ProviderError("down", kind="server", retryable=False)
        async with (
            SqliteStore(tmp_path / "calls.db") as store,
            FallbackAgent([lambda: ScriptedAgent([down])], raise_on_failure=False) as agent,
        ):
            await agent.attach(store, "call-7")
            agent.add_user_message("Hi")
            await agent.answer().wait()

    with caplog.at_level(logging.DEBUG, "micdrop_agent"):
        run_virtual(backend, scenario, io_grace=0.01)
    lines = [record for record in caplog.records if record.name.endswith("FallbackAgent")]
    assert len(lines) >= 2
    assert {getattr(record, "call_id", None) for record in lines} == {"call-7"}
