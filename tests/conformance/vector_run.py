"""Runs one vector in virtual time and gives back what was seen."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel

from case_tools import EVENT_OF
from micdrop_agent import wire
from micdrop_agent.events import EVENT_TYPES
from micdrop_agent.testing import ScriptedProvider, run_virtual
from vector_agents import Builder
from vector_ops import Interpreter, Trace, UnknownOperationError
from vector_provider import script_of
from vector_steps import Steps

if TYPE_CHECKING:
    from collections.abc import Callable

    from micdrop_agent import Agent, Answer
    from micdrop_agent.testing import Backend, ReceivedRequest
    from vector_ops import Op


def run_vector(vector: dict[str, Any], backend: Backend) -> Trace:
    """Play the script of ``vector``."""
    return run_virtual(backend, _Run(vector).play)


class _Run(Steps):
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
            except UnknownOperationError:
                raise
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
                    if not await self.step(step):
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
            if listener["event"] not in EVENT_OF or set(listener) - {"event", "role", "ops", "times"}:
                raise UnknownOperationError(f"listener {listener}")
            agent.on(EVENT_OF[listener["event"]], self._listener(listener))

    def _listener(self, spec: dict[str, Any]) -> Callable[[Any], None]:
        left = spec.get("times", math.inf)

        def call(event: Any) -> None:
            nonlocal left
            if left > 0 and ("role" not in spec or spec["role"] == event.message.role):
                left -= 1
                self.interpreter.run_now(spec["ops"], self.agent)

        return call

    def _on_event(self, event: Any) -> None:
        dumped = wire.dump_event(event)
        if dumped is None:
            return
        if dumped["event"] == "Failed":
            dumped = {"event": "Failed"}
        self.trace.events.append(dumped)
        self.trace.lengths.append(len(self.agent.conversation))
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
        push = answer.push

        def noted(chunk: str) -> None:
            trace.note(write=chunk, answer=name)
            push(chunk)

        answer.push = noted  # type: ignore[method-assign]
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


class _Problems(logging.Handler):
    """Nothing is compared here: it keeps the agent's log out of pytest's report of passing vectors."""

    def __init__(self, trace: Trace) -> None:
        super().__init__(logging.CRITICAL)
        self.trace = trace

    def emit(self, record: logging.LogRecord) -> None:
        self.trace.problems.append(record.getMessage())
