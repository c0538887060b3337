"""A subclass of ``Agent`` has every name for itself that is not an agent's, and is told of one that is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import attrs
import pytest

from micdrop_agent import Agent, FallbackAgent, ModelAgent
from micdrop_agent._core.core import core_of
from micdrop_agent._core.options import AgentKeywords, AgentOptions
from micdrop_agent.fallback.options import FallbackKeywords, FallbackOptions
from micdrop_agent.model.options import ModelKeywords, ModelOptions
from micdrop_agent.providers import anthropic, openai, options
from micdrop_agent.testing import BACKENDS, ScriptedAgent, run_virtual
from micdrop_agent.tools import tool

if TYPE_CHECKING:
    from micdrop_agent import Turn
    from micdrop_agent.testing import Backend

both = pytest.mark.parametrize("backend", BACKENDS)


class Plain(Agent):
    async def generate_answer(self, turn: Turn) -> None:
        await turn.write("Hello.")


@both
def test_the_names_of_the_core_are_free_for_subclasses(backend: Backend) -> None:
    """Each of these, as an attribute of a user's own, would once have broken the agent or emptied its answers."""

    async def scenario() -> None:
        own = Plain()
        for name in [slot for slot in type(core_of(own)).__slots__ if not slot.startswith("__")]:
            for mine in (name.lstrip("_"), f"_{name.lstrip('_')}"):
                if not hasattr(Agent, mine):
                    setattr(own, mine, None)
        async with own as agent, anyio.create_task_group():
            agent.add_user_message("Hi")
            assert [chunk async for chunk in agent.answer()] == ["Hello."]
            assert [item.role for item in agent.conversation] == ["system", "user", "assistant"]

    run_virtual(backend, scenario)


@pytest.mark.parametrize("name", [name for name in vars(Agent) if not name.startswith("__")])
def test_a_name_of_the_agent_is_refused_or_meant_to_be_defined(name: str) -> None:
    body: dict[str, Any] = {name: None, "__module__": "app"}
    if name in {"generate_answer", "prewarm", "aclose", "takes_images", "_abc_impl"}:
        assert isinstance(type("Mine", (Agent,), body), type)
        return
    with pytest.raises(TypeError, match=rf"Mine\.{name} .*Agent\.{name}"):
        type("Mine", (Agent,), body)


@pytest.mark.parametrize(
    ("kind", "keywords"),
    [
        (AgentOptions, AgentKeywords),
        (ModelOptions, ModelKeywords),
        (FallbackOptions, FallbackKeywords),
        (options.HttpOptions, options.HttpKeywords),
        (options.ChatOptions, options.ChatKeywords),
        (openai.OpenaiOptions, openai.OpenaiKeywords),
        (anthropic.AnthropicOptions, anthropic.AnthropicKeywords),
    ],
)
def test_the_keywords_that_editors_complete_are_the_options(kind: Any, keywords: Any) -> None:
    fields = attrs.fields_dict(kind)
    assert set(fields) == set(keywords.__annotations__)
    for name, field in fields.items():
        spelt = keywords.__annotations__[name].__forward_arg__
        assert spelt in {str(field.type), f"{field.type} | None"}, name


@pytest.mark.parametrize(
    ("make", "hint"),
    [
        (Plain, ""),
        (lambda **options: FallbackAgent([Plain], **options), r"its children have theirs, .*OpenaiAgent\(xyz=…\)\]; "),
    ],
)
def test_an_unknown_option_is_named_with_those_that_there_are(make: Any, hint: str) -> None:
    with pytest.raises(TypeError, match=r"no option 'bufer_size'; did you mean 'buffer_size'"):
        make(bufer_size=1)
    with pytest.raises(TypeError, match=rf"no option 'xyz'; {hint}it has .*buffer_size"):
        make(xyz=1)
    assert issubclass(ModelAgent, Agent)


@tool
def child_tool() -> str:
    """Of the child."""
    return "child"


@tool
def shared_tool() -> str:
    """Of the supervisor."""
    return "shared"


@both
def test_tools_of_a_fallback_are_added_and_removed_as_they_are_shown(backend: Backend) -> None:
    async def scenario() -> None:
        make = [lambda: ScriptedAgent(["a"], tools=[child_tool])] * 2
        async with FallbackAgent(make, tools=[shared_tool]) as agent:
            assert [each.name for each in agent.tools] == ["child_tool", "shared_tool"]
            with pytest.raises(ValueError, match="child_tool"):
                agent.add_tool(child_tool)
            agent.remove_tool("child_tool")
            assert [each.name for each in agent.tools] == ["shared_tool"]
            assert agent.get_tool("child_tool") is None
            core: Any = core_of(agent)
            core.take_over(core.slots[1], core.conversation)
            core.built(core.slots[1])
            assert [each.name for each in agent.tools] == ["shared_tool"]
            agent.add_tool(child_tool)
            assert [each.name for each in agent.tools] == ["shared_tool", "child_tool"]

    run_virtual(backend, scenario)
