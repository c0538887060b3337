"""What must have come out of a case: one function per word of its ``expect``; an unknown word is a failure.

The words are the same for bytes (A) and scenarios (C, D). A turn of a wire case looks at its own part of the run.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import attrs

from bodies import calls_are_paired
from case_accept import agrees, failure_differs, last_attempt
from case_agents import UnknownWordError, check_known
from case_request import sent_for
from micdrop_agent import MicdropError, ProviderError
from micdrop_agent.testing import run_virtual

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from case_world import Heard, World
    from micdrop_agent.testing import Backend, ReceivedRequest

    Check = Callable[["Checker", Any], None]

OUTCOMES = {"answered": "completed", "failed": "failed", "skipped": "skipped", "cancelled": "cancelled"}
_CONTROL = {"SkipAnswer", "EndCall", "Failed", "CancelLastUserMessage"}
_IGNORED = {"options", "after", "note", "open_question", "repeat", "backends_equal"}
"""Not expectations: options of the run, remarks, and ways in which the case is played."""


@attrs.frozen
class Since:
    """Where in the run of a wire case a turn begins."""

    requests: int = 0
    runs: int = 0
    items: int = 0
    log: int = 0


def check(
    world: World, expect: dict[str, Any], strict: ModuleType | None, backend: Backend, since: Since | None = None
) -> list[str]:
    """What differs from ``expect``."""
    checker = Checker(world, expect, strict, backend, since)
    for name, wanted in expect.items():
        checker.check(name, wanted)
    return checker.problems


def check_words(expect: dict[str, Any]) -> None:
    """Refuse a word that nothing here stands for."""
    for name in expect:
        _find(name)


class Checker:
    def __init__(
        self, world: World, expect: dict[str, Any], strict: ModuleType | None, backend: Backend, since: Since | None
    ) -> None:
        self.world, self.expect = world, expect
        self.backend: Backend = backend
        self.strict: Any = strict
        self.turn = since is not None
        self.since = since or Since()
        self.problems: list[str] = list(world.problems)
        self.heard: list[Heard] = list(world.heard.values())

    def check(self, name: str, wanted: Any) -> None:
        _find(name)(self, wanted)

    def same(self, what: str, seen: Any, wanted: Any) -> None:
        if not agrees(seen, wanted):
            self.problems.append(f"{what}: seen {seen!r}, wanted {wanted!r}")

    def require(self, holds: bool, what: str) -> None:
        if not holds:
            self.problems.append(what)

    # -- what was seen

    @property
    def last(self) -> Heard:
        return self.heard[-1]

    @property
    def result(self) -> Any:
        return self.last.answer.result

    @property
    def spoken(self) -> str:
        return self.last.text if self.turn else "".join(heard.text for heard in self.heard)

    @property
    def conversation(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.world.facts["conversation"][self.since.items :]
        return found

    def of_role(self, *roles: str) -> list[dict[str, Any]]:
        return [item for item in self.conversation if item["role"] in roles]

    @property
    def requests(self) -> list[ReceivedRequest]:
        return self.world.provider.requests[self.since.requests :]

    def requests_of(self, member: str) -> list[ReceivedRequest]:
        return [request for request in self.requests if request.host == f"{member.lower()}.test"]

    def request(self, number: int) -> dict[str, Any]:
        self.require(len(self.requests) >= number, f"there is no request {number}")
        body: dict[str, Any] = self.requests[number - 1].body if len(self.requests) >= number else {"messages": []}
        return body

    @property
    def runs(self) -> list[tuple[str, dict[str, Any]]]:
        return self.world.toolbox.runs[self.since.runs :]

    @property
    def events(self) -> list[str]:
        return [entry[1] for entry in self.world.log[self.since.log :] if entry[0] == "event"]

    @property
    def error(self) -> Any:
        """What left the iteration, or else the answer's own failure."""
        return self.last.error or self.result.error

    def refused(self, what: str, dialect: str, body: dict[str, Any]) -> None:
        if dialect not in self.strict.DIALECTS:
            raise UnknownWordError(f"dialect {dialect!r}")
        self.problems += [f"{what} is refused by {dialect}: {why}" for why in self.strict.DIALECTS[dialect](body)]

    def valid(self, conversation: list[dict[str, Any]], dialects: str | list[str]) -> None:
        """Whether each dialect's agent would send this conversation in a form that is taken."""
        user = {"role": "user", "content": "And?"}
        ends = conversation and conversation[-1]["role"] in {"user", "tool_result"}
        items = conversation if ends else [*conversation, user]
        for dialect in listed(dialects):
            body = run_virtual(self.backend, sent_for, {"conversation": items, "tools": []}, dialect)
            self.refused("the conversation", dialect, body)


