"""Group A: what is understood of a provider's bytes."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio

from case_accept import agrees, failure_differs
from case_agents import check_known, class_of, model_agent
from case_tools import Toolbox
from collect import understood
from micdrop_agent import EndCallRequested, Message, ToolCall
from micdrop_agent.events import AnswerFailed, AnswerSkipped
from micdrop_agent.testing import ScriptedProvider, run_virtual, wire_script

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from micdrop_agent import Agent
    from micdrop_agent.testing import Backend

OUTCOMES = {"answered": "completed", "failed": "failed", "skipped": "skipped", "cancelled": "cancelled"}
_EXPECT = {
    "outcome", "spoken", "assistant", "tool_calls", "failure", "requests", "connection", "within_ms", "metadata",
    "never_spoken", "chunks_non_empty", "request_headers", "first_chunk_within_ms", "events", "history_arguments",
    "options", "variants", "open_question", "note", "active_after", "tool_runs", "must_not",
}  # fmt: skip


def run_wire_case(folder: Path, backend: Backend) -> list[str]:
    """Play the case in ``folder``; what differs from its expectation."""
    wire = understood(folder / "wire.json")
    if "providers" not in wire:
        wire = understood(folder / "wire.json", "protocol", "attempts")
    expect = understood(folder / "expect.json")
    turns = expect.get("turns", [expect])
    if "turns" in expect:
        check_known(expect, {"turns", "options", "open_question", "note"}, "expect")
        turns = [{**turn, "options": {**expect.get("options", {}), **turn.get("options", {})}} for turn in turns]
    return run_virtual(backend, _WireCase(folder, wire, turns).play)


class _WireCase:
    def __init__(self, folder: Path, wire: dict[str, Any], turns: list[dict[str, Any]]) -> None:
        for turn in turns:
            check_known(turn, _EXPECT, "expect")
        self.wires: dict[str, dict[str, Any]] = wire.get("providers", {"provider": wire})
        self.fallback = "providers" in wire
        if self.fallback:
            check_known(wire, {"providers"}, "wire.json")
        self.turns = turns
        self.read = lambda name: (folder / name).read_bytes()
        self.problems: list[str] = []
        self.toolbox = Toolbox()
        self.options: dict[str, Any] = {}
        for turn in turns:
            self.options |= turn.get("options", {})

    async def play(self) -> list[str]:
        scripts = {f"{name.lower()}.test": wire_script(wire, self.read) for name, wire in self.wires.items()}
        async with ScriptedProvider(scripts) as provider:
            agent = self._supervisor(provider) if self.fallback else self._member("provider", provider)
            async with agent:
                for turn in self.turns:
                    await _Turn(self, agent, provider, self.toolbox, turn).play()
        return self.problems

    def _member(self, name: str, provider: ScriptedProvider) -> Agent:
        protocol = self.wires[name].get("protocol", "chat")
        options = {word: value for word, value in self.options.items() if word not in {*self.wires, "after_partial"}}
        return model_agent(
            protocol,
            provider,
            host=f"{name.lower()}.test",
            options={**options, **self.options.get(name, {})},
            tools=self.toolbox.standard(),
            raise_on_failure=False,
        )

    def _supervisor(self, provider: ScriptedProvider) -> Agent:
        more = {"after_partial": self.options["after_partial"]} if "after_partial" in self.options else {}
        agent: Agent = class_of("fallback")(
            [partial(self._member, name, provider) for name in self.wires],
            names=list(self.wires),
            first_chunk_timeout=self.options.get("timeout_ms", 2000) / 1000,
            raise_on_failure=False,
            **more,
        )
        return agent


class _Turn:
    """One turn of the case, and what is expected of it."""

    def __init__(
        self, case: _WireCase, agent: Agent, provider: ScriptedProvider, toolbox: Toolbox, expect: dict[str, Any]
    ) -> None:
        self.case, self.agent, self.provider, self.toolbox, self.expect = case, agent, provider, toolbox, expect
        self.chunks: list[str] = []
        self.log: list[str] = []

    def same(self, what: str, seen: Any, wanted: Any) -> None:
        if not agrees(seen, wanted):
            self.case.problems.append(f"{what}: seen {seen!r}, wanted {wanted!r}")

    def require(self, holds: bool, what: str) -> None:
        if not holds:
            self.case.problems.append(what)

    async def play(self) -> None:
        agent = self.agent
        removers = [
            agent.on(kind, lambda event, name=name: self.log.append(name))  # type: ignore[misc]
            for kind, name in ((EndCallRequested, "EndCall"), (AnswerSkipped, "SkipAnswer"), (AnswerFailed, "Failed"))
        ]
        self.first_request = len(self.provider.requests)
        self.first_run = len(self.toolbox.runs)
        agent.add_user_message("Hello?")
        before = len(agent.conversation)
        begin = anyio.current_time()
        self.first_chunk_at: float | None = None
        answer = agent.answer()
        async for chunk in answer:
            if self.first_chunk_at is None:
                self.first_chunk_at = anyio.current_time() - begin
            self.chunks.append(chunk)
            self.log.append("text")
        self.took = anyio.current_time() - begin
        self.result = await answer.wait()
        await anyio.sleep(0.05)
        self.items = list(agent.conversation)[before:]
        for remove in removers:
            remove()
        self.check()

    def check(self) -> None:
        for name, wanted in self.expect.items():
            self._check(name, wanted)

    def _check(self, name: str, wanted: Any) -> None:
        check: Callable[[Any], None] | None = getattr(self, f"_check_{name}", None)
        if check is not None:
            check(wanted)

    def _check_variants(self, wanted: dict[str, dict[str, Any]]) -> None:
        """Decisions that the case leaves open: one of them must be the one taken."""
        before = self.case.problems
        found: list[list[str]] = []
        for words, expect in wanted.items():
            check_known(expect, _EXPECT, f"variant {words!r}")
            self.case.problems = []
            for name, value in expect.items():
                self._check(name, value)
            found.append([f"{words}: {problem}" for problem in self.case.problems])
        self.case.problems = before + ([] if [] in found else [problem for part in found for problem in part])

    def _check_outcome(self, wanted: str | list[str]) -> None:
        words = [wanted] if isinstance(wanted, str) else wanted
        self.same("outcome", self.result.status, [OUTCOMES[word] for word in words])

    def _check_spoken(self, wanted: str) -> None:
        self.same("spoken", "".join(self.chunks), wanted)

    def _check_assistant(self, wanted: list[str]) -> None:
        seen = [item for item in self.items if isinstance(item, Message) and item.role == "assistant"]
        self.same("assistant texts", [item.content for item in seen], wanted)
        if self.expect.get("outcome") == "failed":
            for item in seen:
                self.same("mark of a cut text", (item.metadata or {}).get("interrupted"), True)

    def _check_tool_calls(self, wanted: list[dict[str, Any]]) -> None:
        calls = [item for item in self.items if isinstance(item, ToolCall)]
        seen = [
            {"name": c.tool_name, "arguments": json.loads(c.parameters or "{}"), "id": c.tool_call_id} for c in calls
        ]
        for place, call in enumerate(wanted):
            check_known(call, {"name", "arguments", "id"}, "tool call")
            if "id" not in call and place < len(seen):
                del seen[place]["id"]
        self.same("tool calls", seen, wanted)
        run = self.toolbox.runs[self.first_run :]
        plain = [(call["name"], call["arguments"]) for call in wanted if call["name"] != "end_call"]
        # Tools of one response run at the same time: only the order of the stored calls is certain.
        self.same("tools run", sorted(run, key=repr), sorted(plain, key=repr))

    def _check_failure(self, wanted: Any) -> None:
        for one in wanted if isinstance(wanted, list) else [wanted or {}]:
            check_known(one, {"kind", "retryable", "text_sent"}, "failure")
        self.case.problems += failure_differs(self.result.error, wanted)

    def _check_requests(self, wanted: Any) -> None:
        requests = self.provider.requests[self.first_request :]
        if isinstance(wanted, dict) and not set(wanted) <= {"min", "max"}:
            for name, count in wanted.items():
                self.same(f"requests to {name}", sum(r.host == f"{name.lower()}.test" for r in requests), count)
        else:
            self.same("requests", len(requests), wanted)

    def _check_active_after(self, wanted: str) -> None:
        self.same("active child", getattr(self.agent, "active_name", None), wanted)

    def _check_tool_runs(self, wanted: dict[str, int]) -> None:
        runs = [name for name, _ in self.toolbox.runs[self.first_run :]]
        self.same("tool runs", {name: runs.count(name) for name in wanted}, wanted)

    def _check_must_not(self, wanted: list[str]) -> None:
        self._check_never_spoken([words.strip("'") for words in wanted])

    def _check_connection(self, wanted: str) -> None:
        states = {
            "reusable": self.provider.open_connections >= 1,
            "closed": not self.provider.open_connections,
            "any": True,
        }
        self.require(states[wanted], f"the connection is not {wanted}")

    def _check_within_ms(self, wanted: float) -> None:
        self.require(self.took * 1000 <= wanted, f"took {self.took * 1000:.0f} ms, at most {wanted}")

    def _check_first_chunk_within_ms(self, wanted: float) -> None:
        self.require(
            self.first_chunk_at is not None and self.first_chunk_at * 1000 <= wanted,
            f"first chunk after {self.first_chunk_at} s, at most {wanted} ms",
        )

    def _check_metadata(self, wanted: dict[str, Any]) -> None:
        messages = [item for item in self.items if isinstance(item, Message)]
        self.require(bool(messages), "no message has metadata")
        found = dict(messages[-1].metadata or {}) if messages else {}
        self.same("metadata", {name: found.get(name) for name in wanted}, wanted)

    def _check_never_spoken(self, wanted: list[str]) -> None:
        for words in wanted:
            self.require(words not in "".join(self.chunks), f"spoken: {words!r}")

    def _check_chunks_non_empty(self, wanted: bool) -> None:
        self.same("all chunks have text", all(self.chunks), wanted)

    def _check_request_headers(self, wanted: dict[str, str]) -> None:
        for request in self.provider.requests[self.first_request :]:
            self.same("headers", {name: request.headers.get(name) for name in wanted}, wanted)

    def _check_events(self, wanted: list[str]) -> None:
        log = self.log
        if "text" in wanted and wanted.count("text") == 1:
            log = [word for place, word in enumerate(log) if word != "text" or log[place - 1 : place] != ["text"]]
        self.same("events", log, wanted)

    def _check_history_arguments(self, wanted: list[str]) -> None:
        calls = [item for item in self.items if isinstance(item, ToolCall)]
        self.same(
            "arguments in the history", [json.loads(c.parameters) for c in calls], [json.loads(w) for w in wanted]
        )
        for request in self.provider.requests[self.first_request + 1 :]:
            sent = list(_sent_arguments(request.body))
            for text in sent:
                self.require(
                    isinstance(text, str) and isinstance(json.loads(text or "null"), dict), f"arguments sent: {text!r}"
                )


def _sent_arguments(body: dict[str, Any]) -> list[Any]:
    calls = [call["function"] for m in body.get("messages", ()) for call in m.get("tool_calls") or ()]
    calls += [item for item in body.get("input", ()) if item.get("type") == "function_call"]
    return [call.get("arguments") for call in calls]
