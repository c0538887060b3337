"""Which recording answers a request, and what to say when none does. No I/O."""

from __future__ import annotations

import difflib
import json
from typing import TYPE_CHECKING, Any, Final

from micdrop_agent.providers.json_text import as_dict, as_list

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from collections.abc import Set as AbstractSet

    from micdrop_agent.testing._tape import Recording, RequestSeen

__all__ = ["best_match", "explain"]

_MOST_LINES: Final = 60


def best_match(
    recordings: Sequence[Recording],
    request: RequestSeen,
    played: AbstractSet[int],
    match: Callable[[RequestSeen, RequestSeen], bool] | None,
    *,
    disturbed: bool,
) -> int | None:
    """The number of the recording that answers ``request``, from 0; ``None`` if there is none.

    Args:
        recordings: All of them.
        request: What is asked.
        played: Those that have answered in this run.
        match: The user's own comparison.
        disturbed: The run was interrupted: then the nearest one must do, and may answer again.
    """
    body = request.canonical
    near = [number for number, one in enumerate(recordings) if _same_place(one.request, request)]
    same = [number for number in near if recordings[number].request.canonical == body]
    if match is not None:
        same += [number for number in near if number not in same and match(recordings[number].request, request)]
    left = [number for number in same if number not in played]
    # Two children of a fallback may be asked the same: each has its own server.
    here = [number for number in left if recordings[number].request.host == request.host]
    known = any(one.request.host == request.host for one in recordings)
    if here or (left and not known):
        return (here or left)[0]
    if not disturbed:
        return None
    at_host = [number for number in near if recordings[number].request.host == request.host]
    return min(at_host or near, key=lambda number: _distance(recordings[number].request, request), default=None)


def _same_place(one: RequestSeen, other: RequestSeen) -> bool:
    return (one.method, one.path) == (other.method, other.path)


def _distance(one: RequestSeen, other: RequestSeen) -> tuple[int, int]:
    """How far two requests are from each other: first what was said last, then all the rest."""
    ours, theirs = one.leaves, other.leaves
    shared = set(ours) & set(theirs)
    return int(ours[-1:] != theirs[-1:]) + int(_last(one) != _last(other)), len(ours) + len(theirs) - 2 * len(shared)


def _last(request: RequestSeen) -> Any:
    """The last message of a request to a model."""
    body = as_dict(request.json)
    messages: Any = body.get("messages", body.get("input", body.get("contents")))
    return as_list(messages)[-1] if as_list(messages) else messages


def explain(path: str, recordings: Sequence[Recording], request: RequestSeen, played: AbstractSet[int]) -> str:
    """The message for a request that nothing answers: the nearest recording, and how the bodies differ."""
    asked = f"{request.method} {request.path} at {request.host}"
    if not recordings:
        return f"{path} has no recordings, so nothing answers {asked}; record it with --cassette-mode=record"
    same = [
        number
        for number, one in enumerate(recordings)
        if _same_place(one.request, request) and one.request.canonical == request.canonical
    ]
    if same and all(number in played for number in same):
        return (
            f"{path} has {len(same)} recorded answers to {asked}, and this test has had them all; "
            "record it again if it now asks more often"
        )
    number = min(
        range(len(recordings)),
        key=lambda at: (not _same_place(recordings[at].request, request), _distance(recordings[at].request, request)),
    )
    nearest = recordings[number].request
    told = [
        f"nothing in {path} answers {asked}",
        f"the nearest is request {number + 1} (line {recordings[number].line})",
    ]
    if not _same_place(nearest, request):
        told.append(f"that is {nearest.method} {nearest.path}")
    diff = list(difflib.unified_diff(_shown(nearest), _shown(request), "recorded", "sent", lineterm="", n=2))
    if len(diff) > _MOST_LINES:
        diff = [*diff[:_MOST_LINES], f"… {len(diff) - _MOST_LINES} more lines"]
    told += diff or ["the bodies are equal"]
    told.append("record it again with --cassette-mode=record, or say with match= what may differ")
    return "\n".join(told)


def _shown(request: RequestSeen) -> list[str]:
    body = request.json
    if body is None:
        return request.canonical.splitlines()
    return json.dumps(body, indent=1, sort_keys=True, ensure_ascii=False).splitlines()
