"""What the translations of all streams share: events out, a failure kept for after them; no I/O.

    SseEvent ──▶ Translator.feed() ──▶ .events, then .failure

A failure never overtakes what came before it in the same network read: the stream hands out
``events`` first and raises ``failure`` at the next call.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final

from micdrop_agent.errors import ProviderError
from micdrop_agent.model.protocol import Usage
from micdrop_agent.providers.failures import hide_secrets, stream_error
from micdrop_agent.providers.json_text import as_dict, as_list, decode, is_dict, is_list, whole_letters
from micdrop_agent.providers.secret_forms import hide_forms

if TYPE_CHECKING:
    from micdrop_agent.errors import FailureKind
    from micdrop_agent.model.protocol import FinishReason, ProviderEvent
    from micdrop_agent.providers.responses.sse import SseEvent

__all__ = ["FAILED_REASONS", "Translator", "finish_reason", "is_end_mark", "parse_usage", "spoken_parts"]


_BEGINS_JSON: Final = frozenset({b"", b"{", b"[", b'"'})


_FIRST_HALF: Final = re.compile("[\ud800-\udbff]")


def is_end_mark(event: bytes) -> bool:
    """Whether an event is ``[DONE]``; some gateways write it with blanks, in small letters, or in quotes."""
    return event.strip(b' \t"').upper() == b"[DONE]"


class Translator(ABC):
    """Turns the server-sent events of one response into provider events.

    Attributes:
        events: What has come out and was not taken yet.
        failure: The error that ended the response, to be raised after ``events``.
        done: The end mark has come; whatever follows is of no interest.
        said: Some text has come out: a retry would say it twice.
        finishing: The model has finished; only usage and the end mark may still follow.
    """

    __slots__ = ("_half", "_noise", "_provider", "_secret", "done", "events", "failure", "finishing", "said")

    def __init__(self, provider: str, secret: str | None = None) -> None:
        self._provider = provider
        self._secret = secret
        self._half = ""
        """The first half of a letter that came in two events."""
        self._noise = ""
        """The last event that was not JSON at all: a keep-alive, or the words of a failure."""
        self.events: list[ProviderEvent] = []
        self.failure: ProviderError | None = None
        self.done = False
        self.said = False
        self.finishing = False

    def feed(self, event: SseEvent) -> None:
        """Take one event. Never raises; after a failure or the end mark it does nothing."""
        if self.done or self.failure is not None:
            return
        try:
            if isinstance(event, tuple):
                self._odd(*event)
            else:
                self._data(event)
        except ProviderError as error:
            self.failure = error

    def end(self) -> None:
        """The body is at its end."""
        if not self.done and self.failure is None:
            self._end()

    def whole(self, body: bytes) -> None:
        """Take a body that is one JSON value, from a server that ignored ``stream``."""
        try:
            value = decode(body)
        except ValueError:
            self.fail("protocol", f"answered with JSON that cannot be read: {self._hide(body)}")
            return
        first = as_dict(as_list(value)[0]) if is_list(value) and value else as_dict(value)
        if self.is_error(first):
            self.failure = stream_error(value, provider=self._provider, secret=self._secret)
            return
        try:
            understood = self._whole(first)
        except ProviderError as error:
            self.failure = error
            return
        if not understood:
            self.fail("protocol", f"answered with JSON that is not a model response: {self._hide(body)}")

    def fail(self, kind: FailureKind, what: str, *, retryable: bool | None = None) -> None:
        """End the response with an error of ours about it."""
        words = hide_forms(what, self._secret)
        self.failure = ProviderError(
            f"{self._provider} {words}", kind=kind, provider=self._provider, retryable=retryable
        )

    @abstractmethod
    def _data(self, event: bytes) -> None:
        """Take the data of an ordinary event."""

    @abstractmethod
    def _end(self) -> None:
        """The body ended without an end mark."""

    @abstractmethod
    def _whole(self, body: dict[str, Any]) -> bool:
        """Take a whole answer; returns whether it is one."""

    @staticmethod
    def is_error(value: dict[str, Any]) -> bool:
        """Whether an object says that something failed, in any provider's way."""
        return bool(value.get("error")) or value.get("object") == "error" or value.get("type") == "error"

    def error_from(self, value: object) -> None:
        """End the response with the error that the provider reported."""
        self.failure = stream_error(value, provider=self._provider, secret=self._secret)

    def letters(self, text: str) -> str:
        """``text`` in whole letters: the half of one waits for its other half.

        Servers that count in UTF-16 cut emoji in two. No half can be spoken, stored or sent.
        """
        if self._half:
            text, self._half = self._half + text, ""
        elif text.isascii():
            return text
        if _FIRST_HALF.match(text[-1:]):
            text, self._half = text[:-1], text[-1]
        return whole_letters(text)

    def cut_off(self, what: str) -> None:
        """End the response as one that stopped before its end, without ``what``."""
        noise = f"; its last event that was not JSON: {self._noise}" if self._noise else ""
        # Cut before a word, as a connection that breaks there: it may be asked for again.
        self.fail("truncated", f"ended its response without {what}: it was cut off{noise}", retryable=not self.said)

    def unwrap(self, event: bytes) -> bytes:
        """An event without a second ``data:`` in front, which a proxy adds that frames what is framed already."""
        inner = event.lstrip()
        return inner.removeprefix(b"data:").strip() if inner.startswith(b"data:") else event

    def skip(self, event: bytes) -> bool:
        """Whether an event is a bare word, such as ``ping``: gateways send some as keep-alives.

        JSON that is damaged begins like JSON, and is not skipped. What was skipped is reported if the
        response then ends too early.
        """
        if event.lstrip()[:1] in _BEGINS_JSON:
            return False
        self._noise = self._hide(event)
        return True

    def decode_event(self, event: bytes) -> dict[str, Any]:
        """The object of an event; empty for any other JSON value.

        Raises:
            ProviderError: It is not JSON (kind ``protocol``).
        """
        try:
            value = decode(event)
        except ValueError:
            # Damaged on the way; the same request may well come through next time.
            raise ProviderError(
                f"{self._provider} sent an event that is not JSON: {self._hide(event)}",
                kind="protocol",
                provider=self._provider,
                retryable=True,
            ) from None
        return as_dict(as_list(value)[0]) if is_list(value) and value else as_dict(value)

    def _odd(self, name: bytes, payload: bytes) -> None:
        """An event named ``error``, or a line of JSON among the events."""
        try:
            value = decode(payload)
        except ValueError:
            value = payload.decode("utf-8", "replace")
        if name == b"error" or (is_dict(value) and self.is_error(value)):
            self.error_from(value)

    def _hide(self, body: bytes) -> str:
        return hide_secrets(body[:2000].decode("utf-8", "replace"), self._secret)


