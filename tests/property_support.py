"""What the property tests of the invariants share: a host, its tools, and an oracle for the undisturbed run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import anyio
import attrs
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from micdrop_agent import Message, Tool, ToolCall, ToolResult
from micdrop_agent.messages import is_blank
from micdrop_agent.testing import Call, Probe, ScriptedAgent, Trace, read, run_scenario
from micdrop_agent.testing.strategies import answers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from micdrop_agent import Agent
    from micdrop_agent.messages import Item
    from micdrop_agent.testing import Act, Backend


def searching(examples: int, **others: Any) -> settings:
    """Settings of a property test that takes longer than others.

    Args:
        examples: How many examples are enough where others have 100; a profile for more than that has more here too.
        **others: Further settings.
    """
    enough = max(1, examples * settings().max_examples // 100)
    checks = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
    return settings(max_examples=enough, deadline=None, suppress_health_check=checks, **others)


quickly = searching(60)

TOOLS = ("quick", "slow", "raises", "finishes", "unknown")
"""Tools of the scripted hosts; the last one does not exist."""


@attrs.define(eq=False)
class Runs:
    """What the tools of a run did."""

    begun: list[str] = attrs.Factory(list)
    ended: list[str] = attrs.Factory(list)


def toolbox(runs: Runs) -> list[Tool]:
    def note(name: str) -> None:
        runs.begun.append(name)

    def quick(arguments: dict[str, Any]) -> str:
        note("quick")
        return "done"

    async def slow(arguments: dict[str, Any]) -> str:
        note("slow")
        await anyio.sleep(0.07)
        runs.ended.append("slow")
        return "done late"

    def raises(arguments: dict[str, Any]) -> str:
        note("raises")
        raise LookupError("the tool failed")

    async def finishes(arguments: dict[str, Any]) -> str:
        note("finishes")
        await anyio.sleep(0.03)
        runs.ended.append("finishes")
        return "done all the same"

    schema = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    return [
        Tool.from_schema("quick", "", schema, quick),
        Tool.from_schema("slow", "", schema, slow),
        Tool.from_schema("raises", "", schema, raises),
        Tool.from_schema("finishes", "", schema, finishes, on_cancel="finish"),
    ]


scripts = answers(TOOLS)
"""The script of one answer, with any tool."""

fractions = st.floats(0, 1, exclude_max=True)
"""Where in a run something happens."""


@attrs.define(eq=False)
class Host:
    """A host application: one scripted agent, one or more turns, read to the end."""

    turns: Sequence[Sequence[Act]]
    options: dict[str, Any] = attrs.Factory(dict)
    runs: Runs = attrs.Factory(Runs)
    agent: Agent | None = None

    async def __call__(self, probe: Probe) -> None:
        self.runs = Runs()
        options: dict[str, Any] = {"raise_on_failure": False, "tools": toolbox(self.runs), **self.options}
        async with ScriptedAgent(*self.turns, **options) as agent:
            self.agent = agent
            probe.watch(agent)
            for number, _ in enumerate(self.turns):
                if agent._core.state != "open":
                    return
                agent.add_user_message(f"Question {number}")
                await read(probe, agent.answer())


def at_fraction(host: Host, backend: Backend, inject: str, fraction: float, **options: Any) -> Trace:
    """Run ``host`` undisturbed to learn its length, then with ``inject`` at that fraction of it."""
    length = run_scenario(host, backend, **options).steps
    return run_scenario(host, backend, inject=inject, step=1 + int(fraction * length), **options)


# -- the oracle


def expected_items(script: Sequence[Act], first_call: int = 1) -> tuple[list[str], list[Item], bool]:
    """Chunks, stored items and failure of an undisturbed answer, from its script alone."""
    chunks: list[str] = []
    items: list[Item] = []
    text = ""
    number = first_call
    for act in script:
        if isinstance(act, str):
            chunks.append(act)
            text += act
        elif isinstance(act, Exception):
            return chunks, items + _message(text, {"interrupted": True}), True
        elif isinstance(act, Call | list):
            items += _message(text, None)
            text = ""
            for call in [act] if isinstance(act, Call) else act:
                items += _pair(call, number)
                number += 1
    return chunks, items + _message(text, None), False


def _message(text: str, metadata: dict[str, Any] | None) -> list[Item]:
    return [] if is_blank(text) else [Message("assistant", text, metadata)]


def _pair(call: Call, number: int) -> list[Item]:
    arguments = call.arguments if isinstance(call.arguments, str) else json.dumps(dict(call.arguments))
    outputs = {"quick": '"done"', "slow": '"done late"', "finishes": '"done all the same"'}
    output = outputs.get(call.name, "error")
    if arguments not in {"", "{}"}:
        output = "error"
    call_id = f"call_{number}"
    return [ToolCall(call_id, call.name, arguments), ToolResult(call_id, call.name, output)]


def without_error_texts(items: Sequence[Item]) -> list[Item]:
    """Items with every error output written as ``error``: the words are not the point."""
    plain: list[Item] = []
    for item in items:
        if isinstance(item, ToolResult) and item.output.startswith('{"error":'):
            plain.append(attrs.evolve(item, output="error"))
        else:
            plain.append(item)
    return plain
