"""The words of the case and vector formats: each one looks at something, and an unknown one is a failure."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

import pytest
import strict_rules

from case_agents import UnknownWordError
from case_request import run_request_case
from case_run import run_way
from case_variants import ways
from case_wire import run_wire_case
from micdrop_agent.testing import BACKENDS
from vector_check import Checker
from vector_ops import UnknownOperationError
from vector_run import run_vector

if TYPE_CHECKING:
    from pathlib import Path

    from micdrop_agent.testing import Backend

each_backend = pytest.mark.parametrize("backend", BACKENDS)
ASK = {"do": "answer"}
CUT = [ASK, {"when": "chunk:1", "do": "cancel"}]
TWO = {"A": [[{"text": ["We open "]}, {"cut": "eof"}]], "B": [[{"text": ["at nine."]}, {"end": True}]]}
CALL = [[{"tool": "get_time", "args": {}, "id": "c1"}, {"end": True}], [{"text": ["Ten."]}, {"end": True}]]
REFUSED = [[{"status": 401}]]


def problems_of(scenario: dict[str, Any], backend: Backend) -> list[str]:
    scenario = copy.deepcopy({"backends": ["asyncio", "trio"], **scenario})
    return [why for way in ways(scenario) for why in run_way(way, backend, strict_rules.PROVIDER)]


WORDS: list[tuple[dict[str, Any], str, Any, Any]] = [
    ({"steps": [{**ASK, "as": "a1"}]}, "outcome_of", {"a1": "answered"}, {"a1": "failed"}),
    ({"steps": [ASK], "provider": REFUSED}, "events_count", {"Failed": 1}, {"Failed": 0}),
    ({"steps": [ASK], "provider": REFUSED}, "last_event", "Failed", "Message"),
    ({"steps": [ASK]}, "assistant_contains", "at nine", "at ten"),
    ({"steps": [ASK]}, "assistant_contains", ["We open", "nine"], ["We open", "ten"]),
    ({"steps": [ASK], "provider": TWO}, "members_open", {"A": 0, "B": 1}, {"A": 1}),
    ({"steps": [ASK], "provider": TWO}, "members_open", ["B"], ["A"]),
    ({"steps": [ASK], "provider": TWO}, "members_open", 1, 2),
    ({"steps": [ASK], "provider": TWO}, "connections_left", {"A": 0, "B": 0}, {"A": 1}),
    ({"steps": [ASK, {"when": "chunk:1", "do": "host_raises"}]}, "raised", "RuntimeError", "ValueError"),
    ({"steps": [ASK, {"when": "chunk:1", "do": "host_raises:ValueError"}]}, "raised", ["ValueError"], []),
    ({"steps": [ASK]}, "raised", None, "RuntimeError"),
    ({"steps": [ASK], "provider": REFUSED}, "reported", "auth", "server"),
    ({"steps": [ASK], "provider": REFUSED}, "reported", 1, 0),
    ({"steps": CUT}, "stream_closed_within_ms", 20, -1),
    ({"steps": [{**ASK, "as": "a1"}, {**ASK, "as": "a2"}]}, "a2_first_text_within_ms", 5, -1),
    ({"steps": [ASK]}, "backends_equal", True, ["no such fact"]),
    ({"steps": CUT}, "committed == received", True, False),
    ({"steps": [ASK], "provider": CALL}, "request_2_has_result_for", "c1", "c2"),
    ({"steps": [ASK], "provider": CALL}, "request_2_has_result_for", "get_time", "get_weather"),
    ({"steps": [ASK], "provider": CALL}, "requests_valid_for", "mistral", "no such dialect"),
    ({"steps": [ASK], "provider": TWO}, "B_request_valid_for", "openai_chat", "no such dialect"),
    (
        {
            "steps": [ASK],
            "provider": {"A": [CALL[0], [{"status": 503}]], "B": [[{"text": ["Ten."]}, {"end": True}]]},
        },
        "B_request_has_result",
        "c1",
        "c9",
    ),
    (
        {"steps": [{"do": "user", "text": "When?"}, ASK], "provider": CALL},
        "conversation_contains",
        ["tool_result", "get_time"],
        ["tool_result", "get_weather"],
    ),
    (
        {"steps": [{"do": "user", "text": "my password"}, ASK]},
        "must_not",
        ["'word' spoken"],
        ["'password' in any request"],
    ),
    ({"steps": [ASK]}, "must_not", ["'password' in any request", "password"], ["'nine' in the conversation"]),
    ({"steps": [ASK]}, "repeat", 2, "not a number"),
    ({"steps": [ASK]}, "note", "said in words", None),
]


@each_backend
@pytest.mark.parametrize(
    ("scenario", "word", "right", "wrong"), WORDS, ids=lambda value: value if isinstance(value, str) else ""
)
def test_an_expectation_sees_what_is_right_and_what_is_wrong(
    backend: Backend, scenario: dict[str, Any], word: str, right: Any, wrong: Any
) -> None:
    if word == "must_not" and "spoken" in str(right):
        with pytest.raises(UnknownWordError):  # a sentence that nobody understands must not pass unseen
            problems_of({**scenario, "expect": {word: right}}, backend)
    else:
        assert problems_of({**scenario, "expect": {word: right}}, backend) == []
    if wrong is None:
        return
    try:
        seen = problems_of({**scenario, "expect": {word: wrong}}, backend)
    except (UnknownWordError, TypeError):
        return
    assert seen


STEPS: list[tuple[str, dict[str, Any]]] = [
    (
        "a tool of a name that is taken",
        {
            "steps": [
                {"do": "add_tool", "name": "book"},
                {"do": "add_tool", "name": "book", "expect_error": True},
                ASK,
            ],
            "expect": {"outcome": "answered"},
        },
    ),
    (
        "a pause after the moment",
        {
            "steps": [ASK, {"when": "chunk:1", "after_ms": 5, "do": "cancel"}],
            "expect": {"outcome": "cancelled", "spoken": "We open "},
        },
    ),
    ("buffers", {"steps": [{**ASK, "buffer": [0, 1, 8]}], "expect": {"spoken": "We open at nine."}}),
    (
        "read one and be idle",
        {"steps": [{**ASK, "consume": "1 then idle"}], "expect": {"spoken": "We open ", "outcome": "cancelled"}},
    ),
    (
        "read one and close",
        {"steps": [{**ASK, "consume": "1 then close"}], "expect": {"spoken": "We open ", "outcome": "cancelled"}},
    ),
    (
        "a slow reader",
        {
            "steps": [{**ASK, "consume": "slow 50 ms per chunk"}],
            "expect": {"spoken": "We open at nine.", "outcome": "answered"},
        },
    ),
    (
        "churn for a time",
        {
            "steps": [{"do": "churn", "agents": 3, "seconds": 0.3, "cancel_after_ms": [1, 30], "pool": 2}],
            "expect": {"tasks_left": 0, "connections_left": 0},
        },
    ),
    (
        "schedules without a cancel",
        {"steps": [{"do": "fuzz", "schedules": 5, "cancel": False}], "expect": {"pairs_complete": True}},
    ),
    (
        "a tool that takes its time",
        {
            "steps": [ASK],
            "provider": [
                [{"tool": "look", "args": {}, "id": "c1"}, {"end": True}],
                [{"text": ["Seen."]}, {"end": True}],
            ],
            "tools": {"look": {"ms": 40, "returns": "x"}},
            "expect": {"spoken": "Seen.", "tool_results": {"c1": "x"}, "reported_first_text_ms_min": 40},
        },
    ),
    (
        "a tool that swallows its cancellation",
        {
            "steps": [ASK, {"when": "tool_started:look", "do": "cancel"}],
            "provider": [[{"tool": "look", "args": {}, "id": "c1"}, {"end": True}]],
            "tools": {"look": {"swallows_cancel_for_ms": 30}},
            "expect": {
                "outcome": "cancelled",
                "tool_results": {"c1": "error"},
                "cancel_within_ms": 10,
                "tasks_left": 0,
            },
        },
    ),
    (
        "parts in one write",
        {
            "steps": [ASK],
            "provider": [[{"buffered": [{"text": ["We "]}, {"text": ["open."]}]}, {"end": True}]],
            "expect": {"spoken": "We open."},
        },
    ),
    (
        "a tool in the default script",
        {
            "steps": [ASK, {"when": "tool_returned", "do": "cancel"}],
            "expect": {"tool_runs": {"get_time": 1}, "outcome": "cancelled", "pairs_complete": True},
        },
    ),
    (
        "options by other names",
        {
            "steps": [ASK],
            "provider": [[{"text": ["<think>hm</think>Hi."]}, {"end": True}]],
            "options": {"strip_think": True, "first_output_timeout_ms": 400},
            "expect": {"spoken": "Hi."},
        },
    ),
    (
        "a step's own script is followed by the good answer",
        {
            "steps": [{**ASK, "provider": [{"text": ["Mine."]}, {"end": True}]}, {**ASK, "as": "a2"}],
            "expect": {"spoken_by": {"a1": "Mine.", "a2": "Okay."}},
        },
    ),
    (
        "and repeats where the case says so",
        {
            "steps": [{**ASK, "provider": [{"text": ["Mine."]}, {"end": True}]}, {**ASK, "as": "a2"}],
            "after": "repeat_last",
            "expect": {"spoken_by": {"a1": "Mine.", "a2": "Mine."}},
        },
    ),
]


@each_backend
@pytest.mark.parametrize(("name", "scenario"), STEPS, ids=[name for name, _ in STEPS])
def test_a_step_does_what_its_words_say(backend: Backend, name: str, scenario: dict[str, Any]) -> None:
    assert problems_of(scenario, backend) == []


def test_each_size_of_a_buffer_is_a_way_of_its_own() -> None:
    scenario = {"steps": [{**ASK, "buffer": [0, 4]}], "expect": {"outcome": "answered"}}
    assert [way.name for way in ways(scenario)] == ["as told buffer 0", "as told buffer 4"]


@each_backend
@pytest.mark.parametrize(
    "scenario",
    [
        {"steps": [ASK], "expect": {"no_such_word": 1}},
        {"steps": [{"do": "no_such_step"}], "expect": {}},
        {"steps": [{**ASK, "no_such_member": 1}], "expect": {}},
        {"steps": [{**ASK, "consume": "backwards"}], "expect": {}},
        {"steps": [ASK, {"when": "no_such_moment", "do": "cancel"}], "expect": {}},
        {"steps": [{"do": "churn", "no_such_number": 3}], "expect": {}},
        {"steps": [ASK], "options": {"no_such_option": 1}, "expect": {}},
        {"steps": [ASK], "provider": [[{"no_such_part": 1}]], "expect": {}},
        {"steps": [ASK], "provider": CALL, "tools": {"get_time": {"no_such_trait": 1}}, "expect": {}},
        {"steps": [ASK], "expect": {"must_not": ["'x' in a dream"]}},
    ],
    ids=lambda scenario: json.dumps(scenario)[-40:],
)
def test_an_unknown_word_is_a_failure(backend: Backend, scenario: dict[str, Any]) -> None:
    with pytest.raises((UnknownWordError, BaseExceptionGroup)) as caught:
        problems_of(scenario, backend)
    assert caught.errisinstance(UnknownWordError) or caught.group_contains(UnknownWordError)


# ------------------------------------------------------------------------------------------- wire


def wire_case(tmp_path: Path, expect: dict[str, Any], gap_ms: int = 0) -> Path:
    chunk = {"choices": [{"index": 0, "delta": {"content": "Hi."}, "finish_reason": None}]}
    last = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    usage = {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}}
    body = "".join(f"data: {json.dumps(event)}\n\n" for event in (chunk, last, usage)) + "data: [DONE]\n\n"
    (tmp_path / "a.sse").write_text(body)
    attempt = {"status": 200, "body_file": "a.sse", "gap_ms": gap_ms}
    wire = {"protocol": "chat", "attempts": [attempt], "after": "repeat_last"}
    (tmp_path / "wire.json").write_text(json.dumps(wire))
    (tmp_path / "expect.json").write_text(json.dumps(expect))
    return tmp_path


@each_backend
@pytest.mark.parametrize(
    ("word", "right", "wrong"),
    [
        ("usage", {"input": 7, "output_tokens": 2, "total": 9}, {"input": 8}),
        ("usage", {"prompt_tokens": 7, "completion_tokens": 2}, None),
        ("finish", "stop", "length"),
        ("end_after_done_ms", 5, {"min": 10}),
        ("spoken", "Hi.", "Ho."),
    ],
)
def test_a_word_about_bytes_sees_what_is_right_and_what_is_wrong(
    tmp_path: Path, backend: Backend, word: str, right: Any, wrong: Any
) -> None:
    assert run_wire_case(wire_case(tmp_path, {word: right}), backend) == []
    assert run_wire_case(wire_case(tmp_path, {word: wrong}), backend)


@each_backend
def test_a_turn_may_ask_for_the_connection_of_an_earlier_one(tmp_path: Path, backend: Backend) -> None:
    turns = [{"spoken": "Hi."}, {"same_connection_as_turn": 1}]
    assert run_wire_case(wire_case(tmp_path, {"turns": turns}), backend) == []
    folder = wire_case(tmp_path, {"turns": turns})
    wire = json.loads((folder / "wire.json").read_text())
    wire["attempts"][0]["headers"] = {"connection": "close"}
    (folder / "wire.json").write_text(json.dumps(wire))
    assert run_wire_case(folder, backend)


# ------------------------------------------------------------------------------------------- requests


@each_backend
@pytest.mark.parametrize(
    ("expect", "fits"),
    [
        ({"absent": ["tools", "messages[].name"], "pure": True, "twice_equal": True}, True),
        ({"absent": ["model"]}, False),
        ({"absent": ["messages[].role"]}, False),
        ({"exact": [{"role": "user", "content": "Hi"}], "tool_message_name_optional": True}, True),
        ({"exact": [{"role": "user", "content": "Ho"}], "tool_message_name_optional": True}, False),
    ],
)
def test_a_word_about_requests_sees_what_is_right_and_what_is_wrong(
    backend: Backend, expect: dict[str, Any], fits: bool
) -> None:
    given = {"conversation": [{"role": "user", "content": "Hi"}], "tools": []}
    case = {"given": given, "dialects": {"openai_chat": expect}}
    assert (run_request_case(case, "openai_chat", strict_rules.PROVIDER, backend) == []) is fits


# ------------------------------------------------------------------------------------------- vectors


def vector_problems(vector: dict[str, Any], backend: Backend) -> list[str]:
    whole = {"verdict": "keep", "options": {"agent": "scripted"}, **copy.deepcopy(vector)}
    return Checker(whole, run_vector(whole, backend)).run()


SAID = {
    "options": {"agent": "scripted", "answers": [[{"op": "write", "text": "Hi."}]]},
    "script": [
        {"op": "add_user_message", "text": "Hello"},
        {"op": "answer", "as": "a1"},
        {"op": "await_end", "answer": "a1"},
    ],
}
USER = {"event": "Message", "payload": {"role": "user", "content": "Hello"}}
MODEL = {"event": "Message", "payload": {"role": "assistant", "content": "Hi."}}
WITH_A_TOOL = {
    "options": {
        "agent": "scripted",
        "answers": [[{"op": "execute_tool", "name": "look", "id": "c7"}, {"op": "execute_tool", "name": "bare"}]],
        "tools": [
            {"name": "look", "description": "Look.", "returns": {"a": 1}},
            {"name": "bare", "description": "It has no function."},
        ],
    },
    "script": SAID["script"],
}
ASKED_TWICE = {
    **SAID,
    "listeners": [
        {"event": "Message", "role": "user", "times": 1, "ops": [{"op": "add_user_message", "text": "And?"}]},
    ],
}


@each_backend
@pytest.mark.parametrize(
    ("vector", "right", "wrong"),
    [
        (
            SAID,
            {"events": [{**USER, "conversation_length": 2}, MODEL]},
            {"events": [{**USER, "conversation_length": 5}, MODEL]},
        ),
        (SAID, {"events_last": MODEL}, {"events_last": USER}),
        (ASKED_TWICE, {"roles": ["system", "user", "user", "assistant"]}, {"roles": ["system", "user", "assistant"]}),
        (WITH_A_TOOL, {"results": {"execute_tool:c7": {"a": 1}}}, {"results": {"execute_tool:c7": {"a": 2}}}),
        (
            {**SAID, "script": [*SAID["script"], {"op": "identity", "as": "who"}]},
            {"results": {"who": {"same_tools_object": True}}},
            {"results": {"whom": {}}},
        ),
        (
            {**SAID, "script": [*SAID["script"], {"op": "get_tool", "name": "none", "as": "x"}]},
            {"results": {"x": None, "answer_count": 3}},
            {"results": {"x": {}}},
        ),
        (
            {
                "options": {"agent": "openai"},
                "provider": {"agent": [[{"op": "delta", "text": "Hi."}, {"op": "done"}]]},
                "script": SAID["script"],
            },
            {"strict_is_valid": True},
            {"strict_is_valid": False},
        ),
    ],
)
def test_a_word_of_a_vector_sees_what_is_right_and_what_is_wrong(
    backend: Backend, vector: dict[str, Any], right: Any, wrong: Any
) -> None:
    assert vector_problems({**vector, "expected": right}, backend) == []
    assert vector_problems({**vector, "expected": wrong}, backend)


@each_backend
def test_an_unknown_word_of_a_vector_is_a_failure(backend: Backend) -> None:
    with pytest.raises(UnknownOperationError):
        vector_problems({**SAID, "expected": {"no_such_word": 1}}, backend)