_REASONS: Final[dict[str, FinishReason]] = {
    "stop": "stop",
    "eos": "stop",
    "eos_token": "stop",
    "end_turn": "stop",
    "completed": "stop",
    "length": "length",
    "max_tokens": "length",
    "max_output_tokens": "length",
    "model_length": "length",
    "tool_calls": "tool_calls",
    "tool_use": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
    "safety": "content_filter",
    "sensitive": "content_filter",  # Zhipu
    "prohibited_content": "content_filter",
    "blocklist": "content_filter",
    "recitation": "content_filter",
}


FAILED_REASONS: Final[dict[str, FailureKind]] = {
    "error": "server",
    "abort": "server",  # vLLM, SGLang
    "aborted": "server",
    "cancelled": "server",
    "canceled": "server",
    "network_error": "server",  # Zhipu
    "insufficient_system_resource": "overloaded",  # DeepSeek
    "overloaded": "overloaded",
    "malformed_function_call": "empty",  # Gemini: the model's call cannot be read; asked again once
    "unexpected_tool_call": "empty",
    "malformed_response": "empty",
}
"""Reasons that say that the model did not finish."""


def finish_reason(raw: str) -> FinishReason:
    """Our word for a server's reason; Gemini's come in capitals, some with a detail after a colon."""
    return _REASONS.get(raw.partition(":")[0].strip().lower(), "other")


def parse_usage(value: object) -> Usage | None:
    """The tokens that a provider reported, in Chat or Responses form; ``None`` if nothing is usable.

    A missing or odd figure never fails an answer that is complete.
    """
    usage = as_dict(value)
    cached = as_dict(usage.get("prompt_tokens_details") or usage.get("input_tokens_details"))
    spent = as_dict(usage.get("completion_tokens_details") or usage.get("output_tokens_details"))
    found = Usage(
        input_tokens=_count(usage.get("prompt_tokens"), usage.get("input_tokens")),
        output_tokens=_count(usage.get("completion_tokens"), usage.get("output_tokens")),
        # DeepSeek and Moonshot have places of their own for the prompt's cached part.
        cached_tokens=_count(
            cached.get("cached_tokens"), usage.get("prompt_cache_hit_tokens"), usage.get("cached_tokens")
        ),
        reasoning_tokens=_count(spent.get("reasoning_tokens")),
    )
    return None if found == _NOTHING else found


_NOTHING: Final = Usage()


def _count(*values: object) -> int | None:
    for value in values:
        if isinstance(value, int | float) and not isinstance(value, bool) and value == value // 1 and value >= 0:
            return int(value)
    return None


def spoken_parts(content: list[Any]) -> list[str]:
    """The texts among content parts; thoughts, references and images are not spoken."""
    texts: list[str] = []
    for part in content:
        if isinstance(part, str):
            texts.append(part)
        elif (
            is_dict(part) and part.get("type", "text") in {"text", "output_text"} and isinstance(part.get("text"), str)
        ):
            texts.append(part["text"])
    return texts
