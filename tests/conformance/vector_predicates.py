"""The members and predicates of an expectation, by name; one that is not here is a failure."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from strict_rules import DIALECTS

from bodies import calls_are_paired
from vector_ops import UnknownOperationError

if TYPE_CHECKING:
    from vector_check import Checker

Check = Callable[["Checker", Any], None]


def _roles(checker: Checker, wanted: list[str]) -> None:
    checker.same("roles", [item["role"] for item in checker.conversation], wanted)


def _pairing(checker: Checker, wanted: Any) -> None:
    for number, request in enumerate(checker.trace.requests, 1):
        checker.require(calls_are_paired(request["body"]), f"request {number}: a call without its result")


def _text_ends_with(checker: Checker, wanted: dict[str, str]) -> None:
    for name, end in wanted.items():
        checker.require(checker.text[name].endswith(end), f"text of {name} is {checker.text[name]!r}")


def _text_trimmed(checker: Checker, wanted: dict[str, str]) -> None:
    for name, text in wanted.items():
        checker.same(f"text of {name}", checker.text[name].rstrip(), text)


def _tools_absent(checker: Checker, wanted: str) -> None:
    if wanted != "absent":
        raise UnknownOperationError(f"request_1_tools {wanted!r}")
    checker.require(not checker.body(1).get("tools"), "the first request has tools")


def _history_item(checker: Checker, place: int, number: int = 1) -> dict[str, Any]:
    body = checker.body(number)
    items: list[dict[str, Any]] = body.get("input") or body.get("messages") or []
    if len(items) <= place:
        checker.problems.append(f"request {number} has no item {place}")
        return {}
    return items[place]


def _message_arguments(checker: Checker, wanted: str) -> None:
    for call in (
        _history_item(checker, 2).get("tool_calls", [{}])
        if "tool_calls" in _history_item(checker, 2)
        else _history_item(checker, 3).get("tool_calls", [{}])
    ):
        checker.same("arguments", call.get("function", {}).get("arguments"), wanted)


def _named(events: list[dict[str, Any]], wanted: Any) -> Any:
    """The last event, or the last ones, in the form in which they are wanted: whole, or by name."""
    if isinstance(wanted, list):
        return [_named([event], one) for event, one in zip(events, wanted, strict=False)]
    return events[-1]["event"] if isinstance(wanted, str) and events else events[-1] if events else None


def _strict_is_valid(checker: Checker, wanted: bool) -> None:
    """Whether a strict provider would take every request of the run."""
    refused = []
    for number, request in enumerate(checker.trace.requests, 1):
        body = request["body"]
        refused += [
            f"request {number}: {why}"
            for why in DIALECTS["openai_chat" if "messages" in body else "openai_responses"](body)
        ]
    checker.require(bool(refused) is not wanted, f"requests that a strict provider refuses: {refused}")


MEMBERS: dict[str, Check] = {
    "chunks": lambda c, wanted: c.check_chunks(wanted),
    "text": lambda c, wanted: c.check_text(wanted),
    "ended": lambda c, wanted: c.same("ended", {name: c.trace.ended.get(name) for name in wanted}, wanted),
    "events": lambda c, wanted: c.check_events(wanted),
    "failed_count": lambda c, wanted: c.same(
        "Failed events", sum(e["event"] == "Failed" for e in c.trace.events), wanted
    ),
    "conversation": lambda c, wanted: c.check_conversation(wanted),
    "request_count": lambda c, wanted: c.same("number of requests", len(c.trace.requests), wanted),
    "requests": lambda c, wanted: c.check_requests(wanted),
    "tools_executed": lambda c, wanted: c.check_tools(wanted),
    "results": lambda c, wanted: c.check_results(wanted),
    "process_problems": lambda c, wanted: c.same("process problems", c.trace.problems, wanted),
    "constructed": lambda c, wanted: c.check_constructed(wanted),
    "destroyed": lambda c, wanted: c.same("destroyed", c.trace.destroyed, wanted),
    # predicates
    "roles": _roles,
    "conversation_last": lambda c, wanted: c.same("last item", c.conversation[-1], wanted),
    "conversation_contains": lambda c, wanted: c.require(
        wanted in c.conversation, f"not in the conversation: {wanted}"
    ),
    "events_contains": lambda c, wanted: c.require(wanted in c.trace.events, f"no event {wanted} in {c.trace.events}"),
    "events_last": lambda c, wanted: c.same(
        "last event", _named(c.trace.events[-len(wanted) if isinstance(wanted, list) else -1 :], wanted), wanted
    ),
    "strict_is_valid": _strict_is_valid,
    "no_event": lambda c, wanted: c.require(all(e["event"] != wanted for e in c.trace.events), f"event {wanted}"),
    "no_empty_message": lambda c, wanted: c.require(
        all(item["content"].strip() for item in c.conversation[1:] if "content" in item), "an empty message is stored"
    ),
    "text_trimmed": _text_trimmed,
    "text_ends_with": _text_ends_with,
    "requests_closed_by_client": lambda c, wanted: c.same(
        "closed by the client", [request["closed_by_client"] for request in c.trace.requests], wanted
    ),
    "requests_pairing": _pairing,
    "request_2_pairing": lambda c, wanted: c.require(
        calls_are_paired(c.body(2)) is wanted, "request 2: a call without its result"
    ),
    "request_1_input": lambda c, wanted: c.same("input of request 1", c.body(1).get("input"), wanted),
    "request_1_tools": _tools_absent,
    "request_1_body_has": lambda c, wanted: c.require(
        set(wanted) <= set(c.body(1)), f"members {wanted} are not in {sorted(c.body(1))}"
    ),
    "request_input_item_3": lambda c, wanted: (
        c.same("item 3", _history_item(c, 2), wanted)
        if _history_item(c, 2) == wanted
        else c.same("item 3", _history_item(c, 3), wanted)
    ),
    "request_2_input_item_2_arguments": lambda c, wanted: c.same(
        "arguments", _history_item(c, 2, 2).get("arguments"), wanted
    ),
    "request_message_3_arguments": _message_arguments,
    "results_tools_names": lambda c, wanted: c.same(
        "tools", [tool["name"] for tool in c.trace.results.get("tools", [])], wanted
    ),
    "construct_error": lambda c, wanted: c.same(
        "construction refused", isinstance(c.trace.construct_error, ValueError | TypeError), wanted
    ),
    "raises_at": lambda c, wanted: c.check_raises_at(wanted),
    "with_first_chunk_timeout_ms": lambda c, wanted: None,  # an option of the run
    "ended_before_tool": lambda c, wanted: c.check_ended_before_tool(wanted),
    "order": lambda c, wanted: c.check_order(wanted),
    "invariant": lambda c, wanted: c.check_invariant(wanted),
}
