"""Groups C and D: the ways in which one scenario is to be played.

A case may ask for more than one run: variants in words, sub-expectations for an option, cancel points, every split of
a text. Each way is a test of its own. Words that are not known here are a failure.
"""

from __future__ import annotations

import copy
import re
from typing import Any

import attrs

from case_agents import UnknownWordError

Steps = list[dict[str, Any]]


@attrs.frozen
class Way:
    """One way to play a scenario.

    Args:
        name: Part of the test's id.
        scenario: The scenario, changed for this way.
        expect: What is expected.
        settings: What the world and the host do differently.
    """

    name: str
    scenario: dict[str, Any]
    expect: dict[str, Any]
    settings: dict[str, Any] = attrs.Factory(dict)


_WAYS = {"variants", "cancel_points", "split", "default", "must_not"}


def ways(scenario: dict[str, Any], given_tools: list[Any] | None = None) -> list[Way]:
    """All ways to play ``scenario``; ``given_tools`` are those of the request case beside it."""
    expect = scenario["expect"]
    settings: dict[str, Any] = {"given_tools": given_tools} if given_tools else {}
    if _words(scenario["steps"]) & {"task.cancel"}:
        settings["linger"] = True
    if "caught_by" in expect:
        settings["raise_on_failure"] = True
    choices = {name: value for name, value in expect.items() if name == "default" or "=" in name}
    rest = {name: value for name, value in expect.items() if name not in _WAYS and name not in choices}
    found = []
    if choices:
        found += [_choice(scenario, name, {**rest, **value}, expect) for name, value in choices.items()]
    else:
        found.append(Way("as told", scenario, rest, settings))
    found += [_variant(scenario, words, result, rest) for words, result in expect.get("variants", {}).items()]
    found += [_cancel_point(scenario, point, rest) for point in expect.get("cancel_points", ())]
    if "split" in expect:
        found += _splits(scenario, expect["split"], rest)
    return found


def _words(steps: Steps) -> set[str]:
    words: set[str] = set()
    for step in steps:
        words |= set(step["do"] if isinstance(step["do"], list) else [step["do"]])
        words |= _words(step.get("steps", []))
    return words


def _choice(scenario: dict[str, Any], name: str, expect: dict[str, Any], whole: dict[str, Any]) -> Way:
    if "must_not" in whole:
        expect = {**expect, "must_not": whole["must_not"]}
    option, _, value = name.partition("=")
    settings = {} if name == "default" else {"options": {option: value}}
    return Way(name, scenario, expect, settings)


def _variant(scenario: dict[str, Any], words: str, result: Any, expect: dict[str, Any]) -> Way:
    changed = copy.deepcopy(scenario)
    if heard := re.fullmatch(r"cancel with heard='(.*)'", words):
        conversation = copy.deepcopy(expect["conversation"])
        conversation[1] = result
        return Way(words, changed, {**expect, "conversation": conversation}, {"heard": heard[1]})
    if content := re.fullmatch(r"content '(.*)'", words):
        changed["provider"][0][0]["raw_delta"]["content"] = content[1]
        spoken = re.fullmatch(r"spoken '(.*)'", result)
        assert spoken is not None
        return Way(words, changed, {**expect, "spoken": spoken[1]})
    if words not in _VARIANTS:
        raise UnknownWordError(f"variant {words!r}")
    return _VARIANTS[words](words, changed, expect)


def _text_first(words: str, scenario: dict[str, Any], expect: dict[str, Any]) -> Way:
    script = scenario["provider"][0]
    script.sort(key=lambda part: 0 if "text" in part else 1 if "tool" in part else 2)
    return Way(words, scenario, expect)


def _in_retry_wait(words: str, scenario: dict[str, Any], expect: dict[str, Any]) -> Way:
    scenario["provider"] = [[{"status": 503}], *scenario["provider"]]
    scenario["options"] = {"retries": 1, "retry_delay_ms": 300}
    _trigger(scenario, "retry_wait")
    return Way(words, scenario, expect)


def _in_tool(words: str, scenario: dict[str, Any], expect: dict[str, Any]) -> Way:
    scenario["provider"] = [[{"tool": "look_up", "args": {}, "id": "c0"}], *scenario["provider"]]
    scenario["tools"] = {"look_up": {"sleep_ms": 300}}
    _trigger(scenario, "tool_started:look_up")
    return Way(words, scenario, expect)


def _twice(words: str, scenario: dict[str, Any], expect: dict[str, Any]) -> Way:
    for step in scenario["steps"]:
        if step["do"] == "destroy":
            step["do"] = ["destroy", "destroy"]
    return Way(words, scenario, expect)


def _bug_in_request(words: str, scenario: dict[str, Any], expect: dict[str, Any]) -> Way:
    scenario["steps"] = [step for step in scenario["steps"] if "when" not in step]
    return Way(
        words, scenario, {"bug": "TypeError", "requests": 0}, {"bug": TypeError("a bug in building the request")}
    )


_VARIANTS = {
    "text first": _text_first,
    "during retry wait": _in_retry_wait,
    "inside tool": _in_tool,
    "twice": _twice,
    "TypeError inside request building": _bug_in_request,
}


def _trigger(scenario: dict[str, Any], when: str) -> None:
    for step in scenario["steps"]:
        if "when" in step:
            step["when"] = when


def _cancel_point(scenario: dict[str, Any], point: str, expect: dict[str, Any]) -> Way:
    changed = copy.deepcopy(scenario)
    first = changed["provider"]["A"]
    match point:
        case "before_status":
            first[0].insert(0, {"wait_ms": 50})
            _trigger(changed, "before_status")
        case "after_headers":
            first[0].insert(0, {"after_ms": 50})
            _trigger(changed, "after_ms:20")
        case "retry_wait":
            first[0] = [{"status": 503}]
            changed["options"] = {"A": {"retries": 1, "retry_delay_ms": 100}}
            _trigger(changed, "retry_wait")
        case "while_switching":
            first[0] = [{"status": 503}]
            _trigger(changed, "switching")
        case _ if point.startswith("chunk:"):
            _trigger(changed, point)
        case _:
            raise UnknownWordError(f"cancel point {point!r}")
    return Way(f"cancel at {point}", changed, expect)


def _splits(scenario: dict[str, Any], how: str, expect: dict[str, Any]) -> list[Way]:
    if how != "every position":
        raise UnknownWordError(f"split {how!r}")
    text = "".join("".join(part.get("text", ())) for part in scenario["provider"][0])
    found = []
    for at in range(1, len(text)):
        changed = copy.deepcopy(scenario)
        changed["provider"] = [[{"text": [text[:at], text[at:]]}, {"end": True}]]
        found.append(Way(f"split at {at}", changed, expect))
    changed = copy.deepcopy(scenario)
    changed["provider"] = [[{"text": list(text)}, {"end": True}]]
    return [*found, Way("split everywhere", changed, expect)]
