"""How Claude and Gemini write a streamed answer, as event-stream bytes; pure."""

from __future__ import annotations

import json
from typing import Any, Final

from micdrop_agent.testing._writers import ReplyWriter, event

__all__ = ["ClaudeWriter", "GeminiWriter"]

_CLAUDES: Final = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}
_GEMINIS: Final = {"stop": "STOP", "length": "MAX_TOKENS", "tool_calls": "STOP", "content_filter": "SAFETY"}


class ClaudeWriter(ReplyWriter):
    """Events of Anthropic's Messages API."""

    def __init__(self) -> None:
        self._index = -1
        self._open = ""
        self._called = False
        self._begun = False

    def _say(self, kind: str, **members: Any) -> bytes:
        return event({"type": kind, **members}, kind)

    def _begin(self) -> bytes:
        if self._begun:
            return b""
        self._begun = True
        message: dict[str, Any] = {"id": "msg_1", "type": "message", "role": "assistant", "content": []}
        usage = {"input_tokens": 10, "cache_read_input_tokens": 4, "output_tokens": 1}
        return self._say("message_start", message={**message, "usage": usage}) + self._say("ping")

    def block(self, kind: str, **members: Any) -> bytes:
        """The head of a block; it ends where the next one begins."""
        head = self._begin() + self._end_block()
        self._index += 1
        self._open = kind
        return head + self._say("content_block_start", index=self._index, content_block={"type": kind, **members})

    def _end_block(self) -> bytes:
        if not self._open:
            return b""
        self._open = ""
        return self._say("content_block_stop", index=self._index)

    def _delta(self, kind: str, **members: Any) -> bytes:
        return self._say("content_block_delta", index=self._index, delta={"type": kind, **members})

    def text(self, text: str) -> bytes:
        """A piece of text, with the head of its block if it is the first."""
        head = b"" if self._open == "text" else self.block("text", text="")
        return head + self._delta("text_delta", text=text)

    def text_done(self) -> bytes:
        """The end of the block."""
        return self._end_block()

    def thought(self, text: str, signature: str) -> bytes:
        """A block of thinking, complete."""
        head = self.block("thinking", thinking="", signature="")
        deltas = self._delta("thinking_delta", thinking=text) + self._delta("signature_delta", signature=signature)
        return head + deltas + self._end_block()

    def calls(self, calls: list[tuple[str, str, Any]], content: str | None = None) -> bytes:
        """A block for each call, its arguments in two pieces."""
        out = self.text(content) if content else b""
        for call_id, name, arguments in calls:
            text = arguments if isinstance(arguments, str) else json.dumps(arguments)
            out += self.call_begun(call_id, name, text[:1])
            out += self._delta("input_json_delta", partial_json=text[1:]) + self._end_block()
        return out

    def call_begun(self, call_id: str, name: str, arguments: str) -> bytes:
        """The head of a call."""
        self._called = True
        head = self.block("tool_use", id=call_id, name=name, input={})
        return head + self._delta("input_json_delta", partial_json=arguments)

    def error(self, message: str) -> bytes:
        """An error event."""
        return self._say("error", error={"type": "api_error", "message": message})

    def done(self, finish: str | None = None) -> bytes:
        """The end of the last block, the reason, and ``message_stop``."""
        reason = finish or ("tool_calls" if self._called else "stop")
        delta = {"stop_reason": _CLAUDES.get(reason, reason), "stop_sequence": None}
        head = self._begin() + self._end_block()
        return head + self._say("message_delta", delta=delta, usage={"output_tokens": 7}) + self._say("message_stop")


class GeminiWriter(ReplyWriter):
    """Chunks of Gemini's ``streamGenerateContent``."""

    def __init__(self) -> None:
        self._finished = False

    def parts(self, parts: list[dict[str, Any]], finish: str | None = None) -> bytes:
        """A chunk with these parts."""
        candidate: dict[str, Any] = {"content": {"role": "model", "parts": parts}, "index": 0}
        if finish is not None:
            self._finished = True
            candidate["finishReason"] = finish
        usage = {"promptTokenCount": 10, "candidatesTokenCount": 7, "thoughtsTokenCount": 3}
        return event({"candidates": [candidate], "usageMetadata": usage, "modelVersion": "m"})

    def text(self, text: str) -> bytes:
        """A chunk with text."""
        return self.parts([{"text": text}])

    def calls(self, calls: list[tuple[str, str, Any]], content: str | None = None) -> bytes:
        """One chunk with all calls."""
        parts: list[dict[str, Any]] = [{"text": content}] if content else []
        for call_id, name, arguments in calls:
            value = json.loads(arguments) if isinstance(arguments, str) else arguments
            parts.append({"functionCall": {"id": call_id, "name": name, "args": value}})
        return self.parts(parts)

    def raw(self, delta: dict[str, Any], finish: str | None = None) -> bytes:
        """A chunk with ``delta`` as its only part."""
        return self.parts([delta], finish)

    def error(self, message: str) -> bytes:
        """An error object in the place of a chunk."""
        return event({"error": {"code": 500, "message": message, "status": "INTERNAL"}})

    def done(self, finish: str | None = None) -> bytes:
        """A last chunk with the finish reason, unless it was sent."""
        return b"" if self._finished else self.parts([], _GEMINIS.get(finish or "stop", finish))
