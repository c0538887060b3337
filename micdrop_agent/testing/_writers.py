"""How model servers write a streamed answer: Chat Completions and the Responses API, as event-stream bytes.

Pure: each method returns the bytes to send next, and an object lives for one response.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from typing import Any


class ReplyWriter(ABC):
    """One response in the making; what most servers have in common is written here."""

    @abstractmethod
    def text(self, text: str) -> bytes:
        """A piece of the answer's text."""

    @abstractmethod
    def calls(self, calls: list[tuple[str, str, Any]], content: str | None = None) -> bytes:
        """Complete tool calls (id, name, arguments), sent together."""

    @abstractmethod
    def error(self, message: str) -> bytes:
        """An error inside the stream."""

    @abstractmethod
    def done(self, finish: str | None = None) -> bytes:
        """The proper end."""

    def text_done(self) -> bytes:
        """The text of the present output message is complete, where the server says so."""
        return b""

    def call_begun(self, call_id: str, name: str, arguments: str) -> bytes:
        """The beginning of a tool call that never gets complete."""
        raise ValueError(f"this server sends no beginning of a call ({call_id}, {name}, {arguments})")

    def refusal(self, text: str) -> bytes:
        """A refusal; plain words where the server has no other."""
        return self.text(text)

    def raw(self, delta: dict[str, Any], finish: str | None = None) -> bytes:
        """A delta as it is."""
        raise ValueError(f"this server has no raw delta ({delta!r}, {finish!r})")

    def failed(self, message: str) -> bytes:
        """The response failed; an error where the server makes no difference."""
        return self.error(message)

    def incomplete(self, reason: str) -> bytes:
        """The response ends early for ``reason``."""
        return self.done("length" if reason == "max_output_tokens" else reason)


def event(data: Any, name: str | None = None) -> bytes:
    """A server-sent event with ``data`` as JSON."""
    head = f"event: {name}\n" if name else ""
    try:
        return f"{head}data: {json.dumps(data, ensure_ascii=False)}\n\n".encode()
    except UnicodeEncodeError:  # half of a character, as servers that count UTF-16 send it
        return f"{head}data: {json.dumps(data)}\n\n".encode()


