"""The ``messages`` of Anthropic's Messages API, and what stands beside them; no I/O.

    Entry ──▶ ClaudeDialect ──▶ text | thinking | tool_use (assistant), tool_result | text (user)

Signed thoughts stand before the call that they led to, as they came, and only for the server that signed them.

Source: https://docs.claude.com/en/api/messages, /docs/build-with-claude/extended-thinking,
/docs/agents-and-tools/tool-use/implement-tool-use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs

from micdrop_agent.providers.json_text import as_dict, encode, encode_text
from micdrop_agent.providers.requests.block_dialect import BlockDialect
from micdrop_agent.providers.requests.body import BodyBuilder, Tails
from micdrop_agent.providers.requests.history import wire_name
from micdrop_agent.providers.requests.wire_ids import letters_and_digits

if TYPE_CHECKING:
    from micdrop_agent.images import Image
    from micdrop_agent.providers.requests.history import EncodedHistory, State
    from micdrop_agent.providers.requests.pairing import PairedCall

__all__ = ["THINKING", "ClaudeBuilder", "ClaudeDialect"]

THINKING: Final = "thinking"
"""Name of the attachment that holds the thinking blocks before a call, as a list."""


class ClaudeDialect(BlockDialect):
    """Messages of content blocks."""

    def id_form(self, call_id: str) -> str:
        """See ``Dialect.id_form``."""
        return letters_and_digits(call_id)

    def text(self, words: str) -> bytes:
        """A block of text."""
        return b'{"type":"text","text":%b}' % encode_text(words)

    def image_part(self, image: Image) -> bytes:
        """A picture, or its URL."""
        source = {"type": "url", "url": image.url}
        if image.base64 is not None:
            source = {"type": "base64", "media_type": str(image.media_type), "data": image.base64}
        return encode({"type": "image", "source": source})

    def call(self, state: State, call: PairedCall, call_id: str, *, first: bool) -> list[bytes]:
        """The call, after what this server thought before it."""
        thoughts = self._attachments.of_call(call.call, (THINKING,)).get(THINKING)
        state.unsigned = state.unsigned or (state.current and first and thoughts is None)
        block = b'{"type":"tool_use","id":%b,"name":%b,"input":%b}' % (
            encode_text(call_id),
            encode_text(wire_name(call.call.tool_name)),
            call.arguments.encode("utf-8", "replace"),
        )
        return [block] if thoughts is None else [thoughts[1:-1], block]

    def result(self, call: PairedCall, call_id: str) -> bytes:
        """The result; one that reports an error is marked as such."""
        failed = b',"is_error":true' if call.output.startswith('{"error":') else b""
        return b'{"type":"tool_result","tool_use_id":%b,"content":%b%b}' % (
            encode_text(call_id),
            encode_text(call.output),
            failed,
        )

    def wrap(self, role: str, blocks: bytes) -> bytes:
        """A message."""
        return b'{"role":"%b","content":[%b]}' % (role.encode(), blocks)


@attrs.define(eq=False)
class ClaudeBuilder(BodyBuilder):
    """Makes the bodies of requests to the Messages API."""

    _tails_unsigned: Tails = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        settings: dict[str, Any] = dict(self.settings)
        if as_dict(settings.get("thinking")).get("type") == "enabled":
            # With a budget for thoughts, a turn that has begun has to begin with some, signed by this server.
            del settings["thinking"]
        self._tails_unsigned = self._make_tails(settings)

    def _tails_for(self, history: EncodedHistory) -> Tails:
        return self._tails_unsigned if history.unsigned else self._tails

    def _after_history(self, history: EncodedHistory) -> bytes:
        notes = "\n\n".join(note for note in history.notes if note.strip())
        return b'],"system":%b,' % encode_text(notes) if notes else b"],"