def listed(value: Any) -> list[Any]:
    """A list as it is; anything else as the only entry of one."""
    return value if isinstance(value, list) else [value]


def _messages(body: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = body.get("messages") or body.get("input") or []
    return found


# ------------------------------------------------------------------------------------------- conversation


def entry_of(item: dict[str, Any]) -> list[str]:
    """Role and text of an item; of a call and of its result, the tool too."""
    if item["role"] == "tool_call":
        return [item["role"], item["toolName"]]
    # White space at the end of a cut text is a question of taste; the words are not.
    return [item["role"], (item["output"] if "output" in item else item["content"]).rstrip()]


def same_entries(seen: list[dict[str, Any]], wanted: list[Any]) -> bool:
    """Texts are equal up to white space at their ends; an entry may name nothing but the role."""
    return len(seen) == len(wanted) and all(map(_same_entry, seen, wanted))


def _same_entry(item: dict[str, Any], wanted: list[Any]) -> bool:
    theirs = [text.rstrip() if isinstance(text, str) else text for text in wanted]
    forms = [entry_of(item)[: len(theirs)]]
    if item["role"] == "tool_result":  # the tool's name may stand in place of the output, or before it
        forms += [[item["role"], item["toolName"]][: len(theirs)], [item["role"], item["toolName"], entry_of(item)[1]]]
    return theirs in forms


def _conversation(c: Checker, wanted: list[Any]) -> None:
    roles = {"user", "assistant", *(entry[0] for entry in wanted if isinstance(entry[0], str))}
    choices = wanted if wanted and isinstance(wanted[0], list) and wanted[0] and isinstance(wanted[0][0], list) else []
    seen = c.of_role(*roles)
    fits = any(same_entries(seen, one) for one in (wanted, *choices))
    c.require(fits, f"conversation: seen {[entry_of(item) for item in seen]!r}, wanted {wanted!r}")


def _contains(c: Checker, wanted: list[Any], *, last: bool = False) -> None:
    for entry in wanted:
        places = c.conversation[-1:] if last else c.conversation
        c.require(any(_same_entry(one, entry) for one in places), f"{entry} is not in {list(map(entry_of, places))}")


def _assistant(c: Checker, wanted: list[str]) -> None:
    found = c.of_role("assistant")
    c.same("assistant texts", [item["content"] for item in found], wanted)
    if c.turn and c.expect.get("outcome") == "failed":
        marks = [(item.get("metadata") or {}).get("interrupted") for item in found]
        c.same("marks of cut texts", marks, [True] * len(found))


def _metadata_of(c: Checker, wanted: dict[str, dict[str, Any]]) -> None:
    for place, metadata in wanted.items():
        found = c.of_role("user", "assistant")[int(place)].get("metadata") or {}
        c.same(f"metadata of {place}", {name: found.get(name) for name in metadata}, metadata)


def _metadata(c: Checker, wanted: dict[str, Any]) -> None:
    found = c.of_role("assistant")
    c.require(bool(found), "no message has metadata")
    metadata = (found[-1].get("metadata") or {}) if found else {}
    c.same("metadata", {name: metadata.get(name) for name in wanted}, wanted)


def _committed_is_received(c: Checker, wanted: bool) -> None:
    stored = "".join(item["content"] for item in c.of_role("assistant"))
    received = "".join(heard.text for heard in c.heard)
    c.same("committed == received", stored.split() == received.split(), wanted)


def _history_arguments(c: Checker, wanted: list[str]) -> None:
    seen = [json.loads(item["parameters"]) for item in c.of_role("tool_call")]
    c.same("arguments in the history", seen, [json.loads(text) for text in wanted])
    for request in c.requests[1:] if c.turn else ():
        for text in _sent_arguments(request.body):
            holds = isinstance(text, str) and isinstance(json.loads(text or "null"), dict)
            c.require(holds, f"arguments sent: {text!r}")


def _sent_arguments(body: dict[str, Any]) -> list[Any]:
    calls = [call["function"] for m in body.get("messages", ()) for call in m.get("tool_calls") or ()]
    calls += [item for item in body.get("input", ()) if item.get("type") == "function_call"]
    return [call.get("arguments") for call in calls]


# ------------------------------------------------------------------------------------------- tools


def _tool_calls(c: Checker, wanted: list[dict[str, Any]]) -> None:
    seen = [
        {"name": item["toolName"], "arguments": json.loads(item["parameters"] or "{}"), "id": item["toolCallId"]}
        for item in c.of_role("tool_call")
    ]
    for place, call in enumerate(wanted):
        check_known(call, {"name", "arguments", "id"}, "tool call")
        if place < len(seen):
            seen[place] = {name: value for name, value in seen[place].items() if name in call or name != "id"}
    if not c.turn:
        seen = [
            {name: value for name, value in one.items() if name in call}
            for one, call in zip(seen, wanted, strict=False)
        ] + seen[len(wanted) :]
    c.same("tool calls", seen, wanted)
    if c.turn:
        plain = [(call["name"], call["arguments"]) for call in wanted if call["name"] != "end_call"]
        # Tools of one response run at the same time: only the order of the stored calls is certain.
        c.same("tools run", sorted(c.runs, key=repr), sorted(plain, key=repr))


def _tool_runs(c: Checker, wanted: dict[str, int]) -> None:
    names = [name for name, _ in c.runs]
    c.same("tool runs", {name: names.count(name) for name in wanted}, wanted)


def _tool_results(c: Checker, wanted: dict[str, Any]) -> None:
    """The result of each call, as a value; ``"error"`` is any that tells an error."""
    for call_id, value in wanted.items():
        found = [json.loads(item["output"]) for item in c.of_role("tool_result") if item["toolCallId"] == call_id]
        told = ["error" if value == "error" and isinstance(one, dict) and "error" in one else one for one in found]
        c.same(f"results of {call_id}", told, [value])


def _results_for(c: Checker, wanted: dict[str, int]) -> None:
    results = [item["toolCallId"] for item in c.of_role("tool_result")]
    c.same("results", {name: results.count(name) for name in wanted}, wanted)


# ------------------------------------------------------------------------------------------- requests


def _requests(c: Checker, wanted: Any) -> None:
    if isinstance(wanted, dict) and not set(wanted) <= {"min", "max"}:
        for name, count in wanted.items():
            c.same(f"requests to {name}", len(c.requests_of(name)), count)
    else:
        c.same("requests", len(c.requests), wanted)


def _requests_valid_for(c: Checker, wanted: str | list[str]) -> None:
    for number, request in enumerate(c.requests, 1):
        c.refused(
            f"request {number}", "openai_chat" if "messages" in request.body else "openai_responses", request.body
        )
    for history in c.world.histories:
        c.valid(history, wanted)


def _request_headers(c: Checker, wanted: dict[str, str]) -> None:
    for request in c.requests:
        c.same("headers", {name: request.headers.get(name) for name in wanted}, wanted)


def _roles_of_request(c: Checker, number: int, wanted: list[str]) -> None:
    roles = [message.get("role", message.get("type")) for message in _messages(c.request(number))]
    c.same(f"roles of request {number}", roles, wanted)


def _tools_of_request(c: Checker, number: int, wanted: Any) -> None:
    body = c.request(number)
    # Tools that are declared for the sake of earlier calls, and may not be called, are not offered.
    offered = () if body.get("tool_choice") == "none" else body.get("tools", ())
    names = [tool.get("function", tool)["name"] for tool in offered]
    if isinstance(wanted, list):
        c.same(f"tools of request {number}", names, wanted)
    else:
        c.same(f"tools of request {number}", bool(names), wanted not in ("absent", "none", False))


def _text_of_request(c: Checker, number: int, wanted: Any, *, holds: bool) -> None:
    texts = [str(message.get("content")) for message in _messages(c.request(number))]
    for words in listed(wanted):
        c.require(any(words in text for text in texts) is holds, f"request {number} and {words!r}: {texts}")


def _has_result_for(c: Checker, what: str, bodies: list[dict[str, Any]], wanted: Any) -> None:
    found = [
        str(message.get("tool_call_id", message.get("call_id")))
        for body in bodies
        for message in _messages(body)
        if message.get("role") == "tool" or message.get("type") == "function_call_output"
    ]
    calls = {item["toolCallId"]: item["toolName"] for item in c.of_role("tool_call")}
    names = [calls.get(call_id) for call_id in found]
    for call in listed(wanted):
        holds = bool(found) if call is True else call in found or call in names or (call is False and not found)
        c.require(holds, f"{what} has results for {found}, not for {call}")


# ------------------------------------------------------------------------------------------- answers


def _outcome(c: Checker, wanted: Any) -> None:
    if isinstance(wanted, dict):
        _outcomes(c, wanted)
        return
    c.same("outcome", c.last.answer.status, [OUTCOMES[word] for word in listed(wanted)])


def _outcomes(c: Checker, wanted: dict[str, Any] | list[Any]) -> None:
    pairs = wanted.items() if isinstance(wanted, dict) else zip(c.world.heard, wanted, strict=False)
    for name, outcome in pairs:
        status = c.world.heard[name].answer.status
        c.same(f"outcome of {name}", status, [OUTCOMES[word] for word in listed(outcome)])


def _spoken(c: Checker, wanted: Any) -> None:
    # What is extracted holds back the white space before it, until it is clear that something follows.
    cut = "extracted" in c.expect and not c.turn
    c.same("spoken", c.last.text.rstrip() if cut else c.last.text, wanted)


def _events(c: Checker, wanted: list[str]) -> None:
    names = [entry[1] if entry[0] == "event" else entry[0] for entry in c.world.log[c.since.log :]]
    seen = [name for name in names if name in _CONTROL | set(wanted) | ({"text"} if c.turn else set())]
    if c.turn and wanted.count("text") == 1:
        seen = [word for place, word in enumerate(seen) if word != "text" or seen[place - 1 : place] != ["text"]]
    c.same("events", seen, wanted)


def _events_count(c: Checker, wanted: dict[str, Any]) -> None:
    for name, count in wanted.items():
        c.same(f"number of {name}", c.events.count(name), count)


def _failure(c: Checker, wanted: Any) -> None:
    for one in listed(wanted or {}):
        check_known(one, {"kind", "retryable", "text_sent"}, "failure")
    error = c.result.error
    c.problems += failure_differs(error if c.turn else last_attempt(error), wanted)


_SENTENCE = re.compile(r"'(?P<words>[^']*)'(?: in (?P<where>any request|the conversation|the log|speech|any text))?")


def _must_not(c: Checker, wanted: list[str]) -> None:
    """Words that must not be spoken, or a sentence: ``'password' in any request``."""
    for sentence in listed(wanted):
        found = _SENTENCE.fullmatch(sentence)
        if found is None and re.search(r"'.*' ", sentence):
            raise UnknownWordError(f"must_not {sentence!r}")
        words, where = (found["words"], found["where"] or "speech") if found else (sentence, "speech")
        texts = {
            "speech": [c.spoken],
            "any text": [c.spoken],
            "any request": [json.dumps(request.body, ensure_ascii=False) for request in c.requests],
            "the conversation": [json.dumps(c.conversation, ensure_ascii=False)],
            "the log": [record.getMessage() for record in c.world.logged],
        }[where]
        c.require(not any(words in text for text in texts), f"{words!r} is in {where}: {texts}")


def _never_spoken(c: Checker, wanted: list[str]) -> None:
    for words in wanted:
        c.require(words not in c.spoken, f"spoken: {words!r} in {c.spoken}")


def _usage(c: Checker, wanted: dict[str, int] | None) -> None:
    usage, words = c.result.usage, {"input", "output", "cached", "reasoning"}
    if wanted is None:
        c.same("usage", usage, None)
        return
    for name, value in wanted.items():
        word = {"prompt": "input", "completion": "output"}.get(
            name.removesuffix("_tokens"), name.removesuffix("_tokens")
        )
        if word == "total":
            seen = None if usage is None else (usage.input_tokens or 0) + (usage.output_tokens or 0)
        elif word in words:
            seen = getattr(usage, f"{word}_tokens", None)
        else:
            raise UnknownWordError(f"usage {name!r}")
        c.same(f"usage.{name}", seen, value)


def _variants(c: Checker, wanted: dict[str, dict[str, Any]]) -> None:
    """Decisions that a wire case leaves open: one of them must be the one taken."""
    before, found = c.problems, []
    for words, expect in wanted.items():
        c.problems = []
        for name, value in expect.items():
            c.check(name, value)
        found.append([f"{words}: {problem}" for problem in c.problems])
    c.problems = before + ([] if [] in found else [problem for part in found for problem in part])


# ------------------------------------------------------------------------------------------- time


def _within_ms(c: Checker, wanted: float) -> None:
    took = (c.world.facts["took"] if c.turn else c.result.duration) * 1000
    c.require(took <= wanted, f"the last answer took {took:.0f} ms, at most {wanted}")
    words = {word.partition(":")[0] for step in c.world.scenario["steps"] for word in listed(step["do"])}
    if not c.turn and not words & {"repeat", "churn", "fuzz", "wait_ms"}:
        whole = c.world.facts["took"] * 1000
        c.require(whole <= wanted, f"all took {whole:.0f} ms")


def _cancel_within_ms(c: Checker, wanted: float) -> None:
    took = c.world.facts[f"end_at:{c.last.name}"] - c.world.facts["cancelled_at"]
    c.require(took * 1000 <= wanted, f"the cancel took {took * 1000:.1f} ms")


def _first_text_within_ms(c: Checker, heard: Heard, wanted: float) -> None:
    took = heard.answer.result.time_to_first_chunk
    c.require(took is not None and took * 1000 <= wanted, f"first chunk after {took} s, at most {wanted} ms")


def _stream_closed_within_ms(c: Checker, wanted: float) -> None:
    """From the cancel (or the end of the scenario's steps) until the server sees that its stream is closed."""
    begin = c.world.facts.get("cancelled_at", 0.0)
    closed = [at for at in c.world.closed_at.values() if at >= begin]
    c.require(bool(closed) and not c.world.open_requests, "the server still sends")
    c.require(all((at - begin) * 1000 <= wanted for at in closed), f"closed at {closed}, cancelled at {begin}")


def _end_after_done_ms(c: Checker, wanted: Any) -> None:
    bound = wanted if isinstance(wanted, dict) else {"max": wanted}
    took = (c.world.facts[f"end_at:{c.last.name}"] - c.world.sent_at.get("[DONE]", 0.0)) * 1000
    c.same("ms from the end mark to the end of the answer", round(took, 3), bound)


# ------------------------------------------------------------------------------------------- connections, host


def _connection(c: Checker, wanted: str | list[str]) -> None:
    alive = c.world.facts["open_connections"] > 0
    states = {"reusable": alive, "closed": not alive, "any": True}
    c.require(any(states[word] for word in listed(wanted)), f"the connection is not {wanted}")


def _connections(c: Checker, wanted: Any, fact: str) -> None:
    """A number, or one for each member."""
    if isinstance(wanted, dict) and not set(wanted) <= {"min", "max"}:
        seen = {name: c.world.facts[f"{fact}_of"].get(f"{name.lower()}.test", 0) for name in wanted}
        for name, value in wanted.items():
            c.same(f"{fact} of {name}", seen[name], value)
    else:
        c.same(fact, c.world.facts.get(fact), wanted)


def _members_open(c: Checker, wanted: Any) -> None:
    """The members that still have a connection: their number, their names, or how many each has."""
    opened: dict[str, int] = c.world.facts["open_connections_of"]
    names = [name for name in c.world.hosts() if opened.get(f"{name.lower()}.test")]
    if isinstance(wanted, dict) and not set(wanted) <= {"min", "max"}:
        _connections(c, wanted, "open_connections")
    elif isinstance(wanted, list):
        c.require(sorted(names) == sorted(wanted), f"members with a connection: {names}, wanted {wanted}")
    else:
        c.same("members with a connection", len(names), wanted)


def _same_connection_as_turn(c: Checker, wanted: int) -> None:
    marks = c.world.facts["turns"]
    other = c.world.provider.requests[marks[wanted - 1]]
    c.same("connection", c.requests[0].connection, other.connection)


def _bug(c: Checker, wanted: str) -> None:
    c.same("error", type(c.result.error).__name__, wanted)
    c.same("how often it was raised", c.world.facts.get("bugs"), 1)


def _caught_by(c: Checker, wanted: str) -> None:
    if wanted != "except <our base error>":
        raise UnknownWordError(f"caught_by {wanted!r}")
    c.require(isinstance(c.last.error, MicdropError), f"{c.last.error!r}")


def _cause_type(c: Checker, wanted: str) -> None:
    if wanted != "status error":
        raise UnknownWordError(f"cause_type {wanted!r}")
    holds = isinstance(c.last.error, ProviderError) and c.last.error.status is not None
    c.require(holds, f"no status in {c.last.error!r}")


def _raised(c: Checker, wanted: Any) -> None:
    """The class of what left the agent's block, or a step of the host; ``None`` or ``[]`` for nothing."""
    seen = [type(error).__name__ for error in c.world.errors]
    c.same("raised", seen, [] if wanted is None else listed(wanted))


def _reported(c: Checker, wanted: Any) -> None:
    """Failures that were told to listeners or written to the log: their number, or what they are."""
    logged = [record.exc_info[0].__name__ for record in c.world.logged if record.exc_info and record.exc_info[0]]
    told = [str(getattr(error, "kind", type(error).__name__)) for error in c.world.failures]
    if isinstance(wanted, int) and not isinstance(wanted, bool):
        c.same("failures reported", len(told), wanted)
    elif isinstance(wanted, bool):
        c.same("something was reported", bool(told or logged), wanted)
    else:
        for one in listed(wanted):
            known = {*told, *logged, *(type(error).__name__ for error in c.world.failures)}
            c.require(one in known, f"{one} was not reported; reported: {sorted(known)}")


def _logged(c: Checker, wanted: str) -> None:
    names = [record.exc_info[0].__name__ for record in c.world.logged if record.exc_info and record.exc_info[0]]
    c.require(wanted in names, f"not logged: {wanted}; logged: {names}")


def _events_after_destroy(c: Checker, wanted: list[str]) -> None:
    after = c.world.log[c.world.facts["log_at_destroy"] :]
    c.same("events after destroy", [entry[1] for entry in after if entry[0] == "event"], wanted)


def _no_chunk_after_cancel(c: Checker, wanted: bool) -> None:
    names = [entry[0] for entry in c.world.log]
    after = names[names.index("cancelled") :] if "cancelled" in names else []
    before_next = after[: after.index("answer")] if "answer" in after else after
    c.same("no chunk after the cancel", "text" not in before_next, wanted)


def _invariant(c: Checker, wanted: Any) -> None:
    """Asked for in words: what holds for every run of every scenario."""
    del wanted
    c.require(calls_are_paired(c.conversation), "a call without its result")
    for heard in c.heard:
        stop = heard.answer.result.text if heard.answer.status != "running" else heard.text
        c.require(heard.text.startswith(stop) or stop.startswith(heard.text), f"{heard.text!r} and {stop!r}")
        c.require(all(heard.chunks), f"an empty chunk in {heard.chunks}")


def _holds(what: str, seen: Callable[[Checker], Any]) -> Check:
    return lambda c, wanted: c.same(what, seen(c), wanted)


def _fact(name: str) -> Check:
    return lambda c, wanted: c.same(name, c.world.facts.get(name), wanted)


WORDS: dict[str, Check] = {
    "conversation": _conversation,
    "conversation_roles": _holds("roles", lambda c: [item["role"] for item in c.conversation]),
    "roles": _holds("roles", lambda c: [item["role"] for item in c.conversation]),
    "conversation_last": lambda c, wanted: _contains(c, [wanted], last=True),
    "conversation_contains": lambda c, wanted: _contains(c, wanted if isinstance(wanted[0], list) else [wanted]),
    "conversation_valid_for": lambda c, wanted: c.valid(c.conversation, wanted),
    "pairs_complete": _holds("all calls have their result", lambda c: calls_are_paired(c.conversation)),
    "metadata_of": _metadata_of,
    "metadata": _metadata,
    "assistant": _assistant,
    "assistant_contains": lambda c, wanted: c.require(
        all(any(words in item["content"] for item in c.of_role("assistant")) for words in listed(wanted)),
        f"{wanted} is not in {[item['content'] for item in c.of_role('assistant')]}",
    ),
    "committed == received": _committed_is_received,
    "history_arguments": _history_arguments,
    "tool_calls": _tool_calls,
    "tool_runs": _tool_runs,
    "tool_results": _tool_results,
    "results": _tool_results,
    "results_for": _results_for,
    "handler_got": _holds("arguments of the tool", lambda c: c.runs[-1][1]),
    "requests": _requests,
    "requests_valid_for": _requests_valid_for,
    "requests_after": _holds(
        "requests after the cancel", lambda c: len(c.requests) - c.world.facts["requests_at_cancel"]
    ),
    "request_headers": _request_headers,
    "max_parallel_requests": lambda c, wanted: c.require(
        max((request.overlap for request in c.requests), default=0) <= wanted, f"more than {wanted} requests at once"
    ),
    "outcome": _outcome,
    "outcomes": _outcomes,
    "outcome_of": _outcomes,
    "events": _events,
    "events_count": _events_count,
    "last_event": _holds("last event", lambda c: c.events[-1] if c.events else None),
    "events_absent": lambda c, wanted: c.same("events", [name for name in c.events if name in wanted], []),
    "events_contains": lambda c, wanted: c.require(set(listed(wanted)) <= set(c.events), f"events {c.events}"),
    "no_event": lambda c, wanted: c.require(not set(listed(wanted)) & set(c.events), f"events {c.events}"),
    "failure": _failure,
    "spoken": _spoken,
    "spoken_total": _holds("spoken in all", lambda c: "".join(heard.text for heard in c.heard)),
    "spoken_by": lambda c, wanted: c.same("spoken", {name: c.world.heard[name].text for name in wanted}, wanted),
    "never_spoken": _never_spoken,
    "must_not": _must_not,
    "chunks": _holds("chunks", lambda c: c.last.chunks),
    "chunks_non_empty": _holds("all chunks have text", lambda c: all(all(heard.chunks) for heard in c.heard)),
    "extracted": _holds("extracted", lambda c: c.result.extracted),
    "callback_calls": _holds("callback calls", lambda c: len(c.world.extracted)),
    "usage": _usage,
    "finish": _holds("finish reason", lambda c: c.result.finish_reason),
    "variants": _variants,
    "within_ms": _within_ms,
    "cancel_within_ms": _cancel_within_ms,
    "stream_closed_within_ms": _stream_closed_within_ms,
    "end_after_done_ms": _end_after_done_ms,
    "first_chunk_within_ms": lambda c, wanted: _first_text_within_ms(c, c.last, wanted),
    "destroy_within_ms": lambda c, wanted: c.require(
        c.world.facts["destroy_s"] * 1000 <= wanted, f"destroy took {c.world.facts['destroy_s']} s"
    ),
    "reported_first_text_ms_min": lambda c, wanted: c.require(
        (c.result.time_to_first_chunk or 0) * 1000 >= wanted, "the time to the first text is too short"
    ),
    "active_after": _fact("active"),
    "connection": _connection,
    "same_connection_as_turn": _same_connection_as_turn,
    "open_connections": lambda c, wanted: _connections(c, wanted, "open_connections"),
    "connections_left": lambda c, wanted: _connections(c, wanted, "connections_left"),
    "members_open": _members_open,
    "bug": _bug,
    "caught_by": _caught_by,
    "cause_type": _cause_type,
    "is_group": _holds("is a group", lambda c: isinstance(c.last.error, BaseExceptionGroup)),
    "errors": _holds("errors", lambda c: [*c.world.errors, *(h.error for h in c.heard if h.error)]),
    "raised": _raised,
    "reported": _reported,
    "events_after_destroy": _events_after_destroy,
    "host_task": _fact("host_task"),
    "tasks_left": _fact("tasks_left"),
    "stderr": _fact("stderr"),
    "warnings": _fact("warnings"),
    "recorded": _holds("recorded", lambda c: len(c.world.records)),
    "logged": _logged,
    "no_chunk_after_cancel": _no_chunk_after_cancel,
    "invariant": _invariant,
    "invariants": _invariant,
    **dict.fromkeys(_IGNORED, lambda c, wanted: None),
}

_PATTERNS: dict[str, Callable[[re.Match[str]], Check]] = {
    r"request_(\d+)_roles": lambda m: lambda c, wanted: _roles_of_request(c, int(m[1]), wanted),
    r"request_(\d+)_tools": lambda m: lambda c, wanted: _tools_of_request(c, int(m[1]), wanted),
    r"request_(\d+)_contains": lambda m: lambda c, wanted: _text_of_request(c, int(m[1]), wanted, holds=True),
    r"request_(\d+)_(?:lacks|not_contains)": lambda m: (
        lambda c, wanted: _text_of_request(c, int(m[1]), wanted, holds=False)
    ),
    r"request_(\d+)_has_result_for": lambda m: (
        lambda c, wanted: _has_result_for(c, m[0], [c.request(int(m[1]))], wanted)
    ),
    r"(\w+)_request_has_result(?:_for)?": lambda m: (
        lambda c, wanted: _has_result_for(c, m[0], [request.body for request in c.requests_of(m[1])], wanted)
    ),
    r"(\w+)_request_valid_for": lambda m: lambda c, wanted: _member_valid_for(c, m[1], wanted),
    r"(\w+)_first_text_within_ms": lambda m: lambda c, wanted: _first_text_within_ms(c, c.world.heard[m[1]], wanted),
}
"""Words with a number or a name in them."""


def _member_valid_for(c: Checker, member: str, wanted: str | list[str]) -> None:
    requests = c.requests_of(member)
    c.require(bool(requests), f"{member} was not asked")
    for request in requests:
        for dialect in listed(wanted):
            c.refused(f"a request to {member}", dialect, request.body)


def _find(name: str) -> Check:
    if name in WORDS:
        return WORDS[name]
    for pattern, make in _PATTERNS.items():
        if found := re.fullmatch(pattern, name):
            return make(found)
    raise UnknownWordError(f"expect {name!r}")