class ChatWriter(ReplyWriter):
    """Chat Completions chunks, as OpenAI, Mistral and the many compatible servers write them."""

    def __init__(self) -> None:
        self._calls = 0
        self._finished = False

    def raw(self, delta: dict[str, Any], finish: str | None = None) -> bytes:
        """A chunk with this delta."""
        self._finished = self._finished or finish is not None
        self._calls += len(delta.get("tool_calls") or ())
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return event(
            {"id": "cmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
        )

    def text(self, text: str) -> bytes:
        """A chunk with content."""
        return self.raw({"content": text})

    def calls(self, calls: list[tuple[str, str, Any]], content: str | None = None) -> bytes:
        """One chunk with all calls, as Mistral sends them."""
        entries = [
            {
                "index": self._calls + place,
                "id": call_id,
                "type": "function",
                "function": {"name": name, "arguments": arguments},
            }
            for place, (call_id, name, arguments) in enumerate(calls)
        ]
        return self.raw({"content": content, "tool_calls": entries})

    def call_begun(self, call_id: str, name: str, arguments: str) -> bytes:
        """A chunk with the head of a call."""
        return self.calls([(call_id, name, arguments)])

    def refusal(self, text: str) -> bytes:
        """A chunk with a refusal."""
        return self.raw({"refusal": text})

    def error(self, message: str) -> bytes:
        """An error object in the place of a chunk."""
        return event({"error": {"message": message, "type": "server_error", "code": 500}})

    def done(self, finish: str | None = None) -> bytes:
        """The finish reason, unless it was sent, and ``[DONE]``."""
        last = b"" if self._finished else self.raw({}, finish or ("tool_calls" if self._calls else "stop"))
        return last + b"data: [DONE]\n\n"


class ResponsesWriter(ReplyWriter):
    """Events of the Responses API."""

    def __init__(self) -> None:
        self._sequence = 0
        self._index = 0
        self._text: str | None = None
        self._begun = False

    def _say(self, kind: str, **members: Any) -> bytes:
        data = {"type": kind, "sequence_number": self._sequence, **members}
        self._sequence += 1
        return event(data, kind)

    def _begin(self) -> bytes:
        if self._begun:
            return b""
        self._begun = True
        return self._say("response.created", response={"id": "resp_1", "status": "in_progress", "output": []})

    def _item(self, text: str | None) -> dict[str, Any]:
        content: list[dict[str, Any]] = (
            [] if text is None else [{"type": "output_text", "text": text, "annotations": []}]
        )
        status = "in_progress" if text is None else "completed"
        return {
            "id": f"msg_{self._index}",
            "type": "message",
            "role": "assistant",
            "status": status,
            "content": content,
        }

    def _part(self, kind: str, **members: Any) -> bytes:
        return self._say(kind, output_index=self._index, item_id=f"msg_{self._index}", content_index=0, **members)

    def _open_text(self) -> bytes:
        if self._text is not None:
            return b""
        self._text = ""
        return self._begin() + (
            self._say("response.output_item.added", output_index=self._index, item=self._item(None))
            + self._part("response.content_part.added", part={"type": "output_text", "text": "", "annotations": []})
        )

    def text(self, text: str) -> bytes:
        """A text delta, with the head of its message if it is the first."""
        head = self._open_text()
        self._text = (self._text or "") + text
        return head + self._part("response.output_text.delta", delta=text)

    def text_done(self) -> bytes:
        """The three events that end an output message."""
        if self._text is None:
            return b""
        text, self._text = self._text, None
        part: dict[str, Any] = {"type": "output_text", "text": text, "annotations": []}
        tail = (
            self._part("response.output_text.done", text=text)
            + self._part("response.content_part.done", part=part)
            + self._say("response.output_item.done", output_index=self._index, item=self._item(text))
        )
        self._index += 1
        return tail

    def refusal(self, text: str) -> bytes:
        """A refusal delta and its end."""
        head = self._open_text()
        self._text = None
        part = {"type": "refusal", "refusal": text}
        item = {**self._item(""), "content": [part]}
        tail = (
            self._part("response.refusal.delta", delta=text)
            + self._part("response.refusal.done", refusal=text)
            + self._say("response.output_item.done", output_index=self._index, item=item)
        )
        self._index += 1
        return head + tail

    def call_begun(self, call_id: str, name: str, arguments: str) -> bytes:
        """A function call item with the first of its arguments."""
        item = self._call(call_id, name, "", "in_progress")
        return (
            self.text_done()
            + self._begin()
            + self._say("response.output_item.added", output_index=self._index, item=item)
            + self._say(
                "response.function_call_arguments.delta",
                output_index=self._index,
                item_id=f"fc_{self._index}",
                delta=arguments,
            )
        )

    def _call(self, call_id: str, name: str, arguments: str, status: str) -> dict[str, Any]:
        return {
            "id": f"fc_{self._index}",
            "type": "function_call",
            "status": status,
            "call_id": call_id,
            "name": name,
            "arguments": arguments,
        }

    def calls(self, calls: list[tuple[str, str, Any]], content: str | None = None) -> bytes:
        """One function call item after the other."""
        out = self.text(content) if content else b""
        for call_id, name, arguments in calls:
            text = arguments if isinstance(arguments, str) else json.dumps(arguments)
            out += self.call_begun(call_id, name, text)
            out += self._say(
                "response.function_call_arguments.done",
                output_index=self._index,
                item_id=f"fc_{self._index}",
                arguments=text,
            )
            item = self._call(call_id, name, text, "completed")
            out += self._say("response.output_item.done", output_index=self._index, item=item)
            self._index += 1
        return out

    def error(self, message: str) -> bytes:
        """An error event."""
        return self._begin() + self._say("error", message=message, code="server_error", param=None)

    def failed(self, message: str) -> bytes:
        """``response.failed`` with an error."""
        error = {"code": "server_error", "message": message}
        response: dict[str, Any] = {"id": "resp_1", "status": "failed", "output": [], "error": error}
        return self._begin() + self._say("response.failed", response=response)

    def incomplete(self, reason: str) -> bytes:
        """``response.incomplete`` with its reason."""
        response: dict[str, Any] = {
            "id": "resp_1",
            "status": "incomplete",
            "output": [],
            "incomplete_details": {"reason": reason},
        }
        return self._begin() + self._say("response.incomplete", response=response)

    def done(self, finish: str | None = None) -> bytes:
        """``response.completed``; a finish reason of ``length`` or ``content_filter`` makes it incomplete."""
        head = self._begin() + self.text_done()
        if finish in {"length", "content_filter"}:
            return head + self.incomplete("max_output_tokens" if finish == "length" else "content_filter")
        return head + self._say("response.completed", response={"id": "resp_1", "status": "completed", "output": []})


def writer_of(path: str) -> ReplyWriter:
    """The dialect that an endpoint speaks, by its path."""
    end = path.partition("?")[0]
    if end.endswith("/responses"):
        return ResponsesWriter()
    if end.endswith(("/messages", ":streamGenerateContent")):
        from micdrop_agent.testing._block_writers import ClaudeWriter, GeminiWriter

        return ClaudeWriter() if end.endswith("/messages") else GeminiWriter()
    return ChatWriter()


def may_call(body: dict[str, Any]) -> bool:
    """Whether a request offers tools, and does not forbid to call them."""
    choice: Any = body.get("tool_choice")
    forbids = choice in ("none", {"type": "none"})
    mode: Any = body.get("toolConfig", {}).get("functionCallingConfig", {}).get("mode")
    return bool(body.get("tools")) and not forbids and mode != "NONE"
