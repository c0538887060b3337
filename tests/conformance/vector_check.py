"""Compares what one run showed with what a vector expects.

``keep``: every member of ``expected``. ``differs-on-purpose``: the members and predicates of ``right.expected``, and
those members of ``expected`` that cannot follow from the change. In every run the rules that hold for any answer.
Texts of errors and of the automatic tools' default descriptions are not compared. Where a value is extracted, spoken
text is compared up to white space at its end, which we hold back until it is clear that something follows.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from bodies import calls_are_paired, differences
from vector_ops import UnknownOperationError
from vector_predicates import MEMBERS

if TYPE_CHECKING:
    from vector_ops import Trace

BODY_PREDICATES = {
    "request_1_tools",
    "request_message_3_arguments",
    "request_1_body_has",
    "request_input_item_3",
    "request_2_input_item_2_arguments",
}

_NOT_COMPARED = {"timeline", "failed"}
"""The timeline repeats the other members; its order is checked where a vector asks for it. ``failed`` is failed_count > 0."""

_FREE_RESULTS = {"answer_count", "id"}
"""Results about the original's inside: its answer counter and the links between its objects."""


class Checker:
    """Collects every difference, so that a report shows all of them."""

    trace: Trace

    def __init__(self, vector: dict[str, Any], trace: Trace) -> None:
        self.vector = vector
        self.trace = trace
        self.expected: dict[str, Any] = vector["expected"]
        self.right: dict[str, Any] = vector.get("right", {}).get("expected", {})
        self.keep = vector["verdict"] == "keep"
        options = vector["options"]
        self.extracting = "extract" in options or any("extract" in child for child in options.get("children", ()))
        self.fallback = options["agent"] == "fallback"
        self.problems: list[str] = []
        self.not_checked: list[str] = []
        """Rules in words that no function here stands for; a report of the run shows them."""

    # -- what was seen

    @property
    def text(self) -> dict[str, str]:
        return {name: "".join(chunks) for name, chunks in self.trace.chunks.items()}

    @property
    def conversation(self) -> list[dict[str, Any]]:
        return self.trace.conversation or []

    def same(self, what: str, seen: Any, wanted: Any) -> None:
        if seen != wanted:
            self.problems.append(f"{what}:\n    seen   {_show(seen)}\n    wanted {_show(wanted)}")

    def require(self, holds: bool, what: str) -> None:
        if not holds:
            self.problems.append(what)

    def run(self) -> list[str]:
        if self.keep:
            members = {name: value for name, value in self.expected.items() if name not in _NOT_COMPARED}
        else:
            members = {name: self.expected[name] for name in self._untouched() if name in self.expected}
            members |= self.right
        for name, wanted in members.items():
            check = MEMBERS.get(name)
            if check is not None:
                check(self, wanted)
            elif isinstance(wanted, str) and " " in wanted:
                self.not_checked.append(f"{name}: {wanted}")
            else:
                raise UnknownOperationError(f"member or predicate {name!r} of an expectation")
        self._always()
        return self.problems

    def _untouched(self) -> list[str]:
        """Members of ``expected`` that what is named in ``right`` cannot have changed."""
        if "raises_at" in self.right or "construct_error" in self.right:
            return []
        named = set(self.right)
        inner = {"results", "results_tools_names", "process_problems", "requests_closed_by_client"} | BODY_PREDICATES
        if named <= inner:
            return [
                name
                for name in ("text", "conversation", "events", "failed_count", "request_count")
                if name not in named
            ]
        return []

    def _always(self) -> None:
        """What holds in every run, whatever the vector says."""
        trace = self.trace
        if trace.construct_error is not None:
            wanted = "construct_error" in self.right or "construct_error" in self.expected.get("results", {})
            self.require(wanted, f"the agent could not be made: {trace.construct_error!r}")
            return
        self.same("errors that left the agent", trace.problems, [])
        if trace.raised_at is not None:
            return
        for name, ended in trace.ended.items():
            self.require(ended, f"the reader of {name} never saw an end")
        self.require(calls_are_paired(self.conversation), "a call without its result in the conversation")
        failed = sum(1 for event in trace.events if event["event"] == "Failed")
        self.require(failed <= len(trace.ended), f"{failed} Failed events for {len(trace.ended)} answers")

    # -- members

    def check_chunks(self, wanted: dict[str, list[str]]) -> None:
        if self.extracting:
            return
        self.same("chunks", self.trace.chunks, {name: [c for c in chunks if c] for name, chunks in wanted.items()})

    def check_text(self, wanted: dict[str, str]) -> None:
        for name, text in wanted.items():
            seen = self.text.get(name, "")
            pair = (seen.rstrip(), text.rstrip()) if self.extracting else (seen, text)
            self.same(f"text of {name}", *pair)

    def check_events(self, wanted: list[dict[str, Any]]) -> None:
        bare = [{"event": "Failed"} if event["event"] == "Failed" else event for event in wanted]
        seen: list[dict[str, Any]] = self.trace.events
        if any("conversation_length" in event for event in wanted):
            told = zip(seen, self.trace.lengths, strict=True)
            seen = [{**event, "conversation_length": length} for event, length in told]
            bare = [
                {**event, "conversation_length": one["conversation_length"]} if "conversation_length" in one else event
                for event, one in zip(bare, wanted, strict=True)
            ]
            places = zip(seen, [*bare, *[{}] * len(seen)], strict=False)
            seen = [one if "conversation_length" in other else _less(one) for one, other in places]
        if self.fallback:
            # DESIGN D1: when all children failed, the turn is given back with an event of its own.
            pairs = zip([None, *seen], seen, strict=False)
            seen = [
                event for before, event in pairs if (before, event) != ({"event": "Failed"}, {"event": "SkipAnswer"})
            ]
        if "events" not in self.right:
            seen = [e for e in seen if not _interrupted(e.get("payload", {}))]
        self.same("events", _without_error_texts(seen), _without_error_texts(bare))

    def check_conversation(self, wanted: list[dict[str, Any]] | None) -> None:
        if wanted is None:
            self.require(self.trace.conversation is None, "there is a conversation")
            return
        seen = self.conversation
        if "conversation" not in self.right:
            # What was heard of an interrupted answer is kept (DESIGN D3); `right` says so where it is the point.
            seen = [item for item in seen if not _interrupted(item)]
        if self.fallback and seen and wanted:
            # The system prompt of the child that answered is the child's own (DESIGN D9).
            seen, wanted = seen[1:], wanted[1:]
        self.same("conversation", _without_error_texts(seen), _without_error_texts(wanted))

    def check_tools(self, wanted: list[dict[str, Any]]) -> None:
        seen = self.trace.tools
        if self.fallback:
            seen, wanted = [[{**run, "agent": "?"} for run in runs] for runs in (seen, wanted)]
        self.same("tools executed", seen, wanted)

    def check_constructed(self, wanted: list[str]) -> None:
        seen = self.trace.constructed
        if self.trace.events[-2:-1] == [{"event": "Failed"}] and len(seen) == len(wanted) - 1:
            # After all failed the original makes a new first child at once; ours makes it when it is asked.
            wanted = wanted[:-1]
        self.same("constructed", seen, wanted)

    def check_results(self, wanted: dict[str, Any]) -> None:
        free = _FREE_RESULTS | {step.get("as") for step in self.vector["script"] if step["op"].endswith("identity")}
        for name, value in wanted.items():
            if name in free:
                continue
            if name == "construct_error":
                self.require(self.trace.construct_error is not None, "the agent could be made")
                continue
            self.require(name in self.trace.results, f"no result {name!r}")
            self._same_part(f"result {name}", self.trace.results.get(name), value)

    def _same_part(self, what: str, seen: Any, wanted: Any) -> None:
        if isinstance(wanted, dict):
            wanted = {key: value for key, value in wanted.items() if key != "answer_count"}
        if what.startswith("result execute_tool:") and isinstance(wanted, dict) and "output" in wanted:
            wanted = wanted["output"]  # the original gives the output in an object of its own
        if isinstance(wanted, dict) and isinstance(seen, dict) and not self.keep:
            for key, value in wanted.items():
                if key not in _FREE_RESULTS:
                    self._same_part(f"{what}.{key}", seen.get(key), value)
            return
        self.same(what, _without_descriptions(seen, wanted), wanted)

    def check_requests(self, wanted: list[dict[str, Any]]) -> None:
        seen = self.trace.requests
        self.same(
            "endpoints",
            [(r["child"].lower(), r["path"]) for r in seen],
            [(r["child"].lower(), r["path"]) for r in wanted],
        )
        for number, (ours, theirs) in enumerate(zip(seen, wanted, strict=False), 1):
            for difference in differences(ours["body"], theirs["body"]):
                if self.fallback and difference.startswith("tools "):
                    continue  # each child keeps its own tools (DESIGN D9)
                self.problems.append(f"request {number}: {difference}")

    # -- predicates

    def body(self, number: int) -> dict[str, Any]:
        if len(self.trace.requests) < number:
            self.problems.append(f"there is no request {number}")
            return {}
        body: dict[str, Any] = self.trace.requests[number - 1]["body"]
        return body

    def check_order(self, wanted: list[str]) -> None:
        marks = []
        for entry in self.trace.timeline:
            if "event" in entry:
                role = entry.get("payload", {}).get("role")
                marks.append(f"e:{entry['event']}" + (f":{role}" if role else ""))
            elif "write" in entry:
                marks.append(f"w:{entry['write']}")
            elif "end" in entry:
                marks.append("end")
        place = 0
        for mark in marks:
            place += place < len(wanted) and mark == wanted[place]
        self.require(place == len(wanted), f"order: {wanted} is not in {marks}")

    def check_raises_at(self, wanted: str) -> None:
        self.same("raised at", self.trace.raised_at, wanted)

    def check_ended_before_tool(self, wanted: bool) -> None:
        opened = [i for i, entry in enumerate(self.trace.timeline) if entry.get("step") == "open_gate"]
        ends = [i for i, entry in enumerate(self.trace.timeline) if "end" in entry]
        self.same("the stream ended before the tool was let go", bool(ends and opened and ends[0] < opened[0]), wanted)

    def check_invariant(self, wanted: str) -> None:
        if not wanted.startswith("concatenated chunks == concatenated assistant contents"):
            self.not_checked.append(f"invariant: {wanted}")
            return
        stored = "".join(item["content"] for item in self.conversation if item["role"] == "assistant")
        said = "".join(self.text.values())
        self.same("text said and text stored", said, stored)
        half = said[: len(said) // 2].strip()
        self.require(not half or said.count(half) == 1 or len(half) < 4, f"text repeated in {said!r}")


def _less(event: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in event.items() if key != "conversation_length"}


def _interrupted(item: dict[str, Any]) -> bool:
    return bool((item.get("metadata") or {}).get("interrupted"))


def _show(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=repr)


def _without_error_texts(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Error outputs of tools keep their shape and lose their text, except the one that is part of the design."""

    def neutral(item: Any) -> Any:
        if isinstance(item, dict):
            if set(item) >= {"output"} and isinstance(item["output"], str) and item["output"].startswith('{"error":'):
                if json.loads(item["output"]) != {"error": "cancelled"}:
                    return {**item, "output": '{"error": …}'}
                return {**item, "output": '{"error":"cancelled"}'}
            return {key: neutral(value) for key, value in item.items()}
        return item

    return [neutral(item) for item in items]


def _without_descriptions(seen: Any, wanted: Any) -> Any:
    """Default descriptions are our own words; the vectors say ``<default description of …>``."""
    if isinstance(seen, list) and isinstance(wanted, list):
        return [_without_descriptions(s, w) for s, w in zip(seen, wanted, strict=False)] + seen[len(wanted) :]
    if isinstance(seen, dict) and isinstance(wanted, dict):
        described = str(wanted.get("description", "")).startswith("<default description of")
        if described and seen.get("description"):
            return {**seen, "description": wanted["description"]}
    return seen
