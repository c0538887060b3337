"""Runs one vector in virtual time and gives back what was seen."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel

from micdrop_agent import wire
from micdrop_agent.events import EVENT_TYPES, MessageAdded
from micdrop_agent.testing import ScriptedProvider, run_virtual
from vector_agents import Builder
from vector_ops import Interpreter, Trace, UnknownOperationError
from vector_provider import script_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from micdrop_agent import Agent, Answer
    from micdrop_agent.testing import Backend, ReceivedRequest
    from vector_ops import Op

_FAR = 10.0
"""Virtual seconds that the end of an answer may take."""


def run_vector(vector: dict[str, Any], backend: Backend) -> Trace:
    """Play the script of ``vector``."""
    return run_virtual(backend, _Run(vector).play)


class _Run:
    def __init__(self, vector: dict[str, Any]) -> None:
        known = {"id", "description", "source", "verdict", "defect", "note", "timing_ms_informative", "options"}
        known |= {"provider", "script", "listeners", "expected", "right", "settle_ms"}
        if unknown := set(vector) - known:
            raise UnknownOperationError(f"members of the vector: {sorted(unknown)}")
        self.vector = vector
        self.right: dict[str, Any] = vector.get("right", {}).get("expected", {})
        self.trace = Trace()
        self.interpreter = Interpreter(self.trace, self.start_answer)
        self.answers: dict[str, Answer] = {}

    async def play(self) -> Trace:
        trace = self.trace
        scripts = {
            f"{child.lower()}.test": script_of(self._asked_for(lists), trace)
            for child, lists in self.vector.get("provider", {}).items()
        }
        async with ScriptedProvider(scripts) as self.provider:
            self.provider.on_request = self._on_request
            limit = self.right.get("with_first_chunk_timeout_ms")
            builder = Builder(
                trace,
                self.interpreter,
                self.provider,
                first_chunk_timeout=None if limit is None else limit / 1000,
                # The original stores nothing of an interrupted answer; this option is its behaviour (DESIGN D3).
                like_original=self.vector["verdict"] == "keep",
            )
            try:
                self.agent = builder.agent = builder.build(self.vector["options"])
            except Exception as error:  # noqa: BLE001  # whatever comes is compared
                trace.construct_error = error
                trace.results["construct_error"] = str(error)
                return trace
            self.builder = builder
            await self._with_agent()
            self._collect_requests()
        return trace

    async def _with_agent(self) -> None:
        trace = self.trace
        handler = _Problems(trace)
        self.agent.logger.addHandler(handler)
        try:
            async with self.agent as agent, anyio.create_task_group() as self.readers:
                self._listen(agent)
                for step in self.vector["script"]:
                    if not await self._step(step):
                        break
                await anyio.sleep(self.vector.get("settle_ms", 40) / 1000)
                trace.conversation = wire.dump(agent.conversation)
                self.readers.cancel_scope.cancel()
        except Exception as error:  # noqa: BLE001  # an error that leaves the agent's block is what this looks for
            trace.problems.append(f"{type(error).__name__}: {error}")
        finally:
            self.agent.logger.removeHandler(handler)

    def _asked_for(self, lists: list[list[Op]]) -> list[list[Op]]:
        """The responses, without what stands there to show a request that the original does not send.

        Some vectors end in a response that says "never". Where the right behaviour sends one request more (DESIGN
        D4), its answer is the list after that one; if there is none, that request gets a response without words.
        """
        if not self.right:
            return lists
        others = [ops for ops in lists if ops[0] != {"op": "delta", "text": "never"}]
        if self.right.get("request_count", 0) > self.vector["expected"].get("request_count", 0):
            return others
        return [ops if ops in others else ops[1:] for ops in lists]

    # -- seeing

    def _listen(self, agent: Agent) -> None:
        for kind in EVENT_TYPES:
            agent.on(kind, self._on_event)
        for listener in self.vector.get("listeners", ()):
            if listener["event"] != "Message" or set(listener) - {"event", "role", "ops"}:
                raise UnknownOperationError(f"listener {listener}")
            agent.on(MessageAdded, self._listener(listener))

    def _listener(self, spec: dict[str, Any]) -> Callable[[MessageAdded], None]:
        def call(event: MessageAdded) -> None:
            if spec.get("role") in (None, event.message.role):
                self.interpreter.run_now(spec["ops"], self.agent)

        return call

    def _on_event(self, event: Any) -> None:
        dumped = wire.dump_event(event)
        if dumped is None:
            return
        if dumped["event"] == "Failed":
            dumped = {"event": "Failed"}
        self.trace.events.append(dumped)
        self.trace.note(**dumped)

    def _on_request(self, request: ReceivedRequest) -> None:
        child = request.host.partition(".")[0]
        self.trace.note(request=len(self.provider.requests), child=child)

    def _collect_requests(self) -> None:
        for request in self.provider.requests:
            self.trace.requests.append(
                {
                    "child": request.host.partition(".")[0],
                    "path": request.path,
                    "closed_by_client": request.closed_by_client,
                    "body": request.body,
                }
            )

    def start_answer(self, name: str) -> None:
        trace = self.trace
        answer = self.agent.answer()
        self.answers[name] = answer
        trace.chunks[name], trace.ended[name] = [], False
        push = answer._push

        def noted(chunk: str) -> None:
            trace.note(write=chunk, answer=name)
            push(chunk)

        answer._push = noted  # type: ignore[method-assign]
        self.readers.start_soon(self._read, name, answer)

    async def _read(self, name: str, answer: Answer) -> None:
        try:
            async for chunk in answer:
                self.trace.chunks[name].append(chunk)
                self.trace.note(chunk=chunk, answer=name)
        except Exception as error:  # noqa: BLE001  # with raise_on_failure=False nothing may come out
            self.trace.problems.append(f"reader of {name}: {type(error).__name__}: {error}")
        self.trace.ended[name] = True
        self.trace.note(end=name)

    # -- steps

    async def _step(self, step: Op) -> bool:
        name = step["op"]
        try:
            await getattr(self, f"_do_{name}", self._unknown)(step)
        except (AssertionError, UnknownOperationError):
            raise
        except Exception as error:
            if "raises_at" not in self.right:
                raise
            nth = sum(1 for other in self.vector["script"][: self.vector["script"].index(step) + 1] if other["op"] == name)
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
            return sum(1 for event in self.trace.events if event["event"] == step["event"]) >= step["count"]

        await self.trace.until(seen, f"event {step['event']}")

    async def _do_await_tool(self, step: Op) -> None:
        await self.trace.until(lambda: len(self.trace.tools) >= step["count"], f"tool {step['count']}")

    async def _do_await_closed(self, step: Op) -> None:
        number = step["request"] - 1
        with anyio.fail_after(_FAR):
            await self.provider.until(lambda: self.provider.requests[number].closed.is_set())

    async def _do_open_gate(self, step: Op) -> None:
        self.trace.note(step="open_gate", gate=step["gate"])
        self.trace.gate(step["gate"]).set()

    async def _do_cancel(self, step: Op) -> None:
        self.trace.note(step="cancel")
        self.agent.cancel()

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

    async def _do_remembered_add_assistant_message(self, step: Op) -> None:
        self.trace.remembered.add_assistant_message(step["text"])


_ORDINALS = {2: "second", 3: "third", 4: "fourth"}


def _listed(tool: Any) -> dict[str, Any]:
    return {
        "name": tool.name,
        "description": tool.description,
        "skip_answer": tool.skip_answer or None,
        "emit_output": tool.emit_output or None,
        "has_execute": tool.execute is not None,
        "has_input_schema": bool(tool.parameters.get("properties")),
    }


class _Problems(logging.Handler):
    """Nothing is compared here: it keeps the agent's log out of pytest's report of passing vectors."""

    def __init__(self, trace: Trace) -> None:
        super().__init__(logging.CRITICAL)
        self.trace = trace

    def emit(self, record: logging.LogRecord) -> None:
        self.trace.problems.append(record.getMessage())


