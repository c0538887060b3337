"""The ``input`` of the Responses API: a flat list of items; no I/O.

    Entry ──▶ ResponsesDialect ──▶ message | reasoning | function_call | function_call_output

Within one response of the model texts come first, then calls, then outputs: DeepSeek refuses words between
calls. Encrypted reasoning goes back in front of the calls that it led to, and a message keeps its ``phase``:
both to the server that sent them only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from micdrop_agent.providers.attachments import Attachments
from micdrop_agent.providers.json_text import encode_text
from micdrop_agent.providers.requests.fillers import OPENING
from micdrop_agent.providers.requests.history import Dialect, encode_call, together

if TYPE_CHECKING:
    from micdrop_agent.images import Image
    from micdrop_agent.providers.requests.history import State
    from micdrop_agent.providers.requests.pairing import CallGroup, Entry

__all__ = ["PHASE", "REASONING", "ResponsesDialect"]

REASONING: Final = "reasoning"
"""Name of the attachment that holds the reasoning items in front of a call, as a list."""

PHASE: Final = "phase"
"""Name of the attachment that holds the phase of a message."""

_ITEM: Final = b'{"type":"function_call","call_id":%b,"name":%b,"arguments":%b}'


class ResponsesDialect(Dialect):
    """The ``input`` of the Responses API.

    Args:
        typed: Say of each assistant message that it is one, which OpenAI lets one leave out and llama.cpp does not.
        attachments: What this server attached to its calls and messages, and wants back.
    """

    def __init__(self, *, typed: bool = False, attachments: Attachments | None = None) -> None:
        self._typed = typed
        self._attachments = Attachments() if attachments is None else attachments

    def grouped(self, entries: list[Entry]) -> list[Entry]:
        """Calls of one response stand together, after the reasoning that led to them."""
        return together(entries, self._attachments)

    def message(self, role: str, content: str) -> bytes:
        """A message; the assistant's with its phase, if this server gave it one."""
        plain = super().message(role, content)
        if role != "assistant":
            return plain
        phase = self._attachments.of_words(content).get(PHASE)
        if phase is not None:
            plain = plain[:-1] + b',"phase":%b}' % phase
        return b'{"type":"message",' + plain[1:] if self._typed or phase is not None else plain

    def text_part(self, content: str) -> bytes:
        """Words beside a picture."""
        return b'{"type":"input_text","text":%b}' % encode_text(content)

    def image_part(self, image: Image) -> bytes:
        """A picture, or its URL."""
        return b'{"type":"input_image","image_url":%b}' % encode_text(image.url)

    def calls(self, state: State, group: CallGroup) -> None:
        """Texts first, reasoning and calls next, outputs last."""
        self.flush(state)
        if group.texts:
            self.texts(state, list(group.texts))
        outputs: list[bytes] = []
        sent: bytes | None = None
        for each in group.calls:
            thoughts = self._attachments.of_call(each.call, (REASONING,)).get(REASONING)
            if thoughts and thoughts != sent:  # the calls of one response share their reasoning
                state.put("assistant", thoughts[1:-1])
                sent = thoughts
            call_id = state.ids.next(each.call.tool_call_id)
            state.put("assistant", encode_call(each, _ITEM, call_id))
            outputs.append(
                b'{"type":"function_call_output","call_id":%b,"output":%b}'
                % (encode_text(call_id), encode_text(each.output))
            )
        for output in outputs:
            state.put("tool", output)

    def finish(self, state: State, continue_from: str | None) -> None:
        """A request has an item."""
        super().finish(state, continue_from)
        if not state.last:
            state.put("user", self.message("user", OPENING))
