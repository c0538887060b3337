"""Reads a Responses API stream; no I/O.

Spoken is the first message of a response; what the API calls a commentary is spoken besides it. It
sometimes sends a second message with nearly the same words, also interleaved, and hearing an answer
twice is worse than losing a variant of it. Within a message every part is spoken once: its deltas, or,
from servers that send none, its whole text. Function calls run wherever they stand. Reasoning is never
spoken. Source: Micdrop ``OpenaiAgent.ts`` keeps the first message too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from micdrop_agent.model.call_ids import new_call_id
from micdrop_agent.model.protocol import PROGRESS, TEXT_DONE, Finish, Refusal
from micdrop_agent.providers.json_text import as_dict, as_list, is_list
from micdrop_agent.providers.responses.function_calls import FunctionCalls
from micdrop_agent.providers.responses.thoughts import ReplayedItems
from micdrop_agent.providers.responses.translator import Translator, finish_reason, is_end_mark, parse_usage
from micdrop_agent.text import ThinkFilter

if TYPE_CHECKING:
    from collections.abc import Callable

    from micdrop_agent.model.protocol import CallReady
    from micdrop_agent.providers.attachments import Attachments

__all__ = ["ResponsesTranslator"]

_TEXT: Final = frozenset({"response.output_text.delta", "response.refusal.delta"})


class ResponsesTranslator(Translator):
    """The translation of one response of the Responses API.

    Args:
        provider: Name of the provider, for errors.
        secret: The key in use, kept out of errors.
        new_id: Makes an id for a call that has none.
        attachments: Remembers what the server wants back with its calls and messages.
    """

    __slots__ = (
        "_calls",
        "_commentary",
        "_kept",
        "_message",
        "_open_text",
        "_parts",
        "_think",
    )

    def __init__(
        self,
        provider: str,
        secret: str | None = None,
        new_id: Callable[[], str] = new_call_id,
        attachments: Attachments | None = None,
    ) -> None:
        super().__init__(provider, secret)
        self._kept = ReplayedItems(attachments)
        self._calls = FunctionCalls(new_id)
        self._message: int | None = None
        """Output index of the message that is spoken."""
        self._commentary: set[int] = set()
        self._parts: dict[tuple[int, int], bool] = {}
        """Content parts that were spoken, and whether each is closed."""
        self._think = ThinkFilter(pass_calls=True)
        """Of the stretch of text that comes: servers of open models leave tokens of the template in it."""
        self._open_text = False
        """Text was said whose end has not been reported yet."""

    def _data(self, event: bytes) -> None:
        if event[:1] != b"{":
            event = self.unwrap(event)
            if is_end_mark(event):
                # Not of this API; gateways put it at the end of everything.
                self._complete({}, "stop")
                return
            if self.skip(event):
                return
        value = self.decode_event(event)
        kind = value.get("type")
        if not isinstance(kind, str):
            if self.is_error(value):
                self.error_from(value)
            return
        if kind in _TEXT:
            self._text_delta(value, refusal=kind == "response.refusal.delta")
            return
        handler = self._HANDLERS.get(kind)
        if handler is not None:
            handler(self, value)

    def _end(self) -> None:
        self.cut_off("response.completed")

    def _whole(self, body: dict[str, Any]) -> bool:
        if not is_list(body.get("output")):
            return False
        status = body.get("status")
        if status == "failed":
            self._failed({"response": body})
        elif status == "incomplete":
            self._incomplete({"response": body})
        else:
            self._complete(body, "completed")
        return True

    # Text

    def _may_speak(self, index: int) -> bool:
        if index in self._commentary:
            return True
        if self._message is None:
            self._message = index
        return self._message == index

    def _text_delta(self, value: dict[str, Any], *, refusal: bool) -> None:
        delta = value.get("delta")
        if not isinstance(delta, str) or not delta:
            return
        index = _index(value, "output_index")
        part = (index, _index(value, "content_index"))
        # A closed part that goes on is a second message from a server that numbers nothing.
        if self._parts.get(part) or not self._may_speak(index):
            return
        self._parts[part] = False
        self._say(delta, refusal=refusal)

    def _text_done(self, value: dict[str, Any]) -> None:
        refusal = value.get("type") == "response.refusal.done"
        index = _index(value, "output_index")
        part = (index, _index(value, "content_index"))
        self._say_part(part, value.get("refusal" if refusal else "text"), refusal=refusal)
        self._end_stretch()
        if self._open_text:
            # It is stored now: a barge-in while a call is still being written leaves it complete.
            self._open_text = False
            self.events.append(TEXT_DONE)

    def _part_done(self, value: dict[str, Any]) -> None:
        part = as_dict(value.get("part"))
        refusal = part.get("type") == "refusal"
        place = (_index(value, "output_index"), _index(value, "content_index"))
        if part.get("type") in {"output_text", "text", "refusal"}:
            self._say_part(place, part.get("refusal" if refusal else "text"), refusal=refusal)

    def _say_part(self, part: tuple[int, int], text: object, *, refusal: bool) -> None:
        """A part is complete: say it, unless its deltas did."""
        if part not in self._parts and isinstance(text, str) and text and self._may_speak(part[0]):
            self._say(text, refusal=refusal)
            self._parts[part] = True
        elif part in self._parts:
            self._parts[part] = True

    def _end_stretch(self) -> None:
        rest = self._think.finish_pieces()
        self._think = ThinkFilter(pass_calls=True)
        if rest:
            self.events += rest
            self.said = self._open_text = True

    def _say(self, text: str, *, refusal: bool) -> None:
        text = self.letters(text)
        if not refusal:
            text = self._think.feed(text)
        if not text:
            return
        self.events.append(Refusal(text) if refusal else text)
        self.said = self._open_text = True

    # Items

    def _item_added(self, value: dict[str, Any]) -> None:
        item, index = as_dict(value.get("item")), _index(value, "output_index")
        if item.get("type") == "message":
            if item.get("phase") == "commentary":
                self._commentary.add(index)
            elif self._message is None:
                self._message = index
        elif item.get("type") == "function_call":
            self.events.append(PROGRESS)
            self._calls.begin(index, item)

    def _item_done(self, value: dict[str, Any]) -> None:
        self._item(_index(value, "output_index"), as_dict(value.get("item")))

    def _item(self, index: int, item: dict[str, Any]) -> None:
        if item.get("type") == "message":
            for number, part in enumerate(as_list(item.get("content"))):
                content = as_dict(part)
                refusal = content.get("type") == "refusal"
                self._say_part((index, number), content.get("refusal" if refusal else "text"), refusal=refusal)
            self._kept.message(item)
            if self._message == index and not any(part[0] == index for part in self._parts):
                self._message = None  # it said nothing: the next one may
        elif item.get("type") == "function_call" and item.get("status") != "incomplete":
            self._take(self._calls.take(self._calls.whole(index, item, new=True)))
        elif item.get("type") == "reasoning":
            self._kept.reasoning(item)

    def _take(self, calls: list[CallReady]) -> None:
        self.events += calls
        self._kept.calls(calls)

    def _arguments_delta(self, value: dict[str, Any]) -> None:
        self.events.append(PROGRESS)
        delta = value.get("delta")
        if isinstance(delta, str):
            self._calls.add(_index(value, "output_index"), value, delta)

    def _arguments_done(self, value: dict[str, Any]) -> None:
        self._calls.whole(_index(value, "output_index"), value)

    # The end

    def _completed(self, value: dict[str, Any]) -> None:
        response = as_dict(value.get("response"))
        if response.get("status") == "failed":
            self._failed(value)
        elif response.get("status") == "incomplete":
            self._incomplete(value)
        else:
            self._complete(response, "completed")

    def _complete(self, response: dict[str, Any], raw: str) -> None:
        # What was not streamed is in the summary. Numbers may differ between the two (servers leave
        # reasoning out of one of them), so calls are found by id, and text that was spoken is left alone.
        if not self.said:
            self._message = None
        for index, value in enumerate(as_list(response.get("output"))):
            item = as_dict(value)
            if item.get("type") == "function_call":
                self._take(self._calls.from_summary(index, item))
            elif item.get("type") == "reasoning":
                self._kept.reasoning(item)
            elif not self.said:
                self._item(index, item)
        self._take(self._calls.take_whole())
        self._finish(response, raw)

    def _incomplete(self, value: dict[str, Any]) -> None:
        response = as_dict(value.get("response"))
        raw = _word(as_dict(response.get("incomplete_details")).get("reason")) or "incomplete"
        if not self.said:
            for index, item in enumerate(as_list(response.get("output"))):
                if as_dict(item).get("type") == "message":
                    self._item(index, as_dict(item))
        if finish_reason(raw) == "content_filter":
            self.fail("content_filter", f"stopped the answer with a content filter ({raw})")
        else:
            self._finish(response, raw)

    def _finish(self, response: dict[str, Any], raw: str) -> None:
        self._end_stretch()
        self.done = self.finishing = True
        usage = parse_usage(response.get("usage"))
        if usage is not None:
            self.events.append(usage)
        reason = finish_reason(raw)
        self.events.append(Finish("tool_calls" if reason == "stop" and self._calls.any_taken else reason, raw))

    def _failed(self, value: dict[str, Any]) -> None:
        response = as_dict(value.get("response"))
        usage = parse_usage(response.get("usage"))
        if usage is not None:
            self.events.append(usage)
        self.error_from({"error": response.get("error") or {"message": "the response failed; no reason was given"}})

    def _error(self, value: dict[str, Any]) -> None:
        self.error_from(value)

    _HANDLERS: ClassVar[dict[str, Callable[[ResponsesTranslator, dict[str, Any]], None]]] = {
        "response.output_text.done": _text_done,
        "response.refusal.done": _text_done,
        "response.content_part.done": _part_done,
        "response.output_item.added": _item_added,
        "response.output_item.done": _item_done,
        "response.function_call_arguments.delta": _arguments_delta,
        "response.function_call_arguments.done": _arguments_done,
        "response.completed": _completed,
        "response.done": _completed,
        "response.incomplete": _incomplete,
        "response.failed": _failed,
        "response.cancelled": _failed,
        "error": _error,
        "response.error": _error,
    }


def _index(value: dict[str, Any], name: str) -> int:
    index = value.get(name)
    return index if isinstance(index, int) else 0


def _word(value: object) -> str:
    return value if isinstance(value, str) else ""
