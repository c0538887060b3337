"""The ``contents`` of Gemini's ``generateContent``, and what stands beside them; no I/O.

    Entry ──▶ GeminiDialect ──▶ text | functionCall + thoughtSignature (model), functionResponse | text (user)

Gemini 3 refuses calls of the current turn whose first one is not signed: calls of other models get the
placeholder that its documentation names. Ids of calls go back only where Gemini gave them.

Source: https://ai.google.dev/api/generate-content, https://ai.google.dev/gemini-api/docs/thought-signatures,
https://ai.google.dev/gemini-api/docs/function-calling.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs

from micdrop_agent.providers.json_text import as_dict, decode, encode, encode_text, is_dict
from micdrop_agent.providers.requests.block_dialect import BlockDialect
from micdrop_agent.providers.requests.history import HistoryEncoder, wire_name
from micdrop_agent.providers.requests.tool_forms import declare, stub

if TYPE_CHECKING:
    from collections.abc import Mapping

    from micdrop_agent.images import Image
    from micdrop_agent.model.protocol import Request
    from micdrop_agent.providers.attachments import Attachments
    from micdrop_agent.providers.requests.history import State
    from micdrop_agent.providers.requests.pairing import PairedCall

__all__ = ["CALL_ID", "SIGNATURE", "GeminiBuilder", "GeminiDialect"]

SIGNATURE: Final = "thoughtSignature"
"""Name of the attachment that signs a call."""

CALL_ID: Final = "id"
"""Name of the attachment that holds Gemini's own id of a call."""

_PLACEHOLDER: Final = b'"skip_thought_signature_validator"'


class GeminiDialect(BlockDialect):
    """Contents of parts.

    Args:
        attachments: What Gemini attached to its calls, and wants back.
        sign_foreign: Sign calls of other models with the documented placeholder.
    """

    def __init__(self, attachments: Attachments | None = None, *, sign_foreign: bool = True) -> None:
        super().__init__(attachments)
        self._sign_foreign = sign_foreign

    def text(self, words: str) -> bytes:
        """A part of text."""
        return b'{"text":%b}' % encode_text(words)

    def image_part(self, image: Image) -> bytes:
        """A picture, or its URL."""
        if image.base64 is None:
            return encode({"fileData": {"fileUri": image.url}})
        return encode({"inlineData": {"mimeType": image.media_type, "data": image.base64}})

    def call(self, state: State, call: PairedCall, call_id: str, *, first: bool) -> list[bytes]:
        """The call, with its signature."""
        del call_id
        own = self._attachments.of_call(call.call, (SIGNATURE, CALL_ID))
        signature = own.get(SIGNATURE)
        if signature is None and self._sign_foreign and first and state.current:
            signature = _PLACEHOLDER
        signed = b"" if signature is None else b',"thoughtSignature":%b' % signature
        return [
            b'{"functionCall":{%b"name":%b,"args":%b}%b}'
            % (
                self._id(call),
                encode_text(wire_name(call.call.tool_name)),
                call.arguments.encode("utf-8", "replace"),
                signed,
            )
        ]

    def result(self, call: PairedCall, call_id: str) -> bytes:
        """The result, which has to be an object."""
        del call_id
        return b'{"functionResponse":{%b"name":%b,"response":%b}}' % (
            self._id(call),
            encode_text(wire_name(call.call.tool_name)),
            _response(call.output),
        )

    def _id(self, call: PairedCall) -> bytes:
        own = self._attachments.of_call(call.call, (CALL_ID,)).get(CALL_ID)
        return b"" if own is None else b'"id":%b,' % own

    def wrap(self, role: str, blocks: bytes) -> bytes:
        """A content."""
        return b'{"role":"%b","parts":[%b]}' % (b"model" if role == "assistant" else b"user", blocks)


def _response(output: str) -> bytes:
    """``output`` under the name that Gemini reads it by; an object that reports an error has its name already."""
    try:
        value = decode(output.encode("utf-8", "replace"))
        return encode(value if is_dict(value) and "error" in value else {"output": value})
    except ValueError:
        return encode({"output": output})


@attrs.define(eq=False)
class GeminiBuilder:
    """Makes the bodies of requests to ``streamGenerateContent``.

    Args:
        dialect: How contents are written.
        settings: Members merged last.
    """

    dialect: GeminiDialect
    settings: Mapping[str, Any] = attrs.field(factory=dict[str, Any])
    _encoder: HistoryEncoder = attrs.field(init=False)
    _others: list[bytes] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._encoder = HistoryEncoder(self.dialect)
        self._others = [encode(tool) for tool in self.settings.get("tools", [])]

    def build(self, request: Request) -> bytes:
        """The body for ``request``, in UTF-8."""
        history = self._encoder.encode(request.items, request.continue_from)
        # As in ``BodyBuilder``: a greeting needs no tools, and calls want declarations.
        offered = request.tools if history.spoken else ()
        tools: list[bytes] = []
        mode = "" if offered else "NONE"
        if offered:
            tools = declare(offered, "gemini")
            mode = "" if request.first else "AUTO"
        elif history.called and (request.declared or not self._others):
            tools = declare(request.declared, "gemini") or [stub(name, "gemini") for name in sorted(history.called)]
        members = [b'"contents":[', *history.pieces, b"]"]
        if notes := "\n\n".join(note for note in history.notes if note.strip()):
            members.append(b',"systemInstruction":{"parts":[%b]}' % self.dialect.text(notes))
        declared = [b'{"functionDeclarations":[%b]}' % b",".join(tools)] if tools else []
        if declared or self._others:
            members.append(b',"tools":[%b]' % b",".join([*declared, *self._others]))
        rest = _with_mode(self.settings, mode if tools else "", declared=bool(tools))
        return b"".join((b"{", *members, *((b",", encode(rest)[1:-1]) if rest else ()), b"}"))


def _with_mode(settings: Mapping[str, Any], mode: str, *, declared: bool) -> dict[str, Any]:
    """``settings`` with the mode of calling: forced ones hold once, and none without declarations."""
    rest = {name: value for name, value in settings.items() if name not in {"tools", "model"}}
    config = as_dict(as_dict(rest.get("toolConfig")).get("functionCallingConfig"))
    if not declared:
        others = {name: value for name, value in as_dict(rest.get("toolConfig")).items() if name != _CALLING}
        rest.pop("toolConfig", None)
        return {**rest, "toolConfig": others} if others else rest
    if mode == "NONE" or (mode == "AUTO" and config.get("mode", "AUTO") not in {"AUTO", "NONE"}):
        rest["toolConfig"] = {**as_dict(rest.get("toolConfig")), _CALLING: {"mode": mode}}
    return rest


_CALLING: Final = "functionCallingConfig"
