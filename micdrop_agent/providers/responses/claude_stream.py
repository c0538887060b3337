"""Reads a stream of Anthropic's Messages API; no I/O.

    message_start ──▶ content_block_start, …_delta, …_stop (one block after the other) ──▶ message_delta, message_stop

Text is spoken. Thoughts are not: with their signatures they are kept for the next requests, next to the call that
they led to. A tool call is complete when its block ends, unless the response was cut by its token limit.

Source: https://docs.claude.com/en/docs/build-with-claude/streaming, /docs/build-with-claude/extended-thinking.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from micdrop_agent.model.call_ids import new_call_id
from micdrop_agent.model.protocol import PROGRESS, TEXT_DONE, CallReady, Finish, Usage
from micdrop_agent.providers.json_text import (
    arguments_object,
    as_dict,
    as_list,
    encode_loosely,
    is_list,
    normal_arguments,
    normal_name,
    whole_letters,
)
from micdrop_agent.providers.requests.claude_dialect import THINKING
from micdrop_agent.providers.responses.call_assembler import MAX_ARGUMENT_CHARS, MAX_CALLS
from micdrop_agent.providers.responses.translator import Translator, is_end_mark
from micdrop_agent.text import ThinkFilter

if TYPE_CHECKING:
    from collections.abc import Callable

    from micdrop_agent.model.protocol import FinishReason
    from micdrop_agent.providers.attachments import Attachments

__all__ = ["ClaudeTranslator"]

_REASONS: Final[dict[str, FinishReason]] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}

_THOUGHTS: Final = frozenset({"thinking", "redacted_thinking"})


class ClaudeTranslator(Translator):
    """The translation of one response of the Messages API.

    Args:
        provider: Name of the provider, for errors.
        secret: The key in use, kept out of errors.
        attachments: Remembers the thoughts that the server wants back.
    """

    __slots__ = (
        "_attachments",
        "_block",
        "_calls",
        "_chars",
        "_counts",
        "_pieces",
        "_response",
        "_think",
        "_thoughts",
        "_told",
        "_waiting",
    )

    def __init__(self, provider: str, secret: str | None = None, *, attachments: Attachments | None = None) -> None:
        super().__init__(provider, secret)
        self._attachments = attachments
        self._response = 0 if attachments is None else attachments.next_response()
        self._block: dict[str, Any] = {}
        """The block that is open."""
        self._pieces: list[str] = []
        self._chars = 0
        self._thoughts: list[dict[str, Any]] = []
        """Blocks of thinking that no call has taken along yet."""
        self._waiting: list[CallReady] = []
        """Calls whose arguments cannot be read: a fault of the model, or a cut."""
        self._calls = 0
        self._counts: dict[str, Any] = {}
        self._told = Usage()
        self._think = ThinkFilter(pass_calls=True)

    def _data(self, event: bytes) -> None:
        event = self.unwrap(event)
        if is_end_mark(event):
            self._message_stop({})
            return
        if self.skip(event):
            return
        value = self.decode_event(event)
        if self.is_error(value):
            self.error_from(value)
            return
        handler = self._HANDLERS.get(str(value.get("type")))
        if handler is not None:
            handler(self, value)

    def _end(self) -> None:
        if self.finishing:
            self.done = True
        else:
            self.cut_off("message_stop")

    def _whole(self, body: dict[str, Any]) -> bool:
        if not is_list(body.get("content")):
            return False
        self._message_start({"message": body})
        for block in as_list(body["content"]):
            self._block_start({"content_block": block})
            self._block_stop({})
        self._message_delta({"delta": body})
        if self.failure is None:
            self._message_stop({})
        return True

    # Blocks

    def _message_start(self, value: dict[str, Any]) -> None:
        self._count(as_dict(value.get("message")).get("usage"))

    def _block_start(self, value: dict[str, Any]) -> None:
        if self._block:
            self._block_stop({})  # its end was left out
        self._block, self._pieces = dict(as_dict(value.get("content_block"))), []
        kind = self._block.get("type")
        if kind == "text":
            self._say(self._block.get("text"))
        elif kind == "tool_use":
            self.events.append(PROGRESS)

    def _block_delta(self, value: dict[str, Any]) -> None:
        delta = as_dict(value.get("delta"))
        kind = delta.get("type")
        if kind == "text_delta":
            self._say(delta.get("text"))
        elif kind == "input_json_delta":
            self.events.append(PROGRESS)
            self._add(delta.get("partial_json"))
        elif kind in {"thinking_delta", "signature_delta"}:
            name = "thinking" if kind == "thinking_delta" else "signature"
            self._block[name] = str(self._block.get(name) or "") + str(delta.get(name) or "")

    def _add(self, piece: object) -> None:
        if isinstance(piece, str) and piece:
            self._chars += len(piece)
            self._pieces.append(piece)
            if self._chars > MAX_ARGUMENT_CHARS:
                self.fail("protocol", f"wrote more than {MAX_ARGUMENT_CHARS:,} characters of tool arguments")

    def _block_stop(self, value: dict[str, Any]) -> None:
        del value
        block, self._block = self._block, {}
        kind = block.get("type")
        if kind == "text":
            self._end_text()
        elif kind == "tool_use":
            self._call(block)
        elif kind in _THOUGHTS and (block.get("signature") or block.get("data")):
            self._thoughts.append(block)

    def _say(self, text: object) -> None:
        if not isinstance(text, str) or not text:
            return
        spoken = self._think.feed(self.letters(text))
        if spoken:
            self.events.append(spoken)
            self.said = True

    def _end_text(self) -> None:
        rest = self._think.finish()
        self._think = ThinkFilter(pass_calls=True)
        if rest:
            self.events.append(rest)
            self.said = True
        if self.said:
            self.events.append(TEXT_DONE)

    def _call(self, block: dict[str, Any]) -> None:
        name = block.get("name")
        if not isinstance(name, str) or not name:
            return
        self._calls += 1
        if self._calls > MAX_CALLS:
            self.fail("protocol", f"called more than {MAX_CALLS} tools in one response")
            return
        # Servers that copy this API give the arguments at once.
        text = "".join(self._pieces) or (encode_loosely(block["input"]) if block.get("input") else "{}")
        arguments = normal_arguments(whole_letters(text))
        call = CallReady(str(block.get("id") or new_call_id()), normal_name(name), arguments)
        if self._attachments is not None:
            thoughts, self._thoughts = self._thoughts, []
            self._attachments.keep(call, self._response, {THINKING: thoughts} if thoughts else {}, grouped=True)
        if arguments_object(arguments) is None:
            self._waiting.append(call)
        else:
            self.events.append(call)

    # The end

    def _message_delta(self, value: dict[str, Any]) -> None:
        self._count(value.get("usage"))
        raw = as_dict(value.get("delta")).get("stop_reason")
        if not isinstance(raw, str) or self.finishing:
            return
        reason = _REASONS.get(raw, "other")
        if reason == "content_filter":
            self._tell_usage()
            self.fail("content_filter", f"stopped the answer with a content filter ({raw})")
            return
        if self._block:
            if reason == "length" and self._block.get("type") == "tool_use":
                self._block = {}  # cut: running it would be a guess
            self._block_stop({})
        if reason != "length":
            self.events += self._waiting  # the model's own fault: the tool says so
        self._waiting = []
        self._tell_usage()
        self.finishing = True
        self.events.append(Finish(reason, raw))

    def _message_stop(self, value: dict[str, Any]) -> None:
        del value
        if not self.finishing:
            self._message_delta({"delta": {"stop_reason": "tool_use" if self._calls else "end_turn"}})
        self._tell_usage()
        self.done = True

    def _count(self, usage: object) -> None:
        """Figures are counted on: each event has the latest of those that changed."""
        self._counts |= {name: value for name, value in as_dict(usage).items() if value is not None}

    def _tell_usage(self) -> None:
        usage = _usage(self._counts)
        if usage != self._told:
            self.events.append(usage - self._told)
            self._told = usage

    _HANDLERS: ClassVar[dict[str, Callable[[ClaudeTranslator, dict[str, Any]], None]]] = {
        "message_start": _message_start,
        "content_block_start": _block_start,
        "content_block_delta": _block_delta,
        "content_block_stop": _block_stop,
        "message_delta": _message_delta,
        "message_stop": _message_stop,
    }


def _usage(counts: dict[str, Any]) -> Usage:
    """What was read from the cache and written to it counts as input, as with other providers."""
    cached = _number(counts.get("cache_read_input_tokens"))
    parts = [cached, _number(counts.get("input_tokens")), _number(counts.get("cache_creation_input_tokens"))]
    known = [part for part in parts if part is not None]
    return Usage(
        input_tokens=sum(known) if known else None,
        output_tokens=_number(counts.get("output_tokens")),
        cached_tokens=cached,
        reasoning_tokens=_number(as_dict(counts.get("output_tokens_details")).get("thinking_tokens")),
    )


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
