"""Compares what one run of a call showed with what a vector of the server expects.

Frames to the client, the close code and the conversation; of the timeline what a client can see, which is how its
own frames and ours follow each other, and what the voice was told to say. An expectation that is not known fails.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from vector_ops import UnknownOperationError

if TYPE_CHECKING:
    from server_run import ServerTrace

_VISIBLE = {"from_client", "from_client_binary", "from_client_audio_bytes", "to_client", "to_client_audio_bytes"}
"""Entries of a timeline that a client can see."""

_KNOWN_ENTRIES = _VISIBLE | {
    "stt",
    "stt_audio_bytes",
    "stt_transcript",
    "agent",
    "agent_event",
    "tts",
    "tts_text",
    "server_event",
    "bytes",
    "conversation",
    "duration",
    "client",
    "step",
    "gate",
    "params",
    "handle_error",
    "request",
    "child",
    "tool",
    "input",
    "event",
    "payload",
    "write",
    "text",
}


class ServerChecker:
    """Collects every difference."""

    def __init__(self, vector: dict[str, Any], trace: ServerTrace) -> None:
        self.trace = trace
        self.expected: dict[str, Any] = vector["expected"]
        self.right: dict[str, Any] = vector.get("right", {}).get("expected", {})
        self.keep = vector["verdict"] == "keep"
        self.problems: list[str] = []
        self.not_checked: list[str] = []

    def run(self) -> list[str]:
        """All differences."""
        members = {**self.expected, **self.right}
        if not self.keep and self.right:
            # What follows from the change: the order of frames, and with predicates the frames themselves.
            members.pop("timeline", None)
            if any(name.startswith(("frames_", "no_frame")) and name != "frames_to_client" for name in self.right):
                members.pop("frames_to_client", None)
            members = {**members, **self.right}
        for name, wanted in members.items():
            check = getattr(self, f"_check_{name}", None)
            if check is not None:
                check(wanted)
            elif isinstance(wanted, str) and " " in wanted:
                self.not_checked.append(f"{name}: {wanted}")
            else:
                raise UnknownOperationError(f"member or predicate {name!r} of an expectation")
        self._same("errors of the call", self.trace.problems, [])
        return self.problems

    def _same(self, what: str, seen: Any, wanted: Any) -> None:
        if seen != wanted:
            self.problems.append(f"{what}:\n    seen   {_show(seen)}\n    wanted {_show(wanted)}")

    # -- members

    def _check_frames_to_client(self, wanted: list[dict[str, Any]]) -> None:
        self._same("frames to the client", self._frames, [_frame(frame) for frame in wanted])

    def _check_close(self, wanted: dict[str, Any] | None) -> None:
        self._same("close", self.trace.close, wanted)

    def _check_conversation(self, wanted: list[dict[str, Any]] | None) -> None:
        self._same("conversation", self.trace.conversation, wanted)

    def _check_timeline(self, wanted: list[dict[str, Any]]) -> None:
        for entry in wanted:
            if unknown := set(entry) - _KNOWN_ENTRIES:
                raise UnknownOperationError(f"entries of a timeline: {sorted(unknown)}")
        self._same("what a client sees, in order", _visible(self.trace.timeline), _visible(wanted))
        texts = [entry["tts_text"] for entry in wanted if "tts_text" in entry]
        self._same("texts for the voice", self.trace.tts_texts, texts)
        heard = sum(entry.get("stt_audio_bytes", 0) for entry in wanted)
        seen = sum(entry.get("stt_audio_bytes", 0) for entry in self.trace.timeline)
        self._same("bytes for the speech-to-text", seen, heard)

    # -- predicates

    def _check_tts_speak(self, wanted: int) -> None:
        self._same("starts of the voice", self.trace.spoken, wanted)

    def _check_frames_contain(self, wanted: Any) -> None:
        for frame in wanted if isinstance(wanted, list) else [wanted]:
            self._require(_frame(frame) in self._frames, f"no frame {_show(frame)} in {_show(self._frames)}")

    def _check_frames_last(self, wanted: Any) -> None:
        self._same("last frame", self._frames[-1:], [_frame(wanted)])

    def _check_no_frame_contains(self, wanted: Any) -> None:
        for part in wanted if isinstance(wanted, list) else [wanted]:
            found = [frame for frame in self.trace.frames if isinstance(frame, str) and part in frame]
            self._require(not found, f"{part!r} is in {found}")

    def _check_roles(self, wanted: list[str]) -> None:
        self._same("roles", [item["role"] for item in self.trace.conversation or ()], wanted)

    def _check_conversation_last(self, wanted: dict[str, Any]) -> None:
        self._same("last item", self.trace.conversation[-1] if self.trace.conversation else None, wanted)

    def _check_conversation_contains(self, wanted: dict[str, Any]) -> None:
        self._require(wanted in (self.trace.conversation or []), f"not in the conversation: {wanted}")

    def _check_request_count(self, wanted: int) -> None:
        self._same("requests", self.trace.requests, wanted)

    def _check_process_problems(self, wanted: list[Any]) -> None:
        if self.keep and wanted:
            raise UnknownOperationError("problems of the original's process that are to be kept")

    def _require(self, holds: bool, what: str) -> None:
        if not holds:
            self.problems.append(what)

    @property
    def _frames(self) -> list[Any]:
        return [_frame(frame) for frame in self.trace.frames]


def _frame(frame: Any) -> Any:
    """A frame for comparison: name and payload, or the length of audio."""
    if isinstance(frame, dict):
        return _frame(frame["text"]) if "text" in frame else frame["audio_bytes"]
    if isinstance(frame, bytes):
        return len(frame)
    name, _, payload = frame.partition(" ")
    return (name, json.loads(payload)) if payload else name


def _visible(timeline: list[dict[str, Any]]) -> list[Any]:
    """The entries that a client can see, each as its kind and a frame for comparison."""
    seen: list[Any] = []
    for entry in timeline:
        for kind in _VISIBLE & set(entry):
            value = entry[kind]
            seen.append((kind, _frame(value) if kind == "to_client" else value))
    return seen


def _show(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=repr)
