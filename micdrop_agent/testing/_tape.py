"""The file of a cassette: what was asked and answered, as JSON Lines that a person can read and review.

    {"micdrop_cassette": 1}
    {"request": 1, "method": "POST", "host": "api.example:443", "path": "/v1/chat/completions", "headers": …, "json": …}
    {"response": 1, "at": 0.214, "status": 200, "headers": …}
    {"body": 1, "at": 0.214, "text": "data: …"}
    {"end": 1, "at": 0.611, "how": "complete"}
    {"end_of_cassette": 1}

Nothing in here does I/O. Times are seconds since the request was sent. The last line counts the requests, so
that a file that was cut is noticed.
"""

from __future__ import annotations

import base64
import json
import re
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import attrs

from micdrop_agent.providers.json_text import as_dict, as_list

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = [
    "FORMAT",
    "CassetteError",
    "End",
    "Recording",
    "RefusedConnection",
    "RequestSeen",
    "Tape",
    "UnrecordedRequestError",
    "dump",
]

FORMAT: Final = 1
"""The version of the format that this module writes, and the newest that it reads."""

_BOUNDARY: Final = re.compile(r'^multipart/.*boundary="?([^";]+)')
"""What stands between the parts of a form: another one each time."""

End: TypeAlias = Literal["complete", "closed", "reset", "client left"]
"""How a response ended: as HTTP says, by a closed or a reset connection, or because the client hung up."""


class CassetteError(BaseException):
    """A cassette cannot be read or written; the message says where and what to do.

    Not an ``Exception``, as what ``pytest.fail`` raises is not one either: neither the retries of an agent nor the
    next child of a fallback may hide it.
    """


class UnrecordedRequestError(CassetteError):
    """A request has no recording, or its recording ends too early."""


@attrs.frozen(slots=False)  # what is made of the body is kept: a sweep compares it thousands of times
class RequestSeen:
    """One HTTP request, with everything secret removed.

    Args:
        method: For example ``POST``.
        host: Host and port that the client connected to.
        path: Path and query.
        headers: Names in lower case.
        body: The bytes.
    """

    method: str
    host: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @cached_property
    def json(self) -> Any:
        """The decoded body; ``None`` if it is not JSON."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None

    @cached_property
    def leaves(self) -> list[tuple[str, str]]:
        """The strings and numbers of the body, each with the names above it."""
        return list(_leaves(self.json))

    @cached_property
    def canonical(self) -> str:
        """The body in a form in which the order of keys and white space do not count, nor the boundary of a form."""
        boundary = _BOUNDARY.search(self.headers.get("content-type", ""))
        if boundary is not None:
            return self.body.replace(boundary[1].encode(), b"boundary").decode("utf-8", "backslashreplace")
        try:
            return json.dumps(json.loads(self.body), sort_keys=True, separators=(",", ":"))
        except ValueError:
            return self.body.decode("utf-8", "backslashreplace")


def _leaves(value: Any, place: str = "") -> Iterator[tuple[str, str]]:
    """The strings and numbers of a JSON value, each with the names above it."""
    for name, inner in as_dict(value).items():
        yield from _leaves(inner, f"{place}.{name}")
    for inner in as_list(value):
        yield from _leaves(inner, place)
    if not isinstance(value, dict | list):
        yield place, str(value)


@attrs.define(eq=False)
class Recording:
    """One request and the response to it.

    Args:
        request: What was asked.
        status: HTTP status; ``None`` if the connection ended before there was one.
        headers: Those of the response, names in lower case, in order.
        head_at: When the head of the response came.
        body: When each piece of the body came, and the piece.
        end: How the response ended.
        end_at: When.
        line: Where in the file the request stands.
    """

    request: RequestSeen
    status: int | None = None
    headers: list[tuple[str, str]] = attrs.field(factory=list[tuple[str, str]])
    head_at: float = 0.0
    body: list[tuple[float, bytes]] = attrs.field(factory=list[tuple[float, bytes]])
    end: End = "client left"
    end_at: float = 0.0
    line: int = 0


@attrs.frozen
class RefusedConnection:
    """A connection that could not be opened.

    Args:
        host: Host and port.
        attempt: Which connection to this host it was, from 0.
        error: ``refused``, ``unknown host``, ``tls``, ``unreachable`` or ``no answer``.
        words: What the system said.
    """

    host: str
    attempt: int
    error: str
    words: str


@attrs.define(eq=False)
class Tape:
    """Everything that a cassette holds."""

    recordings: list[Recording] = attrs.field(factory=list[Recording])
    refused: list[RefusedConnection] = attrs.field(factory=list[RefusedConnection])


# ------------------------------------------------------------------------------------------- writing


def dump(tape: Tape) -> str:
    """The text of the file."""
    lines: list[dict[str, Any]] = [{"micdrop_cassette": FORMAT}]
    lines += [{"no_connection": one.error, **_without(attrs.asdict(one), "error")} for one in tape.refused]
    for number, recording in enumerate(tape.recordings, 1):
        lines += _lines_of(number, recording)
    lines.append({"end_of_cassette": len(tape.recordings)})
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


def _without(values: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key != name}


def _lines_of(number: int, recording: Recording) -> Iterable[dict[str, Any]]:
    seen = recording.request
    yield {
        "request": number,
        "method": seen.method,
        "host": seen.host,
        "path": seen.path,
        "headers": dict(seen.headers),
        **_request_body(seen.body),
    }
    if recording.status is not None:
        head = {"status": recording.status, "headers": [list(pair) for pair in recording.headers]}
        yield {"response": number, "at": _rounded(recording.head_at), **head}
    for at, piece in recording.body:
        yield {"body": number, "at": _rounded(at), **_bytes(piece)}
    yield {"end": number, "at": _rounded(recording.end_at), "how": recording.end}


def _rounded(seconds: float) -> float:
    return round(seconds, 6)


def _request_body(body: bytes) -> dict[str, Any]:
    """JSON as JSON where that loses no byte, else text, else base64."""
    try:
        value = json.loads(body)
        if json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() == body:
            return {"json": value}
    except ValueError:
        pass
    return _bytes(body)


def _bytes(data: bytes) -> dict[str, str]:
    try:
        return {"text": data.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
