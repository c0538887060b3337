"""Reads the file of a cassette, and says clearly what is wrong with one that cannot be read. No I/O."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any, Final, cast

from micdrop_agent.testing._tape import FORMAT, CassetteError, Recording, RefusedConnection, RequestSeen, Tape

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["load"]

_ENDS: Final = frozenset({"complete", "closed", "reset", "client left"})
_CONFLICT: Final = ("<<<<<<<", "=======", ">>>>>>>", "|||||||")


def load(text: str, name: str) -> Tape:
    """Read a file.

    Args:
        text: All of it.
        name: Its name, for messages.

    Raises:
        CassetteError: It is of a newer format, was cut, has a merge conflict in it, or is not a cassette.
    """
    return _Reader(name).read(text)


class _Reader:
    def __init__(self, name: str) -> None:
        self._name = name
        self._number = 0
        self._tape = Tape()
        self._counted: int | None = None
        self._members: dict[str, Callable[[dict[str, Any]], None]] = {
            "no_connection": self._no_connection,
            "request": self._request,
            "response": self._response,
            "body": self._body,
            "end": self._end,
            "end_of_cassette": self._end_of_cassette,
        }

    def read(self, text: str) -> Tape:
        lines = text.split("\n")
        if lines[-1]:
            self._conflict(lines[-1])
            raise self._wrong("the file ends in the middle of a line: it was cut", len(lines))
        for self._number, line in enumerate(lines[:-1], 1):
            self._conflict(line)
            if self._counted is not None:
                raise self._wrong("there is something after the last line")
            self._line(self._decoded(line))
        if self._counted is None:
            raise self._wrong("the last line is missing: the file was cut")
        if self._counted != len(self._tape.recordings):
            raise self._wrong(f"{len(self._tape.recordings)} requests are in the file, {self._counted} were recorded")
        return self._tape

    def _wrong(self, what: str, number: int | None = None) -> CassetteError:
        again = "; record it again, or take it from version control"
        return CassetteError(f"{self._name}, line {number or self._number}: {what}{again}")

    def _conflict(self, line: str) -> None:
        if line.startswith(_CONFLICT):
            raise self._wrong("a merge conflict is in the file")

    def _decoded(self, line: str) -> dict[str, Any]:
        try:
            value = json.loads(line)
        except ValueError:
            raise self._wrong("this is not JSON") from None
        if not isinstance(value, dict):
            raise self._wrong("this is not a JSON object")
        return cast("dict[str, Any]", value)

    def _line(self, line: dict[str, Any]) -> None:
        if self._number == 1:
            self._version(line)
            return
        member = self._members.get(next(iter(line), ""))
        if member is None:
            raise self._wrong(f"unknown line {next(iter(line), '')!r}")
        try:
            member(line)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise self._wrong(f"a member is missing or wrong: {error}") from None

    def _version(self, line: dict[str, Any]) -> None:
        version = line.get("micdrop_cassette")
        if not isinstance(version, int):
            raise self._wrong("this is not a cassette")
        if version > FORMAT:
            raise CassetteError(
                f"{self._name} has format {version}; this version of micdrop_agent reads up to {FORMAT}. "
                "Install a newer micdrop_agent."
            )

    def _no_connection(self, line: dict[str, Any]) -> None:
        one = RefusedConnection(str(line["host"]), int(line["attempt"]), str(line["no_connection"]), str(line["words"]))
        self._tape.refused.append(one)

    def _request(self, line: dict[str, Any]) -> None:
        if line["request"] != len(self._tape.recordings) + 1:
            raise ValueError(f"request {line['request']} is out of order")
        body = _packed(line["json"]) if "json" in line else _data(line)
        headers = {str(name): str(value) for name, value in line["headers"].items()}
        seen = RequestSeen(str(line["method"]), str(line["host"]), str(line["path"]), headers, body)
        self._tape.recordings.append(Recording(seen, line=self._number))

    def _of(self, number: object) -> Recording:
        if number != len(self._tape.recordings) or not self._tape.recordings:
            raise ValueError(f"it belongs to request {number}, which is not the one above")
        return self._tape.recordings[-1]

    def _response(self, line: dict[str, Any]) -> None:
        recording = self._of(line["response"])
        recording.status, recording.head_at = int(line["status"]), float(line["at"])
        recording.headers = [(str(name), str(value)) for name, value in line["headers"]]

    def _body(self, line: dict[str, Any]) -> None:
        self._of(line["body"]).body.append((float(line["at"]), _data(line)))

    def _end(self, line: dict[str, Any]) -> None:
        recording = self._of(line["end"])
        if line["how"] not in _ENDS:
            raise ValueError(f"unknown end {line['how']!r}")
        recording.end, recording.end_at = line["how"], float(line["at"])

    def _end_of_cassette(self, line: dict[str, Any]) -> None:
        self._counted = int(line["end_of_cassette"])


def _packed(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _data(line: dict[str, Any]) -> bytes:
    if "text" in line:
        return str(line["text"]).encode()
    return base64.b64decode(line["base64"], validate=True)
