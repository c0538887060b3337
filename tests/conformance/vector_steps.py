"""The steps of a vector's script: what the host application does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel

from micdrop_agent import wire
from vector_ops import UnknownOperationError

if TYPE_CHECKING:
    from micdrop_agent import Agent, Answer
    from micdrop_agent.testing import ScriptedProvider
    from vector_agents import Builder
    from vector_ops import Op, Trace

_FAR = 10.0
"""Virtual seconds that the end of an answer may take."""


_ORDINALS = {2: "second", 3: "third", 4: "fourth"}


class Steps:
    """One method per step; a step that has none is a failure."""

    vector: dict[str, Any]
    right: dict[str, Any]
    trace: Trace
    agent: Agent
    builder: Builder
    provider: ScriptedProvider
    answers: dict[str, Answer]

    def start_answer(self, name: str) -> None:
        """Start an answer and read it eagerly."""
        raise NotImplementedError

    async def step(self, step: Op) -> bool:
        name = step["op"]
        try:
            other = self._remembered if name.startswith("remembered_") else self._unknown
            await getattr(self, f"_do_{name}", other)(step)
        except (AssertionError, UnknownOperationError):
            raise
        except Exception as error:
            if "raises_at" not in self.right:
                raise
            script = self.vector["script"]
            place = next((at for at, other in enumerate(script) if other is step), 0)
            nth = sum(1 for other in script[: place + 1] if other["op"] == name)
            # The format says "second add_tool"; what is the only one of its kind has no number.
            self.trace.raised_at = name if nth == 1 else f"{_ORDINALS[nth]} {name}"
            self.trace.results["_raised"] = f"{type(error).__name__}: {error}"
            return False
        return True

    async def _unknown(self, step: Op) -> None:
        raise UnknownOperationError(f"step {step['op']!r}")

    async def _do_add_user_message(self, step: Op) -> None:
        self.trace.note(step="add_user_message")
        self.agent.add_user_message(step["text"], step.get("metadata"))

    async def _do_add_assistant_message(self, step: Op) -> None:
        self.trace.note(step="add_assistant_message")
        self.agent.add_assistant_message(step["text"], step.get("metadata"))

    async def _do_add_message(self, step: Op) -> None:
        self.trace.note(step="add_message")
        self.agent.add_message(step["role"], step["text"], step.get("metadata"))

    async def _do_try_add_message(self, step: Op) -> None:
        try:
            self.agent.add_message(step["role"], step["text"])
        except Exception as error:  # noqa: BLE001  # this step asks for it
            self.trace.results[step["as"]] = str(error)
        else:
            self.trace.results[step["as"]] = None

    async def _do_add_tool_message(self, step: Op) -> None:
        (item,) = wire.load([step["message"]])
        self.agent.add_tool_message(item)  # type: ignore[arg-type]

    async def _do_cancel_last_user_message(self, step: Op) -> None:
        self.agent.cancel_last_user_message()

    async def _do_add_tool(self, step: Op) -> None:
        self.agent.add_tool(self.builder.tool(step["tool"]))

    async def _do_remove_tool(self, step: Op) -> None:
        self.agent.remove_tool(step["name"])

    async def _do_get_tool(self, step: Op) -> None:
        tool = self.agent.get_tool(step["name"])
        found = None if tool is None else {"name": tool.name, "description": tool.description}
        self.trace.results[step["as"]] = found

    async def _do_list_tools(self, step: Op) -> None:
        self.trace.results[step["as"]] = [_listed(tool) for tool in self.agent.tools]

    async def _do_extract(self, step: Op) -> None:
        text, metadata = self.agent.extract(step["text"])
        self.trace.results[step["as"]] = {"message": text} | ({} if metadata is None else {"metadata": metadata})

    async def _do_answer(self, step: Op) -> None:
        self.trace.note(step="answer", **{"as": step["as"]})
        self.start_answer(step["as"])

    async def _do_await_end(self, step: Op) -> None:
        name = step["answer"]
        with anyio.move_on_after(_FAR):
            await self.trace.until(lambda: self.trace.ended[name], f"the end of {name}")

    async def _do_await_chunks(self, step: Op) -> None:
        got = self.trace.chunks[step["answer"]]
        await self.trace.until(lambda: len(got) >= step["count"], f"chunk {step['count']}")

    async def _do_await_request(self, step: Op) -> None:
        requests = self.provider.requests
        if self.right.get("request_count", step["count"]) < step["count"]:
            # The script waits for a request that the original should not have sent.
            await anyio.sleep(0.1)
            return
        await self.trace.until(lambda: len(requests) >= step["count"], f"request {step['count']}")

    async def _do_await_event(self, step: Op) -> None:
        def seen() -> bool:
            count: int = step["count"]
            return sum(1 for event in self.trace.events if event["event"] == step["event"]) >= count

        await self.trace.until(seen, f"event {step['event']}")

    async def _do_await_tool(self, step: Op) -> None:
        await self.trace.until(lambda: len(self.trace.tools) >= step["count"], f"tool {step['count']}")

    async def _do_await_closed(self, step: Op) -> None:
        number = step["request"] - 1
        with anyio.fail_after(_FAR):
            await self.provider.until(self.provider.requests[number].closed.is_set)

    async def _do_open_gate(self, step: Op) -> None:
        self.trace.note(step="open_gate", gate=step["gate"])
        self.trace.gate(step["gate"]).set()

    async def _do_cancel(self, step: Op) -> None:
        self.trace.note(step="cancel")
        self.agent.cancel()

    async def _do_end_call(self, step: Op) -> None:
        self.agent.end_call()

    async def _do_skip_answer(self, step: Op) -> None:
        self.agent.skip_answer()

    async def _do_add_system_message(self, step: Op) -> None:
        self.agent.add_message("system", step["text"], step.get("metadata"))

    async def _do_destroy(self, step: Op) -> None:
        self.trace.note(step="destroy")
        await self.agent.aclose()

    async def _do_close_stream(self, step: Op) -> None:
        await self.answers[step["answer"]].aclose()

    async def _do_sleep(self, step: Op) -> None:
        await anyio.sleep(step["ms"] / 1000)

    async def _do_tick(self, step: Op) -> None:
        # "One turn of the event loop" of the original lets everything that is ready run.
        for _ in range(20):
            await anyio.lowlevel.checkpoint()

    async def _do_snapshot(self, step: Op) -> None:
        self.trace.results[step["as"]] = {
            "conversation": wire.dump(self.agent.conversation),
            "answering": self.agent.answering,
            "ended": dict(self.trace.ended),
        }

    async def _do_identity(self, step: Op) -> None:
        """The original's inner links between a fallback agent and its children: nothing of it exists here."""

    async def _do_replace_conversation(self, step: Op) -> None:
        self.agent.conversation.replace(wire.load(step["conversation"]))

    async def _do_remembered_label(self, step: Op) -> None:
        self.trace.results[step["as"]] = self.builder.label(self.trace.remembered)

    async def _remembered(self, step: Op) -> None:
        """``remembered_<step>``: the step, done to the agent that a tool or hook has remembered."""
        agent, self.agent = self.agent, self.trace.remembered
        try:
            await self.step({**step, "op": step["op"].removeprefix("remembered_")})
        finally:
            self.agent = agent


def _listed(tool: Any) -> dict[str, Any]:
    return {
        "name": tool.name,
        "description": tool.description,
        "skip_answer": tool.skip_answer or None,
        "emit_output": tool.emit_output or None,
        "has_execute": tool.execute is not None,
        "has_input_schema": bool(tool.parameters.get("properties")),
    }
