"""Group B: what is sent to a provider, and whether a strict one would take it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from case_agents import DIALECTS, UnknownWordError, check_known, model_agent
from case_tools import Toolbox
from micdrop_agent import wire
from micdrop_agent.testing import ScriptedProvider, run_virtual, say

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from micdrop_agent.testing import Backend

_WIRE = {"tool_call_id": "toolCallId", "tool_name": "toolName"}


def run_request_case(case: dict[str, Any], dialect: str, strict: ModuleType, backend: Backend) -> list[str]:
    """Send the given conversation through one dialect; what is wrong with the request."""
    check_known(case, {"given", "dialects", "open_question", "note"}, "request.json")
    check_known(case["given"], {"conversation", "tools"}, "given")
    expect = case["dialects"][dialect]
    check_known(expect, _EXPECT, "dialect")
    found: list[Any] = []
    body = run_virtual(backend, sent_for, case["given"], dialect, found)
    problems = _by_itself(expect, body, found)
    problems += [f"a strict provider answers 400: {why}" for why in strict.DIALECTS[dialect](body)]
    bound: dict[str, Any] = {}
    for name in expect.get("rules", ()):
        check: Callable[[Any], list[str]] | None = strict.DIALECTS.get(name) or getattr(strict, name, None)
        if check is None:
            raise UnknownWordError(f"rule {name!r}")
        problems += check(body)
    accepted = [expect["exact"]] if "exact" in expect else []
    variants = expect.get("variants", [])  # shapes that are good too, where the case leaves a choice
    accepted += [_shape(one) for one in (variants.values() if isinstance(variants, dict) else variants)]
    sent = body.get("messages", body.get("input"))
    if expect.get("tool_message_name_optional"):
        sent, accepted = _without_tool_names(sent), [_without_tool_names(shape) for shape in accepted]
    if accepted and not any(strict.match(shape, sent, bound) for shape in accepted):
        problems.append(f"history\n    seen   {json.dumps(sent)}\n    wanted {json.dumps(accepted)}")
    ids = [bound.get(name) for name in expect.get("distinct", ())]
    if len(set(ids)) != len(ids):
        problems.append(f"ids are not distinct: {ids}")
    for name, wanted in expect.get("tool_checks", {}).items():
        problems += _tool_differs(body, name, wanted)
    return problems


def _by_itself(expect: dict[str, Any], body: dict[str, Any], found: list[Any]) -> list[str]:
    """What is wrong with the making of the request: it changes something, differs the next time, or has too much."""
    before, after, second = found
    problems = ["the request changed the conversation"] if expect.get("pure") and before != after else []
    if expect.get("twice_equal") and second != body:
        problems.append(f"the second request differs: {second}")
    return problems + [f"{name} is in the request" for name in expect.get("absent", ()) if _holds(body, name)]


_EXPECT = {
    "exact", "rules", "distinct", "tool_checks", "variants", "open_question", "note",
    "absent", "pure", "twice_equal", "tool_message_name_optional",
}  # fmt: skip


def _holds(body: Any, path: str) -> bool:
    """Whether a member is there: at the root, or by a dotted path with ``*`` or ``[]`` for all entries of a list."""
    name, _, rest = path.replace("[]", ".*").lstrip(".").partition(".")
    if name == "*":
        inner = body if isinstance(body, list) else []
    else:
        inner = [body[name]] if isinstance(body, dict) and name in body else []
    return any(_holds(one, rest) for one in inner) if rest else bool(inner)


def _without_tool_names(messages: Any) -> Any:
    if not isinstance(messages, list):
        return messages
    return [
        {key: value for key, value in one.items() if key != "name"}
        if isinstance(one, dict) and one.get("role") == "tool"
        else one
        for one in messages
    ]


def _shape(variant: Any) -> Any:
    return variant["exact"] if isinstance(variant, dict) and "exact" in variant else variant


async def sent_for(given: dict[str, Any], dialect: str, seen: list[Any] | None = None) -> dict[str, Any]:
    """The request for a conversation; ``seen`` gets the conversation before and after, and the body of a second one."""
    if dialect not in DIALECTS:
        raise UnknownWordError(f"dialect {dialect!r}")
    kind, options = DIALECTS[dialect]
    toolbox = Toolbox()
    items = [{_WIRE.get(key, key): value for key, value in item.items()} for item in given["conversation"]]
    async with ScriptedProvider([say("Okay.")]) as provider:
        agent = model_agent(
            kind,
            provider,
            tools=[toolbox.from_given(tool) for tool in given["tools"]],
            auto_end_call=False,
            **options,
        )
        async with agent:
            agent.conversation.replace(wire.load(items))
            before = wire.dump(agent.conversation)
            await agent.answer().wait()
            if seen is not None:
                after = wire.dump(agent.conversation)[: len(before)]
                agent.conversation.replace(wire.load(items))
                await agent.answer().wait()
                seen += [before, after, provider.requests[-1].body]
        body: dict[str, Any] = provider.requests[0].body
        return body


def _tool_differs(body: dict[str, Any], name: str, wanted: dict[str, Any]) -> list[str]:
    check_known(wanted, {"strict"}, "tool_checks")
    tools = [tool.get("function", tool) for tool in body.get("tools", ())]
    found = [tool for tool in tools if tool["name"] == name]
    if len(found) != 1:
        return [f"{len(found)} tools are called {name}"]
    seen = bool(found[0].get("strict"))
    return [] if seen is wanted["strict"] else [f"strict of {name} is {seen}"]
