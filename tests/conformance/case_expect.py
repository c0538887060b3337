"""Groups C and D: what must have happened. One function per key of ``expect``; an unknown key is a failure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from case_agents import UnknownWordError, check_known
from case_wire import OUTCOMES
from micdrop_agent import MicdropError, ProviderError
from micdrop_agent.testing import run_virtual

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from case_world import World
    from micdrop_agent.testing import Backend

_CONTROL = {"SkipAnswer", "EndCall", "Failed", "CancelLastUserMessage"}


def check(world: World, expect: dict[str, Any], strict: ModuleType, backend: Backend) -> list[str]:
    """What differs from ``expect``."""
    checker = _Checker(world, expect, strict, backend)
    for name, wanted in expect.items():
        test = _KEYS.get(name)
        if test is None:
            raise UnknownWordError(f"expect {name!r}")
        test(checker, wanted)
    return checker.problems


class _Checker:
    def __init__(self, world: World, expect: dict[str, Any], strict: ModuleType, backend: Backend) -> None:
        self.world = world
        self.expect = expect
        self.strict = strict
        self.backend: Backend = backend
        self.problems: list[str] = list(world.problems)
        self.heard = list(world.heard.values())

    def same(self, what: str, seen: Any, wanted: Any) -> None:
        if seen != wanted:
            self.problems.append(f"{what}: seen {seen!r}, wanted {wanted!r}")

    def require(self, holds: bool, what: str) -> None:
        if not holds:
            self.problems.append(what)

    @property
    def conversation(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.world.facts["conversation"]
        return found

    @property
    def messages(self) -> list[dict[str, Any]]:
        return [item for item in self.conversation if item["role"] in {"user", "assistant"}]

    @property
    def spoken(self) -> list[str]:
        return [heard.text for heard in self.heard]

    # -- conversation

    def check_conversation(self, wanted: list[list[str]]) -> None:
        # White space at the end of a cut text is a question of taste; the words are not.
        self.same("conversation", [[m["role"], m["content"].rstrip()] for m in self.messages], wanted)

    def check_metadata_of(self, wanted: dict[str, dict[str, Any]]) -> None:
        for place, metadata in wanted.items():
            found = self.messages[int(place)].get("metadata") or {}
            self.same(f"metadata of {place}", {name: found.get(name) for name in metadata}, metadata)

    def check_assistant(self, wanted: list[str]) -> None:
        self.same("assistant texts", [m["content"] for m in self.messages if m["role"] == "assistant"], wanted)

    def check_results_for(self, wanted: dict[str, int]) -> None:
        results = [item["toolCallId"] for item in self.conversation if item["role"] == "tool_result"]
        self.same("results", {name: results.count(name) for name in wanted}, wanted)

    def check_valid_for(self, dialects: str | list[str]) -> None:
        self._valid(self.conversation, [dialects] if isinstance(dialects, str) else dialects)

    def check_requests_valid_for(self, dialects: list[str]) -> None:
        for number, request in enumerate(self.world.provider.requests, 1):
            for why in self.strict.DIALECTS["openai_chat"](request.body):
                self.problems.append(f"request {number} is refused: {why}")
        for history in self.world.histories:
            self._valid(history, dialects)

    def _valid(self, conversation: list[dict[str, Any]], dialects: list[str]) -> None:
        from case_request import _sent

        user = {"role": "user", "content": "And?"}
        items = conversation if conversation[-1]["role"] in {"user", "tool_result"} else [*conversation, user]
        for dialect in dialects:
            body = run_virtual(self.backend, _sent, {"conversation": items, "tools": []}, dialect)
            for why in self.strict.DIALECTS[dialect](body):
                self.problems.append(f"refused by {dialect}: {why}")

    # -- requests

    def check_requests(self, wanted: Any) -> None:
        requests = self.world.provider.requests
        if isinstance(wanted, dict) and "max" not in wanted:
            seen = {name: sum(r.host == f"{name.lower()}.test" for r in requests) for name in wanted}
            self.same("requests", seen, wanted)
        elif isinstance(wanted, dict):
            self.require(len(requests) <= wanted["max"], f"{len(requests)} requests, at most {wanted['max']}")
        else:
            self.same("requests", len(requests), wanted)

    def check_request_2_roles(self, wanted: list[str]) -> None:
        body = self.world.provider.requests[1].body
        self.same("roles of request 2", [message["role"] for message in body["messages"]], wanted)

    def check_request_2_contains(self, wanted: str) -> None:
        texts = [str(message.get("content")) for message in self.world.provider.requests[1].body["messages"]]
        self.require(any(wanted in text for text in texts), f"request 2 does not contain {wanted!r}: {texts}")

    def check_max_parallel(self, wanted: int) -> None:
        most = max(request.overlap for request in self.world.provider.requests)
        self.require(most <= wanted, f"{most} requests at once")

    def check_requests_after(self, wanted: int) -> None:
        self.same(
            "requests after the cancel",
            len(self.world.provider.requests) - self.world.facts["requests_at_cancel"],
            wanted,
        )

    # -- answers

    def check_outcome(self, wanted: str) -> None:
        self.same("outcome", self.heard[-1].answer.status, OUTCOMES[wanted])

    def check_events(self, wanted: list[str]) -> None:
        names = [entry[1] if entry[0] == "event" else entry[0] for entry in self.world.log]
        self.same("events", [name for name in names if name in _CONTROL | set(wanted)], wanted)

    def check_failure(self, wanted: dict[str, Any]) -> None:
        check_known(wanted, {"kind", "retryable", "text_sent"}, "failure")
        error = self.heard[-1].answer.result.error
        for name, value in wanted.items():
            self.same(f"failure.{name}", getattr(error, name, None), value)

    def check_never_spoken(self, wanted: list[str]) -> None:
        for words in wanted:
            self.require(words not in "".join(self.spoken), f"spoken: {words!r} in {self.spoken}")

    def check_must_not(self, wanted: list[str]) -> None:
        self.check_never_spoken([words.strip("'") for words in wanted])

    def check_within_ms(self, wanted: float) -> None:
        took = self.heard[-1].answer.result.duration * 1000
        self.require(took <= wanted, f"the last answer took {took:.0f} ms")
        if not any(step["do"] == "repeat" for step in self.world.scenario["steps"]):
            self.require(
                self.world.facts["took"] * 1000 <= wanted, f"all took {self.world.facts['took'] * 1000:.0f} ms"
            )

    def check_cancel_within_ms(self, wanted: float) -> None:
        took = self.world.facts[f"end_at:{self.heard[-1].name}"] - self.world.facts["cancelled_at"]
        self.require(took * 1000 <= wanted, f"the cancel took {took * 1000:.1f} ms")

    def check_bug(self, wanted: str) -> None:
        error = self.heard[-1].answer.result.error
        self.same("error", type(error).__name__, wanted)
        self.same("how often it was raised", self.world.facts.get("bugs"), 1)

    def check_caught_by(self, wanted: str) -> None:
        if wanted != "except <our base error>":
            raise UnknownWordError(f"caught_by {wanted!r}")
        self.require(isinstance(self.heard[-1].error, MicdropError), f"{self.heard[-1].error!r}")

    def check_cause_type(self, wanted: str) -> None:
        if wanted != "status error":
            raise UnknownWordError(f"cause_type {wanted!r}")
        error = self.heard[-1].error
        self.require(isinstance(error, ProviderError) and error.status is not None, f"no status in {error!r}")

    # -- the host

    def check_destroy_within_ms(self, wanted: float) -> None:
        self.require(self.world.facts["destroy_s"] * 1000 <= wanted, f"destroy took {self.world.facts['destroy_s']} s")

    def check_events_after_destroy(self, wanted: list[str]) -> None:
        after = self.world.log[self.world.facts["log_at_destroy"] :]
        self.same("events after destroy", [entry[1] for entry in after if entry[0] == "event"], wanted)

    def check_logged(self, wanted: str) -> None:
        names = [record.exc_info[0].__name__ for record in self.world.logged if record.exc_info and record.exc_info[0]]
        self.require(wanted in names, f"not logged: {wanted}; logged: {names}")

    def check_tool_runs(self, wanted: dict[str, int]) -> None:
        self.same("tool runs", {name: self.world.toolbox.count(name) for name in wanted}, wanted)

    def check_open_connections(self, wanted: dict[str, int]) -> None:
        check_known(wanted, {"max"}, "open_connections")
        seen = self.world.facts["open_connections"]
        self.require(seen <= wanted["max"], f"{seen} open connections")


def _fact(name: str) -> Callable[[_Checker, Any], None]:
    return lambda c, wanted: c.same(name, c.world.facts.get(name), wanted)


def _option(checker: _Checker, wanted: Any) -> None:
    """An option of the run, not an expectation."""


_KEYS: dict[str, Callable[[_Checker, Any], None]] = {
    "conversation": _Checker.check_conversation,
    "conversation_roles": lambda c, wanted: c.same("roles", [item["role"] for item in c.conversation], wanted),
    "conversation_valid_for": _Checker.check_valid_for,
    "metadata_of": _Checker.check_metadata_of,
    "assistant": _Checker.check_assistant,
    "results_for": _Checker.check_results_for,
    "requests": _Checker.check_requests,
    "requests_valid_for": _Checker.check_requests_valid_for,
    "request_2_roles": _Checker.check_request_2_roles,
    "request_2_contains": _Checker.check_request_2_contains,
    "requests_after": _Checker.check_requests_after,
    "max_parallel_requests": _Checker.check_max_parallel,
    "outcome": _Checker.check_outcome,
    "events": _Checker.check_events,
    "events_absent": lambda c, wanted: c.same(
        "events", [e[1] for e in c.world.log if e[0] == "event" and e[1] in wanted], []
    ),
    "failure": _Checker.check_failure,
    "spoken": lambda c, wanted: (
        c.same("spoken", c.spoken[-1], wanted)
        if "extracted" not in c.expect
        else c.same("spoken", c.spoken[-1].rstrip(), wanted)
    ),
    "spoken_total": lambda c, wanted: c.same("spoken in all", "".join(c.spoken), wanted),
    "spoken_by": lambda c, wanted: c.same("spoken", {name: c.world.heard[name].text for name in wanted}, wanted),
    "never_spoken": _Checker.check_never_spoken,
    "must_not": _Checker.check_must_not,
    "extracted": lambda c, wanted: c.same("extracted", c.heard[-1].answer.result.extracted, wanted),
    "callback_calls": lambda c, wanted: c.same("callback calls", len(c.world.extracted), wanted),
    "handler_got": lambda c, wanted: c.same("arguments of the tool", c.world.toolbox.runs[-1][1], wanted),
    "within_ms": _Checker.check_within_ms,
    "cancel_within_ms": _Checker.check_cancel_within_ms,
    "destroy_within_ms": _Checker.check_destroy_within_ms,
    "reported_first_text_ms_min": lambda c, wanted: c.require(
        (c.heard[-1].answer.result.time_to_first_chunk or 0) * 1000 >= wanted, "the time to the first text is too short"
    ),
    "active_after": lambda c, wanted: c.same("active child", c.world.facts["active"], wanted),
    "bug": _Checker.check_bug,
    "caught_by": _Checker.check_caught_by,
    "cause_type": _Checker.check_cause_type,
    "is_group": lambda c, wanted: c.same("is a group", isinstance(c.heard[-1].error, BaseExceptionGroup), wanted),
    "errors": lambda c, wanted: c.same("errors", [*c.world.errors, *(h.error for h in c.heard if h.error)], wanted),
    "events_after_destroy": _Checker.check_events_after_destroy,
    "host_task": _fact("host_task"),
    "tasks_left": _fact("tasks_left"),
    "connections_left": _fact("connections_left"),
    "stderr": _fact("stderr"),
    "warnings": _fact("warnings"),
    "recorded": lambda c, wanted: c.same("recorded", len(c.world.records), wanted),
    "logged": _Checker.check_logged,
    "tool_runs": _Checker.check_tool_runs,
    "open_connections": _Checker.check_open_connections,
    "options": _option,
    "after": _option,
}
