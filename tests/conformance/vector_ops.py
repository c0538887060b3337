"""What a vector's operations mean: one small interpreter for answers, hooks, tools and listeners.

A vector is a recorded scenario as neutral JSON; its format is described in tests/vectors/README.md.
An operation that is not known is an error, so that nothing in a vector is passed over in silence.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import anyio
import attrs

from micdrop_agent import Message, ProviderError, ToolCall, ToolResult

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from micdrop_agent import Agent
    from micdrop_agent._core.turn import Turn

Op = dict[str, Any]


class ScriptError(Exception):
    """What a script raises on purpose (``raise``)."""


class UnknownOperationError(Exception):
    """The vector uses something that this runner does not know: a failure, never a skip."""


@attrs.define(eq=False)
class Trace:
    """Everything that is seen in one run, in the order in which it happens."""

    timeline: list[dict[str, Any]] = attrs.Factory(list)
    chunks: dict[str, list[str]] = attrs.Factory(dict)
    ended: dict[str, bool] = attrs.Factory(dict)
    events: list[dict[str, Any]] = attrs.Factory(list)
    lengths: list[int] = attrs.Factory(list)
    """How long the conversation was when each event was told."""
    tools: list[dict[str, Any]] = attrs.Factory(list)
    results: dict[str, Any] = attrs.Factory(dict)
    requests: list[dict[str, Any]] = attrs.Factory(list)
    problems: list[str] = attrs.Factory(list)
    constructed: list[str] = attrs.Factory(list)
    destroyed: list[str] = attrs.Factory(list)
    conversation: list[dict[str, Any]] | None = None
    raised_at: str | None = None
    construct_error: BaseException | None = None
    gates: dict[str, anyio.Event] = attrs.Factory(dict)
    remembered: Any = None
    changed: anyio.Event = attrs.Factory(anyio.Event)

    def note(self, **entry: Any) -> None:
        """Add an entry to the timeline and wake whoever waits for one."""
        self.timeline.append(entry)
        self.changed.set()
        self.changed = anyio.Event()

    async def until(self, ready: Callable[[], bool], what: str) -> None:
        """Wait until ``ready()``; a minute of virtual time is for ever."""
        with anyio.move_on_after(60):
            while not ready():
                await self.changed.wait()
        if not ready():
            raise AssertionError(f"never came: {what}")

    def gate(self, name: str) -> anyio.Event:
        return self.gates.setdefault(name, anyio.Event())


def is_async(ops: Sequence[Op]) -> bool:
    """A list with ``sleep`` or ``wait`` is asynchronous, else it is synchronous."""
    return any(op["op"] in {"sleep", "wait"} for op in ops)


class Interpreter:
    """Runs op lists against an agent, and a turn where there is one."""

    def __init__(self, trace: Trace, start_answer: Callable[[str], None]) -> None:
        self.trace = trace
        self._start_answer = start_answer

    async def run(self, ops: Sequence[Op], agent: Agent, turn: Turn | None = None) -> Any:
        for op in ops:
            match op["op"]:
                case "sleep":
                    await anyio.sleep(op["ms"] / 1000)
                case "wait":
                    await self.trace.gate(op["gate"]).wait()
                case "write":
                    assert turn is not None, "only an answer or a hook writes"
                    await turn.write(op["text"])
                case "execute_tool":
                    assert turn is not None, "only an answer runs tools"
                    call = ToolCall(op.get("id", "c1"), op["name"], op.get("arguments", "{}"))
                    await turn.run_tools([call])
                    results = [item for item in turn.conversation if isinstance(item, ToolResult)]
                    found = [item.output for item in results if item.tool_call_id == call.tool_call_id]
                    self.trace.results[f"execute_tool:{call.tool_call_id}"] = json.loads(found[-1]) if found else None
                case _:
                    done, value = self._step(op, agent, turn)
                    if done:
                        return value
        return None

    def run_now(self, ops: Sequence[Op], agent: Agent, turn: Turn | None = None) -> Any:
        for op in ops:
            if op["op"] == "write":
                assert turn is not None, "only an answer or a hook writes"
                turn.write_nowait(op["text"])
                continue
            done, value = self._step(op, agent, turn)
            if done:
                return value
        return None

    def callable_for(self, ops: Sequence[Op], agent: Agent, turn: Turn | None = None) -> Any:
        """The value of a synchronous list, or the coroutine of an asynchronous one."""
        return self.run(ops, agent, turn) if is_async(ops) else self.run_now(ops, agent, turn)

    def _step(self, op: Op, agent: Agent, turn: Turn | None) -> tuple[bool, Any]:
        name = op["op"]
        if name in _RETURNS:
            return True, _RETURNS[name](op)
        if name == "raise":
            raise ScriptError(op["message"])
        if name == "fail":
            raise ProviderError("scripted failure", kind="server")
        if name == "mark":
            self.trace.note(mark=op.get("as", op.get("name")))
        elif name == "remember_agent":
            self.trace.remembered = agent
        elif name == "answer":
            self._start_answer(op["as"])
        elif name == "cancel":
            agent.cancel()
        else:
            self._change(name, op, agent, turn)
        return False, None

    def _change(self, name: str, op: Op, agent: Agent, turn: Turn | None) -> None:
        if name in _ROLES:
            if turn is None:
                agent.add_message(_ROLES[name], op["text"], op.get("metadata"))
            else:
                turn.add(Message(_ROLES[name], op["text"], op.get("metadata")))
        elif name == "end_stream" and turn is not None:
            turn.end()
        elif name in {"skip_answer", "end_call", "cancel_last_user_message"}:
            getattr(agent if turn is None else turn, name)()
        else:
            raise UnknownOperationError(f"operation {name!r}")


def _circular(op: Op) -> Any:
    loop: list[Any] = []
    loop.append(loop)
    return loop


_RETURNS: dict[str, Callable[[Op], Any]] = {
    "return": lambda op: op["value"],
    "return_undefined": lambda op: None,
    "return_circular": _circular,
}
_ROLES: dict[str, Any] = {
    "add_user_message": "user",
    "add_assistant_message": "assistant",
    "add_system_message": "system",
}


def json_schema(fields: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The JSON Schema of a tool's neutral ``input_schema``."""
    properties: dict[str, Any] = {}
    required = []
    for name, field in fields.items():
        if unknown := set(field) - {"type", "description", "nullable", "optional", "default"}:
            raise UnknownOperationError(f"members of a schema: {sorted(unknown)}")
        kind = field["type"]
        properties[name] = {"type": [kind, "null"] if field.get("nullable") else kind}
        properties[name].update({key: field[key] for key in ("description", "default") if key in field})
        if not field.get("optional") and "default" not in field:
            required.append(name)
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
