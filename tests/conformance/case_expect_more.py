"""Groups C and D: the keys of group A's ``expect.json``, which hold for scenarios too, and what all scenarios share."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from bodies import calls_are_paired
from case_agents import check_known

if TYPE_CHECKING:
    from collections.abc import Callable

    from case_expect import Checker


def entry_of(item: dict[str, Any]) -> list[str]:
    """Role and text of an item; of a call, the tool."""
    if item["role"] == "tool_call":
        return [item["role"], item["toolName"]]
    # White space at the end of a cut text is a question of taste; the words are not.
    return [item["role"], (item["output"] if "output" in item else item["content"]).rstrip()]


def same_entries(seen: list[list[str]], wanted: list[Any]) -> bool:
    """Texts are equal up to white space at their ends; an entry may name nothing but the role."""
    if len(seen) != len(wanted):
        return False
    return all(
        list(ours[: len(theirs)]) == [text.rstrip() if isinstance(text, str) else text for text in theirs]
        for ours, theirs in zip(seen, wanted, strict=True)
    )


def _contains(checker: Checker, wanted: list[Any], *, last: bool = False) -> None:
    seen = [entry_of(item) for item in checker.conversation]
    for entry in wanted:
        places = seen[-1:] if last else seen
        checker.require(any(same_entries([one], [entry]) for one in places), f"{entry} is not in {places}")


def check_request(checker: Checker, number: int, what: str, wanted: Any) -> None:
    """``request_2_roles``, ``request_2_contains``, ``request_2_lacks``, ``request_2_tools``."""
    requests = checker.world.provider.requests
    if len(requests) < number:
        checker.require(False, f"there is no request {number}")
        return
    body = requests[number - 1].body
    messages = body["messages"] if "messages" in body else body["input"]
    if what == "roles":
        checker.same(
            f"roles of request {number}", [message.get("role", message.get("type")) for message in messages], wanted
        )
    elif what == "tools":
        # Tools that are declared for the sake of earlier calls, and may not be called, are not offered.
        offered = () if body.get("tool_choice") == "none" else body.get("tools", ())
        names = [tool.get("function", tool)["name"] for tool in offered]
        seen: Any = names if isinstance(wanted, list) else bool(names)
        checker.same(f"tools of request {number}", seen, wanted if isinstance(wanted, list) else _offered(wanted))
    else:
        texts = [str(message.get("content")) for message in messages]
        for words in [wanted] if isinstance(wanted, str) else wanted:
            found = any(words in text for text in texts)
            checker.require(found is (what == "contains"), f"request {number} and {words!r}: {texts}")


def _offered(wanted: Any) -> bool:
    return wanted not in ("absent", "none", False)


def _tool_calls(checker: Checker, wanted: list[dict[str, Any]]) -> None:
    seen = [
        {"name": item["toolName"], "arguments": json.loads(item["parameters"] or "{}"), "id": item["toolCallId"]}
        for item in checker.conversation
        if item["role"] == "tool_call"
    ]
    for place, call in enumerate(wanted):
        check_known(call, {"name", "arguments", "id"}, "tool call")
        if place < len(seen):
            seen[place] = {name: value for name, value in seen[place].items() if name in call}
    checker.same("tool calls", seen, wanted)


def _metadata(checker: Checker, wanted: dict[str, Any]) -> None:
    texts = [item for item in checker.conversation if item["role"] == "assistant"]
    found = (texts[-1].get("metadata") or {}) if texts else {}
    checker.same("metadata", {name: found.get(name) for name in wanted}, wanted)


def _connection(checker: Checker, wanted: str | list[str]) -> None:
    alive = checker.world.facts["open_connections"] > 0
    states = {"reusable": alive, "closed": not alive, "any": True}
    words = [wanted] if isinstance(wanted, str) else wanted
    checker.require(any(states[word] for word in words), f"the connection is not {wanted}")


def _first_chunk_within_ms(checker: Checker, wanted: float) -> None:
    took = checker.heard[-1].answer.result.time_to_first_chunk
    checker.require(took is not None and took * 1000 <= wanted, f"first chunk after {took} s, at most {wanted} ms")


def _request_headers(checker: Checker, wanted: dict[str, str]) -> None:
    for request in checker.world.provider.requests:
        checker.same("headers", {name: request.headers.get(name) for name in wanted}, wanted)


def _history_arguments(checker: Checker, wanted: list[str]) -> None:
    seen = [json.loads(item["parameters"]) for item in checker.conversation if item["role"] == "tool_call"]
    checker.same("arguments in the history", seen, [json.loads(text) for text in wanted])


def _tool_results(checker: Checker, wanted: dict[str, Any]) -> None:
    """The result of each call, as a value; ``"error"`` is any that tells an error."""
    for call_id, value in wanted.items():
        seen = [json.loads(item["output"]) for item in checker.conversation if _is_result_of(item, call_id)]
        told = ["error" if value == "error" and isinstance(one, dict) and "error" in one else one for one in seen]
        checker.same(f"results of {call_id}", told, [value])


def _is_result_of(item: dict[str, Any], call_id: str) -> bool:
    return bool(item["role"] == "tool_result" and item["toolCallId"] == call_id)


def _paired(checker: Checker, wanted: bool) -> None:
    checker.same("all calls have their result", calls_are_paired(checker.conversation), wanted)


def _no_chunk_after_cancel(checker: Checker, wanted: bool) -> None:
    names = [entry[0] for entry in checker.world.log]
    after = names[names.index("cancelled") :] if "cancelled" in names else []
    before_next = after[: after.index("answer")] if "answer" in after else after
    checker.same("no chunk after the cancel", "text" not in before_next, wanted)


def _outcomes(checker: Checker, wanted: dict[str, str] | list[str]) -> None:
    from case_wire import OUTCOMES

    names = list(checker.world.heard)
    pairs = wanted.items() if isinstance(wanted, dict) else zip(names, wanted, strict=False)
    for name, outcome in pairs:
        checker.same(f"outcome of {name}", checker.world.heard[name].answer.status, OUTCOMES[outcome])


def _events(checker: Checker) -> set[str]:
    return {entry[1] for entry in checker.world.log if entry[0] == "event"}


def _invariant(checker: Checker, wanted: Any) -> None:
    """Asked for in words: what holds for every run of every scenario."""
    del wanted
    _paired(checker, True)
    for heard in checker.heard:
        stop = heard.answer.result.text if heard.answer.status != "running" else heard.text
        checker.require(heard.text.startswith(stop) or stop.startswith(heard.text), f"{heard.text!r} and {stop!r}")
        checker.require(all(heard.chunks), f"an empty chunk in {heard.chunks}")


MORE: dict[str, Callable[[Checker, Any], None]] = {
    "tool_calls": _tool_calls,
    "metadata": _metadata,
    "connection": _connection,
    "first_chunk_within_ms": _first_chunk_within_ms,
    "request_headers": _request_headers,
    "history_arguments": _history_arguments,
    "chunks_non_empty": lambda c, wanted: c.same("all chunks have text", all(all(h.chunks) for h in c.heard), wanted),
    "chunks": lambda c, wanted: c.same("chunks", c.heard[-1].chunks, wanted),
    "tool_results": _tool_results,
    "results": _tool_results,
    "pairs_complete": _paired,
    "no_chunk_after_cancel": _no_chunk_after_cancel,
    "outcomes": _outcomes,
    "invariant": _invariant,
    "invariants": _invariant,
    "roles": lambda c, wanted: c.same("roles", [item["role"] for item in c.conversation], wanted),
    "conversation_last": lambda c, wanted: _contains(c, [wanted], last=True),
    "conversation_contains": lambda c, wanted: _contains(c, wanted if isinstance(wanted[0], list) else [wanted]),
    "events_contains": lambda c, wanted: c.require(
        ({wanted} if isinstance(wanted, str) else set(wanted)) <= _events(c), f"events {sorted(_events(c))}"
    ),
    "no_event": lambda c, wanted: c.require(
        not ({wanted} if isinstance(wanted, str) else set(wanted)) & _events(c), f"events {sorted(_events(c))}"
    ),
    "note": lambda c, wanted: None,
    "open_question": lambda c, wanted: None,
}
