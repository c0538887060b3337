"""Groups C and D: the ways in which one scenario is to be played.

A case may ask for more than one run: variants in words, sub-expectations for an option, cancel points, every split of
a text. Each way is a test of its own. Words that are not known here are a failure.
"""

from __future__ import annotations

import copy
import json
import re
from typing import Any

import attrs

from case_agents import UnknownWordError
from case_script import DEFAULT_SCRIPT

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
    alternatives: dict[str, dict[str, Any]] = attrs.Factory(dict)
    """Decisions that the case leaves open: what one of them expects must hold too."""


_WAYS = {"variants", "cancel_points", "split", "default", "must_not", "open_question", "note"}


def ways(scenario: dict[str, Any], given_tools: list[Any] | None = None) -> list[Way]:
    """All ways to play ``scenario``; ``given_tools`` are those of the request case beside it."""
    expect = scenario["expect"]
    settings: dict[str, Any] = {"given_tools": given_tools} if given_tools else {}
    if _words(scenario["steps"]) & {"task.cancel"}:
        settings["linger"] = True
    if "caught_by" in expect:
        settings["raise_on_failure"] = True
    choices = {name: value for name, value in expect.items() if name == "default" or _is_choice(name)}
    rest = {name: value for name, value in expect.items() if name not in _WAYS and name not in choices}
    found = []
    variants, open_question = _sorted_variants(expect.get("variants", {}))
    if "must_not" in expect:
        rest["must_not"] = expect["must_not"]
    if choices:
        found += [_choice(scenario, name, {**rest, **value}) for name, value in choices.items()]
    else:
        found.append(Way("as told", scenario, rest, {}, open_question))
    found += [_variant(scenario, words, result, rest) for words, result in variants.items()]
    found += [_cancel_point(scenario, point, rest) for point in expect.get("cancel_points", ())]
    if "split" in expect:
        found += _splits(scenario, expect["split"], rest)
    sizes = next((step["buffer"] for step in scenario["steps"] if "buffer" in step), None)
    if sizes is not None:
        found = [_buffered(way, size) for way in found for size in (sizes if isinstance(sizes, list) else [sizes])]
    return [attrs.evolve(way, settings={**settings, **way.settings}) for way in found]


def _buffered(way: Way, size: int | str | None) -> Way:
    """The same with ``size`` chunks of back-pressure; ``None``, ``"inf"`` and the like are the default, no limit."""
    options = {"buffer_size": size if isinstance(size, int) else None}
    return attrs.evolve(way, name=f"{way.name} buffer {size}", settings={**way.settings, "options": options})


def _words(steps: Steps) -> set[str]:
    words: set[str] = set()
    for step in steps:
        words |= set(step["do"] if isinstance(step["do"], list) else [step["do"]])
        words |= _words(step.get("steps", []))
    return words


def _sorted_variants(variants: Any) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Runs that are played in another way, and decisions that are left open."""
    if isinstance(variants, list):
        variants = {str(number): value for number, value in enumerate(variants, 1)}
    played = {words: result for words, result in variants.items() if _is_played(words, result)}
    return played, {words: result for words, result in variants.items() if words not in played}


def _is_played(words: str, result: Any) -> bool:
    return (
        not isinstance(result, dict)
        or words in _VARIANTS
        or words.startswith("cancel with heard=")
        or _is_choice(words)
    )


def _is_choice(words: str) -> bool:
    """Whether ``words`` set an option, as ``after_partial=stop`` does; ``a == b`` compares."""
    return "=" in words and "==" not in words


def _choice(scenario: dict[str, Any], name: str, expect: dict[str, Any]) -> Way:
    option, _, text = name.partition("=")
    settings: dict[str, Any] = {} if name == "default" else {"options": {option.strip(): _value(text)}}
    return Way(name, scenario, expect, settings)


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text.strip("' ")


def _variant(scenario: dict[str, Any], words: str, result: Any, rest: dict[str, Any]) -> Way:
    changed = copy.deepcopy(scenario)
    expect = {**rest, **result} if isinstance(result, dict) else rest
    if heard := re.fullmatch(r"cancel with heard=(.*)", words):
        if isinstance(result, list):
            conversation = copy.deepcopy(expect["conversation"])
            conversation[1] = result
            expect = {**expect, "conversation": conversation}
        return Way(words, changed, expect, {"heard": _value(heard[1])})
    if content := re.fullmatch(r"content '(.*)'", words):
        changed["provider"][0][0]["raw_delta"]["content"] = content[1]
        return Way(words, changed, {**expect, **_in_words(result)})
    if words in _VARIANTS:
        return _VARIANTS[words](words, changed, expect)
    if "=" in words:
        return _choice(changed, words, {**expect, **_in_words(result)})
    raise UnknownWordError(f"variant {words!r}")


def _in_words(result: Any) -> dict[str, Any]:
    """An expectation such as ``spoken 'One moment.'``; "same" and its like change nothing."""
    if isinstance(result, str) and (spoken := re.fullmatch(r"spoken '(.*)'", result)):
        return {"spoken": spoken[1]}
    return {}


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
    provider = changed.setdefault("provider", [list(DEFAULT_SCRIPT)])
    first = next(iter(provider.values())) if isinstance(provider, dict) else provider
    option: dict[str, Any] = {"retries": 1, "retry_delay_ms": 100}
    match point:
        case "before_status":
            first[0].insert(0, {"wait_ms": 50})
            _trigger(changed, "before_status")
        case "after_headers":
            first[0].insert(0, {"after_ms": 50})
            _trigger(changed, "after_ms:20")
        case "retry_wait":
            first[0] = [{"status": 503}]
            changed["options"] = {next(iter(provider)): option} if isinstance(provider, dict) else option
            _trigger(changed, "retry_wait")
        case "while_switching":
            first[0] = [{"status": 503}]
            _trigger(changed, "switching")
        case _ if point.startswith(("chunk:", "after_ms:", "tool_started", "tool_returned")):
            _trigger(changed, point)
        case _:
            raise UnknownWordError(f"cancel point {point!r}")
    return Way(f"cancel at {point}", changed, expect)


def _splits(scenario: dict[str, Any], how: str, expect: dict[str, Any]) -> list[Way]:
    if how != "every position":
        raise UnknownWordError(f"split {how!r}")
    script = scenario["provider"]
    if isinstance(script, dict):
        raise UnknownWordError("split with more than one provider")
    text = "".join("".join(part.get("text", ())) for part in script[0])
    found = []
    for at in range(1, len(text)):
        changed = copy.deepcopy(scenario)
        changed["provider"] = [[{"text": [text[:at], text[at:]]}, {"end": True}]]
        found.append(Way(f"split at {at}", changed, expect))
    changed = copy.deepcopy(scenario)
    changed["provider"] = [[{"text": list(text)}, {"end": True}]]
    return [*found, Way("split everywhere", changed, expect)]
