"""Reads a Chat Completions stream, as OpenAI and all who imitate it send it, Mistral included; no I/O.

One tolerant reader serves every server: chunks without choices or delta, ``null`` content, content in
parts, tool calls in any number of pieces, reasoning in fields of its own (never spoken), errors in
chunks, and either of the two end marks (a finish reason, ``[DONE]``). See tests/test_provider_streams.py.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from micdrop_agent._core.log import SafeLog
from micdrop_agent.model.call_ids import new_call_id
from micdrop_agent.model.protocol import PROGRESS, Finish, Refusal, Usage
from micdrop_agent.providers.json_text import as_dict, as_list, is_dict, is_list
from micdrop_agent.providers.quirks import ChatQuirks
from micdrop_agent.providers.responses.call_assembler import CallAssembler
from micdrop_agent.providers.responses.fastpath import TextTemplate
from micdrop_agent.providers.responses.thoughts import GuessedThoughts, ThoughtLog
from micdrop_agent.providers.responses.translator import (
    FAILED_REASONS,
    Translator,
    finish_reason,
    is_end_mark,
    parse_usage,
    spoken_parts,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from micdrop_agent.model.protocol import CallReady, FinishReason
    from micdrop_agent.providers.attachments import Attachments
    from micdrop_agent.text import ThinkFilter

__all__ = ["ChatTranslator"]

_WORDS_OF_FAILURE: Final = ("message", "detail", "error_message", "error_msg")

_NOTHING_TOLD: Final = Usage()

logger: Final = SafeLog(logging.getLogger("micdrop_agent.providers"))

_NO_QUIRKS: Final = ChatQuirks()

_NO_REASON: Final = frozenset({"", "null", "none"})


class ChatTranslator(Translator):
    """The translation of one Chat Completions response.

    Args:
        provider: Name of the provider, for errors.
        secret: The key in use, kept out of errors.
        think: Takes the thinking out of the text, for models that write it there.
        quirks: What this server sends that others do not.
        attachments: Remembers what the server wants back with its calls.
        new_id: Makes an id for a tool call that has none.
    """

    __slots__ = (
        "_attachments",
        "_calling",
        "_calls",
        "_doubtful",
        "_in_call",
        "_odd_chunk",
        "_quirks",
        "_raw_reason",
        "_reason",
        "_response",
        "_spoke",
        "_template",
        "_think",
        "_thoughts",
        "_usage",
        "_usage_told",
    )

    def __init__(
        self,
        provider: str,
        secret: str | None = None,
        *,
        think: ThinkFilter | None = None,
        quirks: ChatQuirks = _NO_QUIRKS,
        attachments: Attachments | None = None,
        new_id: Callable[[], str] = new_call_id,
    ) -> None:
        super().__init__(provider, secret)
        self._think = think
        self._quirks = quirks
        self._attachments = attachments
        self._response = 0 if attachments is None else attachments.next_response()
        self._thoughts = ThoughtLog(quirks.thoughts)
        self._calls = CallAssembler(new_id, quirks.call_members)
        self._template: TextTemplate | None = None
        self._reason: FinishReason | None = None
        self._raw_reason: str | None = None
        self._usage: Usage | None = None
        self._usage_told = _NOTHING_TOLD
        self._doubtful = False
        """A finish reason came although there was more to come."""
        self._in_call = False
        """The finish reason came with a part of a call."""
        self._odd_chunk: dict[str, Any] | None = None
        """A chunk without choices that says something: the failure, if nothing else comes."""
        self._spoke = False
        self._calling = False
        """A tool call has begun."""

    def _data(self, event: bytes) -> None:
        if self._template is not None:
            text = self._template.match(event)
            if text is not None:
                self._say(self.letters(text) if self._half else text)
                return
        if event[:1] != b"{":
            event = self.unwrap(event)
            if is_end_mark(event):
                self._finish()
                return
            if self.skip(event):
                return
        chunk = self.decode_event(event)
        before = len(self.events)
        self._chunk(chunk)
        if len(self.events) == before + 1 and self.failure is None and not self.finishing:
            last = self.events[-1]
            if isinstance(last, str) and self._usage is None:
                # Nearly every chunk of a stream differs from this one in nothing but the text. Once there are
                # figures that no longer holds: the same ones may be news again, after others.
                self._template = TextTemplate(event, last)

    def _end(self) -> None:
        if self._reason is not None:
            self._finish()
        elif self._odd_chunk:
            self.error_from(self._odd_chunk)
        else:
            self.cut_off("an end mark (finish reason or [DONE])")

    def _whole(self, body: dict[str, Any]) -> bool:
        if not as_list(body.get("choices")):
            return False
        self._chunk(body)
        if self.failure is None:
            self._finish()
        return True

    def _chunk(self, chunk: dict[str, Any]) -> None:
        usage = chunk.get("usage") or as_dict(chunk.get("x_groq")).get("usage")
        if usage:
            self._usage = parse_usage(usage) or self._usage
        if self.is_error(chunk):
            self._tell_usage()
            self.error_from(chunk)
            return
        choices = as_list(chunk.get("choices"))
        for choice in choices:
            # Others than the first are further answers (``n``), which nobody could speak.
            if is_dict(choice) and (choice.get("index") or 0) == 0:
                self._choice(choice)
                if self.failure is not None:
                    return
        if self._usage is not None:
            self._tell_usage()
        if not choices and not usage and any(isinstance(chunk.get(name), str) for name in _WORDS_OF_FAILURE):
            self._odd_chunk = chunk

    def _choice(self, choice: dict[str, Any]) -> None:
        first = not self._spoke and not self._calls.started
        delta = choice.get("delta")
        if not delta and not self._calls.started:
            # A whole answer, in a stream or instead of one. Its words may have been streamed before it.
            message = as_dict(choice.get("message"))
            delta = message if first else {"tool_calls": message.get("tool_calls")}
        if is_dict(delta):
            self._delta(delta)
        if choice.get("usage"):  # Moonshot reports it here
            self._usage = parse_usage(choice["usage"]) or self._usage
        if choice.get("error"):  # OpenRouter, whose upstream failed
            self._tell_usage()
            self.error_from({"error": choice["error"]})
            return
        raw = choice.get("finish_reason") or choice.get("finishReason")  # Gemini has sent it like that
        if isinstance(raw, str) and raw.lower() not in _NO_REASON:
            self._doubtful = self._doubtful or (first and not self._calls.started)
            self._in_call = is_dict(delta) and bool(delta.get("tool_calls"))
            self._stop(raw)

    def _delta(self, delta: dict[str, Any]) -> None:
        content = delta.get("content")
        if content:
            texts = [content] if isinstance(content, str) else spoken_parts(as_list(content))
            for text in texts:
                self._say(self.letters(text))
        refusal = delta.get("refusal")
        if isinstance(refusal, str) and (refusal := self.letters(refusal)):
            self.events.append(Refusal(refusal))
            self._spoke = self.said = True
        if self._attachments is not None and self._thoughts.add(delta) and not self._spoke:
            # This server takes the thoughts out of the text: it does not begin inside them.
            self._think = None if self._think is None else self._think.begun_outside()
        calls = delta.get("tool_calls")
        legacy = delta.get("function_call")
        if is_dict(legacy):
            calls = [{"index": 0, "function": legacy}]
        if calls:
            self.events.append(PROGRESS)
            self._calling = True
            self._take(self._calls.add(calls if is_list(calls) else [calls]))

    def _say(self, text: str) -> None:
        if self.finishing and text:
            # The reason came with every chunk (Gemini behind gateways): it does not mean the end.
            self.finishing, self._doubtful = False, True
        self._spoke = self._spoke or bool(text)
        if self._think is not None:
            text = self._think.feed(text)
        if text:
            if self._calling and not text.isspace():
                # Words after a call: it is complete, and may have ended the turn.
                self._take(self._calls.take_whole(at_end=False))
            self.events.append(text)
            self.said = True

    def _take(self, calls: list[CallReady]) -> None:
        self.events += calls
        if self._attachments is not None and calls:
            thoughts = self._thoughts.members()
            for call in calls:
                self._attachments.keep(call, self._response, thoughts)

    def _stop(self, raw: str) -> None:
        failed = FAILED_REASONS.get(raw.partition(":")[0].strip().lower())  # Gemini adds a detail after a colon
        if failed is not None and raw not in self._quirks.finish_reasons:
            self.fail(failed, f"gave up in the middle of its response (finish reason {raw})", retryable=True)
            return
        self._reason, self._raw_reason = self._quirks.finish_reasons.get(raw) or finish_reason(raw), raw
        if self._reason == "content_filter":
            self.fail("content_filter", f"stopped the answer with a content filter ({raw})")
            return
        self._tell_finish()

    def _tell_finish(self) -> None:
        """The model has said all: calls can run before the end mark and the usage have come."""
        self._end_thinking()
        # At the token limit the last call may have been cut: running it would be a guess.
        if self._reason != "length":
            self._take(self._calls.take_whole(at_end=True))
            if self._in_call and self._calls.waiting:
                self._doubtful = True  # a reason with every fragment: more of the call may come
            elif not self._doubtful:
                # Whoever reads us may stop here. What cannot be read is the model's fault: the tool says so.
                self._take(self._calls.finish())
        self._tell_usage()
        if not self.finishing:
            self.finishing = True
            reason = self._reason or ("tool_calls" if self._calls.started else "stop")
            self.events.append(Finish(reason, self._raw_reason, self._doubtful and not self.done))

    def _end_thinking(self) -> None:
        if self._think is None:
            return
        rest = self._think.finish()
        if isinstance(self._think, GuessedThoughts) and self._reason != "length" and not self._calls.started:
            rest = rest or self._think.unended
            self._think = self._think.begun_outside()
        if rest:
            self.events.append(rest)
            self.said = True
        if self._think.unopened and self._attachments is not None and self._attachments.first_time("unopened"):
            logger.warning(
                "%s sent the end of thoughts that never began, and they were spoken: this model's text begins inside "
                'them; use ChatAgent(think="inside")',
                self._provider,
            )

    def _tell_usage(self) -> None:
        """Tell what is new: some servers count on in every chunk, and the last figure is the whole one."""
        if self._usage is not None and self._usage != self._usage_told:
            self.events.append(self._usage - self._usage_told)
            self._usage_told = self._usage

    def _finish(self) -> None:
        if self._odd_chunk and self._reason is None:
            self.error_from(self._odd_chunk)
            return
        self.done, self._in_call = True, False
        self._take(self._calls.finish(cut=self._reason == "length"))
        self._tell_finish()
