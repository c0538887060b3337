"""The ``messages`` of Chat Completions, for every server that has them.

    Entry ──▶ ChatDialect(quirks) ──▶ {"role":…, "content":…, "tool_calls":…}

Calls of one response, and its text, go into one assistant message; then come the results. What a server
wants beyond that is a field of its ``ChatQuirks``; each one is a case that a real server refused.

Fillers exist in the request only, never in the conversation. Tests: tests/test_provider_requests.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from micdrop_agent.images import images_of
from micdrop_agent.messages import Message
from micdrop_agent.providers.attachments import Attachments
from micdrop_agent.providers.json_text import encode, encode_text
from micdrop_agent.providers.quirks import ChatQuirks
from micdrop_agent.providers.requests.fillers import ACKNOWLEDGED, CONTINUE_NOTE, GO_ON, OPENING
from micdrop_agent.providers.requests.history import Dialect, encode_call, message, together
from micdrop_agent.providers.requests.wire_ids import as_made, nine_alphanumerics, up_to_40

if TYPE_CHECKING:
    from collections.abc import Mapping

    from micdrop_agent.images import Image
    from micdrop_agent.messages import ToolCall
    from micdrop_agent.providers.requests.history import State
    from micdrop_agent.providers.requests.pairing import CallGroup, Entry

__all__ = ["ChatDialect"]

_CALL: Final = b'{"id":%b,"type":"function","function":{"name":%b,"arguments":%b}'
_ID_FORMS: Final = {"as made": as_made, "at most 40": up_to_40, "nine": nine_alphanumerics}


class ChatDialect(Dialect):
    """The ``messages`` of one server.

    Args:
        quirks: What this server wants.
        attachments: What it attached to its calls, and wants back.
    """

    __slots__ = ("_attachments", "_quirks")

    def __init__(self, quirks: ChatQuirks | None = None, attachments: Attachments | None = None) -> None:
        self._quirks = ChatQuirks() if quirks is None else quirks
        self._attachments = Attachments() if attachments is None else attachments

    def id_form(self, call_id: str) -> str:
        """See ``Dialect.id_form``; what this server made is sent back as it came, if ids may have any length."""
        form = _ID_FORMS[self._quirks.call_ids]
        return call_id if form is not nine_alphanumerics and self._attachments.made(call_id) else form(call_id)

    def add(self, state: State, entry: Entry) -> None:
        """System notes may have to go to the front; what stood around one may be neighbours then."""
        if self._quirks.system_first and isinstance(entry, Message) and entry.role == "system":
            state.notes.append(entry.content)
        else:
            super().add(state, entry)

    def grouped(self, entries: list[Entry]) -> list[Entry]:
        """Calls whose server wants them together, as it made them: each is stored with its result after it."""
        return together(entries, self._attachments)

    def texts(self, state: State, messages: list[Message]) -> None:
        """One message for each, or one for all where turns have to alternate."""
        role = messages[0].role
        self._before(state, role)
        if self._quirks.alternate:
            images = [image for each in messages for image in images_of(each)]
            state.put(role, self.said(role, "\n".join(each.content for each in messages), images))
        else:
            super().texts(state, messages)

    def image_part(self, image: Image) -> bytes:
        """A picture, or its URL."""
        if not self._quirks.images:
            return super().image_part(image)
        return b'{"type":"image_url","image_url":{"url":%b}}' % encode_text(image.url)

    def calls(self, state: State, group: CallGroup) -> None:
        """One assistant message with the words before and between the calls, then the results."""
        words = self._words_of(state, group)
        self._before(state, "assistant")
        calls: list[bytes] = []
        results: list[bytes] = []
        for each in group.calls:
            call_id = state.ids.next(each.call.tool_call_id)
            extra = self._of_call(state, each.call, first=not calls)
            calls.append(encode_call(each, _CALL, call_id) + _joined(extra) + b"}")
            results.append(
                b'{"role":"tool","tool_call_id":%b,"content":%b}' % (encode_text(call_id), encode_text(each.output))
            )
        thoughts = self._attachments.of_calls((each.call for each in group.calls), self._quirks.thoughts)
        # An empty string beside calls is refused by some servers, a missing member by others.
        content = encode_text("\n".join(words)) if words else b"null"
        state.put(
            "assistant",
            b'{"role":"assistant","content":%b,"tool_calls":[%b]%b}' % (content, b",".join(calls), _joined(thoughts)),
        )
        for result in results:
            state.put("tool", result)

    def _words_of(self, state: State, group: CallGroup) -> list[str]:
        """The words that go into the message of the calls; all others are encoded before it."""
        if not self._quirks.words_with_calls:
            self.flush(state)
            if group.texts:
                self.texts(state, list(group.texts))
            return []
        words = [each.content for each in (*_own_words(state), *group.texts)]
        self.flush(state)
        return words

    def _of_call(self, state: State, call: ToolCall, *, first: bool) -> Mapping[str, bytes]:
        found = self._attachments.of_call(call, self._quirks.call_members)
        placeholder = self._quirks.unsigned_call
        if found or not (first and placeholder and state.current):
            return found
        # Gemini validates the calls of the current turn; the first of each step has to be signed.
        return {name: encode(value) for name, value in placeholder.items()}

    def _before(self, state: State, role: str) -> None:
        """Whatever has to stand before a message of ``role``."""
        quirks = self._quirks
        if state.last == "tool" and role != "assistant" and not quirks.user_after_tool:
            state.put("assistant", message("assistant", ACKNOWLEDGED))
        elif role == "assistant" and not state.last and quirks.alternate:
            state.put("user", message("user", OPENING))

    def finish(self, state: State, continue_from: str | None) -> None:
        """A request has a message from somebody; a server that goes on is asked by the user."""
        quirks = self._quirks
        if continue_from and quirks.alternate:
            # What the assistant said before stands in one message with what it was cut in.
            continue_from = "\n".join([each.content for each in _own_words(state)] + [continue_from])
        self.flush(state)
        if continue_from:
            self._continue(state, continue_from)
        elif not state.spoken:
            state.put("user", message("user", OPENING))
        if not quirks.ends_with_assistant and not (continue_from and quirks.prefix):
            self._hand_over(state)

    def _continue(self, state: State, text: str) -> None:
        if self._quirks.prefix:
            state.put("assistant", b'{"role":"assistant","content":%b,"prefix":true}' % encode_text(text))
            return
        self._before(state, "assistant")
        state.put("assistant", message("assistant", text))
        state.put("user", message("user", f"({CONTINUE_NOTE})"))

    def _hand_over(self, state: State) -> None:
        """Templates take a last message of the assistant as the beginning of the answer; Mistral refuses one."""
        if state.last not in {"user", "tool"}:
            self._before(state, "user")
            state.put("user", message("user", GO_ON))

    def start(self, state: State) -> bytes:
        """All system notes, in order, in one message."""
        return message("system", "\n\n".join(state.notes)) if state.notes else b""


def _own_words(state: State) -> list[Message]:
    """What the model said right before its calls; taken out of what waits."""
    if state.waiting and state.waiting[0].role == "assistant":
        words, state.waiting = state.waiting, []
        return words
    return []


def _joined(members: Mapping[str, bytes]) -> bytes:
    """Members of an object, each with a comma before it."""
    return b"".join(b',"%b":%b' % (name.encode(), value) for name, value in members.items())
