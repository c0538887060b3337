"""Reads a stream of Gemini's ``streamGenerateContent``; no I/O.

    data: {"candidates":[{"content":{"parts":[…]},"finishReason":…}],"usageMetadata":…}

A chunk has parts: text is spoken, a part marked ``thought`` is not, a function call is complete. Its signature
goes back with it. The only end mark is the finish reason of the last chunk.

Source: https://ai.google.dev/api/generate-content.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from micdrop_agent.model.call_ids import new_call_id
from micdrop_agent.model.protocol import PROGRESS, CallReady, Finish, Usage
from micdrop_agent.providers.json_text import as_dict, as_list, encode_loosely, is_dict, normal_name
from micdrop_agent.providers.requests.gemini_dialect import CALL_ID, SIGNATURE
from micdrop_agent.providers.responses.call_assembler import MAX_CALLS
from micdrop_agent.providers.responses.translator import FAILED_REASONS, Translator, finish_reason, is_end_mark
from micdrop_agent.text import ThinkFilter

if TYPE_CHECKING:
    from micdrop_agent.providers.attachments import Attachments

__all__ = ["GeminiTranslator"]

_FILTERS: Final = frozenset({"language", "spii", "image_safety", "image_prohibited_content", "image_recitation"})


class GeminiTranslator(Translator):
    """The translation of one response of Gemini.

    Args:
        provider: Name of the provider, for errors.
        secret: The key in use, kept out of errors.
        attachments: Remembers signatures and ids that the server wants back.
    """

    __slots__ = ("_attachments", "_calls", "_response", "_think", "_told", "_usage")

    def __init__(self, provider: str, secret: str | None = None, *, attachments: Attachments | None = None) -> None:
        super().__init__(provider, secret)
        self._attachments = attachments
        self._response = 0 if attachments is None else attachments.next_response()
        self._calls = 0
        self._usage: Usage | None = None
        self._told = Usage()
        self._think = ThinkFilter(pass_calls=True)

    def _data(self, event: bytes) -> None:
        event = self.unwrap(event)
        if is_end_mark(event):
            self._end()
        elif not self.skip(event):
            self._chunk(self.decode_event(event))

    def _end(self) -> None:
        if self.finishing:
            self.done = True
        else:
            self.cut_off("a finish reason")

    def _whole(self, body: dict[str, Any]) -> bool:
        if not {"candidates", "promptFeedback"} & set(body):
            return False
        self._chunk(body)
        if self.failure is None:
            self._end()
        return True

    def _chunk(self, chunk: dict[str, Any]) -> None:
        self._usage = _usage(chunk.get("usageMetadata")) or self._usage
        if self.is_error(chunk):
            self._tell_usage()
            self.error_from(chunk)
            return
        blocked = as_dict(chunk.get("promptFeedback")).get("blockReason")
        if blocked:
            self._tell_usage()
            self.fail("content_filter", f"refused the request with a content filter ({blocked})")
            return
        for candidate in as_list(chunk.get("candidates"))[:1]:
            self._candidate(as_dict(candidate))

    def _candidate(self, candidate: dict[str, Any]) -> None:
        first = not self.said and not self._calls
        for part in as_list(as_dict(candidate.get("content")).get("parts")):
            if is_dict(part) and not part.get("thought"):
                self._part(part)
        raw = candidate.get("finishReason")
        if isinstance(raw, str) and raw and raw != "FINISH_REASON_UNSPECIFIED":
            # A reason that comes with the first words may come with all of them.
            self._stop(raw, doubtful=first and self.said)

    def _part(self, part: dict[str, Any]) -> None:
        text, call = part.get("text"), part.get("functionCall")
        if isinstance(text, str) and text:
            self.finishing = False  # a reason came with every chunk
            self._say(self._think.feed(self.letters(text)))
        elif is_dict(call) and isinstance(call.get("name"), str):
            self._call(call, part.get("thoughtSignature") or part.get("thought_signature"))

    def _say(self, spoken: str) -> None:
        if spoken:
            self.events.append(spoken)
            self.said = True

    def _call(self, call: dict[str, Any], signature: object) -> None:
        self._calls += 1
        if self._calls > MAX_CALLS:
            self.fail("protocol", f"called more than {MAX_CALLS} tools in one response")
            return
        self._end_text()
        extra = {name: value for name, value in ((SIGNATURE, signature), (CALL_ID, call.get("id"))) if value}
        made = CallReady(
            str(call.get("id") or new_call_id()),
            normal_name(call["name"]),
            encode_loosely(call.get("args") or {}),
            extra,
        )
        if self._attachments is not None:
            self._attachments.keep(made, self._response, {}, grouped=True)
        self.events += [PROGRESS, made]

    def _end_text(self) -> None:
        self._say(self._think.finish())
        self._think = ThinkFilter(pass_calls=True)

    def _stop(self, raw: str, *, doubtful: bool) -> None:
        reason = raw.strip().lower()
        self._tell_usage()
        failed = FAILED_REASONS.get(reason)
        if failed is not None:
            self.fail(failed, f"gave up in the middle of its response (finish reason {raw})", retryable=True)
        elif reason in _FILTERS or finish_reason(raw) == "content_filter":
            self.fail("content_filter", f"stopped the answer with a content filter ({raw})")
        elif not self.finishing:
            self._end_text()
            self.finishing = True
            told = finish_reason(raw)
            self.events.append(Finish("tool_calls" if told == "stop" and self._calls else told, raw, doubtful))

    def _tell_usage(self) -> None:
        if self._usage is not None and self._usage != self._told:
            self.events.append(self._usage - self._told)
            self._told = self._usage


def _usage(value: object) -> Usage | None:
    """The figures so far; thoughts count as output, as with other providers."""
    counts = as_dict(value)
    found = {name: number for name, number in counts.items() if isinstance(number, int) and number >= 0}
    if not found:
        return None
    return Usage(
        input_tokens=_sum(found, "promptTokenCount", "toolUsePromptTokenCount"),
        output_tokens=_sum(found, "candidatesTokenCount", "thoughtsTokenCount"),
        cached_tokens=found.get("cachedContentTokenCount"),
        reasoning_tokens=found.get("thoughtsTokenCount"),
    )


def _sum(counts: dict[str, int], *names: str) -> int | None:
    known = [counts[name] for name in names if name in counts]
    return sum(known) if known else None
