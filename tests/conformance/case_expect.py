"""Groups C and D: what must have happened. One function per key of ``expect``; an unknown key is a failure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from case_accept import agrees, failure_differs, last_attempt
from case_agents import UnknownWordError, check_known
from case_expect_more import MORE, check_request, entry_of, same_entries
from case_wire import OUTCOMES
from micdrop_agent import MicdropError, ProviderError
from micdrop_agent.testing import run_virtual

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from case_world import Heard, World
    from micdrop_agent.testing import Backend

_NUMBERED = re.compile(r"request_(\d+)_(roles|contains|lacks|not_contains|tools)")
_CONTROL = {"SkipAnswer", "EndCall", "Failed", "CancelLastUserMessage"}


def check(world: World, expect: dict[str, Any], strict: ModuleType, backend: Backend) -> list[str]:
    """What differs from ``expect``."""
    checker = Checker(world, expect, strict, backend)
    for name, wanted in expect.items():
        if name in _KEYS:
            _KEYS[name](checker, wanted)
        elif numbered := _NUMBERED.fullmatch(name):
            check_request(checker, int(numbered[1]), numbered[2], wanted)
        elif name in MORE:
            MORE[name](checker, wanted)
        else:
            raise UnknownWordError(f"expect {name!r}")
    return checker.problems


class Checker:
    def __init__(self, world: World, expect: dict[str, Any], strict: ModuleType, backend: Backend) -> None:
        self.world = world
        self.expect = expect
        self.strict = strict
        self.backend: Backend = backend
        self.problems: list[str] = list(world.problems)
        self.heard: list[Heard] = list(world.heard.values())

    def same(self, what: str, seen: Any, wanted: Any) -> None:
        if not agrees(seen, wanted):
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

    def check_conversation(self, wanted: list[Any]) -> None:
        roles = {"user", "assistant", *(entry[0] for entry in wanted if isinstance(entry[0], str))}
        seen = [entry_of(item) for item in self.conversation if item["role"] in roles]
        if not any(same_entries(seen, one) for one in (wanted, *_choice_of_lists(wanted))):
            self.problems.append(f"conversation: seen {seen!r}, wanted {wanted!r}")

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
            dialect = "openai_chat" if "messages" in request.body else "openai_responses"
            for why in self.strict.DIALECTS[dialect](request.body):
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
        if isinstance(wanted, dict) and not set(wanted) <= {"min", "max"}:
            for name, count in wanted.items():
                seen = sum(r.host == f"{name.lower()}.test" for r in requests)
                self.same(f"requests to {name}", seen, count)
        else:
            self.same("requests", len(requests), wanted)

    def check_max_parallel(self, wanted: int) -> None:
        most = max((request.overlap for request in self.world.provider.requests), default=0)
        self.require(most <= wanted, f"{most} requests at once")

    def check_requests_after(self, wanted: int) -> None:
        self.same(
            "requests after the cancel",
            len(self.world.provider.requests) - self.world.facts["requests_at_cancel"],
            wanted,
        )

    # -- answers

    def check_outcome(self, wanted: Any) -> None:
        if isinstance(wanted, dict):
            for name, one in wanted.items():
                self.same(f"outcome of {name}", self.world.heard[name].answer.status, OUTCOMES[one])
            return
        words = [wanted] if isinstance(wanted, str) else wanted
        self.same("outcome", self.heard[-1].answer.status, [OUTCOMES[word] for word in words])

    def check_events(self, wanted: list[str]) -> None:
        names = [entry[1] if entry[0] == "event" else entry[0] for entry in self.world.log]
        self.same("events", [name for name in names if name in _CONTROL | set(wanted)], wanted)

    def check_failure(self, wanted: Any) -> None:
        for one in wanted if isinstance(wanted, list) else [wanted or {}]:
            check_known(one, {"kind", "retryable", "text_sent"}, "failure")
        error = self.heard[-1].answer.result.error
        self.problems += failure_differs(last_attempt(error), wanted)

    def check_never_spoken(self, wanted: list[str]) -> None:
        for words in wanted:
            self.require(words not in "".join(self.spoken), f"spoken: {words!r} in {self.spoken}")

    def check_must_not(self, wanted: list[str]) -> None:
        self.check_never_spoken([words.strip("'") for words in wanted])

    def check_within_ms(self, wanted: float) -> None:
        took = self.heard[-1].answer.result.duration * 1000
        self.require(took <= wanted, f"the last answer took {took:.0f} ms")
        words = {word for step in self.world.scenario["steps"] for word in _words(step["do"])}
        if not words & {"repeat", "churn", "fuzz", "wait_ms"}:
            whole = self.world.facts["took"] * 1000
            self.require(whole <= wanted, f"all took {whole:.0f} ms")

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

    def check_open_connections(self, wanted: Any) -> None:
        self.same("open connections", self.world.facts["open_connections"], wanted)


def _words(do: str | list[str]) -> list[str]:
    return [word.partition(":")[0] for word in ([do] if isinstance(do, str) else do)]


def _choice_of_lists(wanted: list[Any]) -> list[list[Any]]:
    return wanted if wanted and isinstance(wanted[0], list) and wanted[0] and isinstance(wanted[0][0], list) else []


def _fact(name: str) -> Callable[[Checker, Any], None]:
    return lambda c, wanted: c.same(name, c.world.facts.get(name), wanted)


def _option(checker: Checker, wanted: Any) -> None:
    """An option of the run, not an expectation."""


_KEYS: dict[str, Callable[[Checker, Any], None]] = {
    "conversation": Checker.check_conversation,
    "conversation_roles": lambda c, wanted: c.same("roles", [item["role"] for item in c.conversation], wanted),
    "conversation_valid_for": Checker.check_valid_for,
    "metadata_of": Checker.check_metadata_of,
    "assistant": Checker.check_assistant,
    "results_for": Checker.check_results_for,
    "requests": Checker.check_requests,
    "requests_valid_for": Checker.check_requests_valid_for,
    "requests_after": Checker.check_requests_after,
    "max_parallel_requests": Checker.check_max_parallel,
    "outcome": Checker.check_outcome,
    "events": Checker.check_events,
    "events_absent": lambda c, wanted: c.same(
        "events", [e[1] for e in c.world.log if e[0] == "event" and e[1] in wanted], []
    ),
    "failure": Checker.check_failure,
    "spoken": lambda c, wanted: (
        c.same("spoken", c.spoken[-1], wanted)
        if "extracted" not in c.expect
        else c.same("spoken", c.spoken[-1].rstrip(), wanted)
    ),
    "spoken_total": lambda c, wanted: c.same("spoken in all", "".join(c.spoken), wanted),
    "spoken_by": lambda c, wanted: c.same("spoken", {name: c.world.heard[name].text for name in wanted}, wanted),
    "never_spoken": Checker.check_never_spoken,
    "must_not": Checker.check_must_not,
    "extracted": lambda c, wanted: c.same("extracted", c.heard[-1].answer.result.extracted, wanted),
    "callback_calls": lambda c, wanted: c.same("callback calls", len(c.world.extracted), wanted),
    "handler_got": lambda c, wanted: c.same("arguments of the tool", c.world.toolbox.runs[-1][1], wanted),
    "within_ms": Checker.check_within_ms,
    "cancel_within_ms": Checker.check_cancel_within_ms,
    "destroy_within_ms": Checker.check_destroy_within_ms,
    "reported_first_text_ms_min": lambda c, wanted: c.require(
        (c.heard[-1].answer.result.time_to_first_chunk or 0) * 1000 >= wanted, "the time to the first text is too short"
    ),
    "active_after": lambda c, wanted: c.same("active child", c.world.facts["active"], wanted),
    "bug": Checker.check_bug,
    "caught_by": Checker.check_caught_by,
    "cause_type": Checker.check_cause_type,
    "is_group": lambda c, wanted: c.same("is a group", isinstance(c.heard[-1].error, BaseExceptionGroup), wanted),
    "errors": lambda c, wanted: c.same("errors", [*c.world.errors, *(h.error for h in c.heard if h.error)], wanted),
    "events_after_destroy": Checker.check_events_after_destroy,
    "host_task": _fact("host_task"),
    "tasks_left": _fact("tasks_left"),
    "connections_left": _fact("connections_left"),
    "stderr": _fact("stderr"),
    "warnings": _fact("warnings"),
    "recorded": lambda c, wanted: c.same("recorded", len(c.world.records), wanted),
    "logged": Checker.check_logged,
    "tool_runs": Checker.check_tool_runs,
    "open_connections": Checker.check_open_connections,
    "options": _option,
    "after": _option,
}
