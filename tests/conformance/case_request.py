"""Group B: what is sent to a provider, and whether a strict one would take it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from case_agents import UnknownWordError, check_known, model_agent
from case_tools import Toolbox
from micdrop_agent import wire
from micdrop_agent.providers.quirks import ChatQuirks
from micdrop_agent.testing import ScriptedProvider, run_virtual, say

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from micdrop_agent.testing import Backend

DIALECTS: dict[str, tuple[str, dict[str, Any]]] = {
    "openai_chat": ("chat", {"quirks": ChatQuirks(mixed_strict=True)}),  # as OpenAI itself takes them
    "openai_responses": ("responses", {}),
    "mistral": ("mistral", {}),
    "template": ("chat", {"dialect": "template"}),
    "deepseek_responses": ("responses", {}),
}
"""Class and options for each provider family of the cases."""

_WIRE = {"tool_call_id": "toolCallId", "tool_name": "toolName"}


def run_request_case(case: dict[str, Any], dialect: str, strict: ModuleType, backend: Backend) -> list[str]:
    """Send the given conversation through one dialect; what is wrong with the request."""
    check_known(case, {"given", "dialects", "open_question", "note"}, "request.json")
    check_known(case["given"], {"conversation", "tools"}, "given")
    if dialect not in DIALECTS:
        raise UnknownWordError(f"dialect {dialect!r}")
    expect = case["dialects"][dialect]
    check_known(expect, {"exact", "rules", "distinct", "tool_checks", "variants", "open_question", "note"}, "dialect")
    body = run_virtual(backend, _sent, case["given"], dialect)
    problems = [f"a strict provider answers 400: {why}" for why in strict.DIALECTS[dialect](body)]
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
    if accepted and not any(strict.match(shape, sent, bound) for shape in accepted):
        problems.append(f"history\n    seen   {json.dumps(sent)}\n    wanted {json.dumps(accepted)}")
    ids = [bound.get(name) for name in expect.get("distinct", ())]
    if len(set(ids)) != len(ids):
        problems.append(f"ids are not distinct: {ids}")
    for name, wanted in expect.get("tool_checks", {}).items():
        problems += _tool_differs(body, name, wanted)
    return problems


def _shape(variant: Any) -> Any:
    return variant["exact"] if isinstance(variant, dict) and "exact" in variant else variant


async def _sent(given: dict[str, Any], dialect: str) -> dict[str, Any]:
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
            await agent.answer().wait()
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
