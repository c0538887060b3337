"""When a value that was seen is one that a case accepts.

A case may leave a decision open: then a list stands where one value is expected, ``{"max": n}`` or ``{"min": n}``
where a number is, or ``variants`` beside the other keys.
"""

from __future__ import annotations

from typing import Any

_REFINED = {
    "bad_request": {"context_length", "not_found"},
    "empty": {"max_steps"},
}
"""The kinds of the cases are fewer than ours: these of ours say the same more exactly."""


def agrees(seen: Any, wanted: Any) -> bool:
    """Whether ``seen`` is ``wanted``, or one of the values that ``wanted`` lists, or within its bounds."""
    if seen == wanted:
        return True
    if isinstance(wanted, dict) and wanted and set(wanted) <= {"min", "max"}:
        return isinstance(seen, int | float) and wanted.get("min", seen) <= seen <= wanted.get("max", seen)
    if isinstance(wanted, list):
        # A list of lists is a choice of lists; a list beside anything else is a choice of values.
        choice = isinstance(seen, list) is all(isinstance(value, list) for value in wanted)
        return choice and bool(wanted) and any(agrees(seen, value) for value in wanted)
    return False


def kind_agrees(seen: Any, wanted: Any) -> bool:
    """The same for the kind of a failure."""
    kinds = wanted if isinstance(wanted, list) else [wanted]
    return any(seen == kind or seen in _REFINED.get(kind, ()) for kind in kinds)


def failure_differs(error: Any, wanted: Any) -> list[str]:
    """What differs between an error and ``{kind, retryable, text_sent}``, or a list of such."""
    if wanted is None:
        return [] if error is None else [f"failure: seen {error!r}, wanted none"]
    if isinstance(wanted, list):
        found = [failure_differs(error, one) for one in wanted]
        return [] if [] in found else found[0]
    problems = []
    for name, value in wanted.items():
        seen = getattr(error, name, None)
        if not (kind_agrees(seen, value) if name == "kind" else agrees(seen, value)):
            problems.append(f"failure.{name}: seen {seen!r}, wanted {value!r}, in {error!r}")
    return problems


def last_attempt(error: Any) -> Any:
    """The failure of the child that was asked last, if a supervisor's children have all failed."""
    attempts = getattr(error, "attempts", ())
    return attempts[-1].error if attempts and not hasattr(error, "kind") else error
