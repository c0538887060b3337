"""The tools that the bug cases run with: they note their runs, and do what a case says."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import attrs

from case_agents import UnknownWordError, check_known
from micdrop_agent import Agent, EchoAgent, Tool
from micdrop_agent.events import (
    AnswerFailed,
    AnswerSkipped,
    EndCallRequested,
    MessageAdded,
    ToolCalled,
    UserMessageCancelled,
)

if TYPE_CHECKING:
    from collections.abc import Callable

EVENT_OF: dict[str, Any] = {
    "Message": MessageAdded,
    "CancelLastUserMessage": UserMessageCancelled,
    "SkipAnswer": AnswerSkipped,
    "EndCall": EndCallRequested,
    "ToolCall": ToolCalled,
    "Failed": AnswerFailed,
}
"""Events by their names in the cases."""

OPEN_SCHEMA = {"type": "object", "additionalProperties": True}
"""A tool of which a case gives no schema takes whatever the model writes."""

_SPECIAL = frozenset(
    [
        "shielded_ms",
        "ms",
        "swallows_cancel_for_ms",
        "sleep_ms",
        "thread_ms",
        "blocking_ms",
        "delay_ms",
        "swallows_cancel",
        "returns",
        "raises",
        "calls",
        "timeout_ms",
        "skip_answer",
        "emit_output",
        "on_cancel",
        "parameters",
        "description",
    ]
)


@attrs.define(eq=False)
class Toolbox:
    """Tools that note their runs, and wake whoever waits for one to start."""

    runs: list[tuple[str, dict[str, Any]]] = attrs.Factory(list)
    returned: list[str] = attrs.Factory(list)
    changed: anyio.Event = attrs.Factory(anyio.Event)

    def count(self, name: str) -> int:
        return sum(1 for run, _ in self.runs if run == name)

    def _note(self, name: str, arguments: dict[str, Any]) -> None:
        self.runs.append((name, arguments))
        self._wake()

    def _done(self, name: str) -> None:
        self.returned.append(name)
        self._wake()

    def _wake(self) -> None:
        self.changed.set()
        self.changed = anyio.Event()

    def standard(self) -> list[Tool]:
        return [
            self.plain("get_weather", {"city": {"type": "string"}}, {"sky": "clear"}),
            self.plain("get_time", {}, "10:00"),
        ]

    def plain(self, name: str, properties: dict[str, Any], value: Any) -> Tool:
        def execute(arguments: dict[str, Any]) -> Any:
            self._note(name, arguments)
            self._done(name)
            return value

        schema = {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        }
        return Tool.from_schema(name, f"the tool {name}", schema, execute)

    def from_given(self, spec: dict[str, Any]) -> Tool:
        """A tool of a request case: hand-written JSON Schema, and a function that does nothing."""

        def execute(arguments: dict[str, Any]) -> str:
            self._note(spec["name"], arguments)
            self._done(spec["name"])
            return "ok"

        return Tool.from_schema(spec["name"], spec["description"], spec["parameters"], execute)

    def special(self, name: str, spec: dict[str, Any]) -> Tool:
        """A tool with a behaviour: what it waits for, does, raises and returns, and options of ``Tool``."""
        check_known(spec, _SPECIAL, f"tool {name}")

        async def execute(arguments: dict[str, Any], agent: Agent) -> Any:
            self._note(name, arguments)
            await _wait(spec)
            if "raises" in spec:
                raise RuntimeError(spec["raises"])
            for call in [spec["calls"]] if isinstance(spec.get("calls"), str) else spec.get("calls", ()):
                await act_on(agent, call)
            self._done(name)
            return spec.get("returns")

        options: dict[str, Any] = {
            word: spec[word] for word in ("skip_answer", "emit_output", "on_cancel", "timeout") if word in spec
        }
        if "timeout_ms" in spec:
            options["timeout"] = spec["timeout_ms"] / 1000
        schema = spec.get("parameters", OPEN_SCHEMA)
        return Tool.from_schema(name, spec.get("description", f"the tool {name}"), schema, execute, **options)


async def _wait(spec: dict[str, Any]) -> None:
    if "shielded_ms" in spec:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(spec["shielded_ms"] / 1000)
    try:
        if pause := spec.get("sleep_ms", spec.get("delay_ms", spec.get("ms"))):
            await anyio.sleep(pause / 1000)
        elif "swallows_cancel_for_ms" in spec:
            await anyio.sleep_forever()
    except anyio.get_cancelled_exc_class():
        if not spec.get("swallows_cancel") and "swallows_cancel_for_ms" not in spec:
            raise
        with anyio.CancelScope(shield=True):
            await anyio.sleep(spec.get("swallows_cancel_for_ms", 0) / 1000)
    if blocking := spec.get("thread_ms", spec.get("blocking_ms")):
        await anyio.to_thread.run_sync(time.sleep, blocking / 1000)


async def act_on(agent: Agent, what: str) -> None:
    """What a tool does to the agent: ``agent.cancel``, ``agent.user:Hello``, and so on."""
    if what == "agent.destroy":
        await agent.aclose()
    elif what in {"inner.answer", "inner.cancel"}:
        await _inner_agent(cancel=what == "inner.cancel")
    else:
        act_now(agent, what)


def act_now(agent: Agent, what: str) -> None:
    """The same, for what needs no waiting."""
    word, _, text = what.partition(":")
    actions: dict[str, Callable[[], object]] = {
        "cancel": agent.cancel,
        "end_call": agent.end_call,
        "skip_answer": agent.skip_answer,
        "cancel_last_user_message": agent.cancel_last_user_message,
        "answer": agent.answer,
        "user": lambda: agent.add_user_message(text or "And?"),
        "add_user_message": lambda: agent.add_user_message(text or "And?"),
        "add_assistant_message": lambda: agent.add_assistant_message(text or "Well."),
    }
    action = actions.get(word.removeprefix("agent."))
    if action is None:
        raise UnknownWordError(f"a call of {what!r}")
    action()


async def _inner_agent(*, cancel: bool) -> None:
    """An agent inside a tool: what becomes of it is no business of the outer one."""
    async with EchoAgent() as inner:
        inner.add_user_message("Inner question.")
        answer = inner.answer()
        if cancel:
            inner.cancel()
        async for _ in answer:
            pass
