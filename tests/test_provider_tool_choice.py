"""Which tools a request declares and what it says about calling them; on every kind of agent and both loops."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from micdrop_agent import ChatAgent, FallbackAgent, MistralAgent, OpenaiAgent, Retry, Tool, ToolCall, ToolResult
from micdrop_agent.providers.requests.tool_forms import is_forced, nullable_form, relaxed
from micdrop_agent.testing import BACKENDS, ScriptedProvider, parts, run_virtual, say

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from micdrop_agent import Agent, Item
    from micdrop_agent.testing import Backend

FORCED: list[Any] = [
    "required",
    "any",
    {"type": "function", "function": {"name": "pay"}},
    {"type": "function", "name": "pay"},
    {"type": "tool", "name": "pay"},
    {"type": "allowed_tools", "mode": "required", "tools": []},
    {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": []}},
]
FREE: list[Any] = [
    None,
    "auto",
    "none",
    {"type": "auto"},
    {"type": "none"},
    {"type": "allowed_tools", "mode": "auto", "tools": []},
]
MAKERS = [OpenaiAgent, ChatAgent, MistralAgent]


def make(maker: Callable[..., Any], server: ScriptedProvider, host: str = "a.test", **options: Any) -> Any:
    return maker(
        base_url=f"http://{host}/v1",
        api_key="k",
        connect=server.connect,
        retry=Retry(max_retries=0),
        raise_on_failure=False,
        **options,
    )


def ask(
    backend: Backend,
    script: Any,
    agent_of: Callable[[ScriptedProvider], Agent],
    *,
    items: Sequence[Item] = (),
    turns: int = 1,
) -> tuple[list[dict[str, Any]], Any]:
    """The bodies of all requests of some turns, and the last result."""
    server = ScriptedProvider(script)
    results: list[Any] = []

    async def scenario() -> None:
        async with server, agent_of(server) as agent:
            if items:
                agent.conversation.replace([*agent.conversation, *items])
            for _ in range(turns):
                agent.add_user_message("Hi.")
                results.append(await agent.answer().wait())

    run_virtual(backend, scenario)
    return [request.body for request in server.requests], results[-1]


@pytest.mark.parametrize("choice", FORCED)
def test_a_choice_that_forces_is_known_and_relaxed(choice: Any) -> None:
    assert is_forced(choice)
    assert not is_forced(relaxed(choice))
    if choice.__class__ is dict and choice["type"] == "allowed_tools":
        assert {**choice, **relaxed(choice)} == relaxed(choice)  # its list of tools stays


@pytest.mark.parametrize("choice", FREE)
def test_any_other_choice_does_not_force(choice: Any) -> None:
    assert not is_forced(choice)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("choice", FORCED)
def test_a_forced_tool_runs_once_in_an_answer_and_again_in_the_next(
    backend: Backend, maker: Callable[..., Any], choice: Any
) -> None:
    paid: list[int] = []
    pay = Tool(name="pay", description="Pay.", execute=lambda: paid.append(1))
    calls = parts([{"tool": "pay", "args": {}, "id": "c1"}, {"end": True}])
    script = [calls, say("Paid."), calls, say("Paid again.")]
    bodies, result = ask(
        backend, script, lambda server: make(maker, server, tools=[pay], settings={"tool_choice": choice}), turns=2
    )
    assert result.text == "Paid again."
    assert [is_forced(body["tool_choice"]) for body in bodies] == [True, False, True, False]
    assert len(paid) == 2


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_next_child_is_not_forced_to_run_what_the_failed_one_ran(backend: Backend) -> None:
    paid: list[int] = []
    pay = Tool(name="pay", description="Pay.", execute=lambda: paid.append(1))
    settings = {"tool_choice": "required"}
    calls = parts([{"tool": "pay", "args": {}, "id": "c1"}, {"end": True}])
    script = {"a.test": [calls, parts([{"status": 500}])], "b.test": [say("Paid.")]}

    def agent_of(server: ScriptedProvider) -> Agent:
        hosts = ("a.test", "b.test")
        return FallbackAgent([partial(make, ChatAgent, server, host, tools=[pay], settings=settings) for host in hosts])

    bodies, result = ask(backend, script, agent_of)
    assert (result.text, len(paid)) == ("Paid.", 1)
    assert [body["tool_choice"] for body in bodies] == ["required", "auto", "auto"]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("maker", MAKERS)
def test_the_last_request_of_a_turn_declares_its_tools_and_forbids_to_call_them(
    backend: Backend, maker: Callable[..., Any]
) -> None:
    look = Tool(name="look", description="Look.", execute=lambda: 1)
    script = [parts([{"tool": "look", "args": {}, "id": "c1"}, {"end": True}]), say("Enough.")]
    settings = {"tool_choice": "required", "parallel_tool_calls": False}
    bodies, result = ask(
        backend, script, lambda server: make(maker, server, tools=[look], max_steps=1, settings=settings)
    )
    assert result.text == "Enough."
    assert bodies[1]["tools"] == bodies[0]["tools"]
    assert (bodies[1]["tool_choice"], "parallel_tool_calls" in bodies[1]) == ("none", False)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("maker", MAKERS)
def test_calls_of_a_tool_that_is_gone_are_declared_all_the_same(backend: Backend, maker: Callable[..., Any]) -> None:
    items: list[Item] = [ToolCall("1", "gone", "{}"), ToolResult("1", "gone", "1"), ToolCall("2", "no name!", "{}")]
    (body,), _ = ask(backend, [say("Hi.")], lambda server: make(maker, server), items=items)
    names = [tool.get("function", tool)["name"] for tool in body["tools"]]
    assert names == ["gone", "no_name_"]
    assert body["tool_choice"] == "none"


@pytest.mark.parametrize("maker", MAKERS)
def test_a_conversation_without_calls_declares_nothing(maker: Callable[..., Any]) -> None:
    (body,), _ = ask("asyncio", [say("Hi.")], lambda server: make(maker, server, settings={"tool_choice": "none"}))
    assert not {"tools", "tool_choice"} & set(body)


SEARCH = {"type": "web_search"}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("maker", MAKERS)
def test_tools_of_the_server_stand_beside_the_agents_own(backend: Backend, maker: Callable[..., Any]) -> None:
    look = Tool(name="look", description="Look.", execute=lambda: 1)
    script = [parts([{"tool": "look", "args": {}, "id": "c1"}, {"end": True}]), say("Enough.")]
    bodies, result = ask(
        backend, script, lambda server: make(maker, server, tools=[look], settings={"tools": [SEARCH]}, max_steps=1)
    )
    assert result.text == "Enough."
    for body in bodies:
        assert [tool.get("function", tool).get("name") for tool in body["tools"]] == ["look", None]
        assert body["tools"][1] == SEARCH


def test_a_declaration_of_the_users_own_replaces_the_agents_of_that_name() -> None:
    own = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    look = Tool(name="look", description="Look.", execute=lambda: 1)
    (body,), _ = ask(
        "asyncio", [say("Hi.")], lambda server: make(ChatAgent, server, tools=[look], settings={"tools": [own]})
    )
    assert body["tools"] == [own]


@pytest.mark.parametrize("tools", ["web_search", {"type": "web_search"}, [1]])
def test_tools_in_settings_that_are_no_declarations_are_refused(tools: Any) -> None:
    with pytest.raises(TypeError, match="tools"):
        ChatAgent(api_key="k", settings={"tools": tools})


def free_form(name: str) -> Tool:
    labels = {"type": "object", "additionalProperties": {"type": "string"}}
    return Tool.from_schema(name, "Tag.", {"type": "object", "properties": {"labels": labels}}, lambda _: 1)


@pytest.mark.parametrize(
    ("loose", "strict"), [([], [True]), ([free_form("tag")], [False, False]), ([{"user": True}], [False])]
)
def test_all_tools_of_a_request_are_strict_or_none_is(loose: list[Any], strict: list[bool]) -> None:
    look = Tool(name="look", description="Look.", execute=lambda: 1)
    own = [tool for tool in loose if isinstance(tool, Tool)]
    users = [{"type": "function", "function": {"name": "x", "parameters": {}}} for tool in loose if tool not in own]
    (body,), _ = ask(
        "asyncio",
        [say("Hi.")],
        lambda server: make(ChatAgent, server, tools=[look, *own], settings={"tools": users} if users else None),
    )
    assert [tool["function"]["strict"] for tool in body["tools"] if tool["function"]["name"] != "x"] == strict


NULLABLE: list[tuple[Any, Any]] = [
    ({"type": ["integer", "null"]}, {"type": "integer", "nullable": True}),
    ({"type": ["integer", "string", "null"]}, {"nullable": True, "anyOf": [{"type": "integer"}, {"type": "string"}]}),
    ({"type": ["integer", "string"]}, {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
    ({"anyOf": [{"type": "string"}, {"type": "null"}]}, {"type": "string", "nullable": True}),
    ({"type": ["string", "null"], "enum": ["a", None]}, {"type": "string", "enum": ["a"], "nullable": True}),
    (
        {"type": "object", "properties": {"type": {"type": ["string", "null"]}}},
        {"type": "object", "properties": {"type": {"type": "string", "nullable": True}}},
    ),
    (
        {"type": "array", "items": {"type": ["string", "null"]}},
        {"type": "array", "items": {"type": "string", "nullable": True}},
    ),
    ({"type": "string", "default": None, "enum": ["type"]}, {"type": "string", "default": None, "enum": ["type"]}),
]


@pytest.mark.parametrize(("schema", "wanted"), NULLABLE)
def test_null_is_said_by_a_word_of_its_own(schema: Any, wanted: Any) -> None:
    assert nullable_form(schema) == wanted
    assert nullable_form(wanted) == wanted
